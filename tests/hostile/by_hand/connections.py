"""`python -m tests.hostile.by_hand.connections`: what hostile connections cost others and the server's memory.

An attack comes from an address of its own, at the lowest priority, while somebody else translates one text after the
other. It tells the memory that the process grew by at most, and the 99th percentile of those calls over that before.
"""

import argparse
import multiprocessing
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench.soak.http2 import PING, PREFACE, Connection, frame, message
from bench.soak.strangers import Server
from dragoman import Client
from dragoman.errors import DragomanError
from dragoman.quickstart import HOST
from dragoman.v1.encoding_pb2 import EncodeRequest, StreamEncodeRequest
from dragoman.v1.translation_pb2 import StreamTranslateRequest, TranslateRequest
from server.config import Settings
from tests.hostile.connections.attacks import (
    LIST_MODELS,
    TRANSLATE,
    WATCH,
    all_but_finished,
    seconds,
    streams,
    unread,
)
from tests.server_process import ServerProcess, eventually, server_process

ZOO = Path("models/zoo/en-pt-int8")
LARGEST: int = Settings.model_fields["max_message_bytes"].default
STREAM = "/dragoman.v1.TranslationService/StreamTranslate"
OTHER_HOST = "127.0.0.2"
"""Of the attackers: another caller than those who are asked for their times."""
MEGABYTE = 1_000_000
ENCODE = "/dragoman.v1.EncodingService/StreamEncode"
ONE_ENCODED = message(StreamEncodeRequest(request=EncodeRequest(contents=["A cat."])).SerializeToString())
ONE_TEXT = message(TranslateRequest(contents=["A cat."]).SerializeToString())
LARGE_HEADERS = {f"x-{number}": "v" * 100 for number in range(100)}


class Attack:
    """So many connections, with so many calls each, from one address, until it is over."""

    def __init__(self, server: Server, connections: int, calls: int, size: int, source: str) -> None:
        self._port, self._metrics_port = server.port, server.metrics_port
        self._connections, self._calls, self._size, self._source = connections, calls, size, source

    def unfinished(self, over: Callable[[], bool]) -> None:
        """Messages of which all comes but the last byte."""
        all_but_finished(self._port, self._connections, self._calls, self._size, over, self._source)

    def paused(self, over: Callable[[], bool]) -> None:
        """The same, of streams whose first request was whole."""
        sizes = self._connections, self._calls, self._size
        all_but_finished(self._port, *sizes, over, self._source, ENCODE, ONE_ENCODED)

    def silent(self, over: Callable[[], bool]) -> None:
        """Not a word."""
        self._say(b"", self._port, over)

    def greeted(self, over: Callable[[], bool]) -> None:
        """The greeting of HTTP/2."""
        self._say(PREFACE, self._port, over)

    def metrics(self, over: Callable[[], bool]) -> None:
        """Half a request to the metrics port."""
        self._say(b"GET /metrics HTTP/1.1\r\n", self._metrics_port, over)

    def requestless(self, over: Callable[[], bool]) -> None:
        """Calls without a request."""
        with streams(self._port, self._connections, self._calls, self._source):
            hold(over)

    def unread(self, over: Callable[[], bool]) -> None:
        """Answers that nobody reads."""
        self._unread(LIST_MODELS, b"", over)

    def unread_streams(self, over: Callable[[], bool]) -> None:
        """Translations that nobody reads."""
        self._unread(STREAM, StreamTranslateRequest(content="Good morning.").SerializeToString(), over)

    def watchers(self, over: Callable[[], bool]) -> None:
        """Of health, who do not read."""
        self._unread(WATCH, b"", over)

    def reset(self, over: Callable[[], bool]) -> None:
        """Calls that are taken back as soon as they are made."""

        def do(one: Connection) -> None:
            number = one.begin(TRANSLATE)
            one.send(number, ONE_TEXT, end=True)
            one.reset(number)

        self._each(do, over)

    def pinged(self, over: Callable[[], bool]) -> None:
        """Frames that ask for an answer each, which nobody reads."""
        self._each(lambda one: one.send_frames(frame(PING, 0, 0, bytes(8)) * 100), over)

    def headed(self, over: Callable[[], bool]) -> None:
        """Calls with headers that are too large."""
        self._each(lambda one: one.begin(TRANSLATE, LARGE_HEADERS), over)

    def _say(self, what: bytes, port: int, over: Callable[[], bool]) -> None:
        with ExitStack() as opened:
            for _ in range(self._connections):
                with suppress(OSError):
                    one = socket.create_connection((HOST, port), 60, (self._source, 0))
                    opened.enter_context(one).sendall(what)
            hold(over)

    def _unread(self, method: str, request: bytes, over: Callable[[], bool]) -> None:
        calls = self._connections * self._calls
        with unread(self._port, calls, method, request, self._connections, self._source):
            hold(over)

    def _each(self, do: Callable[[Connection], object], over: Callable[[], bool]) -> None:
        """By every connection, again and again: one that the server has closed is opened anew."""
        opened: list[Connection | None] = [None] * self._connections
        while not over():
            for number, one in enumerate(opened):
                try:
                    one = opened[number] = one or Connection(self._port, source=self._source)
                    one.send_frames(b"")
                    do(one)
                except OSError:
                    if one is not None:
                        one.close()
                    opened[number] = None


