"""firefox:PAIR, against a server that speaks as Mozilla's storage does, with models as Firefox has them."""

import gzip
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from export.__main__ import main
from export.sources import Fetched, fetch
from models.package.folder import Package, sha256
from tests.export.sources.limits import files_of_at_most
from tests.export.sources.refusal import refusal
from tests.export.sources.registry_server import Storage, files_of, storage
from tests.models.checkpoint.marian.marian_nmt import PIECES, write_model
from tests.shortlists import random_lists, write

MODEL, SHORTLIST, VOCABULARY = "model.enpt.intgemm.alphas.bin", "lex.50.50.enpt.s2t.bin", "vocab.enpt.spm"
SMALL = {MODEL: b"weights", SHORTLIST: b"shortlist", VOCABULARY: b"vocabulary"}
"""Enough to be fetched."""
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Storage]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with storage() as served:
        yield served


@pytest.fixture
def small(served: Storage) -> Storage:
    """With models that are quickly fetched."""
    served.add("en-pt", "base-memory", "Nightly", SMALL | {MODEL: b"tried out"})
    served.add("en-pt", "base", "Release Android", SMALL | {MODEL: b"on telephones"})
    served.add("en-pt", "tiny", "Release", SMALL)
    served.add("pt-en", "tiny", "Release", SMALL)
    served.add("en-zh_hant", "base", None, SMALL)
    return served


