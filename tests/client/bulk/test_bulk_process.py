"""`dragoman bulk` as a process, with the engine: killed, out of room, and a second time."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dragoman.bulk import unfinished
from dragoman.local import Translator
from tests.server_process import ROOT, WAIT_S, eventually

PACKAGE = ROOT / "models" / "zoo" / "en-pt-int8"
BULK = [sys.executable, "-m", "dragoman", "bulk"]
SENTENCES = [
    line.partition("\t")[0]
    for line in (ROOT / "tests" / "data" / "flores-dev.en-pt.tsv").read_text(encoding="utf-8").splitlines()
    if len(line) < 180
]
SMALL_WINDOWS = (
    "import sys; from dragoman.bulk import windows; windows.ROWS = windows.BATCH = 8; "
    "from dragoman.command.main import main; sys.exit(main(['bulk', *sys.argv[1:]]))"
)
"""The same command, which has something to lose more often."""
SMALL = [sys.executable, "-c", SMALL_WINDOWS]
HELD = """
import sys, threading
from dragoman.bulk import windows
from dragoman.bulk.journal import Journal
from dragoman.command.main import main

add, left = Journal.add, [1, 2, 3]

def add_or_wait(journal, done):
    if not left:
        threading.Event().wait()
    left.pop()
    add(journal, done)

windows.ROWS = windows.BATCH = 8
Journal.add = add_or_wait
sys.exit(main(["bulk", *sys.argv[1:]]))
"""
"""The same, which stops after three windows: however late somebody looks, there is something left to do."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines of all lengths, some twice and some blank."""
    file = tmp_path_factory.mktemp("bulk") / "en.txt"
    lines = [*SENTENCES[:60], "", *SENTENCES[:10], "  ", *SENTENCES[60:80]]
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def expected(source: Path) -> bytes:
    """As the engine answers them."""
    lines = source.read_text(encoding="utf-8").split("\n")[:-1]
    with Translator(PACKAGE, workers=2) as translator:
        found = iter([one.text for one in translator.translate([line for line in lines if line.strip()])])
    return "".join(f"{next(found) if line.strip() else line}\n" for line in lines).encode()


def bulk(command: list[str], source: Path, target: Path, *more: object) -> "subprocess.CompletedProcess[str]":
    arguments = [*command, source, target, "--to", "pt", "--workers", 2, "--package", PACKAGE, *more]
    return subprocess.run(list(map(str, arguments)), cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S)


def started(source: Path, target: Path) -> "subprocess.Popen[bytes]":
    arguments = [sys.executable, "-c", HELD, source, target, "--to", "pt", "--workers", 2, "--package", PACKAGE]
    return subprocess.Popen(list(map(str, arguments)), cwd=ROOT, stderr=subprocess.PIPE)


def rows_of(target: Path) -> int:
    """That are done of a run which has not ended."""
    path = target.with_name(target.name + unfinished.SUFFIX) / "0.rows"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return sum(len(json.loads(line[9:]) or ()) for line in lines if line.endswith(b"\n"))


def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(source: Path, expected: bytes, tmp_path: Path) -> None:
    target, seen = tmp_path / "pt.txt", [0]
    for _ in range(2):
        with started(source, target) as process:
            eventually(lambda: process.poll() is not None or rows_of(target) > seen[-1])  # at once
            time.sleep(random.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
        seen.append(rows_of(target))
    assert 0 < seen[1] < seen[2] < len(expected.splitlines())
    done = bulk(SMALL, source, target)
    assert done.returncode == 0, done.stderr
    assert f"dragoman: going on after {seen[-1]} rows\n" in done.stderr
    assert target.read_bytes() == expected
    assert not list(tmp_path.glob("*.unfinished"))


def test_interrupted_it_says_how_to_go_on(tmp_path: Path) -> None:
    source, target = tmp_path / "en.txt", tmp_path / "pt.txt"
    source.write_text("\n".join(SENTENCES), encoding="utf-8")
    with started(source, target) as process:
        eventually(lambda: rows_of(target) > 0)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert told.decode() == f"dragoman: what is done is kept in {target}.unfinished: the same command goes on\n"
    assert rows_of(target) > 0


def test_one_run_at_a_time(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "pt.txt"
    with started(source, target) as process:
        eventually((tmp_path / "pt.txt.unfinished" / "job.json").exists)
        done = bulk(BULK, source, target)
        process.kill()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"dragoman: another run is writing {target}: wait for it, or write to another place\n"


def test_a_disk_that_fills_up_keeps_what_is_done(source: Path, expected: bytes, tmp_path: Path) -> None:
    target, most_bytes = tmp_path / "pt.txt", 2000
    limited = [
        sys.executable,
        "-c",
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most_bytes}, -1)); {SMALL_WINDOWS}",
    ]
    assert len(expected) > 2 * most_bytes
    done = bulk(limited, source, target)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert f"what is done is kept in {target}.unfinished: the same command goes on\n" in done.stderr
    assert 0 < rows_of(target) < len(expected.splitlines())
    assert bulk(SMALL, source, target).returncode == 0
    assert target.read_bytes() == expected


