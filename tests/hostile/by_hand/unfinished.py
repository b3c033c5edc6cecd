"""`python -m tests.hostile.by_hand.unfinished`: how much memory messages take that are never finished.

Every connection holds calls whose message comes but for its last byte, and begins others instead of those refused.
"""

import argparse
from pathlib import Path

from dragoman import Client
from server.config import Settings
from tests.hostile.connections.attacks import all_but_finished, seconds
from tests.server_process import ServerProcess, server_process

ZOO = Path("models/zoo/en-pt-int8")
LARGEST = Settings.model_fields["max_message_bytes"].default
MEGABYTE = 1_000_000


def resident_bytes(server: ServerProcess) -> int:
    facts = Path(f"/proc/{server.process.pid}/status").read_text()
    [kilobytes] = [line.split()[1] for line in facts.splitlines() if line.startswith("VmRSS")]
    return int(kilobytes) * 1024


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.by_hand.unfinished", description=__doc__)
    parser.add_argument(
        "--connections", type=int, default=1000, metavar="N", help="of attackers (default: %(default)d)"
    )
    parser.add_argument("--calls", type=int, default=1, metavar="N", help="of each connection (default: %(default)d)")
    parser.add_argument("--seconds", type=float, default=12.0, metavar="S", help="of the attack (default: %(default)g)")
    parser.add_argument(
        "--size", type=int, default=LARGEST, metavar="BYTES", help="of a message (default: %(default)d)"
    )
    parser.add_argument("server", nargs="*", help="more arguments of the server, after --")
    args = parser.parse_args()
    with server_process(ZOO, *args.server) as server, Client(server.target) as client:
        expected = client.translate("A cat.").text
        before = resident_bytes(server)
        grown, passed = [0], seconds(args.seconds)

        def over() -> bool:
            """Once a round of all connections."""
            grown.append(resident_bytes(server) - before)
            return passed()

        all_but_finished(server.port, args.connections, args.calls, args.size, over)
        assert client.translate("A cat.", no_cache=True).text == expected
        left = resident_bytes(server) - before
        print(
            f"{args.connections} x {args.calls}: at most {max(grown) / MEGABYTE:.0f} MB, {left / MEGABYTE:.0f} are left"
        )


if __name__ == "__main__":
    main()
