"""`python -m tests.hostile.by_hand.network`: a server and clients over networks that lose packets, are slow or long.

In a network namespace of its own (`unshare`), whose loopback has the packets of Ethernet: iptables drops some of them
each way, tc's token bucket slows all of them down, a proxy keeps what they bring for a while. What is answered is
compared with what it is translated to there before. Takes Linux, util-linux, iproute2 and iptables, and root or user
namespaces.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Timer

from bench.measure import percentile
from bench.pages.markdown import table
from dragoman import Client, DragomanError
from tests.hostile.connections.proxy import proxy
from tests.server_process import ServerProcess, eventually, server_process

ZOO = Path("models/zoo/en-pt-int8")
INSIDE = "--inside"
"""The namespace is there."""
ETHERNET_BYTES = 1500
BURST_BYTES, QUEUE_BYTES = 4 * ETHERNET_BYTES, 64 * 1024
"""Of the token bucket. What is beyond the queue is dropped, as by a router."""
PIECE_BYTES = 100
"""Of what passes a long network at a time: frames of HTTP/2 come in parts."""
DEADLINE_S = 30.0


@dataclass(frozen=True)
class Network:
    """How it is."""

    loss: float = 0.0
    """Share of the packets, each way."""
    kilobits: int | None = None
    """In a second, both ways together. None: no limit."""
    heals_after_s: float | None = None
    delay_s: float = 0.0
    """Each way, of pieces of a few bytes that take up to half as long more or less."""

    def __str__(self) -> str:
        told = [f"{self.loss:.0%} lost"] if self.loss else []
        told += [f"{self.kilobits} kbit/s"] if self.kilobits else []
        told += [f"{1000 * self.delay_s:g} ms each way"] if self.delay_s else []
        told += [f"for {self.heals_after_s:g} s"] if self.heals_after_s else []
        return ", ".join(told) or "as it is"


NETWORKS = [
    Network(),
    Network(loss=0.01),
    Network(loss=0.05),
    Network(loss=0.1),
    Network(loss=0.2),
    Network(kilobits=1000),
    Network(kilobits=256),
    Network(loss=0.05, kilobits=1000),
    Network(loss=1, heals_after_s=5),
    Network(delay_s=0.05),
    Network(delay_s=0.15),
    Network(delay_s=0.05, loss=0.05),
]


@contextmanager
def made(network: Network, server: ServerProcess) -> Iterator[str]:
    """The network is so until the end. Gives where clients find the server."""
    loses = ("INPUT", "-i", "lo", "-p", "tcp", "-m", "statistic", "--mode", "random", "--probability", network.loss)
    queue = ("rate", f"{network.kilobits}kbit", "burst", BURST_BYTES, "limit", QUEUE_BYTES)
    healing = None
    if network.loss:
        do("iptables", "-A", *loses, "-j", "DROP")
    if network.kilobits:
        do("tc", "qdisc", "add", "dev", "lo", "root", "tbf", *queue)
    if network.heals_after_s:
        healing = Timer(network.heals_after_s, partial(do, "iptables", "-F"))
        healing.start()
    far = proxy(server.port) if network.delay_s else nullcontext()
    try:
        with far as between:
            if between is not None:
                between.delay_s, between.piece_bytes = network.delay_s, PIECE_BYTES
            yield server.target if between is None else f"127.0.0.1:{between.port}"
    finally:
        if healing is not None:
            healing.join()
        do("iptables", "-F")
        if network.kilobits:
            do("tc", "qdisc", "del", "dev", "lo", "root")


def do(*command: object) -> None:
    subprocess.run([*map(str, command)], check=True)


def packets_dropped() -> int:
    """By the rules there are."""
    rules = subprocess.run(["iptables", "-nvxL", "INPUT"], check=True, capture_output=True, text=True).stdout
    return sum(int(line.split()[0]) for line in rules.splitlines() if "DROP" in line)


def ask(client: Client, text: str) -> tuple[str | None, float]:
    """Its translation, and how long it took. None: none came in time."""
    start = time.monotonic()
    try:
        found = client.translate(text, timeout_s=DEADLINE_S, no_cache=True).text
    except DragomanError as error:
        print(f"  {text}: {error}", file=sys.stderr)
        return None, time.monotonic() - start
    return found, time.monotonic() - start


def row(network: Network, server: ServerProcess, texts: Sequence[str], alone: Sequence[str]) -> list[str]:
    """What became of the texts."""
    with made(network, server) as target, Client(target) as client, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(partial(ask, client), texts))
        dropped = packets_dropped()
    eventually(lambda: server.metrics()("dragoman_rpc_in_flight") == 0)
    wrong = sum(one not in (None, expected) for (one, _), expected in zip(found, alone, strict=True))
    took = sorted(seconds for _, seconds in found)
    lost = sum(one is None for one, _ in found)
    times = [f"{percentile(took, percent):.2f}" for percent in (50, 99)]
    return [str(network), str(dropped), str(len(texts)), str(lost), str(wrong), *times]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.by_hand.network", description=__doc__)
    parser.add_argument("--texts", type=int, default=400, metavar="N", help="of each network (default: %(default)d)")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        command = [sys.executable, "-m", "tests.hostile.by_hand.network", *sys.argv[1:], INSIDE]
        os.execvp("unshare", ["unshare", "--map-root-user", "--net", *command])
    do("ip", "link", "set", "lo", "up", "mtu", ETHERNET_BYTES)
    texts = [f"The {number} cats are in the house." for number in range(args.texts)]
    with server_process(ZOO) as server:
        with Client(server.target) as client:
            alone = [translation.text for translation in client.translate(texts)]
        rows = [row(network, server, texts, alone) for network in NETWORKS]
    header = ["network", "packets lost", "texts", "without an answer", "wrong", "median, s", "99 %, s"]
    print(table(header, rows))


if __name__ == "__main__":
    main()
