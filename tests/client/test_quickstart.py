"""`make run` with the real server: on a terminal, and what it says when it cannot start."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.process import free_port
from dragoman.quickstart import SENTENCES
from tests.checkpoints import ROOT, ZOO

LAST_LINE = "Ctrl-C ends it."
CTRL_C = "\x03"

ON_A_TERMINAL = "import os, pty, sys; status = pty.spawn(sys.argv[1:]); sys.exit(os.waitstatus_to_exitcode(status))"
"""Runs a command on a new terminal that it shows on stdout, and types what comes on stdin."""


def make_run() -> list[str]:
    """`make run` in the environment the tests run in."""
    return ["make", "--old-file=.venv/.serving", "run", f"BIN={Path(sys.executable).parent}"]


def quickstart(package: Path, port: int) -> list[str]:
    ports = ["--port", str(port), "--http-port", str(free_port())]
    return [sys.executable, "-m", "dragoman.quickstart", str(package), *ports]


@contextmanager
def running(*command: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """A command that is ended with the block, and with it what it started."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def read_until_ready(process: "subprocess.Popen[str]") -> str:
    """What it printed up to its last line, or to its end."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if LAST_LINE in line:
            break
    return "".join(lines)


def test_make_run_translates_and_ctrl_c_ends_it_with_0() -> None:
    port, http_port, metrics_port = str(free_port()), str(free_port()), str(free_port())
    ports = {"DRAGOMAN_PORT": port, "DRAGOMAN_HTTP_PORT": http_port, "DRAGOMAN_METRICS_PORT": metrics_port}
    command = [sys.executable, "-c", ON_A_TERMINAL, *make_run()]
    with running(*command, **ports) as process:
        shown = read_until_ready(process)
        for sentence in SENTENCES:
            assert sentence in shown
        assert "As crianças estavam brincando alegremente no jardim" in shown
        assert shown.count(" ms: queue ") == len(SENTENCES)
        assert f"--target 127.0.0.1:{port}" in shown
        assert f"http://127.0.0.1:{metrics_port}/metrics" in shown
        assert f"http://127.0.0.1:{http_port}/translate" in shown
        assert process.stdin is not None
        process.stdin.write(CTRL_C)
        process.stdin.flush()
        rest, _ = process.communicate()
        assert process.returncode == 0, rest
        assert "draining" in rest
        assert "Error" not in rest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_and_its_exit_code_is_passed_on(number: signal.Signals) -> None:
    port = free_port()
    with running(*quickstart(ZOO, port), "--metrics-port", str(free_port())) as process:
        read_until_ready(process)
        process.send_signal(number)
        assert process.wait() == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with running(*quickstart(tmp_path / "nothing", free_port())) as process:
        shown = read_until_ready(process)
        assert process.wait() == 2
    assert shown.startswith("python -m server: ")
    assert "nothing" in shown
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize("variable", ["DRAGOMAN_PORT", "DRAGOMAN_HTTP_PORT", "DRAGOMAN_METRICS_PORT"])
def test_a_port_in_use_is_refused(variable: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        names = ("DRAGOMAN_PORT", "DRAGOMAN_HTTP_PORT", "DRAGOMAN_METRICS_PORT")
        ports = dict.fromkeys(names, 0) | {variable: port}
        with running(*make_run(), **{name: str(number) for name, number in ports.items()}) as process:
            shown = read_until_ready(process)
            assert process.wait() == 2  # make's, for a command that ended with 1
    assert f"127.0.0.1:{port} cannot be used: Address already in use" in shown
    assert f"make run {variable}=..." in shown


def interpreter(file: Path, version: str, fits: bool) -> None:
    """A Python that says what it is, and makes no environment."""
    file.write_text(
        f'#!/bin/sh\ncase "$1" in -c) exit {int(not fits)};; --version) echo "Python {version}";; *) exit 9;; esac\n'
    )
    file.chmod(0o755)


def make_environment(tmp_path: Path, *settings: str, path: str = "") -> str:
    """What `make` says of an environment that cannot be made."""
    command = ["make", "run", f"VENV={tmp_path / 'venv'}", *settings]
    environment = os.environ | {"PATH": path + os.environ["PATH"]}
    environment.pop("PYTHON", None)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    return done.stderr


def test_make_says_which_python_is_needed(tmp_path: Path) -> None:
    interpreter(tmp_path / "python3", "3.15.0", fits=False)
    shown = make_environment(tmp_path, f"PYTHON={tmp_path / 'python3'}")
    assert "Python 3.15.0 cannot be used" in shown and "Python 3.11 to 3.14" in shown
    assert "'nosuch' was not found" in make_environment(tmp_path, "PYTHON=nosuch")


def test_make_takes_the_newest_python_that_fits_where_python3_does_not(tmp_path: Path) -> None:
    interpreter(tmp_path / "python3", "3.15.0", fits=False)
    interpreter(tmp_path / "python3.14", "3.14.1", fits=True)
    interpreter(tmp_path / "python3.13", "3.13.9", fits=True)
    assert "'python3.14 -m venv' failed" in make_environment(tmp_path, path=f"{tmp_path}:")


@pytest.mark.parametrize("port", ["99999", "-1", "http"])
def test_a_port_that_there_is_not_is_refused(port: str) -> None:
    command = [*quickstart(ZOO, free_port()), f"--http-port={port}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"error: argument --http-port: {port} is not from 0 to 65535\n")


def test_any_port_that_is_free_is_told() -> None:
    with running(*quickstart(ZOO, 0), "--metrics-port", "0") as process:
        shown = read_until_ready(process)
    [port] = re.findall(r"listens on 127\.0\.0\.1:(\d+)\.", shown)
    assert int(port) > 0
    assert f"--target 127.0.0.1:{port}" in shown
    assert "127.0.0.1:0/" not in shown
