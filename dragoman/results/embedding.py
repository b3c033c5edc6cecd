"""Vectors of texts."""

from dataclasses import dataclass, field

from dragoman.results.translation import Timings


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of one text; with `poolings=["none"]` the vectors of its tokens, one after the other."""

    values: tuple[float, ...]
    """All of them, as far as the type they were sent in tells. Empty of "binary"."""
    source_tokens: int
    """Tokens that were encoded: those of the prompt and of the text, special tokens included."""
    timings: Timings = field(compare=False)
    shape: tuple[int, ...]
    """(values,), or (source_tokens, values) of tokens."""
    truncated: bool
    """The end of the text was cut off."""
    data: bytes
    """As it was sent in "float16" (little-endian), "int8" and "binary" (most significant bit first), else empty."""
    scales: tuple[float, ...]
    """Of "int8": a scale for each vector, which its values were divided by."""


@dataclass(frozen=True, slots=True)
class EncodingDefaults:
    """How a model encodes where a call sets nothing. See `EncodingOptions`."""

    poolings: tuple[str, ...]
    dimensions: int
    normalize: bool
    prompts: dict[str, str] = field(hash=False)
    """What may be put before a text, by the name that calls use."""
    prompt: str
    """The name of the one that is put there. Empty: none."""
    offered: tuple[str, ...] = ()
    """What a call may choose in place of `poolings`. Empty: an older server, which does not say."""
