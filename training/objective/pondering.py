"""Translation by a model whose tokens halt: how deep they go has a price (Graves 2016, section 2)."""

from torch import Tensor

from models.transformer import Transformer
from training.data.batches import Batch
from training.objective.objective import Translation


class PonderingTranslation(Translation):
    """Learns the target text with as few depths as it takes."""

    model: Transformer

    def __init__(self, model: Transformer, label_smoothing: float, price: float) -> None:
        """price: of a depth of a source token and of one of a target token, beside a token's cross-entropy."""
        super().__init__(model, label_smoothing)
        self._price = price

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """See `Translation`."""
        loss, plain = super().forward(batch)
        return (loss + self._price * self._cost(batch) * batch.is_token.sum() if self.training else loss), plain

    def _cost(self, batch: Batch) -> Tensor:
        """Of the last pass: the mean over source tokens, and that over target tokens."""
        source, target = self.model.encoder_halting.take_cost(), self.model.decoder_halting.take_cost()
        return source[batch.source_is_token.flatten()].mean() + target[batch.is_token.flatten()].mean()
