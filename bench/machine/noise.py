"""What else the machine does while it measures, and which instructions it has."""

import os
import re
import statistics
import time
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

ISA = ("avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "avx_vnni", "avx2", "fma", "f16c", "asimddp", "i8mm", "sve")
"""Flags of /proc/cpuinfo that say how fast matrix products can be."""
WATCHED_S = 1.0
MOST_BUSY, MOST_STOLEN = 0.05, 0.01
"""Shares of all cores: beyond, a run is noisy."""
STAT = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


class Noise(BaseModel):
    """Of a run, or of a moment in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    busy: float
    """Share of all cores that others had while we did nothing: the median of the pauses between the parts."""
    stolen: float
    """Share of all cores that the hypervisor gave to other machines, in the whole run."""
    load: float
    """Load average of the last minute, before the run."""
    mhz: float
    """Of a core, the median; 0 where the kernel does not say."""

    @property
    def noisy(self) -> bool:
        return self.busy > MOST_BUSY or self.stolen > MOST_STOLEN

    def __str__(self) -> str:
        return (
            f"others had {self.busy:.1%} of the cores in the pauses, {self.stolen:.1%} was stolen, "
            f"load {self.load:.2f} before, {self.mhz:.0f} MHz"
        )


class Watch:
    """Listens in the pauses of a run."""

    def __init__(self) -> None:
        self._load, self._began = os.getloadavg()[0], _times()
        self._pauses: list[float] = []
        self._mhz: list[float] = []

    def pause(self) -> None:
        """Nothing of ours may run meanwhile."""
        before = _times()
        time.sleep(WATCHED_S)
        after = _times()
        self._pauses.append(1 - _share("idle", before, after) - _share("iowait", before, after))
        self._mhz += _frequencies()

    def noise(self) -> Noise:
        """So far."""
        return Noise(
            busy=statistics.median(self._pauses or [0.0]),
            stolen=_share("steal", self._began, _times()),
            load=self._load,
            mhz=statistics.median(self._mhz or [0.0]),
        )


def instructions() -> str:
    """Those of ISA that the processor has and the system lets us use."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    flags = set(re.findall(r"\w+", " ".join(re.findall(r"(?m)^(?:flags|Features)\s*:(.*)$", text))))
    return " ".join(name for name in ISA if name in flags)


def _times() -> dict[str, int]:
    """Ticks of all cores."""
    ticks = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:]
    return dict(zip(STAT, map(int, ticks), strict=False))


def _share(what: Literal["idle", "iowait", "steal"], before: dict[str, int], after: dict[str, int]) -> float:
    passed = sum(after.values()) - sum(before.values())
    return (after[what] - before[what]) / passed if passed else 0.0


def _frequencies() -> list[float]:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return [float(mhz) for mhz in re.findall(r"(?m)^cpu MHz\s*: ([\d.]+)$", text)]
