"""Something that is done beside the steps of rows, on a thread of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """One thing at a time. Used by one thread."""

    def __init__(self) -> None:
        self._found: Future[T] = Future()

    @property
    def ended(self) -> bool:
        """There is something to `take`."""
        return self._found.done()

    def start(self, work: Callable[[], T]) -> None:
        """Does it on a thread that is as nice as the one that calls this. What was done before is forgotten."""
        self._found = Future()
        # A daemon: a kernel that hangs keeps no process from its end.
        threading.Thread(target=_do, args=(work, self._found), name="encoder", daemon=True).start()

    def take(self) -> T:
        """What came of it, for which it waits. Raises what it raised."""
        return self._found.result()


def _do(work: Callable[[], T], found: "Future[T]") -> None:
    try:
        found.set_result(work())
    except BaseException as error:  # it is raised where the result is taken
        found.set_exception(error)
