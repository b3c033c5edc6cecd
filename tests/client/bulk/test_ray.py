"""Bulk on a cluster, as far as it needs none; with one, `python -m bench.ray` compares it with one machine."""

import asyncio
import pickle
import warnings
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, Literal

import grpc
import pytest

from dragoman.bulk import windows
from dragoman.bulk.cluster import version
from dragoman.bulk.engine import package_hashes
from dragoman.bulk.errors import BulkError, WrongUsage
from dragoman.bulk.journal import Journal
from dragoman.command.bulk import main
from dragoman.errors import FieldViolation, InvalidArgument
from tests.serving import ZOO


def absent(_: str) -> str:
    raise PackageNotFoundError


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (absent, "Ray is not installed here: pip install '.[ray]' has 2.60.0"),
        (lambda _: "2.59.1", "Ray 2.59.1 is installed, and 2.60.0 is needed"),
    ],
)
def test_without_the_ray_that_is_needed_nothing_is_begun(
    found: object, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(version, "version", found)
    (tmp_path / "a.txt").write_text("Good morning.\n")
    code = main([str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), "--to", "pt", "--ray", "127.0.0.1:1"])
    assert code == 2
    assert told in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def ray_data() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        pytest.importorskip("ray.data", reason="the extra `ray` is not installed")


async def test_a_part_is_there_for_whoever_lost_it_until_it_is_done() -> None:
    ray_data()
    from dragoman.bulk.cluster.parts import Feed

    feed = Feed()
    waiting = asyncio.create_task(feed.take(1))
    await feed.give(0, ["one"])
    assert await feed.take(0) == await feed.take(0) == ["one"]
    assert not waiting.done()
    await feed.give(1, ["two"])
    assert await waiting == ["two"]
    await feed.forget(1)
    assert (await feed.take(0), await feed.take(1)) == ([], ["two"])


def test_windows_of_which_all_is_known_do_not_gather() -> None:
    """A file that the memory has, or of few texts: no engine is asked for, and no window waits for one."""
    ray_data()
    from dragoman.bulk.cluster.on_ray import OnRay

    read = list[int]()

    def windows() -> Iterator[list[str]]:
        for number in range(50):
            read.append(number)
            yield []

    with OnRay("127.0.0.1:1", [ZOO], {"target_language": "pt"}, "cpu", None, print) as cluster:
        for given, outcomes in enumerate(cluster.translated(windows())):
            assert outcomes == []
            assert len(read) <= given + 2


@pytest.mark.parametrize(("device", "gpus"), [("cpu", 0), ("cuda", 1), ("auto", 1)])
def test_ray_data_takes_engines_of_every_device(device: Literal["cpu", "cuda", "auto"], gpus: int) -> None:
    """It looks at what it is asked for before it needs a cluster."""
    ray_data()
    from ray.data import Dataset

    from dragoman.bulk.cluster.on_ray import OnRay

    class Asked:
        map_batches = Dataset.map_batches

        def map_batches_internal(self, _: object, **given: object) -> dict[str, object]:
            return given

    engines = OnRay("127.0.0.1:1", [ZOO], {"target_language": "pt"}, device, 2, print)
    given = engines._by_engines(Asked())
    assert (given["num_gpus"], given["num_cpus"], given["batch_size"]) == (gpus, 2, 1)


@pytest.mark.parametrize(
    ("wanted", "free", "told"),
    [
        ({"CPU": 2, "GPU": 0}, [{"CPU": 1.0}, {"CPU": 2.0, "memory": 1.0}], ""),
        (
            {"CPU": 64, "GPU": 0},
            [{"CPU": 3.0}, {"b": 1.0}],
            "it takes 64 CPU, 0 GPU (--workers, --device), and the most that a node has free are 3 CPU, 0 GPU",
        ),
        (
            {"CPU": 2, "GPU": 1},
            [{"CPU": 8.0}, {"CPU": 1.0, "GPU": 2.0}],
            "it takes 2 CPU, 1 GPU (--workers, --device), and the most that a node has free are 8 CPU, 2 GPU",
        ),
        (
            {"CPU": 1, "GPU": 0},
            [],
            "it takes 1 CPU, 0 GPU (--workers, --device), and the most that a node has free are 0 CPU, 0 GPU",
        ),
    ],
)
def test_a_run_that_waits_for_room_says_so(wanted: dict[str, int], free: list[dict[str, float]], told: str) -> None:
    ray_data()
    from dragoman.bulk.cluster.on_ray import no_room

    assert no_room(wanted, free) == told


