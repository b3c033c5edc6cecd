"""Sources in, hypotheses out, in their order and without an event loop: for export, training and measurements."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future

from engine.request import Event, Failed, Finished, Translate
from engine.runner import Runner
from engine.targets import TargetRules
from models.decoding import Decoding

WINDOW = 1024
"""Requests that are outstanding, so that no row is ever idle."""


def decode(
    runner: Runner,
    rules: TargetRules,
    sources: Iterable[tuple[tuple[int, ...], Decoding]],
    window: int = WINDOW,
) -> Iterator[Finished]:
    """Decodes every source as it wishes, with at most `window` requests outstanding. Raises what an engine failed with.

    sources: token ids, the end token included
    """
    waiting: deque[Future[Event]] = deque()
    for source_ids, decoding in sources:
        answer: Future[Event] = Future()
        runner.submit(Translate(source_ids, answer.set_result, decoding=decoding, rules=rules))
        waiting.append(answer)
        if len(waiting) == window:
            yield _finished(waiting.popleft().result())
    while waiting:
        yield _finished(waiting.popleft().result())


def _finished(event: Event) -> Finished:
    if isinstance(event, Failed):
        raise event.error
    assert isinstance(event, Finished)
    return event
