"""Windows of rows: what is known of their texts is taken from there, the rest goes to an engine, longest first."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from dragoman.bulk.errors import WrongUsage
from dragoman.bulk.once import Asked, Once, Outcome
from dragoman.bulk.rows import Row
from dragoman.errors import DragomanError, FailedPrecondition, InvalidArgument, NotFound, is_of_text

ROWS, CHARACTERS = 1024, 1024 * 1024
"""Of a window, at most. It is what is lost when a run is killed, and what is sorted."""
AHEAD = 3
"""Windows that are translated at a time, so that no row of an engine is idle while the last texts of one end."""
BATCH = 128
"""Texts that a thread has translated at a time."""
BATCHES = 2
"""For each thread, if there are many: the one it has translated, and the next."""

Placed = tuple[int, Row]
"""A row of the file that has this number in the run."""
Translate = Callable[[list[str]], list[str]]
"""The translations of some texts. Raises DragomanError for all of them where one is refused."""
Translated = Callable[[Iterator[list[str]]], Generator[list[Outcome]]]
"""Who translates: takes windows of texts, and gives what became of them in the same order, window by window. It may ask
for more windows before it gives the first, but for a bounded number."""


@dataclass(frozen=True, slots=True)
class Window:
    """Rows whose texts are known."""

    rows: list[Placed]
    outcomes: Mapping[str, Outcome]
    """Of every text that was wanted."""


def windows_of(rows: Iterable[Placed]) -> Iterator[list[Placed]]:
    """The rows, in lists that fit the memory; small files share one."""
    window, characters = list[Placed](), 0
    for placed in rows:
        window.append(placed)
        characters += len(placed[1].text or "")
        if len(window) == ROWS or characters >= CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def translated_windows(rows: Iterable[Placed], once: Once, translated: Translated) -> Generator[Window]:
    """All rows, in order, with what became of their texts."""
    under_way = deque[tuple[list[Placed], Asked]]()

    def unknown() -> Iterator[list[str]]:
        for window in windows_of(rows):
            asked = once.ask(dict.fromkeys(row.wanted for _, row in window if row.wanted is not None))
            under_way.append((window, asked))
            yield asked.new

    with closing(translated(unknown())) as all_outcomes:
        for outcomes in all_outcomes:
            window, asked = under_way.popleft()
            yield Window(window, once.answer(asked, outcomes))


def in_threads(translate: Translate, threads: int) -> Translated:
    """Translates by so many threads of this process."""

    def translated(windows: Iterator[list[str]]) -> Generator[list[Outcome]]:
        pool, under_way = ThreadPoolExecutor(threads), deque[list[Future[list[Outcome]]]]()
        try:
            for texts in windows:
                batches = [texts[first : first + BATCH] for first in range(0, len(texts), BATCH)]
                under_way.append([pool.submit(outcomes_of, translate, batch) for batch in batches])
                while len(under_way) >= AHEAD and len(under_way) + sum(map(len, under_way)) >= BATCHES * threads:
                    yield _joined(under_way.popleft())
            while under_way:
                yield _joined(under_way.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    return translated


def outcomes_of(translate: Translate, texts: list[str]) -> list[Outcome]:
    """What becomes of each.

    Raises WrongUsage where a flag, a package or a device is refused, and DragomanError for what else is of no text.
    Of several texts the refused one is found by halves: nothing is translated of a call that is refused.
    """
    try:
        return list(translate(texts))
    except DragomanError as error:
        if isinstance(error, FailedPrecondition | InvalidArgument | NotFound) and not is_of_text(error):
            raise WrongUsage(str(error)) from error
        if not is_of_text(error):
            raise
        if len(texts) == 1:
            return [error]
    half = len(texts) // 2
    return outcomes_of(translate, texts[:half]) + outcomes_of(translate, texts[half:])


def _joined(batches: list[Future[list[Outcome]]]) -> list[Outcome]:
    return [outcome for batch in batches for outcome in batch.result()]
