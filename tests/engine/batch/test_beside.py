"""engine.batch.beside: rows wait for no long text that becomes a vector."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from engine.batch.running_batch import RunningBatch
from engine.errors import OutOfMemory
from engine.observer import Unobserved
from engine.queueing.cost import Measured, WorkerCost
from engine.request import Encode, Encoded, Event, Failed, Request
from tests.engine.batch.engine_batch import END, MAX_ROWS, make_visit
from tests.fakes import WAIT_S, CopyDecoder, CopySource

LONG = (*range(5, 25), END)
COSTS = Measured(token=0.001)
"""Twenty tokens take longer than a step of any rows; three do not."""


@dataclass
class SlowDecoder(CopyDecoder):
    """Encodes long texts when it is let to."""

    let: threading.Event = field(default_factory=threading.Event)
    threads: list[str] = field(default_factory=list)
    """Of every encoder run."""
    error: Exception | None = None

    def encode(self, sources: Sequence[Sequence[int]], named: Sequence[Sequence[int]] = ()) -> list[CopySource]:
        self.threads.append(threading.current_thread().name)
        if max(map(len, sources)) == len(LONG):
            assert self.let.wait(WAIT_S)
            if self.error is not None and len(sources) > 1:
                raise self.error
        return super().encode(sources, named)


@pytest.fixture
def decoder() -> SlowDecoder:
    return SlowDecoder()


@pytest.fixture
def batch(decoder: SlowDecoder) -> RunningBatch[CopySource]:
    return RunningBatch(decoder, MAX_ROWS, Unobserved(), 0, WorkerCost(COSTS), encodes_beside=True)


@dataclass
class Text:
    """One that is to become a vector."""

    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.request = Encode(LONG, self.events.append)

    def has_its_vector(self) -> bool:
        [event] = self.events
        assert isinstance(event, Encoded)
        return bool((event.vectors.data == CopySource(LONG).hidden().mean(axis=0)).all())


def settle(batch: RunningBatch[CopySource], decoder: SlowDecoder) -> None:
    """The run that is under way ends."""
    decoder.let.set()
    for thread in threading.enumerate():
        if thread.name == "encoder":
            thread.join(WAIT_S)


def test_rows_go_on_while_a_long_text_is_encoded(batch: RunningBatch[CopySource], decoder: SlowDecoder) -> None:
    row, text = make_visit([4, 5, 6, 7, 8, END]), Text()
    batch.admit([row.request])
    batch.step()
    batch.admit([text.request])
    for _ in range(2):
        batch.step()
    assert not text.events and not batch.may_encode
    settle(batch, decoder)
    batch.step()
    assert text.has_its_vector() and batch.may_encode
    assert batch.beside_s > 0
    for _ in range(2):
        batch.step()
    assert row.answer.hypotheses[0].token_ids == row.request.source_ids
    assert decoder.threads == ["MainThread", "encoder"]
    assert batch.idle


def test_rows_that_come_with_it_do_not_wait_either(batch: RunningBatch[CopySource], decoder: SlowDecoder) -> None:
    row, text = make_visit([4, 5, END]), Text()
    batch.admit([text.request, row.request])
    for _ in range(2):
        batch.step()
    assert not text.events and not batch.idle
    settle(batch, decoder)
    batch.step()
    assert text.has_its_vector() and row.answered and batch.idle


def test_without_rows_it_is_waited_for(batch: RunningBatch[CopySource], decoder: SlowDecoder) -> None:
    row, text = make_visit([4, END]), Text()
    batch.admit([row.request])
    batch.admit([text.request])
    for _ in range(2):
        batch.step()
    assert row.answered and not batch.idle and batch.turn_s(()) > len(LONG) * COSTS.token / 2
    threading.Timer(0.05, decoder.let.set).start()
    batch.step()
    assert text.has_its_vector() and batch.idle


@pytest.mark.parametrize("rows", [0, 1])
def test_alone_or_short_it_is_encoded_at_once(batch: RunningBatch[CopySource], decoder: SlowDecoder, rows: int) -> None:
    decoder.let.set()
    if rows:
        batch.admit([make_visit([4, 5, END]).request])
    events: list[Event] = []
    batch.admit([Encode((4, 5, END) if rows else LONG, events.append)])
    assert len(events) == 1 and set(decoder.threads) == {"MainThread"}


def test_what_the_encoder_raises_is_raised_in_a_step(batch: RunningBatch[CopySource], decoder: SlowDecoder) -> None:
    decoder.error = RuntimeError("broken")
    texts = Text(), Text()
    batch.admit([make_visit([4, 5, END]).request, *(text.request for text in texts)])
    settle(batch, decoder)
    with pytest.raises(RuntimeError, match="broken"):
        batch.step()
    batch.fail(decoder.error)
    assert [text.events for text in texts] == [[Failed(decoder.error)]] * 2


def test_without_memory_for_all_each_is_encoded_alone(batch: RunningBatch[CopySource], decoder: SlowDecoder) -> None:
    decoder.error = OutOfMemory(len(LONG))
    texts = Text(), Text()
    batch.admit([make_visit([4, 5, END]).request, *(text.request for text in texts)])
    settle(batch, decoder)
    batch.step()
    assert all(text.has_its_vector() for text in texts)


@pytest.mark.parametrize("released", [True, False])
def test_whoever_is_answered_otherwise_has_no_second_answer(
    batch: RunningBatch[CopySource], decoder: SlowDecoder, released: bool
) -> None:
    row, text = make_visit([4, 5, END]), Text()
    batch.admit([row.request, text.request])
    if released:
        given: list[Request] = batch.release(delivering=True)
        assert set(given) == {row.request, text.request}
    else:
        batch.fail(RuntimeError("broken"))
        assert batch.idle
    before = list(text.events)
    settle(batch, decoder)
    if released:
        batch.step()
    assert text.events == before
