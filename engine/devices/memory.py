"""How much memory this process may take, and how much it has taken."""

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

ROOT = Path("/")
LIMITS = ("memory.max", "memory.limit_in_bytes")
"""Files of a control group, version 2 and version 1. The former may say "max": none."""
ONLY_ADDRESSES_BYTES = 512 << 20
"""Of an address space, what is never in RAM: stacks of threads, arenas of malloc, what libraries map. A server whose
engine was at work had up to 490 MB."""


def memory_limit(root: Path = ROOT) -> int | None:
    """Bytes that the process may take: what its container has, or the machine. None: the system does not tell.

    A container's limit is the least of its control group and of those above it, as far as they can be seen. Of an
    address space that is limited (RLIMIT_AS, `ulimit -v`) counts what may be in RAM.
    """
    limits = list[int]()
    with suppress(OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:
        limits.append(max(0, addresses - ONLY_ADDRESSES_BYTES))
    for group in _groups(root):
        for file in LIMITS:
            with suppress(OSError, ValueError):
                limits.append(int((group / file).read_text()))
    return min(limits, default=None)


def resident_bytes(root: Path = ROOT) -> int:
    """Memory of the process in RAM; 0 where the system does not tell."""
    try:
        pages = int((root / "proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def give_back_freed() -> None:
    """Memory that was freed goes to the system. glibc keeps what lies below something used; others do as they do."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the control groups that count the process's memory.

    Inside a container /proc may name the host's folder, of which only the last part is there to be seen.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mounted = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        own = PurePosixPath(path)
        for group in (own, *own.parents):
            yield mounted / group.relative_to("/")
