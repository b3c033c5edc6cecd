"""The layers of a Transformer, made of sublayers: each gets hidden states [tokens, width] and gives what they become.

Those of the decoder go two ways: `over_target`, the teacher-forced pass, and `step`, one token of each row against what
is cached.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention import attention
from models.attention.nodes import Scoring
from models.attention.rotary import Turn
from models.config import Activation, ModelConfig
from models.norms import Residual

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swish": F.silu,
}


class FeedForward(nn.Module):
    """activation(x W1 + b1) W2 + b2. Gated: (activation(x Wg) * (x Wv)) W2, where W1 is Wg beside Wv."""

    def __init__(self, config: ModelConfig, inner: int) -> None:
        super().__init__()
        self.gated = config.gated
        self.up = nn.Linear(config.width, 2 * inner if config.gated else inner, bias=config.bias)
        self.down = nn.Linear(inner, config.width, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.residual = Residual(config)

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, width] -> [tokens, width]."""
        inner: Tensor = self.up(self.residual.enter(x))
        if self.gated:
            gate, value = inner.chunk(2, dim=1)
            inner = self.activation(gate) * value
        else:
            inner = self.activation(inner)
        return self.residual.leave(x, self.down(inner))


class SelfAttention(nn.Module):
    """Attention within one side. Queries, keys and values come from one packed projection."""

    def __init__(self, config: ModelConfig, heads: int) -> None:
        super().__init__()
        self.heads = heads
        inner = config.inner(heads)
        self.qkv = nn.Linear(config.width, 3 * inner, bias=config.bias)
        self.out = nn.Linear(inner, config.width, bias=config.bias)
        self.scale = None if config.scale_scores else 1.0
        self.residual = Residual(config)

    def over_source(
        self,
        x: Tensor,
        lengths: Tensor,
        packing: attention.Packing | None = None,
        bias: Tensor | None = None,
        turn: Turn | None = None,
    ) -> Tensor:
        """x: [sentences * source, width], or [tokens, width] if packed; lengths: [sentences].

        bias: of scores, broadcast to [sentences, heads, source, source]; turn: of queries and keys
        """
        scoring, qkv = Scoring(self.scale, bias), self.qkv(self.residual.enter(x))
        if turn is not None:
            qkv = turn.of(qkv, self.heads)
        attended = attention.self_attention(qkv, lengths, self.heads, packing, scoring)
        return self.residual.leave(x, self.out(attended))

    def over_target(self, x: Tensor, sentences: int, bias: Tensor | None = None) -> Tensor:
        """x: [sentences * target, width]; bias: of scores, broadcast to [sentences, heads, target, target]."""
        scoring = Scoring(self.scale, bias)
        attended = attention.causal_attention(self.qkv(self.residual.enter(x)), sentences, self.heads, scoring)
        return self.residual.leave(x, self.out(attended))

    def step(
        self, x: Tensor, past: Sequence[Tensor], positions: Tensor, total: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """x: [rows, width]; past: keys and values [rows, heads, capacity, head_dim]; bias: of `cached_attention`."""
        qkv, scoring = self.qkv(self.residual.enter(x)), Scoring(self.scale, bias)
        attended, *present = attention.cached_attention(qkv, None, past, positions, total, self.heads, scoring)
        return self.residual.leave(x, self.out(attended)), present


class Recurrence(nn.Module):
    """The simpler simple recurrent unit (SSRU), in place of a decoder's self-attention.

        f = sigmoid(x Wf + bf)      c = f c' + (1 - f) x W      y = relu(c)

    c' is the state after the token before, 0 before the first. A row keeps no more of its target than that. Kim et al.
    2019, "From Research to Production and Back: Ludicrously Fast Neural Machine Translation", section 3.1.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.forget = nn.Linear(config.width, config.width)
        self.candidate = nn.Linear(config.width, config.width, bias=False)
        self.longest = config.max_positions
        self.residual = Residual(config)

    def over_target(self, x: Tensor, sentences: int, bias: Tensor | None = None) -> Tensor:
        """x: [sentences * target, width]. There are no scores to have a bias."""
        kept, added = (part.unflatten(0, (sentences, -1)) for part in self._gate(x))
        exported = torch.onnx.is_in_onnx_export()
        states = _scan_by_doubling(kept, added, self.longest) if exported else _scan(kept, added)
        return self.residual.leave(x, states.flatten(0, 1).relu())

    def step(
        self, x: Tensor, past: Sequence[Tensor], positions: Tensor, total: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """x: [rows, width]; past: the state [rows, width]. Where it stands does not matter to it."""
        keep, add = self._gate(x)
        state = keep * past[0] + add
        return self.residual.leave(x, state.relu()), [state]

    def _gate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Which share of the state is kept, and what is added to it: both [tokens, width]."""
        entered = self.residual.enter(x)
        keep = self.forget(entered).sigmoid()
        return keep, (1 - keep) * self.candidate(entered)


def _scan(kept: Tensor, added: Tensor) -> Tensor:
    """The states kept[t] state[t - 1] + added[t] of every position t: all [sentences, target, width]."""
    state = torch.zeros_like(added[:, 0])
    states = []
    for keep, add in zip(kept.unbind(1), added.unbind(1), strict=True):
        state = torch.addcmul(add, keep, state)
        states.append(state)
    return torch.stack(states, 1)


def _scan_by_doubling(kept: Tensor, added: Tensor, longest: int) -> Tensor:
    """The same of at most `longest` positions, in as many operations for any number of them.

    After each round, a position knows what twice as many before it make of it. Hillis and Steele 1986, "Data Parallel
    Algorithms".
    """
    target = added.shape[1]
    for reach in (1 << round_ for round_ in range((longest - 1).bit_length())):
        # What lies before the first position is 0: nothing is kept of it, and nothing added.
        before_added, before_kept = (F.pad(part, (0, 0, reach, 0))[:, :target] for part in (added, kept))
        added = kept * before_added + added
        kept = kept * before_kept
    return added


class CrossAttention(nn.Module):
    """Attention to the source. Its keys and values are projected once for all layers, see `Transformer.cross_kv`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.decoder_heads
        inner = config.inner(self.heads)
        self.query = nn.Linear(config.width, inner, bias=config.bias)
        self.out = nn.Linear(inner, config.width, bias=config.bias)
        self.scoring = Scoring(None if config.scale_scores else 1.0)
        self.residual = Residual(config)

    def over_target(self, x: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> Tensor:
        """x: [sentences * target, width]; key, value: [sentences, heads, source, head_dim]."""
        query = self.query(self.residual.enter(x))
        attended = attention.cross_attention(query, key, value, lengths, self.heads, self.scoring)
        return self.residual.leave(x, self.out(attended))

    def step(
        self, x: Tensor, last: Sequence[Tensor], past: Sequence[Tensor], positions: Tensor, total: Tensor
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """x: [rows, width]; last: key and value of each row's last source token [rows, 1, inner], at `positions`.

        Returns the queries [rows, inner] second.
        """
        query = self.query(self.residual.enter(x))
        attended, *present = attention.cached_attention(query, last, past, positions, total, self.heads, self.scoring)
        return self.residual.leave(x, self.out(attended)), query, present


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config, config.encoder_heads)
        self.feed_forward = FeedForward(config, config.encoder_ffn)

    def forward(
        self,
        x: Tensor,
        lengths: Tensor,
        packing: attention.Packing | None = None,
        bias: Tensor | None = None,
        turn: Turn | None = None,
    ) -> Tensor:
        """[sentences * source, width] -> [sentences * source, width], or of packed sources [tokens, width]."""
        output: Tensor = self.feed_forward(self.attention.over_source(x, lengths, packing, bias, turn))
        return output


class DecoderLayer(nn.Module):
    """Self-attention or a recurrence, attention to the source, and feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.recurrent = config.decoder_cell == "ssru"
        if self.recurrent:
            self.recurrence = Recurrence(config)
        else:
            self.attention = SelfAttention(config, config.decoder_heads)
        self.cross = CrossAttention(config)
        self.feed_forward = FeedForward(config, config.decoder_ffn)

    @property
    def cell(self) -> SelfAttention | Recurrence:
        """What sees the target so far."""
        return self.recurrence if self.recurrent else self.attention
