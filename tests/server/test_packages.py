"""server.catalog.packages: which packages are served, and what is wrong with the others."""

import json
import logging
import shutil
import subprocess
from pathlib import Path

import pytest

from models.package.folder import MANIFEST, Package
from server.catalog.packages import open_packages, package_folders
from server.config import ConfigError, Settings
from tests.server_process import ROOT, WAIT_S, WITHOUT_RIGHTS, server_command


def named(package: Package, folder: Path, name: str) -> Path:
    """A copy with another name."""
    shutil.copytree(package.folder, folder)
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    (folder / MANIFEST).write_text(json.dumps({**manifest, "name": name}), encoding="utf-8")
    return folder


@pytest.fixture
def shelf(tiny_package: Package, tmp_path: Path) -> Path:
    """A folder of two packages, with a file and a hidden folder."""
    for name in ("b", "a"):
        named(tiny_package, tmp_path / "shelf" / name, name)
    (tmp_path / "shelf" / "README.md").write_text("two packages", encoding="utf-8")
    (tmp_path / "shelf" / "..data").mkdir()
    return tmp_path / "shelf"


def names(*packages: Path, **settings: bool) -> list[str]:
    return [one.name for one in open_packages(Settings(package=packages, workers=1, **settings))]  # type: ignore[arg-type]


def test_packages_come_in_their_order_and_those_of_a_folder_by_the_alphabet(shelf: Path) -> None:
    assert names(shelf) == ["a", "b"]
    assert names(shelf / "b", shelf / "a") == ["b", "a"]


def test_a_folder_without_packages_stands_for_itself(tmp_path: Path) -> None:
    (tmp_path / "empty" / "folder").mkdir(parents=True)
    assert list(package_folders([tmp_path / "empty", tmp_path / "none"])) == [tmp_path / "empty", tmp_path / "none"]
    with pytest.raises(ConfigError, match=r"none is not a package: manifest.json cannot be read"):
        names(tmp_path / "none")


def test_a_checkpoint_is_what_a_package_is_made_of(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        names(tiny_checkpoint)
    assert str(refused.value).endswith(f"Make one with: python -m export {tiny_checkpoint}")
    with pytest.raises(ConfigError) as refused:
        names(tmp_path / "none")
    assert str(refused.value).endswith(f"Make one with: python -m export CHECKPOINT --out {tmp_path / 'none'}")


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"], ids=["too long", "zero byte"])
def test_a_path_that_can_be_no_folder_is_named_or_left_out(shelf: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a package: manifest\.json cannot be read"):
        names(shelf, shelf / name)
    assert names(shelf, shelf / name, skip_bad=True) == ["a", "b"]


def test_two_of_one_name_are_refused_by_both_paths(shelf: Path, tiny_package: Package, tmp_path: Path) -> None:
    other = named(tiny_package, tmp_path / "other", "b")
    with pytest.raises(ConfigError) as refused:
        names(shelf, other, skip_bad=True)
    assert str(refused.value).startswith(f"{shelf / 'b'} and {other} are both named b: ")


@pytest.mark.parametrize("how", ["cut short", "no manifest", "of another format"])
def test_a_bad_package_among_good_ones_is_named_or_left_out(
    shelf: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad = shelf / "a"
    if how == "cut short":
        weights = bad / "weights.bin"
        weights.write_bytes(weights.read_bytes()[:-1])
    elif how == "no manifest":
        (bad / MANIFEST).unlink()
    else:
        content = json.loads((bad / MANIFEST).read_text(encoding="utf-8"))
        content["format_version"] = 999
        (bad / MANIFEST).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigError, match=str(bad)):
        names(shelf)
    assert names(shelf, skip_bad=True) == ["b"]
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage().startswith("a package is left out: ") and str(bad) in record.getMessage()


def test_a_volume_has_a_folder_of_its_own(shelf: Path) -> None:
    (shelf / "lost+found").mkdir()
    assert names(shelf) == ["a", "b"]


@pytest.mark.parametrize("unreadable", ["", "a", "a/manifest.json", "a/weights.bin"])
def test_what_may_not_be_read_is_named_with_a_way_out(shelf: Path, unreadable: str) -> None:
    """In a process that no capability of root's lets in anywhere."""
    (shelf / "b").rename(shelf.parent / "b")
    kept = (shelf / unreadable).stat().st_mode
    (shelf / unreadable).chmod(0)
    try:
        done = subprocess.run(
            [*WITHOUT_RIGHTS, *server_command("--package", shelf)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            timeout=WAIT_S,
        )
    finally:
        (shelf / unreadable).chmod(kept)
    file = shelf / unreadable if (shelf / unreadable).is_file() else shelf / unreadable / MANIFEST
    told = f"{file} cannot be read (Permission denied); let the user that this runs as read it"
    assert (done.returncode, done.stderr) == (2, f"python -m server: {told}\n")


def test_bad_packages_alone_are_refused_in_any_case(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="of the packages none can be used"):
        names(tmp_path, skip_bad=True)
