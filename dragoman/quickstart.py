"""From a package to translations on the screen: what `make run` runs.

Starts `python -m server`, translates three sentences through it, says what to type next, and serves until interrupted.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from dragoman.channel import DEFAULT_TARGET
from dragoman.client import Client
from dragoman.errors import DragomanError
from dragoman.results.server import Health

HOST = "127.0.0.1"
POLL_S = 0.05
SENTENCES = (
    "The children were playing happily in the garden when it started to rain.",
    "Where can I buy a ticket for the last train to Lisbon?",
    "A good translator carries the meaning across, not the words.",
)


def main() -> int:
    """Returns the server's exit code, or 1 if it does not translate."""
    arguments = _parse_arguments()
    arguments.port = _usable(arguments.port, "DRAGOMAN_PORT")
    arguments.metrics_port = _usable(arguments.metrics_port, "DRAGOMAN_METRICS_PORT")
    arguments.http_port = _usable(arguments.http_port, "DRAGOMAN_HTTP_PORT")
    server = _start_server(arguments)
    try:
        if _wait_until_serving(server, arguments.port):
            _show_translations(arguments.port)
            _show_next_steps(arguments.port, arguments.http_port, arguments.metrics_port)
    except DragomanError as error:
        print(f"The server did not translate: {error}", file=sys.stderr)
        server.terminate()
        return _wait(server) or 1
    code = _wait(server)
    return code if code >= 0 else 128 - code


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dragoman.quickstart", description=__doc__)
    parser.add_argument("package", help="folder of the model's package")
    parser.add_argument("--port", type=_port, default=8500, help="where the server listens")
    parser.add_argument("--http-port", type=_port, default=8580, help="where the server answers HTTP")
    parser.add_argument("--metrics-port", type=_port, default=9500, help="where Prometheus finds the metrics")
    return parser.parse_args()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 65535")
    return int(text)


def _usable(port: int, variable: str) -> int:
    """The port, or one that is free where it is 0. Exits the process where it is in use.

    Else a server that runs there already would answer for the one that cannot start.
    """
    try:
        with socket.create_server((HOST, port)) as probe:
            found: int = probe.getsockname()[1]
            return found
    except OSError as error:
        cause = os.strerror(error.errno or 0)
        sys.exit(f"{HOST}:{port} cannot be used: {cause}. Choose another port: make run {variable}=...")


def _start_server(arguments: argparse.Namespace) -> "subprocess.Popen[bytes]":
    """Starts the server and passes signals on to it.

    It has a process group of its own: a Ctrl-C reaches it once, from here.
    """
    ports = {"port": arguments.port, "http-port": arguments.http_port, "metrics-port": arguments.metrics_port}
    flags = [part for name, port in ports.items() for part in (f"--{name}", str(port))]
    server = subprocess.Popen([sys.executable, "-m", "server", "--package", arguments.package, *flags], process_group=0)

    def forward(signum: int, frame: FrameType | None) -> None:
        server.send_signal(signal.SIGINT if signum == signal.SIGINT else signal.SIGTERM)

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, forward)
    return server


def _wait_until_serving(server: "subprocess.Popen[bytes]", port: int) -> bool:
    """False if the server ended instead; it has said why."""
    while server.poll() is None:
        if is_serving(port):
            return True
        time.sleep(POLL_S)
    return False


def is_serving(port: int) -> bool:
    """Whether a server on this machine says that it serves."""
    try:
        # gRPC waits a second or more after a connection was refused; this costs nothing.
        socket.create_connection((HOST, port), timeout=1).close()
        with Client(f"{HOST}:{port}") as client:
            return client.health() is Health.SERVING
    except (OSError, DragomanError):
        return False


def _wait(server: "subprocess.Popen[bytes]") -> int:
    """Waits for the server's exit code.

    Not with `server.wait()`: a signal that comes just before it sleeps would be passed on only when it wakes.
    """
    while (code := server.poll()) is None:
        time.sleep(POLL_S)
    return code


def _show_translations(port: int) -> None:
    with Client(f"{HOST}:{port}") as client:
        results = client.translate(list(SENTENCES))
    for sentence, result in zip(SENTENCES, results, strict=True):
        queue, encode, decode, total = (
            f"{1000 * seconds:.1f}"
            for seconds in (
                result.timings.queue_s,
                result.timings.encode_s,
                result.timings.decode_s,
                result.timings.total_s,
            )
        )
        print(f"\n  {sentence}\n  {result.text}")
        print(f"  {total} ms: queue {queue}, encode {encode}, decode {decode} in {result.timings.steps} steps")


def _show_next_steps(port: int, http_port: int, metrics_port: int) -> None:
    command = os.path.relpath(Path(sys.executable).with_name("dragoman"))
    target = "" if f"{HOST}:{port}" == DEFAULT_TARGET else f" --target {HOST}:{port}"
    print(
        f"""
The server listens on {HOST}:{port}. Try in another terminal:

  {command} translate{target} "How are you today?"
  {command} translate{target} --num-beams 4 --json "How are you today?"
  {command} models{target}
  curl http://{HOST}:{http_port}/translate -d "q=How are you today?" -d source=en -d target=pt
  curl http://{HOST}:{metrics_port}/metrics

http://{HOST}:{http_port}/docs says what else HTTP has.

Ctrl-C ends it.""",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
