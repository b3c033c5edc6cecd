"""An engine with all that can be seen of it, and requests that come and go."""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp, fsum, log

import numpy as np
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from engine.batch.running_batch import RunningBatch
from engine.decoder import Ask, Found, Parents, TokenIds
from engine.devices.session import CPU
from engine.request import Event, Finished, FinishReason, Hypothesis, Tokens, Translate
from engine.targets import TargetRules
from models.decoding import Decoding
from server.telemetry.metrics.model import ModelFamilies, ModelMetrics
from tests.engine.search.searching import BeamAlone, found
from tests.fakes import ROW_BYTES, CopyCache, CopyDecoder, CopySource, rules_of

END, START, LANGUAGE, VOCABULARY = 0, 99, 98, 11
WORKER = 3
MAX_ROWS = 8
RULES = rules_of(END, None, ())


def parent_of_each_row(parents: Sequence[int], rows: Sequence[int]) -> list[int]:
    taken = dict(zip(rows, parents, strict=True))
    return [taken[row] for row in range(len(rows))]


def moves(parents: Sequence[int], rows: Sequence[int]) -> int:
    return sum(parent != row for parent, row in zip(parents, rows, strict=True))


def candidates(source_ids: tuple[int, ...], target: tuple[int, ...], k: int) -> tuple[list[int], list[float]]:
    """Tokens and log-probabilities that depend on nothing but the source and the target so far."""
    chance = random.Random(f"{source_ids} {target}")
    logits = [chance.gauss(0.0, 2.0) for _ in range(VOCABULARY)]
    total = log(sum(map(exp, logits)))
    ids = sorted(range(VOCABULARY), key=logits.__getitem__, reverse=True)[:k]
    return ids, [float(np.float32(logits[token] - total)) for token in ids]


def decode_alone(request: Translate) -> tuple[tuple[Hypothesis, ...], int]:
    """What a request's search finds, and in how many steps, where there is no batch."""
    if request.decoding.num_beams == 1:
        return greedy_alone(request)
    search, steps = BeamAlone(request.decoding, request.rules), len(request.rules.prefix_ids) - 1
    targets: list[tuple[int, ...]] = [()]
    while targets:
        ids, log_probs = zip(*(candidates(request.source_ids, t, search.ask.best) for t in targets), strict=True)
        targets = [(*targets[parent], token) for parent, token in search.advance(found(ids, log_probs))]
        steps += 1
    return search.hypotheses(), steps


def greedy_alone(request: Translate) -> tuple[tuple[Hypothesis, ...], int]:
    """The same of greedy search, token by token."""
    rules, most, target, log_probs = request.rules, request.decoding.max_new_tokens, list[int](), list[float]()
    free = most if rules.forced_end_id is None else most - 1
    while len(target) < free and not set(target[-1:]) & rules.end_ids:
        ranked = zip(*candidates(request.source_ids, tuple(target), VOCABULARY), strict=True)
        token, log_prob = next(pair for pair in ranked if pair[0] not in rules.suppressed_ids - rules.end_ids)
        target.append(token)
        log_probs.append(log_prob)
    steps = len(rules.prefix_ids) - 1 + max(1, len(target))
    ended = bool(set(target[-1:]) & rules.end_ids)
    if not ended and rules.forced_end_id is not None:
        target.append(rules.forced_end_id)
    total = fsum(log_probs)
    value = total / len(target) ** request.decoding.length_penalty
    reason = FinishReason.END_TOKEN if ended else FinishReason.LENGTH
    return (Hypothesis(tuple(target), value, reason, log_prob=total),), steps


class RecordingCache(CopyCache):
    """Remembers the tokens each row was fed, prefixes included, and counts."""

    def __init__(self, decoder: CopyDecoder, capacity: int) -> None:
        super().__init__(decoder, capacity)
        self.fed: list[tuple[int, ...]] = []
        self.step_rows: list[int] = []
        self.moved = 0

    def join(self, source: CopySource) -> int:
        self.fed.append(())
        return super().join(source)

    def begin_step(self, token_ids: TokenIds, ask: Ask) -> None:
        self.step_rows.append(len(token_ids))
        self.fed = [(*before, int(token)) for before, token in zip(self.fed, token_ids, strict=True)]
        assert all(fed[0] == START for fed in self.fed)
        super().begin_step(token_ids, ask)

    def take(self, parents: Parents) -> int:
        self.fed = [self.fed[parent] for parent in parents]
        self.moved += moves(list(parents), range(len(parents)))
        return super().take(parents)


class PrefixCache(RecordingCache):
    """Proposes what `candidates` says of each row."""

    def end_step(self) -> Found:
        k = super().end_step().token_ids.shape[1]
        rows = [
            candidates(source.source_ids, tuple(token for token in fed if token < VOCABULARY), k)
            for (source, _), fed in zip(self.rows, self.fed, strict=True)
        ]
        ids, log_probs = zip(*rows, strict=True)
        return Found(np.array(ids), np.array(log_probs, np.float32))


class SlotCache(PrefixCache):
    """Its rows have slots: they may be in any order, and only what has a second child is copied."""

    def take(self, parents: Parents) -> int:
        assert len(parents) <= MAX_ROWS
        copied = len(parents) - len({*parents})
        self.moved += copied
        self.fed = [self.fed[parent] for parent in parents]
        self.rows = [self.rows[parent] for parent in parents]
        return ROW_BYTES * copied