def test_a_refusal_is_the_same_after_its_way() -> None:
    ray_data()
    from dragoman.bulk.cluster.parts import packed, unpacked

    violations = (FieldViolation("contents[0]", "has 1300 tokens"),)
    refused = InvalidArgument(
        "too long", grpc.StatusCode.INVALID_ARGUMENT, "SOURCE_TOO_LONG", {"limit": "512"}, violations
    )
    told = unpacked(packed(["Bom dia.", refused]))
    assert not isinstance(told, BulkError)
    text, error = told
    assert (text, type(error), vars(error)) == ("Bom dia.", InvalidArgument, vars(refused))
    none = unpacked(packed(WrongUsage("no such language")))
    assert (type(none), str(none)) == (WrongUsage, "no such language")


def test_a_node_says_that_it_has_another_package_or_none_or_no_such_language(tmp_path: Path) -> None:
    ray_data()
    from dragoman.bulk.cluster.node_engine import NodeEngine
    from dragoman.bulk.cluster.parts import NUMBER, TEXTS, TOLD, unpacked

    hashes = package_hashes([ZOO])

    def told(package: Path, hashes: list[str], language: str = "pt") -> object:
        engine = NodeEngine([package], hashes, {"target_language": language}, "cpu", 1)
        answered = engine({NUMBER: [3], TEXTS: [pickle.dumps(["Good morning."])]})
        assert answered[NUMBER] == [3]
        return unpacked(answered[TOLD][0])

    assert told(ZOO, hashes) == ["Bom dia."]
    other = told(ZOO, ["0" * 64])
    assert isinstance(other, BulkError) and str(other).startswith("on node ")
    assert f"its packages have SHA-256 {hashes[0]}, and those here {'0' * 64}: put the same" in str(other)
    none = told(tmp_path, hashes)
    assert isinstance(none, BulkError) and str(none).startswith("on node ") and f"{tmp_path} is no package" in str(none)
    german = told(ZOO, hashes, "de")
    assert isinstance(german, WrongUsage) and 'target_language_code is "de"; the model has pt' in str(german)


def test_where_nobody_answers_the_address_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ray_data()
    (tmp_path / "a.txt").write_text("Good morning.\n")
    command = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), "--to", "pt", "--package", str(ZOO)]
    assert main([*command, "--ray", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1 is no cluster that takes us: [Errno 111] Connection refused" in capsys.readouterr().err


class FullStore:
    """A cluster whose object store takes one part, and no more: of what is given, or of what comes back."""

    def __init__(self, gives: int, tells: int) -> None:
        self._gives, self._tells = gives, tells
        self.give = self.forget = self

    def remote(self, number: int, texts: list[str] | None = None) -> None:
        from ray.exceptions import OutOfDiskError

        if texts is not None and number >= self._gives:
            raise OutOfDiskError("Failed to put object on 10.0.0.3")

    def told(self) -> Iterator[dict[str, list[Any]]]:
        from ray.exceptions import ObjectStoreFullError

        from dragoman.bulk.cluster.parts import NUMBER, TOLD, packed

        for number in range(self._tells):
            yield {NUMBER: [number], TOLD: [packed(["Bom dia."] * windows.BATCH)]}
        raise ObjectStoreFullError("Failed to put object on 10.0.0.3")


@pytest.mark.parametrize(
    ("gives", "tells", "why"),
    [
        (99, 1, "The local object store is full"),
        (2, 9, "The object cannot be created because the local object store is full"),
    ],
)
def test_an_object_store_that_is_too_small_keeps_what_is_done(
    gives: int,
    tells: int,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ray_data()
    from dragoman.bulk.cluster.on_ray import OnRay

    def join(cluster: Any) -> None:
        store = FullStore(gives, tells)
        cluster._feed, cluster._told = store, store.told()

    monkeypatch.setattr(windows, "ROWS", windows.BATCH)
    monkeypatch.setattr(OnRay, "_join", join)
    monkeypatch.setattr(OnRay, "_most_parts", lambda _: 0)
    (tmp_path / "a.txt").write_text("".join(f"Good morning {n}.\n" for n in range(4 * windows.BATCH)))
    command = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), "--to", "pt", "--package", str(ZOO)]
    assert main([*command, "--ray", "127.0.0.1:1"]) == 1
    told = capsys.readouterr().err
    assert f"dragoman: Ray cannot go on: {why}" in told and "The same command does, on another cluster" in told
    with closing(Journal(tmp_path / "b.txt.unfinished" / "0.rows")) as journal:
        assert journal.rows == windows.BATCH
