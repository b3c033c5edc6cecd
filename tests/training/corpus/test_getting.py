"""Packages are got whole, each as the version it is of, by one run at a time."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from tests.training.corpus.test_corpus import make_deb, needs_dpkg
from tests.training.corpus.test_corpus_sources import write
from training.corpus import __main__ as command
from training.corpus import building
from training.corpus.sources.all_sources import TextSource
from training.corpus.sources.packages import Apt, unpacked_version, write_descriptions
from training.data.files import claimed


@dataclass(frozen=True)
class Mirror(Apt):
    """An apt that knows one package and has no network."""

    def update(self) -> None:
        write(self.updated, "")

    def versions(self, names: Sequence[str]) -> dict[str, str]:  # type: ignore[override]
        return dict.fromkeys(names, "1:2-1")

    def download(self, versions: dict[str, str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, version in versions.items():
            write(self.folder / name / "usr/share/doc/a", "text")
            made = make_deb(self.folder / name, name)
            made.rename(folder / f"{name}_{version.replace(':', '%3a')}_all.deb")

    def descriptions(self, language: str) -> str:
        return f"in {language}, of {self.updated.read_text('utf-8')}"


@needs_dpkg
def test_what_another_run_left_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another part of the corpus was interrupted, and an earlier version of this package was."""
    monkeypatch.setattr(building, "Apt", Mirror)
    left = [tmp_path / "downloads" / name for name in ("game_1_all.deb", "tool_1%3a1-1_all.deb")]
    for file in left:
        write(file, "half a package")
    source = TextSource("tool", "GPL", lambda _: iter(()), ("tool",))
    versions = building.get_packages([source], tmp_path, False, Console(quiet=True))
    assert versions == {"tool": "1:2-1"} and unpacked_version(tmp_path / "packages", "tool") == "1:2-1"
    assert sorted((tmp_path / "downloads").iterdir()) == left


def test_descriptions_are_read_again_from_newer_lists(tmp_path: Path) -> None:
    apt, file = Mirror(tmp_path / "apt"), tmp_path / "packages" / "descriptions" / "en"
    for number, said in enumerate(("then", "now")):
        write(apt.updated, said)
        os.utime(apt.updated, (number * 2 + 1e9,) * 2)
        write_descriptions(apt, tmp_path / "packages")
        assert file.read_text("utf-8") == f"in en, of {said}"
        os.utime(file, (number * 2 + 1 + 1e9,) * 2)
    write(apt.updated, "not looked at")
    os.utime(apt.updated, (1e9,) * 2)
    write_descriptions(apt, tmp_path / "packages")
    assert file.read_text("utf-8") == "in en, of now"


def test_two_runs_do_not_get_packages_into_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with claimed(tmp_path / "out/work", "another"):
        assert command.main([str(tmp_path / "out")]) == 2
    assert (
        f"another run writes to {tmp_path}/out/work: wait for it, or choose another --work" in capsys.readouterr().err
    )
