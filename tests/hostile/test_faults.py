"""What may fail around a server process: open files, the disk of its log, the clock, its turns at a core."""

import os
import re
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from shutil import which
from subprocess import run

import pytest

from bench.soak.http2 import PREFACE
from dragoman import Client
from server.identity.tokens import new_token, token_hash
from tests.server_process import WAIT_S, ServerProcess, eventually, server_process

ZOO = Path("models/zoo/en-pt-int8")
FEW_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from server.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
FEW_ADDRESSES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({bytes}, {bytes}))
from server.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
"""Of so many bytes, as by `ulimit -v`."""
FULL = Path("/dev/full")
FULL_DISK = f"""
import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: os.dup2(os.open("{FULL}", os.O_WRONLY), 2))
from server.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
"""What it writes to standard error finds no room, after SIGUSR1."""
JUMPING_CLOCK = """
import itertools, sys, time
real, jumps = time.time, itertools.cycle((0, 86400, -86400, 10 * 365 * 86400))
time.time = lambda: real() + next(jumps)
time.time_ns = lambda: int(time.time() * 1e9)
from server.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


READ_ONLY = """
import os, sys
nothing = 'mount -o remount,bind,ro / && ! touch /tmp/dragoman 2>&- && exec "$@"'
namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", nothing, "sh"]
os.execvp("unshare", [*namespace, sys.executable, "-m", "server", *sys.argv[1:]])
"""
"""It can write no file anywhere, /tmp included."""
HAS_NAMESPACES = which("unshare") is not None and not run(["unshare", "-rm", "true"], check=False).returncode


def is_answered(server: ServerProcess) -> bool:
    """Whether a new client is, at once."""
    with suppress(Exception), Client(server.target, wait_for_ready=False) as client:
        return bool(client.translate("A cat.", timeout_s=WAIT_S, no_cache=True).text)
    return False


def test_connections_that_take_all_open_files_leave_them_when_they_go() -> None:
    with server_process(ZOO, program=FEW_FILES) as server:
        with ExitStack() as opened:
            for _ in range(200):
                connection = opened.enter_context(socket.create_connection(("127.0.0.1", server.port), WAIT_S))
                with suppress(OSError):  # the server has closed it
                    connection.sendall(PREFACE)
            assert len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) <= 64
        eventually(lambda: is_answered(server))
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
def test_a_full_disk_below_the_log_costs_no_call() -> None:
    with server_process(ZOO, "--log-requests", program=FULL_DISK) as server, Client(server.target) as client:
        server.process.send_signal(signal.SIGUSR1)
        eventually(lambda: Path(f"/proc/{server.process.pid}/fd/2").readlink() == FULL)
        for number in range(50):
            assert client.translate(f"{number} cats.", timeout_s=WAIT_S).text
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.skipif(not HAS_NAMESPACES, reason="there are no namespaces here")
def test_a_disk_that_nothing_is_written_to_is_enough() -> None:
    with server_process(ZOO, "--log-requests", program=READ_ONLY) as server, Client(server.target) as client:
        assert client.translate("A cat.", timeout_s=WAIT_S).text == "Um gato."
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="nobody tells here which files a process has open")
def test_a_disk_that_hangs_below_the_callers_costs_no_call(tmp_path: Path) -> None:
    """A terminal at which nobody types: as a file server that has gone."""
    token, callers = new_token(), tmp_path / "callers.toml"
    callers.write_text(f'[callers.me]\ntokens = ["{token_hash(token)}"]\nscopes = ["translate"]\n')
    keyboard, terminal = os.openpty()
    with (
        server_process(ZOO, "--callers", callers, "--grace-period-s", 1) as server,
        Client(server.target, token=token) as client,
    ):
        before = client.translate("A cat.", no_cache=True).text
        hanging = tmp_path / "hanging"
        hanging.symlink_to(os.ttyname(terminal))
        hanging.rename(callers)
        server.process.send_signal(signal.SIGHUP)
        opened = Path(f"/proc/{server.process.pid}/fd")
        eventually(lambda: os.ttyname(terminal) in map(os.path.realpath, opened.iterdir()))
        for _ in range(5):
            assert client.translate("A cat.", no_cache=True).text == before
        assert server.end(signal.SIGTERM) == 0
    os.close(keyboard)
    os.close(terminal)


def test_a_clock_that_jumps_loses_no_call() -> None:
    with server_process(ZOO, "--canary-interval-s", 0.1, program=JUMPING_CLOCK) as server:
        with Client(server.target) as client:
            before = client.translate("A cat.", timeout_s=WAIT_S)
            for _ in range(50):
                assert client.translate("A cat.", timeout_s=WAIT_S).text == before.text
        assert server.metrics()("dragoman_build_info") == 1
        assert server.end(signal.SIGTERM) == 0


STOPPED_S = 12
"""Longer than a step may take until it is said to hang."""


def test_a_process_that_had_no_turn_for_a_while_goes_on_with_its_calls() -> None:
    """As where a virtual machine is moved: no engine has hung, and nobody is told so."""
    with server_process(ZOO) as server, Client(server.target) as client, ThreadPoolExecutor(8) as pool:

        def ask(number: int) -> str:
            return client.translate(f"{number} cats.", timeout_s=WAIT_S, no_cache=True).text

        before = list(pool.map(ask, range(64)))
        during = pool.map(ask, range(64))
        next(during)
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        server.process.send_signal(signal.SIGCONT)
        assert [before[0], *during] == before
        assert server.metrics()("dragoman_engine_restarts_total") == 0
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("megabytes", [600, 900])
def test_an_address_space_without_room_for_a_row_is_told_at_the_start(megabytes: int) -> None:
    program = FEW_ADDRESSES.format(bytes=megabytes * 1_000_000)
    flags = "--package", str(ZOO), "--workers", "1", "--port", "0", "--metrics-port", "0", "--no-http"
    started = run([sys.executable, "-c", program, *flags], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert started.returncode == 2
    assert re.search(r" may take \d+ MB .*; \d+ MB may be used \(--memory-mb\): not even one row", started.stderr)
    assert "Traceback" not in started.stderr


def test_in_an_address_space_with_little_room_the_longest_texts_and_widest_searches_are_answered() -> None:
    program = FEW_ADDRESSES.format(bytes=1_300_000_000)
    texts = [f"{number} " + "a " * 500 for number in range(32)]
    with server_process(ZOO, "--workers", 1, program=program) as server, Client(server.target) as client:
        budget = server.metrics()("dragoman_memory_bytes", kind="budget")
        assert budget <= server.metrics()("dragoman_memory_bytes", kind="limit") <= 1_300_000_000 - (512 << 20)
        with ThreadPoolExecutor(2) as threads:
            wide = threads.submit(client.translate, texts[:4], num_beams=16, max_new_tokens=32, timeout_s=4 * WAIT_S)
            many = threads.submit(client.translate, texts, max_new_tokens=32, timeout_s=4 * WAIT_S)
        assert (len(wide.result()), len(many.result())) == (4, 32)
        assert server.metrics()("dragoman_engine_restarts_total") == 0
        assert server.end(signal.SIGTERM) == 0
        assert server.process.stderr is not None
        assert "Traceback" not in server.process.stderr.read()