KINDS = tuple(name for name in vars(Attack) if not name.startswith("_"))


def hold(over: Callable[[], bool]) -> None:
    while not over():
        time.sleep(0.1)


def run(attack: Attack, kind: str, most_s: float) -> None:
    """In a process of its own."""
    os.nice(19)
    with suppress(OSError):  # the server has had enough
        getattr(attack, kind)(seconds(most_s))


def resident_bytes(server: ServerProcess) -> int:
    facts = Path(f"/proc/{server.process.pid}/status").read_text()
    [kilobytes] = [line.split()[1] for line in facts.splitlines() if line.startswith("VmRSS")]
    return int(kilobytes) * 1024


@contextmanager
def sampled(server: ServerProcess) -> Iterator[list[int]]:
    """What is resident, twenty times a second."""
    samples, ended = [resident_bytes(server)], threading.Event()

    def sample() -> None:
        while not ended.wait(0.05):
            samples.append(resident_bytes(server))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def asked(client: Client, over: Callable[[], bool]) -> tuple[Sequence[float], int]:
    """Seconds that each of some calls took, and how many were not answered."""
    took, failed = list[float](), 0
    while not over():
        began = time.perf_counter()
        try:
            client.translate("A cat.", no_cache=True, timeout_s=60)
        except DragomanError:
            failed += 1
        took.append(time.perf_counter() - began)
        time.sleep(0.02)
    return took, failed


def p99_ms(took: Sequence[float]) -> float:
    return 1000 * statistics.quantiles(took, n=100)[98]


def attacked(kind: str, args: argparse.Namespace) -> str:
    """A line of the report."""
    source = HOST if args.same_host else OTHER_HOST
    with server_process(ZOO, *args.server) as server, Client(server.target) as client:
        asked(client, seconds(2))
        before, _ = asked(client, seconds(args.seconds / 2))
        attack = Attack(server, args.connections, args.calls, args.size, source)
        process = multiprocessing.get_context("spawn").Process(target=run, args=(attack, kind, args.seconds))
        with sampled(server) as samples:
            process.start()
            during, failed = asked(client, lambda: not process.is_alive())
        process.join()
        eventually(lambda: server.metrics()("dragoman_rpc_in_flight") == 0)
        grown, left = (max(samples) - samples[0]) / MEGABYTE, (resident_bytes(server) - samples[0]) / MEGABYTE
        refused = server.metrics()("dragoman_refusals_total")
    times = f"p99 {p99_ms(before):.1f} ms before, {p99_ms(during):.1f} during: {p99_ms(during) / p99_ms(before):.2f} x"
    memory = f"at most {grown:.0f} MB, {left:.0f} are left"
    return f"{kind:14} {memory}; {times}, {failed} of {len(during)} not answered; {refused:.0f} refused"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.by_hand.connections", description=__doc__)
    parser.add_argument("--attack", action="append", choices=KINDS, help="may be repeated (default: unfinished)")
    parser.add_argument(
        "--connections", type=int, default=1000, metavar="N", help="of attackers (default: %(default)d)"
    )
    parser.add_argument("--calls", type=int, default=1, metavar="N", help="of each connection (default: %(default)d)")
    parser.add_argument("--seconds", type=float, default=12.0, metavar="S", help="of the attack (default: %(default)g)")
    parser.add_argument("--size", type=int, default=LARGEST, metavar="BYTES", help="of messages (default: %(default)d)")
    parser.add_argument("--same-host", action="store_true", help="attackers have the address of those who are asked")
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="of each attack (default: %(default)d)")
    parser.add_argument("server", nargs="*", help="more arguments of the server, after --")
    args = parser.parse_args()
    for kind in args.attack or ["unfinished"]:
        for _ in range(args.repeats):
            print(attacked(kind, args), flush=True)


if __name__ == "__main__":
    main()
