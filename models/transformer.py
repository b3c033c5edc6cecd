"""The Transformer encoder-decoder (Vaswani et al. 2017, "Attention Is All You Need"), the only model there is here.

Three ways through the same weights:

    forward      the teacher-forced pass over whole targets: training, and the reference that the others are held to
    encode       source -> hidden states -> cross-attention keys and values of every decoder layer
    decode_step  one token of each row against the KV cache: what is exported and served

Activations are two-dimensional, [tokens, width], so that every linear layer is one matrix product (one Gemm, exported).
Vocabularies are padded to whole blocks, see `models.best_tokens`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.attention import Packing
from models.best_tokens import NEVER, padded_size
from models.config import ModelConfig
from models.layers import DecoderLayer, EncoderLayer, make_norm
from models.relative import RelativeBias


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
        if config.positions != "none":
            self.source_positions = position_table(config)
            if config.decoder_layers:
                self.target_positions = position_table(config)
        if config.relative != "none":
            self.source_relative = RelativeBias(config, config.encoder_layers, config.encoder_heads, both_ways=True)
            if config.decoder_layers:
                self.target_relative = RelativeBias(config, config.decoder_layers, config.decoder_heads)
        self.encoder_embedding_norm, self.decoder_embedding_norm = (
            nn.Identity() if kind == "none" else make_norm(config)
            for kind in (config.encoder_embedding_norm, config.decoder_embedding_norm)
        )
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        if config.decoder_layers:
            cross = 2 * config.inner(config.decoder_heads) * config.decoder_layers
            self.cross_kv = nn.Linear(width, cross, bias=config.bias)
        self.encoder_norm, self.decoder_norm = (
            make_norm(config) if config.has_last_norm else nn.Identity() for _ in range(2)
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
                if module.bias is not None:
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
        """The last hidden states [sentences, source, width] of ids [sentences, source]."""
        sentences, source = ids.shape
        x = self._embed(ids, self.source_embedding)
        if self.config.positions != "none":
            x = x + self.source_positions[:source]
        return self._encoded(x.flatten(0, 1), lengths, source, None).view(sentences, source, self.config.width)

    def encode_packed(self, ids: Tensor, positions: Tensor, padded: Tensor, places: Tensor, lengths: Tensor) -> Tensor:
        """The same [tokens, width] of sources that lie one after another, of which only attention is padded.

        ids, positions: [tokens]; padded, places: see `models.attention.Packing`; lengths: [sentences]
        """
        x = self._embed(ids, self.source_embedding)
        if self.config.positions != "none":
            x = x + F.embedding(positions, self.source_positions)
        return self._encoded(x, lengths, padded.shape[1], Packing(padded, places))

    def _encoded(self, x: Tensor, lengths: Tensor, source: int, packing: Packing | None) -> Tensor:
        x = self.dropout(self.encoder_embedding_norm(x))
        biases: Sequence[Tensor | None] = [None] * len(self.encoder)
        if self.config.relative != "none":
            biases = self.source_relative.over(source)
        for layer, bias in zip(self.encoder, biases, strict=True):
            x = layer(x, lengths, packing, bias)
        hidden: Tensor = self.encoder_norm(x)
        return hidden

    def decode(self, encoded: Tensor, source_lengths: Tensor, target_ids: Tensor) -> list[Tensor]:
        """The teacher-forced pass without the output projection. `forward` describes the arguments.

        Returns hidden states [sentences * target, width]: each layer's after its self-attention or recurrence, and
        the last ones.
        """
        return self.decode_against(self.cross_keys_values(encoded), source_lengths, target_ids)

    def decode_against(self, cross: Sequence[Tensor], source_lengths: Tensor, target_ids: Tensor) -> list[Tensor]:
        """The same against the keys and values of the source, as `cross_keys_values` gives them."""
        sentences, target = target_ids.shape
        positions = None if self.config.positions == "none" else self.target_positions[:target]
        x = self.dropout(self._embed_target(target_ids, positions)).flatten(0, 1)
        biases: Sequence[Tensor | None] = [None] * len(self.decoder)
        if self.config.relative != "none":
            biases = self.target_relative.over(target)
        hidden = []
        for index, layer in enumerate(self.decoder):
            assert isinstance(layer, DecoderLayer)
            x = layer.cell.over_target(x, sentences, biases[index])
            hidden.append(x)
            x = layer.cross.over_target(x, cross[2 * index], cross[2 * index + 1], source_lengths)
            x = layer.feed_forward(x)
        return [*hidden, x]

    def cross_keys_values(self, encoded: Tensor) -> list[Tensor]:
        """Key, value of decoder layer 0, key, value of layer 1, ...: each [sentences, heads, source, head_dim]."""
        sentences, source, _ = encoded.shape
        heads, head_dim = self.config.decoder_heads, self.config.decoder_head_dim
        parts = self.cross_kv(encoded.flatten(0, 1)).split(heads * head_dim, dim=1)
        return [part.view(sentences, source, heads, head_dim).transpose(1, 2) for part in parts]

    def decode_step(
        self,
        ids: Tensor,
        positions: Tensor,
        total: Tensor,
        source_last: Tensor,
        source_total: Tensor,
        target_past: Sequence[Tensor],
        cross_past: Sequence[Tensor],
        cross_last: Sequence[Tensor],
        slots: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """One token of each row against the cache. `models.package.signature` describes every tensor.

        target_past: keys and values of self-attention, or states of recurrences
        slots: to a node of ONNX Runtime, the places that relative positions are wanted of. None: the whole capacity
        Returns what `logits` takes, [rows, width]; the last layer's queries to the source [rows, inner]; and what is
        cached afterwards: of the target, then of the source.
        """
        embedded = None if self.config.positions == "none" else F.embedding(positions, self.target_positions)
        x = self._embed_target(ids, embedded)
        biases: Sequence[Tensor | None] = [None] * len(self.decoder)
        if self.config.relative != "none":
            slots = torch.arange(target_past[0].shape[2], device=ids.device) if slots is None else slots
            biases = self.target_relative.of_rows(positions, slots)
        target_present: list[Tensor] = []
        cross_present: list[Tensor] = []
        share = len(target_past) // len(self.decoder)
        for index, layer in enumerate(self.decoder):
            assert isinstance(layer, DecoderLayer)
            x, present = layer.cell.step(x, target_past[index * share :][:share], positions, total, biases[index])
            target_present += present
            pair = slice(2 * index, 2 * index + 2)
            x, query, present = layer.cross.step(x, cross_last[pair], cross_past[pair], source_last, source_total)
            cross_present += present
            x = layer.feed_forward(x)
        return x, query, target_present + cross_present

    def logits(self, x: Tensor, output: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """[tokens, width] -> [tokens, padded vocabulary], or of some tokens only.

        output: those tokens' rows of the output layer: weights [output tokens, width] and biases [output tokens]
        """
        weight, bias = output or (self.output_weight, self.output_bias)
        return F.linear(self.decoder_norm(x), weight, bias)

    def output_rows(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Of these tokens, what `logits` takes as `output`."""
        return self.output_weight.index_select(0, ids), self.output_bias.index_select(0, ids)

    def _embed_target(self, ids: Tensor, positions: Tensor | None) -> Tensor:
        """What the first decoder layer gets. positions: the positions' embeddings, broadcast to the tokens'."""
        x = self._embed(ids, self.target_embedding)
        if self.config.decoder_embedding_norm == "tokens":
            normed: Tensor = self.decoder_embedding_norm(x)
            return normed if positions is None else normed + positions
        normed = self.decoder_embedding_norm(x if positions is None else x + positions)
        return normed

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
    return nn.Parameter(sinusoids(config.max_positions, config.width), requires_grad=False)


def sinusoids(positions: int, width: int) -> Tensor:
    """The fixed position embeddings [positions, width]."""
    angle = torch.arange(positions, dtype=torch.float64).unsqueeze(1) * frequencies(width)
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


def frequencies(width: int) -> Tensor:
    """Of the sinusoids: fp64 [width / 2]."""
    half = width // 2
    return torch.pow(10000.0, -torch.arange(half, dtype=torch.float64) / half)
