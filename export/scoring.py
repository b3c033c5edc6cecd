"""What target.onnx and log_probs.onnx compute: how probable given targets are, by one teacher-forced pass."""

import torch
from torch import Tensor, nn

from models.transformer import Transformer


class TargetGraph(nn.Module):
    """What target.onnx computes."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, hidden: Tensor, lengths: Tensor, sources: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """See models.package.signature."""
        # Projected once for each source, and then handed to every target of it.
        cross = self.model.cross_keys_values(hidden.to(self.model.target_embedding.dtype))
        cross = [part.index_select(0, sources) for part in cross]
        lengths = lengths.index_select(0, sources)
        [*_, last], query = self.model.decode_against(cross, lengths, ids)
        return last.view(*ids.shape, -1).float(), self._attention(query.view(*ids.shape, -1), cross[-2], lengths)

    def _attention(self, query: Tensor, key: Tensor, lengths: Tensor) -> Tensor:
        """query: [targets, target, inner]; key: [targets, heads, source, head_dim]."""
        _, heads, source, head_dim = key.shape
        query = query.unflatten(2, (heads, head_dim)).transpose(1, 2) * self.model.config.score_scale
        seen = torch.arange(source, device=key.device) < lengths.view(-1, 1, 1, 1)
        return torch.where(seen, query @ key.transpose(2, 3), -torch.inf).softmax(3).float()


class LogProbsGraph(nn.Module):
    """What log_probs.onnx computes."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, hidden: Tensor, wanted: Tensor) -> Tensor:
        """See models.package.signature."""
        hidden = hidden.to(self.model.target_embedding.dtype)
        log_probs = self.model.logits(hidden).float().log_softmax(1)
        return log_probs.gather(1, wanted.unsqueeze(1)).squeeze(1)
