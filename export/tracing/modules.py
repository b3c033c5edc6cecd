"""What the graphs of encoder and decoder compute, of a model of any architecture."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from export.quantization.model import QuantizedTransformer
from export.tracing.scoring import told
from export.tracing.screened import ScreenedOutput, screenable
from models.architectures.architecture import Architecture
from models.attention.attention import compared
from models.attention.nodes import takes_ours, top_tokens
from models.best_tokens import best_allowed_tokens, best_tokens, block_size
from models.transformer import Transformer


class EncoderGraph(nn.Module):
    """What encoder.onnx computes."""

    def __init__(self, model: Architecture, attends: bool = False) -> None:
        """attends: it tells where tokens look."""
        super().__init__()
        self.model, self.attends = model, attends

    def forward(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """See models.package.signature."""
        with compared() as layers:
            hidden, starts = self.model.encode_source(ids, lengths)
        return [hidden, *starts, *(told(layers) if self.attends else [])]


class PackedEncoderGraph(nn.Module):
    """What packed_encoder.onnx computes."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, positions: Tensor, padded: Tensor, places: Tensor, lengths: Tensor) -> Tensor:
        """See models.package.signature."""
        return self.model.encode_packed(ids, positions, padded, places, lengths)


class DecoderGraph(nn.Module):
    """What decoder.onnx computes."""

    def __init__(self, model: Architecture, screened: bool = False) -> None:
        super().__init__()
        self.model = model
        self.block = block_size(model.config.target_vocab_size)
        self.screened = ScreenedOutput(screenable(model)) if screened else None

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        total: Tensor,
        source_last: Tensor,
        source_total: Tensor,
        ranks: Tensor,
        target_past: list[Tensor],
        cross_past: Sequence[Tensor] = (),
        cross_last: Sequence[Tensor] = (),
        choice: tuple[Tensor, Tensor, Tensor] | None = None,
        slots: Tensor | None = None,
    ) -> list[Tensor]:
        """See models.package.signature. `choice`: with a shortlist, weights, biases and what is allowed."""
        hidden, query, present = self.model.decode_step(
            ids, positions, total, source_last, source_total, target_past, cross_past, cross_last, slots
        )
        k = ranks.shape[0]
        queries = [] if query is None else [query]
        if self.screened is not None:
            hidden = self.model.decoder_norm(hidden)
            ids, log_probs, certain, normaliser = self.screened(self.model, hidden, k)
            return [ids, log_probs, *present, certain, normaliser, hidden, *queries]
        if choice is None:
            logits = self.model.logits(hidden)
            ids, log_probs = top_tokens(logits, ranks) if takes_ours() else best_tokens(logits, k, self.block)
            if isinstance(self.model, QuantizedTransformer):
                log_probs = log_probs + self.model.not_finite(hidden)
            return [ids, log_probs, *present, logits, *queries]
        weight, bias, allowed = choice
        # A row more, which nobody reads: where weights are not packed in advance, ONNX Runtime multiplies one row in a
        # way of its own, and a row's last bits would depend on whether there are others.
        logits = self.model.logits(functional.pad(hidden, (0, 0, 0, 1)), (weight, bias))
        return [*best_allowed_tokens(logits, allowed, k), *present, logits, *queries]


class OutputGraph(nn.Module):
    """What output.onnx computes."""

    def __init__(self, model: Architecture) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """See models.package.signature."""
        return self.model.output_rows(ids)
