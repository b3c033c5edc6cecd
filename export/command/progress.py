"""Shows what export is doing, or why it cannot."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from export.tell import Tell
from models.disk import told


class Progress:
    """A spinner on a terminal; elsewhere, a line for every step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}
        """Of the stages that are done."""

    @contextmanager
    def stage(self, title: str) -> Iterator[Tell]:
        """Shows a stage. What is given to the function it yields says what the stage is at."""
        started = time.perf_counter()
        with self._show(title) as tell:
            yield tell
        self.seconds[title] = time.perf_counter() - started
        self._console.print(f"{title:<8} {self.seconds[title]:6.1f} s", highlight=False)

    @contextmanager
    def _show(self, title: str) -> Iterator[Tell]:
        if self._console.is_terminal:
            with self._console.status(title) as status:
                yield lambda detail: status.update(f"{title}: {detail}")
        else:
            yield lambda detail: self.tell(f"{title}: {detail}")

    def tell(self, detail: str) -> None:
        """Shows a line."""
        self._console.print(detail, markup=False, highlight=False, soft_wrap=True)

    def fail(self, error: Exception, status: int) -> int:
        """Says why there is no package. Returns `status`."""
        self._console.print(f"error: {told(error)}", style="red", markup=False, highlight=False, soft_wrap=True)
        return status
