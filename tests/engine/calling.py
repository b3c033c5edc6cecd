"""A runner over a decoder that copies, calls of it, and what they are told."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from typing import TypeVar

from prometheus_client import CollectorRegistry

from engine.observer import Unobserved
from engine.request import Encode, Event, Failed, Finished, FinishReason, Request, Timings, Tokens, Translate
from engine.runner import Runner
from engine.supervision.policy import UNSUPERVISED, Supervision
from models.decoding import Decoding
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from tests.fakes import WAIT_S, CopyDecoder, CopySource, rules_of

T = TypeVar("T")

END = 0
RULES = rules_of(END)
SOURCE = (4, 5, 6, END)
ENDLESS = (7,)
"""A source without an end token is copied for ever."""


class Call:
    """A request, and what its caller is told."""

    def __init__(
        self, source_ids: Sequence[int] = SOURCE, num_beams: int = 1, stream: bool = False, caller: str = ""
    ) -> None:
        decoding = Decoding(num_beams, 1, 10**9, 1.0, False)
        self._events: Queue[Event] = Queue()
        self.request: Request = Translate(
            tuple(source_ids), self._events.put, decoding=decoding, rules=RULES, stream=stream
        )
        self.request.caller = caller

    @classmethod
    def for_vector(cls, caller: str = "") -> "Call":
        call = cls()
        call.request = Encode(SOURCE, call._events.put, caller=caller)
        return call

    def answer(self) -> Event:
        """The last event, for which it waits."""
        while isinstance(event := self._events.get(timeout=WAIT_S), Tokens):
            pass
        return event

    @property
    def target(self) -> tuple[int, ...]:
        """What the request is answered with."""
        answer = self.answer()
        assert isinstance(answer, Finished), answer
        return answer.hypotheses[0].token_ids

    @property
    def error(self) -> Exception:
        """What the request fails with."""
        answer = self.answer()
        assert isinstance(answer, Failed), answer
        return answer.error

    @property
    def told_nothing(self) -> bool:
        """Nothing has come, or nothing more."""
        return self._events.empty()


class Broken(Unobserved):
    """A listener that fails when a translation is finished."""

    def finished(
        self, reason: FinishReason, timings: Timings, source_tokens: int, target_tokens: int, trace_id: str
    ) -> None:
        raise RuntimeError("broken")


@dataclass
class RecordingDecoder(CopyDecoder):
    encoded: list[tuple[int, ...]] = field(default_factory=list)
    """Every source, in the order in which they were encoded."""
    together: list[int] = field(default_factory=list)
    """Tokens of each encoder run."""
    closed: int = 0

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[CopySource]:
        encoded = super().encode(sources, named)
        self.encoded += map(tuple, sources)
        self.together.append(sum(map(len, sources)))
        return encoded

    def close(self) -> None:
        self.closed += 1


class Service:
    """A runner over a decoder whose gate is closed."""

    def __init__(self, workers: int, max_rows: int, supervision: Supervision, express_rows: int) -> None:
        self.registry = CollectorRegistry()
        self.decoder = RecordingDecoder()
        self.gate = self.decoder.gate
        self.gate.close()
        metrics = ModelMetrics(ModelFamilies(self.registry), "copy")
        self.runner = Runner(
            self.decoder, max_rows, workers, metrics, supervision=supervision, express_rows=express_rows
        )

    def submit(self, *calls: Call) -> None:
        """All at once: no worker takes one of them before the others have come."""
        with self.runner._work:
            for call in calls:
                self.runner.submit(call.request)

    def sample(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(name, {"model": "copy", **labels})
        assert value is not None, f"no sample {name} {labels}"
        return value

    def step_until(self, condition: Callable[[], bool], workers: int) -> None:
        """Lets single steps through, of whichever worker, while all of them are held."""
        for _ in range(100):
            if condition():
                return
            self.gate.let(1)
            self.gate.wait_until_held(workers)
        raise AssertionError("100 steps did not do it")

    @property
    def live_rows(self) -> list[float]:
        """Of the first two workers."""
        return [self.sample("dragoman_rows_live", worker=worker) for worker in "01"]

    @property
    def waiting(self) -> int:
        """Calls in the queue. The metric tells the same."""
        assert self.runner.waiting == self.sample("dragoman_requests_waiting")
        return self.runner.waiting


@contextmanager
def serving(
    workers: int = 1, max_rows: int = 4, supervision: Supervision = UNSUPERVISED, express_rows: int = 0
) -> Iterator[Service]:
    service = Service(workers, max_rows, supervision, express_rows)
    with service.runner:
        try:
            yield service
        finally:
            service.gate.open()


def calls_of(count: int, first: int = 10) -> list[Call]:
    """Greedy calls with a source each."""
    return [Call((first + index, END)) for index in range(count)]


def sources_of(calls: Sequence[Call]) -> list[tuple[int, ...]]:
    return [call.request.source_ids for call in calls]
