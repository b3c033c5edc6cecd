"""Shows what export is doing, and in the end what it has made."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from export.trace import Graphs, histogram
from export.verification.compare_tokens import search_name
from models.package.manifest import Manifest


class Progress:
    """A spinner on a terminal; elsewhere, a line for every step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}
        """Of the stages that are done."""

    @contextmanager
    def stage(self, title: str) -> Iterator[Callable[[str], None]]:
        """Shows a stage. What is given to the function it yields says what the stage is at."""
        started = time.perf_counter()
        with self._show(title) as tell:
            yield tell
        self.seconds[title] = time.perf_counter() - started
        self._console.print(f"{title:<8} {self.seconds[title]:6.1f} s", highlight=False)

    @contextmanager
    def _show(self, title: str) -> Iterator[Callable[[str], None]]:
        if self._console.is_terminal:
            with self._console.status(title) as status:
                yield lambda detail: status.update(f"{title}: {detail}")
        else:
            yield lambda detail: self._console.print(f"{title}: {detail}", highlight=False, soft_wrap=True)


def summary(manifest: Manifest, graphs: Graphs, seconds: dict[str, float]) -> Table:
    """What the package holds, how near it is to its checkpoint, and how long that took."""
    table = Table(show_header=False, title=f"package {manifest.name}", title_justify="left")
    for name, entry in sorted(manifest.files.items()):
        table.add_row(name, size(entry.size_bytes))
    table.add_section()
    for name, model in (("encoder", graphs.encoder), ("decoder", graphs.decoder)):
        counts = histogram(model)
        listed = ", ".join(f"{count} {kind.removeprefix('com.microsoft.')}" for kind, count in counts.most_common())
        table.add_row(f"{name} nodes", f"{counts.total()}: {listed}")
    table.add_section()
    certificate = manifest.certificate
    table.add_row("computes in", f"{manifest.graphs.precision.activations}, {manifest.graphs.attention} attention")
    table.add_row("verified on", certificate.device)
    worst = max(step.log_prob_error for step in certificate.steps)
    table.add_row("largest errors", f"hidden states {certificate.encoder_error:.1e}, log-probabilities {worst:.1e}")
    for agreement in certificate.agreements:
        table.add_row(
            f"same tokens as {agreement.reference}, {search_name(agreement.num_beams)}",
            f"{agreement.equal} of {agreement.sentences} sentences",
        )
    table.add_section()
    table.add_row("seconds", ", ".join(f"{stage} {spent:.1f}" for stage, spent in seconds.items()))
    return table


def size(size_bytes: int) -> str:
    """As people say it."""
    return f"{size_bytes / 1e6:.2f} MB" if size_bytes >= 1e5 else f"{size_bytes / 1e3:.1f} kB"
