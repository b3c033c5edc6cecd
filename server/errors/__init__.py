"""Every error that a caller can be told of.

    ServerError                     expected: the server is well, and says why it does not answer
    ├── InvalidRequest              INVALID_ARGUMENT    the request can never be answered as it is; names the field
    │   ├── EmptyContents           EMPTY_CONTENTS
    │   ├── BlankContent            BLANK_CONTENT
    │   ├── TooManyContents         TOO_MANY_CONTENTS
    │   ├── SourceTooLong           SOURCE_TOO_LONG
    │   ├── HtmlTooLong             HTML_TOO_LONG
    │   ├── DocumentBroken          DOCUMENT_BROKEN
    │   ├── NoTargets               NO_TARGETS
    │   ├── TooManyTargets          TOO_MANY_TARGETS
    │   ├── TargetTooLong           TARGET_TOO_LONG
    │   ├── LanguageNotSupported    LANGUAGE_NOT_SUPPORTED
    │   ├── OptionOutOfRange        OPTION_OUT_OF_RANGE
    │   ├── OptionsConflict         OPTIONS_CONFLICT
    │   ├── PhraseNotWritable       PHRASE_NOT_WRITABLE
    │   ├── PoolingNotSupported     POOLING_NOT_SUPPORTED
    │   ├── PoolingsConflict        POOLINGS_CONFLICT
    │   ├── PromptNotSupported      PROMPT_NOT_SUPPORTED
    │   ├── TooManyLabels           TOO_MANY_LABELS
    │   ├── LabelTooLong            LABEL_TOO_LONG
    │   └── InvalidMessage          INVALID_MESSAGE
    ├── NoCredentials               UNAUTHENTICATED     NO_CREDENTIALS
    ├── InvalidToken                UNAUTHENTICATED     INVALID_TOKEN
    ├── CallerNotListed             PERMISSION_DENIED   CALLER_NOT_LISTED
    ├── ScopeMissing                PERMISSION_DENIED   SCOPE_MISSING
    ├── QuotaExceeded               RESOURCE_EXHAUSTED  QUOTA_EXCEEDED
    ├── MessageTooLarge             RESOURCE_EXHAUSTED  MESSAGE_TOO_LARGE
    ├── TooManyWatchers             RESOURCE_EXHAUSTED  TOO_MANY_WATCHERS
    ├── DocumentTooLarge            RESOURCE_EXHAUSTED  DOCUMENT_TOO_LARGE
    ├── VectorsTooLarge             RESOURCE_EXHAUSTED  VECTORS_TOO_LARGE
    ├── LabelsTooLarge              RESOURCE_EXHAUSTED  LABELS_TOO_LARGE
    ├── AttentionTooLarge           RESOURCE_EXHAUSTED  ATTENTION_TOO_LARGE
    ├── OutOfMemory                 RESOURCE_EXHAUSTED  OUT_OF_MEMORY
    ├── ModelNotFound               NOT_FOUND           MODEL_NOT_FOUND
    ├── ServiceNotFound             NOT_FOUND           SERVICE_NOT_FOUND
    ├── DoesNotTranslate            FAILED_PRECONDITION DOES_NOT_TRANSLATE
    ├── DoesNotClassify             FAILED_PRECONDITION DOES_NOT_CLASSIFY
    ├── DoesNotScore                FAILED_PRECONDITION DOES_NOT_SCORE
    ├── OptionNotOffered            FAILED_PRECONDITION OPTION_NOT_OFFERED
    ├── ExtraMissing                FAILED_PRECONDITION EXTRA_MISSING
    ├── CandidateRefused            FAILED_PRECONDITION CANDIDATE_REFUSED
    ├── ReloadUnderWay              ABORTED             RELOAD_UNDER_WAY
    ├── RequestStalled              ABORTED             REQUEST_STALLED
    ├── StreamPaused                ABORTED             STREAM_PAUSED
    ├── StreamStalled               ABORTED             STREAM_STALLED
    ├── Unavailable                 UNAVAILABLE         the same request may be answered later, or by another server
    │   ├── Overloaded              OVERLOADED
    │   ├── TooManyCalls            TOO_MANY_CALLS
    │   ├── RequestsTooLarge        REQUESTS_TOO_LARGE
    │   ├── WouldBeLate             WOULD_BE_LATE
    │   ├── Draining                DRAINING
    │   └── EngineStopped           ENGINE_STOPPED
    ├── EngineFailed                INTERNAL            ENGINE_FAILED
    ├── Quarantined                 INTERNAL            QUARANTINED
    └── NotFinite                   INTERNAL            NOT_FINITE
    InternalError                   INTERNAL            INTERNAL: unexpected, a defect of the server; its log has more

The right-hand names are the `reason` of google.rpc.ErrorInfo. They, and the keys of `metadata`, keep their meaning.
"""

