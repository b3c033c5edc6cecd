"""The Transformer encoder-decoder (Vaswani et al. 2017, "Attention Is All You Need"), the only model there is here.

Three ways through the same weights:

    forward      the teacher-forced pass over whole targets: training, and the reference that the others are held to
    encode       source -> memory -> cross-attention keys and values of every decoder layer
    decode_step  one token of each row against the KV cache: what is exported and served

Activations are two-dimensional, [tokens, width], so that every linear layer is one matrix product (one Gemm, exported).
Vocabularies are padded to whole blocks, see `models.best_tokens`.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models import attention
from models.best_tokens import NEVER, padded_size
from models.config import Activation, ModelConfig

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class Residual(nn.Module):
    """Where a sublayer's input is normalised: before it ("pre"), or after it is added ("post")."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.width, eps=config.norm_epsilon)
        self.dropout = nn.Dropout(0.0)

    def enter(self, x: Tensor) -> Tensor:
        """What the sublayer gets."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """The sublayer's input and output, joined."""
        y = self.dropout(y)
        return x + y if self.pre else self.norm(x + y)


class FeedForward(nn.Module):
    """activation(x W1 + b1) W2 + b2."""

    def __init__(self, config: ModelConfig, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(config.width, inner), nn.Linear(inner, config.width)
        self.activation = ACTIVATIONS[config.activation]
        self.residual = Residual(config)

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, width] -> [tokens, width]."""
        inner: Tensor = self.activation(self.up(self.residual.enter(x)))
        return self.residual.leave(x, self.down(inner))


class SelfAttention(nn.Module):
    """Attention within one side. Queries, keys and values come from one packed projection."""

    def __init__(self, config: ModelConfig, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(config.width, 3 * config.width), nn.Linear(config.width, config.width)
        self.residual = Residual(config)

    def over_source(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x: [sentences * source, width]; lengths: [sentences]."""
        attended = attention.self_attention(self.qkv(self.residual.enter(x)), lengths, self.heads)
        return self.residual.leave(x, self.out(attended))

    def over_target(self, x: Tensor, sentences: int) -> Tensor:
        """x: [sentences * target, width]."""
        attended = attention.causal_attention(self.qkv(self.residual.enter(x)), sentences, self.heads)
        return self.residual.leave(x, self.out(attended))

    def step(
        self, x: Tensor, past: tuple[Tensor, Tensor], positions: Tensor, total: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x: [rows, width]; past: keys and values [rows, heads, capacity, head_dim]."""
        qkv = self.qkv(self.residual.enter(x))
        attended, keys, values = attention.cached_attention(qkv, None, past, positions, total, self.heads)
        return self.residual.leave(x, self.out(attended)), keys, values


class CrossAttention(nn.Module):
    """Attention to the source. Its keys and values are projected once for all layers, see `Transformer.cross_kv`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.decoder_heads
        self.query, self.out = nn.Linear(config.width, config.width), nn.Linear(config.width, config.width)
        self.residual = Residual(config)

    def over_target(self, x: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> Tensor:
        """x: [sentences * target, width]; key, value: [sentences, heads, source, head_dim]."""
        query = self.query(self.residual.enter(x))
        return self.residual.leave(x, self.out(attention.cross_attention(query, key, value, lengths, self.heads)))

    def step(
        self, x: Tensor, last: tuple[Tensor, Tensor], past: tuple[Tensor, Tensor], positions: Tensor, total: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x: [rows, width]; last: key and value of each row's last source token [rows, 1, width], at `positions`."""
        query = self.query(self.residual.enter(x))
        attended, keys, values = attention.cached_attention(query, last, past, positions, total, self.heads)
        return self.residual.leave(x, self.out(attended)), keys, values


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config, config.encoder_heads)
        self.feed_forward = FeedForward(config, config.encoder_ffn)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """[sentences * source, width] -> [sentences * source, width]."""
        output: Tensor = self.feed_forward(self.attention.over_source(x, lengths))
        return output


class DecoderLayer(nn.Module):
    """Self-attention, attention to the source, and feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config, config.decoder_heads)
        self.cross = CrossAttention(config)
        self.feed_forward = FeedForward(config, config.decoder_ffn)


class Transformer(nn.Module):
    """The model. See the module's docstring for the three ways through it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        source_size, target_size = padded_size(config.source_vocab_size), padded_size(config.target_vocab_size)
        self.source_embedding = nn.Parameter(torch.empty(source_size, width))
        self.target_embedding = (
            self.source_embedding if config.share_embeddings else nn.Parameter(torch.empty(target_size, width))
        )
        self.output_weight = (
            self.target_embedding if config.tie_output else nn.Parameter(torch.empty(target_size, width))
        )
        # There even without `output_bias`: it keeps the padded ids from winning.
        self.output_bias = nn.Parameter(torch.zeros(target_size), requires_grad=config.output_bias)
        self.source_positions, self.target_positions = (position_table(config) for _ in range(2))
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.cross_kv = nn.Linear(width, 2 * width * config.decoder_layers)
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(width, eps=config.norm_epsilon) if config.norm == "pre" else nn.Identity() for _ in range(2)
        )
        self.dropout = nn.Dropout(0.0)  # training sets the probability of this one and those of the residuals
        self.embedding_scale = math.sqrt(width) if config.scale_embedding else 1.0
        self._initialise()

    def _initialise(self) -> None:
        """Random weights to train from: normal embeddings of unit scale after `embedding_scale`, Glorot matrices."""
        for table in {self.source_embedding, self.target_embedding, self.output_weight}:
            nn.init.normal_(table, std=self.config.width**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        with torch.no_grad():
            self.source_embedding[self.config.source_vocab_size :] = 0
            self.target_embedding[self.config.target_vocab_size :] = 0
            self.output_bias[self.config.target_vocab_size :] = NEVER

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """The teacher-forced pass.

        source_ids: int64 [sentences, source]; source_lengths: [sentences]
        target_ids: int64 [sentences, target], beginning with the decoder's start token
        Returns logits [sentences, target, vocabulary]: at position t, of token t + 1.
        """
        hidden = self.decode(self.encode(source_ids, source_lengths), source_lengths, target_ids)
        logits: Tensor = self.logits(hidden[-1]).unflatten(0, target_ids.shape)
        return logits[:, :, : self.config.target_vocab_size]

    def encode(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """The last hidden states (memory) [sentences, source, width] of ids [sentences, source]."""
        sentences, source = ids.shape
        x = self.dropout(self._embed(ids, self.source_embedding) + self.source_positions[:source]).flatten(0, 1)
        for layer in self.encoder:
            x = layer(x, lengths)
        memory: Tensor = self.encoder_norm(x)
        return memory.view(sentences, source, self.config.width)

    def decode(self, memory: Tensor, source_lengths: Tensor, target_ids: Tensor) -> list[Tensor]:
        """The teacher-forced pass without the output projection. `forward` describes the arguments.

        Returns hidden states [sentences * target, width]: each layer's after its self-attention, and the last ones.
        """
        sentences, target = target_ids.shape
        cross = self.cross_keys_values(memory)
        x = self.dropout(self._embed(target_ids, self.target_embedding) + self.target_positions[:target]).flatten(0, 1)
        hidden = []
        for index, layer in enumerate(self.decoder):
            assert isinstance(layer, DecoderLayer)
            x = layer.attention.over_target(x, sentences)
            hidden.append(x)
            x = layer.cross.over_target(x, cross[2 * index], cross[2 * index + 1], source_lengths)
            x = layer.feed_forward(x)
        return [*hidden, x]

    def cross_keys_values(self, memory: Tensor) -> list[Tensor]:
        """Key, value of decoder layer 0, key, value of layer 1, ...: each [sentences, heads, source, head_dim]."""
        sentences, source, width = memory.shape
        heads, head_dim = self.config.decoder_heads, self.config.decoder_head_dim
        parts = self.cross_kv(memory.flatten(0, 1)).split(width, dim=1)
        return [part.view(sentences, source, heads, head_dim).transpose(1, 2) for part in parts]

    def decode_step(
        self,
        ids: Tensor,
        positions: Tensor,
        total: Tensor,
        source_last: Tensor,
        source_total: Tensor,
        self_past: Sequence[Tensor],
        cross_past: Sequence[Tensor],
        cross_last: Sequence[Tensor],
    ) -> tuple[Tensor, list[Tensor]]:
        """One token of each row against the cache. `models.signature` describes every tensor.

        Returns logits [rows, padded vocabulary], and the self- and cross-attention keys and values cached afterwards.
        """
        x = self._embed(ids, self.target_embedding) + F.embedding(positions, self.target_positions)
        self_present: list[Tensor] = []
        cross_present: list[Tensor] = []
        for index, layer in enumerate(self.decoder):
            assert isinstance(layer, DecoderLayer)
            pair = slice(2 * index, 2 * index + 2)
            x, *present = layer.attention.step(x, _pair(self_past[pair]), positions, total)
            self_present += present
            x, *present = layer.cross.step(
                x, _pair(cross_last[pair]), _pair(cross_past[pair]), source_last, source_total
            )
            cross_present += present
            x = layer.feed_forward(x)
        return self.logits(x), self_present + cross_present

    def logits(self, x: Tensor) -> Tensor:
        """[tokens, width] -> [tokens, padded vocabulary]."""
        return F.linear(self.decoder_norm(x), self.output_weight, self.output_bias)

    def _embed(self, ids: Tensor, table: Tensor) -> Tensor:
        # Scaled after the look-up: a scaled copy of the table would double the package and is not measurably faster.
        x = F.embedding(ids, table)
        return x if self.embedding_scale == 1.0 else x * self.embedding_scale


def position_table(config: ModelConfig) -> nn.Parameter:
    """The position embeddings [max_positions, width]: learned, or fixed sinusoids.

    The sinusoids have all sines first and then all cosines, as in tensor2tensor, Marian and Hugging Face.
    """
    if config.positions == "learned":
        return nn.Parameter(torch.randn(config.max_positions, config.width) * config.width**-0.5)
    half = config.width // 2
    frequency = torch.pow(10000.0, -torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(config.max_positions, dtype=torch.float64).unsqueeze(1) * frequency
    return nn.Parameter(torch.cat([angle.sin(), angle.cos()], dim=1).float(), requires_grad=False)


def _pair(tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    key, value = tensors
    return key, value
