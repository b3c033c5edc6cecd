"""Client of Dragoman, a server that translates text with Transformer models over gRPC."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.async_client import AsyncClient
    from dragoman.channel import TlsOptions
    from dragoman.client import Client
    from dragoman.errors import (
        Aborted,
        Cancelled,
        DeadlineExceeded,
        DragomanError,
        FailedPrecondition,
        FieldViolation,
        Internal,
        InvalidArgument,
        NotFound,
        PermissionDenied,
        ResourceExhausted,
        Unauthenticated,
        Unavailable,
        Unimplemented,
        Unreachable,
    )
    from dragoman.results.classification import Classification, Label, LabelledSpan
    from dragoman.results.document import DocumentProgress, TranslatedDocument
    from dragoman.results.embedding import Embedding, EncodingDefaults
    from dragoman.results.scores import Scores, TargetScore
    from dragoman.results.server import Health, Model, Reloaded, ShadowReport
    from dragoman.results.translation import (
        Alignment,
        Attention,
        FinishReason,
        Guard,
        Hypothesis,
        Leg,
        Link,
        Reuse,
        Sentence,
        Span,
        TargetToken,
        TextDelta,
        Timings,
        Translation,
    )
    from dragoman.v1.decoding_options import Decoding
    from dragoman.wire.documents import DocumentFormat, DocumentOptions
    from dragoman.wire.encoding import EncodingOptions
    from dragoman.wire.labels import ClassifyOptions
    from dragoman.wire.messages import TranslationOptions
    from dragoman.wire.options import EarlyStopping, Phrase
    from dragoman.wire.scoring import ScoreOptions

__version__ = "0.1.0"

__all__ = [
    "Aborted",
    "Alignment",
    "AsyncClient",
    "Attention",
    "Cancelled",
    "Classification",
    "ClassifyOptions",
    "Client",
    "DeadlineExceeded",
    "Decoding",
    "DocumentFormat",
    "DocumentOptions",
    "DocumentProgress",
    "DragomanError",
    "EarlyStopping",
    "Embedding",
    "EncodingDefaults",
    "EncodingOptions",
    "FailedPrecondition",
    "FieldViolation",
    "FinishReason",
    "Guard",
    "Health",
    "Hypothesis",
    "Internal",
    "InvalidArgument",
    "Label",
    "LabelledSpan",
    "Leg",
    "Link",
    "Model",
    "NotFound",
    "PermissionDenied",
    "Phrase",
    "Reloaded",
    "ResourceExhausted",
    "Reuse",
    "ScoreOptions",
    "Scores",
    "Sentence",
    "ShadowReport",
    "Span",
    "TargetScore",
    "TargetToken",
    "TextDelta",
    "Timings",
    "TlsOptions",
    "TranslatedDocument",
    "Translation",
    "TranslationOptions",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unreachable",
    "__version__",
]

_HOMES = (
    "async_client",
    "channel",
    "client",
    "errors",
    "results.classification",
    "results.document",
    "results.embedding",
    "results.scores",
    "results.server",
    "results.translation",
    "v1.decoding_options",
    "wire.documents",
    "wire.encoding",
    "wire.labels",
    "wire.messages",
    "wire.options",
    "wire.scoring",
)

if not TYPE_CHECKING:  # who would take any name for one of the module

    def __getattr__(name: str) -> object:
        """A public name, at its first use: the command line sets gRPC up, and tells of itself, before gRPC comes."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        for home in _HOMES:
            found = vars(import_module(f"dragoman.{home}"))
            globals().update({public: found[public] for public in __all__ if public in found})
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
