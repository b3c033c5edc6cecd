"""What crosses the border between the event loop and the engine threads."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from engine.links import Link
from engine.targets import TargetRules, rules_of_request
from models.decoding import Decoding, TokenIds
from models.encoding import Encoding, Vectors

log = logging.getLogger(__name__)


class FinishReason(Enum):
    """Why a hypothesis ended."""

    END_TOKEN = "end_token"
    LENGTH = "length"
    STOP_STRING = "stop_string"


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One finished target."""

    token_ids: tuple[int, ...]
    """The end token included, if there is one."""
    score: float
    """sum(log p) / len(token_ids)^length_penalty, and what `coverage_penalty` adds."""
    finish_reason: FinishReason
    log_probs: tuple[float, ...] = ()
    """Of each token, as the score has them, if they were wanted. What was forced and not searched for has 0."""
    links: tuple[Link, ...] = ()
    """From its tokens to those of the source, if they were wanted. The tokens before it have none."""
    attention: NDArray[np.float16] | None = field(default=None, compare=False)
    """Of the decoder to the source [layers, heads, target, source], if it was wanted. That before its tokens is not."""
    log_prob: float = 0.0
    """sum(log p), as the score has it."""


PHASES = ("tokenize", "queue", "encode", "decode", "detokenize")
"""The parts of a content's way, in order: fields of Timings."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds; see `dragoman.v1.Timings`."""

    queue: float
    encode: float
    decode: float
    steps: int
    mean_batch_rows: float = 0.0
    tokenize: float = 0.0
    """This and the next are the translator's to add."""
    detokenize: float = 0.0

    @property
    def total(self) -> float:
        return self.queue + self.encode + self.decode

    def __add__(self, other: "Timings") -> "Timings":
        """Of one run after another."""
        steps = self.steps + other.steps
        rows = self.steps * self.mean_batch_rows + other.steps * other.mean_batch_rows
        return Timings(
            self.queue + other.queue,
            self.encode + other.encode,
            self.decode + other.decode,
            steps,
            rows / steps if steps else 0.0,
            self.tokenize + other.tokenize,
            self.detokenize + other.detokenize,
        )

    def around(self, tokenize: float, detokenize: float) -> "Timings":
        """The same, and what was before and after."""
        return Timings(self.queue, self.encode, self.decode, self.steps, self.mean_batch_rows, tokenize, detokenize)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Target tokens that are settled: no later step can change them. Only sent to a request that streams."""

    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer to a `Translate`: its hypotheses, best first."""

    hypotheses: tuple[Hypothesis, ...]
    timings: Timings
    vectors: Vectors | None = None
    """Of the source, if they were wanted too."""
    source_attention: NDArray[np.float16] | None = field(default=None, compare=False)
    """Of the encoder [layers, heads, source, source], if it was wanted."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The answer to an `Encode`."""

    vectors: Vectors
    timings: Timings


@dataclass(frozen=True, slots=True)
class Scored:
    """The answer to a `Score`."""

    log_probs: tuple[tuple[float, ...], ...]
    """Of every token of every target, after those before it."""
    timings: Timings
    """`decode` is the pass over the targets. It takes no steps."""


@dataclass(frozen=True, slots=True)
class Probed:
    """The answer to a `Probe`."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The engine could not answer."""

    error: Exception


Event = Tokens | Finished | Encoded | Scored | Probed | Failed


@dataclass(slots=True, eq=False)
class Request:
    """One source on its way through the engine. `deliver` is called on an engine thread."""

    source_ids: tuple[int, ...]
    """The end token included."""
    deliver: Callable[[Event], None]
    arrived: float = field(default_factory=time.perf_counter)
    trace_id: str = ""
    """Of the trace that its call belongs to, if that is recorded: the exemplar of its timings."""
    cancelled: bool = False
    """Nobody waits for the answer any more; a running batch sees it at its next step."""
    told: bool = False
    """It was sent tokens, which cannot be taken back."""
    withdraw: "Callable[[Request], None] | None" = None
    """Takes it out of the queue that it is in. Set by the runner."""
    deadline: float | None = None
    """Nobody waits for the answer after it, by time.perf_counter."""
    caller: str = ""
    """Who shares the engine with other callers."""
    bulk: bool = False
    """Its caller has others that are more urgent."""
    cost: float = 0.0
    """Seconds of a worker that it is expected to take. Set by the queue."""
    most_rows: float = inf
    """In a batch of more rows it would be late. Set by the queue."""
    rows: int = field(default=0, init=False)
    """Of the running batch that it may come to occupy."""

    @property
    def given_tokens(self) -> int:
        """Target tokens that are given, and computed all at once."""
        return 0

    @property
    def named_tokens(self) -> TokenIds:
        """Tokens that its target may have, whether a shortlist gives them or not."""
        return ()

    def cancel(self) -> None:
        """Nobody waits for the answer any more. Called on the event loop."""
        self.cancelled = True
        if self.withdraw is not None:
            self.withdraw(self)


@dataclass(slots=True, eq=False)
class Probe(Request):
    """Wants to see that the decoder decodes. For an engine that has nothing else to do."""


@dataclass(slots=True, eq=False)
class Encode(Request):
    """Wants the source's vectors. Needs no row."""

    encoding: Encoding = field(default=Encoding(), kw_only=True)


@dataclass(slots=True, eq=False)
class Score(Request):
    """Wants to know how probable targets of the source are. Needs no row."""

    targets: tuple[tuple[int, ...], ...] = field(kw_only=True)
    """None is empty. Their end tokens included, if those count."""
    fed_ids: tuple[int, ...] = field(kw_only=True)
    """What all of them begin after, the start token first."""

    @property
    def given_tokens(self) -> int:
        return sum(map(len, self.targets))


@dataclass(slots=True, eq=False)
class Translate(Request):
    """Wants the source's translation, and perhaps its vectors too, of the same encoder run."""

    decoding: Decoding = field(kw_only=True)
    rules: TargetRules = field(kw_only=True)
    """Given: what holds for every target of its model and language. Then for this one, with its options."""
    stream: bool = field(default=False, kw_only=True)
    encoding: Encoding | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.rules = rules_of_request(self.rules.after(self.source_ids), self.decoding)
        if self.decoding.max_new_tokens_ratio:
            most = max(1, ceil(self.decoding.max_new_tokens_ratio * len(self.source_ids)))
            self.decoding = replace(self.decoding, max_new_tokens=min(self.decoding.max_new_tokens, most))
        self.rows = self.decoding.rows

    @property
    def named_tokens(self) -> TokenIds:
        """Tokens that its target may have, whether a shortlist gives them or not."""
        return self.decoding.named_tokens


def tell(request: Request, error: Exception) -> None:
    """Answers a request with an error."""
    try:
        request.deliver(Failed(error))
    except Exception:  # whoever listens is gone; the others are answered all the same
        log.exception("a request could not be told what became of it")


def nobody(event: Event) -> None:
    """Listens where whoever asked has an answer already, or has left."""