def test_with_the_memory_there_is_nothing_left_to_do(source: Path, expected: bytes, tmp_path: Path) -> None:
    """The engine is not even loaded: the second time the package has no weights."""
    package, memory = tmp_path / "package", tmp_path / "memory"
    shutil.copytree(PACKAGE, package)
    options = ("--package", package, "--memory", memory)
    command = [*BULK, source, tmp_path / "1.txt", "--to", "pt", *options]
    assert subprocess.run(list(map(str, command)), cwd=ROOT, timeout=WAIT_S, check=False).returncode == 0
    (package / "weights.bin").unlink()
    command[-len(options) - 3] = tmp_path / "2.txt"
    assert subprocess.run(list(map(str, command)), cwd=ROOT, timeout=WAIT_S, check=False).returncode == 0
    assert (tmp_path / "1.txt").read_bytes() == (tmp_path / "2.txt").read_bytes() == expected
    command[-len(options) - 3] = tmp_path / "3.txt"
    done = subprocess.run(
        [*map(str, command), "--num-beams", "4"], cwd=ROOT, timeout=WAIT_S, check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "weights.bin" in done.stderr


def test_options_are_those_of_translate(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in SENTENCES[:6]))
    done = bulk(BULK, tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--num-beams", 4, "--into", "pt", "--progress")
    assert done.returncode == 0
    assert "6 rows, " in done.stderr
    assert "100.0% of all" in done.stderr
    with Translator(PACKAGE) as translator:
        expected = [one.text for one in translator.translate(SENTENCES[:6], num_beams=4)]
    assert [json.loads(line)["pt"] for line in (tmp_path / "b.jsonl").read_text().splitlines()] == expected


REFUSED = {
    "a long text": (["--keep-going"], "word " * 2000, 1, "line 1 is refused: contents[0] has "),
    "another language": (["--to", "de"], "a", 2, 'target_language_code is "de"; the model has pt'),
    "another model": (["--model", "pt-en"], "a", 2, 'there is no model "pt-en"; the server has en-pt-int8'),
    "too many beams": (["--num-beams", "99"], "a", 2, "decoding.num_beams is 99; it must be from 1 to 16"),
    "no workers": (["--workers", "0"], "a", 2, "--workers: 0 is not from 1 to 1024"),
    "no such device": (["--device", "cuda"], "a", 2, "CUDA"),
    "samples": (["--do-sample"], "a", 2, "--do-sample needs --seed here"),
    "no package": (["--package", "/nowhere"], "a", 2, "/nowhere is no package, and has none"),
    "no column": (["--format", "csv"], "a", 2, "has a, and not one 'text'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_have_an_exit_code(name: str, tmp_path: Path) -> None:
    more, text, code, why = REFUSED[name]
    (tmp_path / "a.txt").write_text(f"{text}\n")
    arguments = ["--package", PACKAGE, *more] if "--package" not in more else more
    command = [*BULK, tmp_path / "a.txt", tmp_path / "b.txt", *arguments]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert why in done.stderr
    assert "Traceback" not in done.stderr
    assert "FAILED_PRECONDITION" not in done.stderr, "no server said so"
