"""Who may call, with real processes: the command that makes a token, a server, the command line, SIGHUP."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.process import serving
from dragoman import Client, Unauthenticated
from tests.server_process import ROOT, WAIT_S, eventually, server_process
from tests.serving import ZOO


def made(folder: Path, name: str) -> str:
    """The lines that let a new token in, which is in a file of its name."""
    command = [sys.executable, "-m", "server.identity", name, "--token-file", str(folder / name)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def translate(target: str, environment: dict[str, str], *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dragoman", "translate", "--target", target, *flags, "Where is the station?"]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=WAIT_S)


def refused(target: str, token: str) -> bool:
    try:
        with Client(target, token=token) as client:
            client.models()
    except Unauthenticated:
        return True
    return False


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="SIGHUP is not on this system")
def test_a_caller_is_let_in_until_the_file_says_otherwise(tmp_path: Path) -> None:
    callers = tmp_path / "callers.toml"
    callers.write_text(made(tmp_path, "reports"))
    token = (tmp_path / "reports").read_text().strip()
    with server_process(ZOO, "--callers", callers, "--log-requests") as server:
        answers = [
            translate(server.target, {}, "--token-file", str(tmp_path / "reports")),
            translate(server.target, {"DRAGOMAN_TOKEN_FILE": str(tmp_path / "reports")}),
            translate(server.target, {"DRAGOMAN_TOKEN": token}),
        ]
        assert [(answer.returncode, answer.stdout) for answer in answers] == [(0, "Onde está a estação?\n")] * 3
        nobody = translate(server.target, {})
        assert (nobody.returncode, nobody.stdout) == (1, "")
        assert "(NO_CREDENTIALS)" in nobody.stderr
        assert subprocess.run([sys.executable, "-m", "dragoman", "health", "--target", server.target]).returncode == 0

        callers.write_text("[callers.broken]")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: server.metrics()("dragoman_reload_failed", source="callers") == 1)
        assert not refused(server.target, token)
        callers.write_text(made(tmp_path, "billing"))  # and no signal
        eventually(lambda: refused(server.target, token))
        assert server.metrics()("dragoman_reload_failed", source="callers") == 0
        assert server.end(signal.SIGTERM) == 0
        assert server.process.stderr is not None
        log = server.process.stderr.read()
    assert log.count("caller=reports ") >= 3
    assert token not in log
    assert "callers is not taken up, and what was in use stays so" in log


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="SIGHUP is not on this system")
def test_a_server_that_has_just_begun_to_serve_reads_its_files_again(tmp_path: Path) -> None:
    callers = tmp_path / "callers.toml"
    callers.write_text(made(tmp_path, "reports"))
    with serving("server", ["--package", str(ZOO), "--callers", str(callers)]) as server:  # until health says so
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: server.counted("dragoman_reloads_total", {"source": "callers"}) > 0)
        assert server.end() == 0