def version(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def obtain(served: Storage, name: str = "firefox:en-pt") -> Fetched:
    return fetch(name, served.registry, lambda _: None)


def refused(served: Storage, capsys: Capture, folder: Path, name: str = "firefox:en-pt", registry: str = "") -> str:
    """What is said of a model that cannot be had. Neither package nor cache has anything of it."""
    arguments = ["--out", str(folder / "packages" / "en-pt"), "--firefox-registry", registry or served.registry]
    assert main([name, *arguments]) == 2
    assert not (folder / "packages").exists()
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    return refusal(capsys)


@pytest.mark.timeout(600)
def test_a_model_of_firefox_becomes_a_package(served: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one of its kind: tests.models.checkpoint.test_firefox has real ones."""
    monkeypatch.chdir(tmp_path)
    folder = write_model(tmp_path / "model")
    write(folder / SHORTLIST, random_lists(PIECES, PIECES))
    served.add("en-pt", "tiny", "Release", files_of(folder))
    assert main(["firefox:en-pt", "--verify-samples", "1", "--quiet", "--firefox-registry", served.registry]) == 0
    package = Package.open(tmp_path / "artifacts" / "firefox-en-pt")
    manifest = package.manifest
    assert manifest.name == manifest.checkpoint.name == "firefox-en-pt"
    assert (manifest.source_languages, manifest.target_languages) == (("en",), ("pt",))
    assert manifest.checkpoint.sha256 == sha256(folder / MODEL)
    assert manifest.checkpoint.pinned == f"firefox:en-pt@{sha256(folder / MODEL)[:12]}"
    assert manifest.shortlist is not None
    assert "Mozilla Public License 2.0" in (package.folder / "NOTICE").read_text()


def test_what_is_released_comes_first(small: Storage) -> None:
    found = obtain(small)
    assert (found.name, found.pinned) == ("firefox-en-pt", f"firefox:en-pt@{version(SMALL[MODEL])}")
    assert {file.name for file in found.folder.iterdir()} == {*SMALL, "NOTICE", "record.json"}
    assert {name: (found.folder / name).read_bytes() for name in SMALL} == SMALL


@pytest.mark.parametrize("which", ["base-memory", version(b"tried out"), hashlib.sha256(b"tried out").hexdigest()])
def test_another_model_of_the_pair(small: Storage, which: str) -> None:
    assert obtain(small, f"firefox:en-pt@{which}").pinned == f"firefox:en-pt@{version(b'tried out')}"


def test_languages_are_those_of_the_registry(small: Storage) -> None:
    found = obtain(small, "firefox:en-zh_hant")
    assert (found.source_languages, found.target_languages) == (("en",), ("zh-hant",))


def test_a_second_run_fetches_nothing(small: Storage) -> None:
    first = obtain(small)
    small.requests.clear()
    assert obtain(small) == first
    assert small.requests == ["/db/models.json"]
    small.requests.clear()
    assert first.pinned is not None
    assert obtain(small, first.pinned) == first
    assert small.requests == []


def test_a_newer_model_is_taken(small: Storage) -> None:
    obtain(small)
    del small.models["en-pt"]
    small.add("en-pt", "tiny", "Release", SMALL | {MODEL: b"newer weights"})
    assert obtain(small).pinned == f"firefox:en-pt@{version(b'newer weights')}"


def test_a_cache_that_was_damaged_is_filled_again(small: Storage) -> None:
    first = obtain(small)
    (first.folder / MODEL).write_bytes(b"weightz")
    assert obtain(small) == first
    assert (first.folder / MODEL).read_bytes() == SMALL[MODEL]


@pytest.mark.parametrize("name", ["record.json", MODEL, VOCABULARY])
@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_a_file_of_the_cache_that_is_gone_or_cut_short_is_fetched_again(
    name: str, content: bytes | None, small: Storage
) -> None:
    first = obtain(small)
    file = first.folder / name
    file.unlink()
    if content is not None and name != VOCABULARY:  # of which the registry has no hash
        file.write_bytes(content)
    assert obtain(small) == obtain(small, f"firefox:en-pt@{version(b'weights')}") == first
    assert (first.folder / VOCABULARY).read_bytes() == b"vocabulary" and (
        first.folder / MODEL
    ).read_bytes() == b"weights"


def test_no_network(served: Storage, capsys: Capture, tmp_path: Path) -> None:
    registry = "http://127.0.0.1:9/db/models.json"  # where nothing listens
    said = refused(served, capsys, tmp_path, registry=registry)
    assert f"{registry} cannot be fetched ([Errno 111] Connection refused): check the connection, then run" in said


@pytest.mark.parametrize("name", SMALL)
def test_half_a_download(small: Storage, capsys: Capture, tmp_path: Path, name: str) -> None:
    small.broken.add(f"{name}.gz")
    said = refused(small, capsys, tmp_path)
    assert f"{name}.gz ended after " in said
    assert said.endswith("bytes: run the command again")
    small.broken.clear()
    obtain(small)


def test_a_model_with_another_hash(small: Storage, capsys: Capture, tmp_path: Path) -> None:
    path = next(path for path in small.files if "run_tiny" in path and path.endswith(f"{MODEL}.gz"))
    small.files[path] = gzip.compress(b"weightz")
    said = refused(small, capsys, tmp_path)
    assert f"{path} has another SHA-256 than the registry says: {hashlib.sha256(b'weightz').hexdigest()}" in said
    assert "Nothing was kept: run the command again, later if it stays so" in said


@pytest.mark.parametrize("name", SMALL)
def test_a_file_that_was_damaged_on_the_way(small: Storage, capsys: Capture, tmp_path: Path, name: str) -> None:
    small.damaged.add(f"{name}.gz")
    assert f"{name}.gz was damaged on the way: its MD5 is " in refused(small, capsys, tmp_path)


def test_what_cannot_be_unpacked(small: Storage, capsys: Capture, tmp_path: Path) -> None:
    for path in small.files:
        small.files[path] = small.files[path][:-6]
    assert f"{MODEL}.gz cannot be unpacked (" in refused(small, capsys, tmp_path)


@pytest.mark.parametrize("model", [random.randbytes(100_000), bytes(100_000)], ids=["packed", "unpacked"])
def test_a_full_disk_is_no_matter_of_the_connection(
    served: Storage, capsys: Capture, tmp_path: Path, model: bytes
) -> None:
    served.add("en-pt", "tiny", "Release", SMALL | {MODEL: model})
    place = tmp_path / "cache" / "dragoman" / "firefox" / "en-pt" / version(model)
    with files_of_at_most(50_000):
        assert refused(served, capsys, tmp_path) == f"error: {place}: File too large"
    assert obtain(served).folder == place


def test_a_file_that_is_gone(small: Storage, capsys: Capture, tmp_path: Path) -> None:
    for path in list(small.files):
        if path.endswith(f"{VOCABULARY}.gz"):
            del small.files[path]
    assert f"{VOCABULARY}.gz answers 404 Not Found: try again later" in refused(small, capsys, tmp_path)


UNKNOWN = {
    "firefox:en-xx": "firefox:en-xx: Mozilla has no model of this pair; there is en-pt, en-zh_hant",
    "firefox:xx-en": "firefox:xx-en: Mozilla has no model of this pair; there is pt-en",
    "firefox:xx-yy": "firefox:xx-yy: Mozilla has no model of this pair; there is en-pt, en-zh_hant, pt-en",
    "firefox:en": "firefox:en is no pair of languages; expected one like firefox:en-pt",
    "firefox:en-pt@huge": "there is no 'huge' any more, or never was; there is @base-memory (now @",
}


@pytest.mark.parametrize(("name", "expected"), UNKNOWN.items())
def test_a_pair_that_there_is_not(small: Storage, capsys: Capture, tmp_path: Path, name: str, expected: str) -> None:
    assert expected in refused(small, capsys, tmp_path, name)


def test_a_list_that_is_none(served: Storage, capsys: Capture, tmp_path: Path) -> None:
    served.files["/page.html"] = b"<html>"
    said = refused(served, capsys, tmp_path, registry=f"{served.url}/page.html")
    assert "page.html is no registry of models (Invalid JSON" in said


def test_a_record_without_a_hash(small: Storage, capsys: Capture, tmp_path: Path) -> None:
    """It is no reason to refuse other pairs."""
    del small.models["en-pt"][0]["files"]["model"]["uncompressedHash"]
    said = refused(small, capsys, tmp_path)
    assert "firefox:en-pt: the registry's record is not as expected (files.model.uncompressedHash: Field requi" in said
    obtain(small, "firefox:pt-en")


def test_a_path_that_leads_elsewhere(small: Storage, capsys: Capture, tmp_path: Path) -> None:
    small.models["en-pt"][2]["files"]["vocab"]["path"] = "models/../../.bashrc.gz"
    said = refused(small, capsys, tmp_path)
    assert "the registry's record is not as expected (files.vocab.path: String should match" in said
