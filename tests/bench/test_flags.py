"""What measurements refuse before they begin, and what they leave when they are ended."""

import importlib
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import psutil
import pytest

from bench import gpu_check
from bench.flags.values import (
    beams,
    file_at,
    folder_at,
    folder_to_fill,
    new_file,
    not_negative,
    package_at,
    positive,
    seed,
    whole,
)
from bench.options.before import revisions
from bench.ray import nodes
from bench.ray.__main__ import main as ray
from bench.server.libretranslate import python_of
from dragoman.bulk.cluster import version
from tests.server_process import ROOT, WAIT_S

ZOO = ROOT / "models" / "zoo" / "en-pt-int8"
UNTIL_KILLED = """
import sys, time
from bench.process import serving

with serving("server", ["--package", sys.argv[1], "--workers", "1", "--log-level", "error"]) as server:
    print(server.pid, flush=True)
    while True:
        time.sleep(0.05)
"""


@pytest.mark.parametrize(
    ("value", "given", "why"),
    [
        (package_at, "nowhere", "nowhere is not a package: manifest.json cannot be read"),
        (folder_at, "nowhere", "nowhere is no folder"),
        (file_at, "nowhere", "nowhere is no file"),
        (new_file, "nowhere/report.json", "nowhere is no folder: make it first"),
        (new_file, ".", ". is a folder: name a file in it"),
        (folder_to_fill, "/dev/null", "/dev/null cannot be a folder .File exists.: write to another"),
        (folder_to_fill, "/dev/null/plots", "/dev/null/plots cannot be a folder .Not a directory.: write to another"),
        (seed, "-1", "-1 is less than 0"),
        (whole, "0", "0 is less than 1"),
        (whole, "-3", "-3 is less than 1"),
        (beams, "0", "0 is less than 1"),
        (beams, "99", "99 is more than 16, the most that a server takes"),
        (positive, "0", "0 is no number above 0"),
        (positive, "nan", "nan is no number above 0"),
        (not_negative, "-0.1", "-0.1 is no number above 0"),
        (not_negative, "nan", "nan is no number above 0"),
        (revisions, "HEAD", "'HEAD' is no BEFORE..AFTER, such as HEAD~1..HEAD"),
        (revisions, "nowhere..", "'nowhere' is no revision of this repository"),
        (python_of, "/nowhere/python", "/nowhere/python does not run: "),
    ],
)
def test_a_value_is_refused_by_what_is_wrong_with_it(
    value: Callable[[str], object], given: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=f"^{why}") as caught:
        value(given)
    assert type(caught.value).__name__ == "ArgumentTypeError"


def test_values_that_are_right(tmp_path: Path) -> None:
    assert (package_at(str(ZOO)), whole("7"), positive("0.5"), seed("0")) == (ZOO, 7, 0.5, 0)
    assert folder_to_fill(str(tmp_path / "a" / "b")) == folder_to_fill(f"{tmp_path}/a/b/") == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()
    assert (folder_at(str(ZOO)), file_at(str(ZOO / "manifest.json"))) == (ZOO, ZOO / "manifest.json")
    assert new_file("report.json") == Path("report.json")
    assert [not_negative(given) for given in ("0", "0.0", "-0", "0.5")] == [0, 0, 0, 0.5]
    assert (revisions("HEAD.."), revisions("HEAD..HEAD")) == (("HEAD", ""), ("HEAD", "HEAD"))


@pytest.mark.parametrize("module", ["bulk", "floor", "quality", "options.packed", "server.overload", "soak.__main__"])
def test_a_measurement_of_no_package_does_not_begin(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = ["--package"] if module.startswith(("server", "soak")) else []
    monkeypatch.setattr("sys.argv", [module, *flag, "nowhere"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"bench.{module}").main()
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (2, "")
    assert "nowhere is not a package" in told.err


@pytest.mark.parametrize("flag", ["--plots", "--work"])
def test_a_place_that_is_no_folder_is_refused_before_anything_is_measured(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", flag, "/dev/null", "no part"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("bench.__main__").main()
    assert ended.value.code == 2
    assert f"argument {flag}: /dev/null cannot be a folder" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["soak", "server.overload", "server.beside"])
def test_arguments_that_the_server_refuses_are_told_by_the_server(module: str) -> None:
    command = [sys.executable, "-m", f"bench.{module}", "--package", str(ZOO), "--", "--nonsense"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    of_server, of_measurement = ran.stderr.splitlines()
    assert of_server.startswith("python -m server: --nonsense is no flag")
    assert of_measurement == f"python -m bench.{module}: error: the server ended with exit code 2 before it was serving"


@pytest.mark.parametrize(
    ("parts", "work", "refused"),
    [
        ("proof,throughput", False, "proof"),
        ("nllb,soak", False, "soak"),
        ("proof", True, ""),
        ("packages,proof", False, ""),
        ("nllb", False, ""),
    ],
)
def test_parts_of_the_check_of_a_gpu_have_packages(
    parts: str, work: bool, refused: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["--parts", parts, *(["--work", str(tmp_path)] if work else [])]
    if not refused:
        assert [part.name for part in gpu_check.parse(arguments).parts] == parts.split(",")
        return
    with pytest.raises(SystemExit) as ended:
        gpu_check.parse(arguments)
    assert ended.value.code == 2
    assert f"--parts has {refused}, and not packages, which it decodes" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--soak-minutes", "--budget-minutes"])
@pytest.mark.parametrize("minutes", ["nan", "inf", "-5", "0"])
def test_the_check_of_a_gpu_takes_some_time(option: str, minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        gpu_check.parse([f"{option}={minutes}"])
    assert ended.value.code == 2
    assert f"argument {option}: {minutes} is no number above 0" in capsys.readouterr().err


def test_a_cluster_is_not_begun_without_ray_or_for_too_few_sentences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(version, "version", absent)
    for given, told in (
        (["--sentences", "300"], "--sentences is 300; the part nodes needs more than 2048, two windows of bulk"),
        (["--sentences", "300", "--part", "bulk"], "error: Ray is not installed here: pip install '.[ray]' has"),
    ):
        with pytest.raises(SystemExit) as ended:
            ray(given)
        assert ended.value.code == 2
        assert told in capsys.readouterr().err


def test_nodes_end_where_the_next_one_does_not_join(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Joined:
        running = 0

        def __init__(self, *_: object) -> None:
            if Joined.running == 2:
                raise RuntimeError("a node has not joined the cluster")
            Joined.running += 1

        def end(self) -> None:
            Joined.running -= 1

    monkeypatch.setattr(nodes, "Node", Joined)
    with pytest.raises(RuntimeError, match="has not joined"):
        nodes.Nodes(tmp_path, workers=2)
    assert Joined.running == 0


def test_a_measurement_that_gets_sigterm_leaves_no_server_behind() -> None:
    command = [sys.executable, "-c", UNTIL_KILLED, str(ZOO)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        server = psutil.Process(int(process.stdout.readline()))
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(WAIT_S) == 128 + signal.SIGTERM
            assert not server.is_running()
        finally:
            if server.is_running():
                server.kill()


def test_a_soak_tells_what_it_found_where_its_file_cannot_be_written() -> None:
    asked = ["--package", ZOO, "--hours", "1e-9", "--callers", "1", "--no-faults", "--json", "/dev/full"]
    command = [sys.executable, "-m", "bench.soak", *map(str, asked), "--", "--workers", "1"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "No space left on device" in ran.stderr
    assert "| wrong answers | 0 |" in ran.stdout
    assert "| descriptors, at first and at last |" in ran.stdout
