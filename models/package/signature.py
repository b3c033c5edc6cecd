"""The tensors of the two graphs: names, dtypes, axes, and how each cache tensor moves.

Export writes graphs with these names and the server binds them by these names; nothing else is agreed between the two.

Encoder graph, one pass over padded sources:

    ids      int64 [sentences, source]      lengths  int32 [sentences], tokens of each source before the padding
    memory   float [sentences, source, width], the last hidden states
    cross_k0, cross_v0, ...  float [sentences, heads, source, head_dim], keys and values of every decoder layer

Decoder graph, one token of each live row:

    ids          int64 [rows]     the token each row produced last
    positions    int32 [rows]     its position: what is cached before it
    total        int32 []         max(positions) + 1
    source_last  int32 [rows]     index of each row's last source token
    source_total int32 []         max(source_last) + 1
    ranks        int64 [k]        only its length is read: how many candidates are wanted of each row
    candidates   int64 [rows, k]  the k most probable next tokens, best first
    log_probs    fp32 [rows, k]   their log-probabilities

and the cache tensors below. A `present` output is bound to the buffer of its `past` input: the graph writes in place.
Tensors of "float" have the package's precision: fp32, fp16 or bf16.

A package with a shortlist (`models.package.shortlist`) has a third graph, the output layer, which gives rows of itself:

    ids           int64 [tokens]
    output_weight float [tokens, width]     output_bias   float [tokens]

Its decoder graph takes such rows, and what each row may choose of them. The candidates are places too:

    output_weight, output_bias
    allowed       int64 [rows, places]      places of the tokens that a row may have next, then -1s; at least k of both

So a step computes the logits of the tokens that matter to some row. Log-probabilities are over a row's own tokens
alone. Where they are fewer than k, place 0 fills up the candidates, so improbable that no search takes it. `allowed`
belongs to a source: it moves when its row does.
"""

from dataclasses import dataclass
from enum import Enum

from models.config import ModelConfig

ENCODER_INPUTS = ("ids", "lengths")
MEMORY = "memory"
DECODER_INPUTS = ("ids", "positions", "total", "source_last", "source_total", "ranks")
DECODER_OUTPUTS = ("candidates", "log_probs")
OUTPUT_INPUTS = ("ids",)
OUTPUT_ROWS = ("output_weight", "output_bias")
"""What the graph of the output layer gives, and what the decoder graph of the same package takes."""
ALLOWED = "allowed"
NO_TOKEN = -1
"""Fills up a row of `allowed`."""

MAX_CANDIDATES = 64
"""Most candidates a decoder graph gives of a row (fewer where the vocabulary has fewer tokens)."""


class Kind(Enum):
    """How a cache tensor moves when hypotheses are reordered."""

    SELF = "self"
    """Belongs to a hypothesis: goes where the hypothesis goes, up to its position. [rows, heads, capacity, head_dim]"""
    CROSS = "cross"
    """Belongs to a source: moves when its row does. [rows, heads, source_capacity, head_dim]"""
    STATE = "state"
    """Of a recurrence. Belongs to a hypothesis: goes where the hypothesis goes, whole. 0 at first. [rows, width]

    Writing in place is safe because the graph reads it only to compute, number by number, what it writes. A step that
    is made twice, or made and not wanted, spoils it."""


@dataclass(frozen=True)
class CacheTensor:
    """One key, value or state tensor of one decoder layer."""

    kind: Kind
    past: str
    """Name of the input that holds what is cached."""

    @property
    def present(self) -> str:
        """Name of the output with what is cached after the step."""
        return f"present_{self.past}"

    @property
    def last(self) -> str:
        """CROSS only: name of the input [rows, 1, width] with the key or value of each row's last source token.

        GroupQueryAttention always appends one token. Given the last source token again, at the place where it already
        stands, it attends to the source exactly, however long the other rows' sources are.
        """
        return f"last_{self.past}"


def cache_tensors(config: ModelConfig, kind: Kind) -> list[CacheTensor]:
    """The cache tensors of one kind: key and value of layer 0, key and value of layer 1, ..., or a state of each.

    A decoder has those of self-attention or states, never both.
    """
    recurrent = config.decoder_cell == "ssru"
    parts = {Kind.SELF: () if recurrent else ("_k", "_v"), Kind.CROSS: ("_k", "_v"), Kind.STATE: ("",) * recurrent}
    return [
        CacheTensor(kind, f"{kind.value}{part}{layer}")
        for layer in range(config.decoder_layers)
        for part in parts[kind]
    ]


def target_tensors(config: ModelConfig) -> list[CacheTensor]:
    """The cache tensors that belong to a hypothesis."""
    return cache_tensors(config, Kind.SELF) + cache_tensors(config, Kind.STATE)


def encoder_outputs(config: ModelConfig) -> list[str]:
    return [MEMORY, *(tensor.past for tensor in cache_tensors(config, Kind.CROSS))]
