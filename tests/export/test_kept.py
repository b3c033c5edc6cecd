"""Packages under names: what is there, what it is, and what is not pulled."""

import shutil
from pathlib import Path

import pytest

from export.command import pull, remove, show
from export.sources.firefox import cache
from models.package.home import home
from models.package.manifest import Manifest
from server.command import with_packages
from server.config import ConfigError, load_settings
from tests.serving import ZOO


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a package is kept."""
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    shutil.copytree(ZOO, tmp_path / "mine")
    return tmp_path


def test_what_is_kept_is_listed_and_shown(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show.main([]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line.split()[0] == "mine" and "en -> pt" in line and str(kept / "mine") in line
    assert show.main(["mine"]) == show.main([str(ZOO)]) == 0
    told = capsys.readouterr().out
    manifest = Manifest.model_validate_json((ZOO / "manifest.json").read_bytes())
    assert f"{manifest.model.encoder_layers} + {manifest.model.decoder_layers} layers" in told
    assert "32 of 32 sentences as transformers (4 beams)" in told
    assert told.count("Mozilla Public License Version 2.0 (LICENSE, NOTICE)\n") == 2
    assert show.licence(kept) == "none came with the checkpoint: its authors know"


def test_what_is_not_whole_is_not_shown(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show.main(["yours"]) == 2
    assert "which has mine" in capsys.readouterr().err
    vocabulary = kept / "mine" / "vocab.json"
    vocabulary.write_bytes(vocabulary.read_bytes() + b" ")
    assert show.main(["mine"]) == 2
    assert "vocab.json" in capsys.readouterr().err


def test_one_that_is_not_whole_hides_no_other(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(kept / "mine", kept / "yours")
    (kept / "mine" / "vocab.json").unlink()
    (kept / "extension").mkdir()
    (kept / "extension" / "manifest.json").write_text("{}", encoding="utf-8")
    assert show.main([]) == 2
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()] == ["yours"]
    extension, mine = told.err.splitlines()
    assert "format version None" in extension and "mine/vocab.json cannot be read" in mine


def test_what_is_kept_is_served_by_name(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, flags = ["--package", str(kept / "mine")], ["--port", "1"]
    assert with_packages(["mine", *flags]) == with_packages(flags) == [*flags, *mine]  # the only one
    assert with_packages(["mine", str(ZOO)]) == [*mine, "--package", str(ZOO)]
    assert with_packages(["--package=x"]) == ["--package=x"]
    assert load_settings(with_packages(["mine"])).package == (kept / "mine",)
    with pytest.raises(ConfigError, match="which has mine"):
        with_packages(["yours"])
    shutil.copytree(kept / "mine", kept / "other")
    assert with_packages(flags) == flags  # nothing says which of two
    monkeypatch.setenv("DRAGOMAN_PACKAGE", str(ZOO))
    shutil.rmtree(kept / "other")
    assert with_packages(flags) == flags


def test_only_what_is_kept_is_removed(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("yours", str(ZOO), ".", "../mine", "mine/."):
        assert remove.main([name]) == 2
        assert "which has mine" in capsys.readouterr().err
    assert ZOO.exists() and remove.main(["mine"]) == 0
    assert "is gone, and" in capsys.readouterr().out and not list(kept.iterdir())
    assert remove.main(["mine"]) == 2


def test_a_link_is_removed_and_not_what_it_leads_to(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kept / "link").symlink_to(ZOO)
    assert remove.main(["link"]) == 0
    assert "link is gone; it was a link" in capsys.readouterr().out
    assert not (kept / "link").is_symlink() and (ZOO / "manifest.json").exists()


@pytest.mark.parametrize("name", ["hf:", "hf:..", "hf:/", "firefox:"])
def test_no_name_is_the_home_itself(name: str, kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever did what was said would have removed all packages."""
    with pytest.raises(SystemExit):
        pull.main([name])
    assert f"{name} is no name of a model; expected hf:OWNER/NAME or firefox:PAIR" in capsys.readouterr().err
    assert (kept / "mine").is_dir()


def test_a_pull_takes_names_and_leaves_what_is_there(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def export(arguments: list[str]) -> int:  # what it does has tests of its own
        asked.append(arguments)
        Path(arguments[2]).mkdir()
        return 0

    monkeypatch.setattr(pull, "export", export)
    assert pull.main(["hf:OPUS/en-pt@v1", "--quiet"]) == 0
    assert asked == [["hf:OPUS/en-pt@v1", "--out", str(kept / "OPUS-en-pt-v1"), "--quiet"]]
    assert pull.main(["firefox:mine"]) == 2
    assert "mine is there already, made of " in capsys.readouterr().err
    for arguments in (["a/folder"], ["hf:OPUS/en-pt", "--out", "x"], []):
        with pytest.raises(SystemExit):
            pull.main(arguments)
    assert len(asked) == 1


def test_names_that_share_a_folder_are_told_apart(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.move(kept / "mine", kept / "OPUS-en-pt")
    made_of = Manifest.model_validate_json((ZOO / "manifest.json").read_bytes()).checkpoint
    assert pull.main(["hf:OPUS-en/pt"]) == 2
    told = capsys.readouterr().err
    assert f"OPUS-en-pt is there already, made of {made_of.pinned or made_of.name}: " in told
    assert "dragoman export hf:OPUS-en/pt --out FOLDER" in told


def test_a_home_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path / "file" / "packages"))
    assert pull.main(["firefox:en-pt"]) == 2
    assert "file/packages: Not a directory; set DRAGOMAN_HOME to a folder for packages" in capsys.readouterr().err


def test_who_has_no_home_has_no_packages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for variable in ("DRAGOMAN_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # as for an account that /etc/passwd lacks
    assert home() == Path("/.local/share/dragoman") and cache("en-pt") == Path("/.cache/dragoman/firefox/en-pt")
    assert with_packages(["--port", "1"]) == ["--port", "1"]
    assert show.main([]) == 0
    assert "no packages in /.local/share/dragoman" in capsys.readouterr().out


def test_the_home_is_that_of_the_users_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAGOMAN_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert home() == Path("/data/dragoman")