@dataclass
class RecordingDecoder(CopyDecoder):
    kind: type[RecordingCache] = RecordingCache
    caches: list[RecordingCache] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.device = replace(CPU, has_slots=issubclass(self.kind, SlotCache))

    def open_cache(self, rows: int) -> RecordingCache:
        self.caches.append(self.kind(self, rows))
        return self.caches[-1]


@dataclass
class Visit:
    """A request, the step it may join at, the step it is cancelled before, and what it was told."""

    request: Translate
    arrival: int = 0
    cancellation: int | None = None
    events: list[Event] = field(default_factory=list)
    cancelled_in_time: bool = False

    @property
    def answer(self) -> Finished:
        assert isinstance(self.events[-1], Finished)
        return self.events[-1]

    @property
    def answered(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], Finished)

    @property
    def streamed(self) -> list[tuple[int, ...]]:
        return [event.token_ids for event in self.events if isinstance(event, Tokens)]


def make_visit(
    source_ids: Sequence[int],
    num_beams: int = 1,
    max_new_tokens: int = 100,
    length_penalty: float = 1.0,
    stream: bool = False,
    arrival: int = 0,
    cancellation: int | None = None,
    rules: TargetRules = RULES,
) -> Visit:
    events: list[Event] = []
    decoding = Decoding(num_beams, num_beams, max_new_tokens, length_penalty, False)
    request = Translate(tuple(source_ids), events.append, decoding=decoding, rules=rules, stream=stream)
    return Visit(request, arrival, cancellation, events)


sources = st.lists(st.integers(1, VOCABULARY - 1), max_size=9).map(lambda ids: [*ids, END])
all_rules = st.builds(
    TargetRules,
    st.sampled_from([(START,), (START, LANGUAGE), (START, LANGUAGE, LANGUAGE)]),
    st.sampled_from([frozenset({END}), frozenset({END, 7})]),
    st.sampled_from([None, END]),
    st.sampled_from([frozenset[int](), frozenset({5}), frozenset({4, 5})]),
)


def schedules_of(rules: st.SearchStrategy[TargetRules]) -> st.SearchStrategy[list[Visit]]:
    """Visits that come and go, each with rules of its own."""
    visits = st.builds(
        make_visit,
        source_ids=sources,
        num_beams=st.integers(1, 5),
        max_new_tokens=st.integers(1, 12),
        length_penalty=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
        stream=st.booleans(),
        arrival=st.integers(0, 15),
        cancellation=st.none() | st.integers(0, 20),
        rules=rules,
    )
    return st.lists(visits, min_size=1, max_size=9)


schedules, mixed_schedules = schedules_of(st.just(RULES)), schedules_of(all_rules)


class Batch:
    """A running batch, and all that can be seen of it."""

    def __init__(self, kind: type[RecordingCache] = RecordingCache) -> None:
        self.registry = CollectorRegistry()
        self.decoder = RecordingDecoder(kind=kind)
        metrics = ModelMetrics(ModelFamilies(self.registry), "copy")
        self.engine = RunningBatch(self.decoder, MAX_ROWS, metrics, WORKER)
        [self.cache] = self.decoder.caches

    def serve(self, schedule: Sequence[Visit]) -> None:
        """Lets every visit join in the order of arrival, as soon as it fits, until all have left."""
        waiting, inside, step = deque(sorted(schedule, key=lambda visit: visit.arrival)), list[Visit](), 0
        while waiting or not self.engine.idle:
            while waiting and waiting[0].arrival <= step and waiting[0].request.rows <= self.engine.free_rows:
                inside.append(waiting.popleft())
                self.engine.admit([inside[-1].request])
            for visit in inside:
                if visit.cancellation is not None and visit.cancellation <= step:
                    visit.request.cancel()
                    visit.cancelled_in_time |= not visit.answered
            self.step()
            inside = [visit for visit in inside if not visit.answered and not visit.cancelled_in_time]
            self.check_rows(inside)
            step += 1

    def step(self) -> None:
        """One step, and what it says."""
        self.engine.step()
        self.engine.answers.deliver()

    def check_rows(self, inside: Sequence[Visit]) -> None:
        reserved = sum(visit.request.rows for visit in inside)
        assert self.engine.free_rows == MAX_ROWS - reserved
        assert self.engine.idle == (not inside)
        assert len(inside) <= self.cache.live <= reserved

    @property
    def rows_live(self) -> float:
        return self.sample("dragoman_rows_live", worker=str(WORKER))

    def sample(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(name, {"model": "copy", **labels})
        assert value is not None, f"no sample {name} {labels}"
        return value


def split(schedule: Sequence[Visit]) -> tuple[list[Visit], list[Visit]]:
    """Those that were answered, and those that were cancelled. Nothing is both, or told anything afterwards."""
    answered = [visit for visit in schedule if not visit.cancelled_in_time]
    assert all(isinstance(visit.events[-1], Finished) for visit in answered)
    cancelled = [visit for visit in schedule if visit.cancelled_in_time]
    for visit in schedule:
        told = visit.events if visit.cancelled_in_time else visit.events[:-1]
        assert all(isinstance(event, Tokens) and visit.request.stream for event in told)
    return answered, cancelled
