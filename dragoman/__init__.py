"""Client of Dragoman, a server that translates text with Transformer models over gRPC."""

from dragoman.channel import TlsOptions
from dragoman.client import AsyncClient, Client
from dragoman.errors import (
    Aborted,
    Cancelled,
    DeadlineExceeded,
    DragomanError,
    FieldViolation,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
    Unreachable,
)
from dragoman.results import (
    Decoding,
    EarlyStopping,
    Embedding,
    FinishReason,
    Health,
    Hypothesis,
    Model,
    TextDelta,
    Timings,
    Translation,
)
from dragoman.wire import TranslationOptions

__version__ = "0.1.0"

__all__ = [
    "Aborted",
    "AsyncClient",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "Decoding",
    "DragomanError",
    "EarlyStopping",
    "Embedding",
    "FieldViolation",
    "FinishReason",
    "Health",
    "Hypothesis",
    "Internal",
    "InvalidArgument",
    "Model",
    "NotFound",
    "ResourceExhausted",
    "TextDelta",
    "Timings",
    "TlsOptions",
    "Translation",
    "TranslationOptions",
    "Unavailable",
    "Unimplemented",
    "Unreachable",
    "__version__",
]
