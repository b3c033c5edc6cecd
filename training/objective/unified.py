"""Three objectives for one stack: translation, a language model, and a cloze test (Dong et al. 2019, section 2.3)."""

import torch
from torch import Tensor

from models.architectures.prefix.model import Prefix
from training.config import Mixture
from training.data.batches import Batch
from training.objective import losses
from training.objective.objective import Translation


class Unified(Translation):
    """Learns the target text, given its source; and beside that, with other masks, both texts by themselves.

    causal   each token of a target, after those before it alone: the left-to-right language model
    cloze    tokens of a source that are hidden, among all others: in their place is the padding's token
    """

    model: Prefix

    def __init__(self, model: Prefix, label_smoothing: float, mixture: Mixture) -> None:
        super().__init__(model, label_smoothing)
        self._mixture = mixture

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The weighted loss, and the cross-entropy of the translation alone; summed, as `Translation` gives them."""
        loss, plain = super().forward(batch)
        if self.training and self._mixture.causal:
            loss = loss + self._mixture.causal * self._causal(batch)
        if self.training and self._mixture.cloze:
            loss = loss + self._mixture.cloze * self._cloze(batch)
        return loss, plain

    def _causal(self, batch: Batch) -> Tensor:
        hidden, _ = self.model.read(batch.inputs, batch.is_token.sum(1), "causal")
        return self._loss(hidden[batch.is_token.flatten()], batch.labels[batch.is_token])

    def _cloze(self, batch: Batch) -> Tensor:
        ids, model = batch.source_ids, self.model
        hidden_ones = batch.source_is_token & (torch.rand(ids.shape, device=ids.device) < self._mixture.hidden)
        hidden, _ = model.read(ids.masked_fill(hidden_ones, model.config.pad_id), batch.source_lengths, "both")
        return self._loss(hidden[hidden_ones.flatten()], ids[hidden_ones])

    def _loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """hidden: [tokens, width]; labels: [tokens]."""
        config = self.model.config
        logits = self.model.logits(hidden)[:, : config.target_vocab_size]
        return losses.cross_entropy(logits, labels, self.label_smoothing, config.pad_id)[0]
