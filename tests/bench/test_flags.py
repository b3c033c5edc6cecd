"""What measurements refuse before they begin, and what they leave when they are ended."""

import importlib
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from bench.flags.values import folder_at, package_at, positive, whole
from bench.options.before import revisions
from bench.server.libretranslate import python_of
from tests.server_process import ROOT, WAIT_S

ZOO = ROOT / "models" / "zoo" / "en-pt-int8"
UNTIL_KILLED = """
import sys, time
from bench.process import serving

with serving("server", ["--package", sys.argv[1], "--workers", "1", "--log-level", "error"]) as server:
    print(server.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("value", "given", "why"),
    [
        (package_at, "nowhere", "nowhere is not a package: manifest.json cannot be read"),
        (folder_at, "nowhere", "nowhere is no folder"),
        (whole, "0", "0 is less than 1"),
        (whole, "-3", "-3 is less than 1"),
        (positive, "0", "0 is no number above 0"),
        (positive, "nan", "nan is no number above 0"),
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


def test_values_that_are_right() -> None:
    assert (package_at(str(ZOO)), whole("7"), positive("0.5")) == (ZOO, 7, 0.5)
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
