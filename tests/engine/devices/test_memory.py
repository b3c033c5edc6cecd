"""engine.devices.memory: limits of control groups as Linux and containers show them."""

import mmap
import os
import resource
from pathlib import Path

import pytest

from engine.devices.memory import memory_limit, resident_bytes

NONE_V1 = "9223372036854771712\n"
GIB = 1 << 30


def machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    """A root folder with these control groups of a process, and these files of theirs."""
    for name, content in {"proc/self/cgroup": groups, **files}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return root


def all_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_without_control_groups_it_is_the_machines(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) == all_memory()
    assert memory_limit(machine(tmp_path, "0::/\n", {"sys/fs/cgroup/memory.max": "max\n"})) == all_memory()


def test_version_2(tmp_path: Path) -> None:
    files = {"a/b/memory.max": "max\n", "a/memory.max": f"{GIB}\n", "memory.max": f"{2 * GIB}\n"}
    assert memory_limit(machine(tmp_path, "0::/a/b\n", {f"sys/fs/cgroup/{k}": v for k, v in files.items()})) == GIB


def test_version_1_beside_version_2(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{GIB}\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": NONE_V1,
    }
    groups = "5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n"
    assert memory_limit(machine(tmp_path, groups, files)) == GIB


def test_a_container_of_version_1_sees_its_own_group_alone(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n"}
    assert memory_limit(machine(tmp_path, "4:memory:/docker/0123abc\n", files)) == GIB


def test_what_the_process_has() -> None:
    before, page = resident_bytes(), os.urandom(1 << 20)
    with mmap.mmap(-1, 64 << 20) as ballast:  # what malloc gives may have been resident before
        for _ in range(64):
            ballast.write(page)
        assert resident_bytes() - before > 32 << 20


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert resident_bytes(tmp_path) == 0


def test_of_a_limited_address_space_what_may_be_in_ram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for addresses, most in ((GIB, GIB // 2), (GIB // 4, 0)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, soft=addresses: (soft, resource.RLIM_INFINITY))
        assert memory_limit(tmp_path) == most
