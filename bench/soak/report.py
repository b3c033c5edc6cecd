"""What a soak has found."""

import statistics
from collections.abc import Sequence

from pydantic import BaseModel

from bench.pages.markdown import join, table

GROWTH_MB = 20.0
"""Resident memory may grow by so much in a million calls."""
GROWTH_CALLS = 1_000_000
"""From so many calls on, growth is held to that: before, a slope says little."""
WRONG_SHOWN = 5


class Reading(BaseModel):
    """Of the server process, after so many calls."""

    calls: int
    rss_mb: float
    descriptors: int
    threads: int


class Report(BaseModel):
    """Of one run."""

    machine: str
    package: str
    arguments: list[str]
    seed: int
    seconds: float
    calls: int
    answers: int
    """That were compared with those alone."""
    reused: int
    """Of them, shared with another call or kept from one."""
    wrong: list[str]
    broken: dict[str, int]
    """Calls that ended as none may: without an answer, or with a status that says that the server is broken."""
    internal: int
    """Calls that the server says it has ended with INTERNAL or UNKNOWN, whoever waited for them.

    Of both, those that an engine failed with count only where it was not made to fail.
    """
    ends: dict[str, int]
    attacks: int
    reloads: int
    restarts: dict[str, int]
    """Of engines, by cause."""
    left_behind: float
    """Rows, texts that wait and calls under way, when all callers had left."""
    exit_code: int
    """After SIGTERM."""
    readings: list[Reading]

    @property
    def well(self) -> bool:
        """All that must be 0 is, and after enough calls memory does not grow."""
        grows = self.calls >= GROWTH_CALLS and self.slope("rss_mb") > GROWTH_MB
        return not (self.wrong or self.broken or self.internal or self.left_behind or self.exit_code or grows)

    def slope(self, name: str) -> float:
        """By how much a reading grows in a million calls, over the later half of them."""
        return growth([(each.calls, getattr(each, name)) for each in self.readings])

    def markdown(self) -> str:
        """Tables."""
        first, last = self.readings[0], self.readings[-1]
        figures = [
            ("seconds", f"{self.seconds:.0f}"),
            ("calls", f"{self.calls:,}"),
            ("attacks on connections, streams and messages", f"{self.attacks:,}"),
            ("files read again", f"{self.reloads:,}"),
            ("engines begun anew", join({name: str(count) for name, count in self.restarts.items()}) or "0"),
            ("answers compared with those alone", f"{self.answers:,} ({self.reused:,} of another call's work)"),
            ("wrong answers", f"{len(self.wrong):,}"),
            ("calls that ended as none may", join({name: str(count) for name, count in self.broken.items()}) or "0"),
            ("INTERNAL or UNKNOWN, told by the server", f"{self.internal:,}"),
            ("left behind when all had left", f"{self.left_behind:g}"),
            ("exit code after SIGTERM", f"{self.exit_code}"),
            ("resident memory, MB, at first and at last", f"{first.rss_mb:.0f}, {last.rss_mb:.0f}"),
            ("its growth, MB in 10^6 calls", f"{self.slope('rss_mb'):.1f} (at most {GROWTH_MB:g})"),
            ("descriptors, at first and at last", f"{first.descriptors}, {last.descriptors}"),
            ("their growth in 10^6 calls", f"{self.slope('descriptors'):.1f}"),
            ("threads, at first and at last", f"{first.threads}, {last.threads}"),
        ]
        ends = [(end, f"{count:,}") for end, count in sorted(self.ends.items(), key=lambda item: -item[1])]
        head = f"{self.machine}; {self.package} {' '.join(self.arguments)}; seed {self.seed}"
        wrong = "".join(f"\nWrong: {each}\n" for each in self.wrong[:WRONG_SHOWN])
        return f"{head}\n\n{table(('', ''), figures)}\n\n{table(('calls ended', ''), ends)}\n{wrong}"


def growth(points: Sequence[tuple[float, float]]) -> float:
    """Of y, in a million of x, over the later half of the points: at first a process fills its caches."""
    later = points[len(points) // 2 :]
    if len({x for x, _ in later}) < 2:
        return float("nan")
    return statistics.linear_regression([x for x, _ in later], [y for _, y in later]).slope * 1e6
