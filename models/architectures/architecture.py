"""What training, export and its verification need of a model. An architecture is a class of these five methods.

    encode_source   a source -> hidden states, and what cache tensors start with: what encoder.onnx computes
    decode_target   the teacher-forced pass over whole targets: training, and the reference that all else is held to
    decode_step     one token of each row against the cache: what decoder.onnx computes
    logits          hidden states of the decoder -> the vocabulary
    output_rows     rows of that output layer

The cache tensors are declared beside the shape, torch-free (`models.package.signature`); an engine knows those alone.
Tables of tokens are padded to whole blocks, see `models.best_tokens`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.best_tokens import NEVER, padded_size
from models.config import ModelShape

Decoded = tuple[Tensor, Tensor | None, list[Tensor]]
"""Of one step: what `logits` takes [rows, width]; if it attends to the source, the last layer's queries [rows, inner]
or, where scores are no products with keys, the scores themselves [rows, source]; and what is cached afterwards, in the
order in which it is declared."""


class Architecture(nn.Module, ABC):
    """A model that translates. Its tables of tokens and its output layer are here."""

    config: ModelShape
    decoder_norm: nn.Module
    """Before the output layer."""

    def __init__(self, config: ModelShape, scale_embedding: bool = False) -> None:
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
        self.embedding_scale = math.sqrt(width) if scale_embedding else 1.0

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """The teacher-forced pass.

        source_ids: int64 [sentences, source]; source_lengths: [sentences]
        target_ids: int64 [sentences, target], beginning with the decoder's start token
        Returns logits [sentences, target, vocabulary]: at position t, of token t + 1.
        """
        _, starts = self.encode_source(source_ids, source_lengths)
        hidden = self.decode_target(starts, source_lengths, target_ids)
        logits: Tensor = self.logits(hidden[-1]).unflatten(0, target_ids.shape)
        return logits[:, :, : self.config.target_vocab_size]

    @abstractmethod
    def encode_source(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, list[Tensor]]:
        """ids: int64 [sentences, source]; lengths: [sentences], tokens before the padding.

        Returns the last hidden states [sentences, source, width]; and of each cache tensor that has one, in their
        order, its start: a state [sentences, width], or [sentences, heads, source, head_dim].
        """

    @abstractmethod
    def decode_target(self, starts: Sequence[Tensor], source_lengths: Tensor, target_ids: Tensor) -> list[Tensor]:
        """The teacher-forced pass without the output layer. starts: what `encode_source` gave; `forward` has the rest.

        Returns hidden states [sentences * target, width], the last of them what `logits` takes.
        """

    @abstractmethod
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
    ) -> Decoded:
        """One token of each row against the cache. `models.package.signature` describes every tensor.

        target_past, cross_past: the cache tensors of hypotheses, and of sources
        slots: to a node of ONNX Runtime, the places that relative positions are wanted of. None: the whole capacity
        """

    def logits(self, x: Tensor, output: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """[tokens, width] -> [tokens, padded vocabulary], or of some tokens only.

        output: those tokens' rows of the output layer: weights [output tokens, width] and biases [output tokens]
        """
        weight, bias = output or (self.output_weight, self.output_bias)
        return F.linear(self.decoder_norm(x), weight, bias)

    def output_rows(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Of these tokens, what `logits` takes as `output`."""
        return self.output_weight.index_select(0, ids), self.output_bias.index_select(0, ids)

    def _embed(self, ids: Tensor, table: Tensor) -> Tensor:
        # Scaled after the look-up: a scaled copy of the table would double the package and is not measurably faster.
        x = F.embedding(ids, table)
        return x if self.embedding_scale == 1.0 else x * self.embedding_scale

    def _initialise(self) -> None:
        """Random weights to train from: normal embeddings of unit scale after `embedding_scale`, Glorot matrices."""
        # Each once, and in this order: sets of tensors have that of their addresses.
        for table in dict.fromkeys((self.source_embedding, self.target_embedding, self.output_weight)):
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
