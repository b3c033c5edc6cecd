"""Vectors of texts: what a caller may choose of them, and what it gets."""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.request import Timings
from models.encoding import Encoding, Numbers, Pooling, Vectors, conflict
from server.catalog.served_model import ServedModel
from server.errors import OptionOutOfRange, PoolingNotSupported, PoolingsConflict, VectorsTooLarge
from server.translation.sources import SourceText


@dataclass(frozen=True, slots=True)
class EncodingOptions:
    """What a caller chooses. What is None or empty is left to the model."""

    poolings: tuple[Pooling, ...] = ()
    dimensions: int | None = None
    normalize: bool | None = None
    numbers: Numbers = Numbers.FLOAT32
    truncate: bool = False
    """Cut the end off what is too long."""
    prompt: str | None = None
    """The name of a prompt of the model. Empty: none."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of one content, or those of its tokens."""

    vectors: Vectors
    source_tokens: int
    timings: Timings
    truncated: bool


def resolve_encoding(chosen: EncodingOptions, model: ServedModel) -> Encoding:
    """Fills in what is left open. Raises PoolingsConflict, PoolingNotSupported or OptionOutOfRange."""
    own = model.encoding
    poolings = chosen.poolings or own.poolings
    if fault := conflict(poolings):
        raise PoolingsConflict(poolings, fault)
    if (lacking := next((i for i, pooling in enumerate(poolings) if pooling not in own.offered), None)) is not None:
        raise PoolingNotSupported(f"poolings[{lacking}]", poolings[lacking], own.offered)
    encoding = Encoding(
        poolings,
        own.dimensions if chosen.dimensions is None else chosen.dimensions,
        own.normalize if chosen.normalize is None else chosen.normalize,
        chosen.numbers,
        model.dense if poolings == own.poolings else (),
        model.attention,
    )
    most = encoding.most_values(model.width)
    if chosen.dimensions is not None and not 1 <= chosen.dimensions <= most:
        raise OptionOutOfRange("dimensions", chosen.dimensions, 1, most)
    return encoding


def check_size(encoding: Encoding, sources: Iterable[SourceText], model: ServedModel) -> None:
    """Raises VectorsTooLarge where a message has no room for what becomes of the sources."""
    size = sum(encoding.size_bytes(len(source.token_ids), model.width) for source in sources)
    if size > model.max_message_bytes:
        raise VectorsTooLarge(size, model.max_message_bytes)
