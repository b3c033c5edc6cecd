"""A package stands in its place only if it is whole, and takes nobody else's."""

import errno
import fcntl
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from models.package.checked import PackageError
from models.package.folder import MANIFEST, Package, check_target, draft, file_entries, publish, publish_beside
from models.package.manifest import Manifest
from tests.server_process import ROOT


def fill(folder: Path, source: Package) -> Manifest:
    """Puts a package's files into a draft, and returns the manifest it needs."""
    for name in source.manifest.files:
        shutil.copyfile(source.folder / name, folder / name)
    return source.manifest.model_copy(update={"name": "again", "files": file_entries(folder)})


def test_publish_makes_a_package(tiny_package: Package, tmp_path: Path) -> None:
    target = tmp_path / "new" / "folders" / "package"
    with draft(target) as folder:
        publish(folder, fill(folder, tiny_package), target)
    assert Package.open(target).manifest.name == "again"
    assert [path.name for path in target.parent.iterdir()] == ["package"]
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(target.parent.stat().st_mode)


def test_publish_replaces_a_package(tiny_package: Package, copy: Path) -> None:
    (copy / "old").touch()
    with draft(copy) as folder:
        publish(folder, fill(folder, tiny_package), copy)
    assert Package.open(copy).manifest.name == "again"
    assert not (copy / "old").exists()
    assert list(copy.parent.iterdir()) == [copy]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_draft_that_fails_leaves_nothing(tiny_package: Package, tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "new" / "package"
    with pytest.raises(error), draft(target) as folder:
        fill(folder, tiny_package)
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_by_its_place(tmp_path: Path) -> None:
    target = tmp_path / "package"
    with pytest.raises(OSError, match=re.escape(f"No space left on device: '{target}'")), draft(target):
        Path("/dev/full").write_bytes(bytes(1))


def test_a_draft_that_fails_leaves_the_old_package(tiny_package: Package, copy: Path) -> None:
    with pytest.raises(KeyboardInterrupt), draft(copy) as folder:
        fill(folder, tiny_package)
        raise KeyboardInterrupt
    assert Package.open(copy).sha256 == tiny_package.sha256
    assert list(copy.parent.iterdir()) == [copy]


def test_ctrl_c_between_two_packages_keeps_the_old_one(
    tiny_package: Package, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if self.name == "package":
            raise KeyboardInterrupt
        return rename(self, target)

    with pytest.raises(KeyboardInterrupt), draft(copy) as folder:
        manifest = fill(folder, tiny_package)
        monkeypatch.setattr(Path, "rename", interrupted)
        publish(folder, manifest, copy)
    assert Package.open(copy).sha256 == tiny_package.sha256
    assert list(copy.parent.iterdir()) == [copy]


KILLED = """
import os, signal, sys
from pathlib import Path
from models.package.folder import REPLACED, draft
target = Path(sys.argv[1])
with draft(target) as folder:
    (folder / "weights.bin").touch()
    if target.exists():
        target.rename(folder.parent / REPLACED)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("name", ["copy", "[n]ew"])
def test_what_a_killed_process_leaves_goes_with_the_next_draft(name: str, copy: Path) -> None:
    """And a package that it had just moved away is put back."""
    target = copy.with_name(name)
    there = [path.name for path in copy.parent.iterdir()]
    subprocess.run([sys.executable, "-c", KILLED, target], cwd=ROOT, check=False)
    assert len(list(copy.parent.glob(".*"))) == 1
    with draft(target):
        assert target.exists() == (name in there)
    assert [path.name for path in copy.parent.iterdir()] == there


def test_a_draft_that_is_worked_on_stays(tiny_package: Package, tmp_path: Path) -> None:
    target = tmp_path / "package"
    with draft(target) as first:
        (first / "weights.bin").touch()
        with draft(target) as second:
            publish(second, fill(second, tiny_package), target)
        assert (first / "weights.bin").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["package"]


class Another:
    """Publishes on a thread of its own amid the first step of this one, which goes on once that waits or is done."""

    def __init__(self, step: str, publish: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
        self._began = threading.Event()
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._run, args=[publish])
        flock, done = fcntl.flock, getattr(Path, step)

        def asking(descriptor: int, operation: int) -> None:
            if threading.current_thread() is self._thread:
                self._asked.set()
            flock(descriptor, operation)

        def amid(path: Path, target: Path) -> Path:
            if not self._began.is_set():
                self._began.set()
                self._thread.start()
                self._asked.wait()
            moved: Path = done(path, target)
            return moved

        monkeypatch.setattr(fcntl, "flock", asking)
        monkeypatch.setattr(Path, step, amid)

    def _run(self, publish: Callable[[], None]) -> None:
        try:
            publish()
        finally:
            self._asked.set()

    def join(self) -> None:
        self._thread.join()


def test_of_two_that_publish_at_once_the_later_one_stands(
    tiny_package: Package, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with draft(copy) as first, draft(copy) as second:
        ours = fill(first, tiny_package)
        theirs = fill(second, tiny_package).model_copy(update={"name": "later"})
        another = Another("rename", lambda: publish(second, theirs, copy), monkeypatch)
        publish(first, ours, copy)
        another.join()
    assert Package.open(copy).manifest.name == "later"
    assert list(copy.parent.iterdir()) == [copy]


def test_two_that_publish_at_once_beside_a_checkpoint_do_not_mix(
    tiny_package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    with draft(checkpoint / "package") as first, draft(checkpoint / "package") as second:
        ours = fill(first, tiny_package)
        for name in tiny_package.manifest.files:
            (second / name).write_text(f"the later {name}")
        theirs = ours.model_copy(update={"name": "later", "files": file_entries(second)})
        another = Another("replace", lambda: publish_beside(second, theirs, checkpoint), monkeypatch)
        publish_beside(first, ours, checkpoint)
        another.join()
    said = Manifest.model_validate_json((checkpoint / MANIFEST).read_bytes())
    (checkpoint / MANIFEST).unlink()
    assert (said.name, said.files) == ("later", file_entries(checkpoint))


def test_without_locks_nothing_is_taken_for_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as NFS without its lock daemon."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with draft(tmp_path / "package") as first:
        with draft(tmp_path / "package"):
            pass
        assert first.exists()


def test_only_a_package_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(PackageError, match="exists and is not a package"), draft(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(PackageError, match="exists and is not a package"), draft(tmp_path / "thesis.txt"):
        pass


@pytest.mark.parametrize("target", [Path(), Path(".."), Path("/"), Path("/.."), Path("/.")])
def test_a_folder_around_us_is_not_replaced(target: Path) -> None:
    with pytest.raises(PackageError, match=r"is the folder that you are in, or one around it; name it from outside$"):
        check_target(target)


def test_nor_is_one_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(PackageError, match="link is the folder that you are in, or one around it"):
        check_target(tmp_path / "link")


def test_nobody_is_told_to_delete_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    with pytest.raises(PackageError, match=r"has a checkpoint \(config\.json\); choose another place, or make it"):
        check_target(tmp_path)


@pytest.mark.parametrize("place", ["file/package", "/proc/nowhere"])
def test_where_no_folder_can_be_is_refused_by_its_name(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    target = tmp_path / place
    with pytest.raises(PackageError, match=rf"^{target} cannot be made.*choose another place$"), draft(target):
        pass


def test_a_folder_that_may_not_be_written_to_is_refused_before_anything_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PackageError, match=rf"{tmp_path} is no folder to write to; choose another place"):
        check_target(tmp_path / "a" / "b")


@pytest.mark.parametrize("content", ['{"manifest_version": 3, "name": "An extension"}', "[]", ""])
def test_a_manifest_of_something_else_makes_no_package(content: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(content, encoding="utf-8")
    with pytest.raises(PackageError, match="exists and is not a package"), draft(tmp_path):
        pass


def test_a_package_that_was_cut_short_is_replaced(tiny_package: Package, copy: Path) -> None:
    """What is wrong with it says to export the checkpoint again."""
    (copy / MANIFEST).write_bytes((copy / MANIFEST).read_bytes()[:100])
    with draft(copy) as folder:
        publish(folder, fill(folder, tiny_package), copy)
    assert Package.open(copy).manifest.name == "again"


@pytest.mark.parametrize("place", [".", ".."])
def test_the_folder_that_one_is_in_is_not_replaced(place: str, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = copy / place.removeprefix(".").replace(".", "inside")
    inside.mkdir(exist_ok=True)
    monkeypatch.chdir(inside)
    with pytest.raises(PackageError, match=re.escape(f"{place} is the folder that you are in")), draft(Path(place)):
        pass


def test_a_link_to_nothing_is_refused_before_a_package_is_made(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nothing")
    with pytest.raises(PackageError, match="link is a link to what is not there"), draft(tmp_path / "link"):
        pass


def test_a_link_stays_and_the_package_behind_it_is_replaced(tiny_package: Package, copy: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "link"
    link.parent.mkdir()
    link.symlink_to(copy)
    with draft(link) as folder:
        assert folder.parent.parent == copy.parent  # else it could not be moved to another file system
        publish(folder, fill(folder, tiny_package), link)
    assert link.is_symlink() and Package.open(copy).manifest.name == "again"


def test_an_empty_folder_is_replaced(tiny_package: Package, tmp_path: Path) -> None:
    target = tmp_path / "empty"
    target.mkdir()
    with draft(target) as folder:
        publish(folder, fill(folder, tiny_package), target)
    assert Package.open(target).manifest.name == "again"


def test_graphs_are_found_where_the_link_leads_to_an_equal_package(copy: Path, many_package: Package) -> None:
    """And where it leads to another one, the package that is served is told of."""
    link, again = copy.with_name("current"), copy.with_name("again")
    link.symlink_to(copy.name)
    graphs = Package.open(link).graphs()
    shutil.copytree(copy, again)
    shutil.rmtree(copy)
    missing = re.escape(f"{copy / 'weights.bin'} cannot be read")
    with pytest.raises(PackageError, match=missing):
        graphs.contents()
    link.unlink()
    link.symlink_to(again.name)
    assert graphs.contents().graph("logits.onnx").content == (again / "logits.onnx").read_bytes()
    link.unlink()
    link.symlink_to(many_package.folder)
    with pytest.raises(PackageError, match=missing):
        graphs.contents()
