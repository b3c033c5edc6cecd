"""What the graphs compute that look at given targets, by one teacher-forced pass, and at sources."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from export.quantization.model import QuantizedTransformer
from models.architectures.prefix.model import Prefix
from models.attention.attention import Compared, compared
from models.transformer import Transformer


class TargetGraph(nn.Module):
    """What target.onnx computes."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, hidden: Tensor, lengths: Tensor, sources: Tensor, ids: Tensor) -> list[Tensor]:
        """See models.package.signature."""
        # Projected once for each source, and then handed to every target of it.
        cross = self.model.cross_keys_values(hidden.to(self.model.target_embedding.dtype))
        of_targets = [part.index_select(0, sources) for part in cross]
        with compared() as layers:
            *_, last = self.model.decode_target(of_targets, lengths.index_select(0, sources), ids)
        queries = [layer.query.float() for layer in layers if layer.lengths is not None]
        within = told([layer for layer in layers if layer.lengths is None])
        return [last.view(*ids.shape, -1).float(), *queries, *(key.float() for key in cross[::2]), *within]


def told(layers: Sequence[Compared]) -> list[Tensor]:
    """What tells where tokens look among each other, see `models.package.declared.graphs.SelfAttention`."""
    pairs = [part.float() for layer in layers for part in (layer.query, layer.key)]
    # A side whose layers have one bias has it once.
    biases = {id(bias): bias.float() for layer in layers if (bias := layer.scoring.bias) is not None}
    return [*pairs, *biases.values()]


class SourceAttentionGraph(nn.Module):
    """What source_attention.onnx computes."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """See models.package.signature."""
        with compared() as layers:
            self.model.encode(ids, lengths)
        return torch.stack([layer.weights() for layer in layers], 1)


class StackAttentionGraph(nn.Module):
    """What source_attention.onnx computes of one stack."""

    def __init__(self, model: Prefix) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """See models.package.signature."""
        with compared() as layers:
            states = self.model.read_on(ids, lengths)
        return [torch.stack([layer.weights() for layer in layers], 1), states.view(*ids.shape, -1).float()]


class LogProbsGraph(nn.Module):
    """What log_probs.onnx computes."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, hidden: Tensor, wanted: Tensor) -> Tensor:
        """See models.package.signature."""
        hidden = hidden.to(self.model.target_embedding.dtype)
        log_probs = self.model.logits(hidden).float().log_softmax(1)
        chosen = log_probs.gather(1, wanted.unsqueeze(1))
        if isinstance(self.model, QuantizedTransformer):
            chosen = chosen + self.model.not_finite(hidden)
        return chosen.squeeze(1)