from server.errors.caller import CallerNotListed, InvalidToken, NoCredentials, QuotaExceeded, ScopeMissing
from server.errors.document import DocumentBroken, DocumentTooLarge
from server.errors.error import ServerError, Status, quoted
from server.errors.model import (
    CandidateRefused,
    DoesNotClassify,
    DoesNotScore,
    DoesNotTranslate,
    ExtraMissing,
    ModelNotFound,
    OptionNotOffered,
    ReloadUnderWay,
    ServiceNotFound,
)
from server.errors.request import (
    AttentionTooLarge,
    BlankContent,
    EmptyContents,
    HtmlTooLong,
    InvalidMessage,
    InvalidRequest,
    LabelsTooLarge,
    LabelTooLong,
    LanguageNotSupported,
    MessageTooLarge,
    NoTargets,
    OptionOutOfRange,
    OptionsConflict,
    PhraseNotWritable,
    PoolingNotSupported,
    PoolingsConflict,
    PromptNotSupported,
    RequestStalled,
    SourceTooLong,
    StreamPaused,
    StreamStalled,
    TargetTooLong,
    TooManyContents,
    TooManyLabels,
    TooManyTargets,
    VectorsTooLarge,
)
from server.errors.state import (
    Draining,
    EngineFailed,
    EngineStopped,
    InternalError,
    NotFinite,
    OutOfMemory,
    Overloaded,
    Quarantined,
    RequestsTooLarge,
    TooManyCalls,
    TooManyWatchers,
    Unavailable,
    WouldBeLate,
)

__all__ = [
    "AttentionTooLarge",
    "BlankContent",
    "CallerNotListed",
    "CandidateRefused",
    "DocumentBroken",
    "DocumentTooLarge",
    "DoesNotClassify",
    "DoesNotScore",
    "DoesNotTranslate",
    "Draining",
    "EmptyContents",
    "EngineFailed",
    "EngineStopped",
    "ExtraMissing",
    "HtmlTooLong",
    "InternalError",
    "InvalidMessage",
    "InvalidRequest",
    "InvalidToken",
    "LabelTooLong",
    "LabelsTooLarge",
    "LanguageNotSupported",
    "MessageTooLarge",
    "ModelNotFound",
    "NoCredentials",
    "NoTargets",
    "NotFinite",
    "OptionNotOffered",
    "OptionOutOfRange",
    "OptionsConflict",
    "OutOfMemory",
    "Overloaded",
    "PhraseNotWritable",
    "PoolingNotSupported",
    "PoolingsConflict",
    "PromptNotSupported",
    "Quarantined",
    "QuotaExceeded",
    "ReloadUnderWay",
    "RequestStalled",
    "RequestsTooLarge",
    "ScopeMissing",
    "ServerError",
    "ServiceNotFound",
    "SourceTooLong",
    "Status",
    "StreamPaused",
    "StreamStalled",
    "TargetTooLong",
    "TooManyCalls",
    "TooManyContents",
    "TooManyLabels",
    "TooManyTargets",
    "TooManyWatchers",
    "Unavailable",
    "VectorsTooLarge",
    "WouldBeLate",
    "quoted",
]
