"""The flags of the command `dragoman`."""

import argparse
import math
import os
from pathlib import Path

from dragoman.channel import DEFAULT_TARGET, TlsOptions
from dragoman.client import DEFAULT_TIMEOUT_S
from dragoman.results import EarlyStopping
from dragoman.wire import TranslationOptions

DEFAULT_CONCURRENCY = 64
EARLY_STOPPING: dict[str, EarlyStopping] = {"true": True, "false": False, "never": "never"}


class Arguments(argparse.Namespace):
    """What the command line says. `models` and `health` have only the first block."""

    command: str
    target: str
    timeout: float
    tls: bool
    ca: TlsOptions | None
    json: bool

    texts: list[str]
    file: str | None
    model: str
    keep_going: bool
    progress: bool
    concurrency: int

    source_language: str
    target_language: str
    num_beams: int | None
    num_return_sequences: int | None
    max_new_tokens: int | None
    length_penalty: float | None
    early_stopping: str | None
    timings: bool

    normalize: bool
    service: str

    def tls_options(self) -> TlsOptions | None:
        """Transport security; None is plaintext."""
        return self.ca or (TlsOptions() if self.tls else None)

    def translation_options(self) -> TranslationOptions:
        """The options of a translation; those left out are None."""
        return {
            "source_language": self.source_language,
            "target_language": self.target_language,
            "model": self.model,
            "num_beams": self.num_beams,
            "num_return_sequences": self.num_return_sequences,
            "max_new_tokens": self.max_new_tokens,
            "length_penalty": self.length_penalty,
            "early_stopping": None if self.early_stopping is None else EARLY_STOPPING[self.early_stopping],
        }


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser("dragoman", description="Client of a Dragoman translation server.")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    connection, lines = _connection_flags(), _line_flags()

    def command(name: str, summary: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        # A shortened flag would change its meaning when a longer one is added.
        return commands.add_parser(name, help=summary, description=summary, parents=parents, allow_abbrev=False)

    _add_translate_flags(command("translate", "translate texts, one line out for every line in", connection, lines))
    encode = command("encode", "turn texts into vectors, one line out for every line in", connection, lines)
    encode.add_argument("--normalize", action="store_true", help="divide every vector by its L2 norm")
    command("models", "list the server's models and their limits", connection)
    health = command("health", "tell whether the server is serving; the exit code is 0 only then", connection)
    health.add_argument("--service", default="", help="a gRPC service (default: the whole server)")
    return top


def _connection_flags() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(add_help=False)
    flags.add_argument(
        "--target",
        type=_target,
        default=os.environ.get("DRAGOMAN_TARGET") or DEFAULT_TARGET,
        metavar="HOST:PORT",
        help=f"the server (default: $DRAGOMAN_TARGET or {DEFAULT_TARGET})",
    )
    flags.add_argument(
        "--timeout",
        type=_seconds,
        default=DEFAULT_TIMEOUT_S,
        metavar="SECONDS",
        help="most time for each request (default: %(default)g)",
    )
    flags.add_argument("--tls", action="store_true", help="use TLS; without it the connection is plaintext")
    flags.add_argument(
        "--ca", type=_authorities, metavar="FILE", help="use TLS and trust the authorities of this PEM file"
    )
    flags.add_argument("--json", action="store_true", help="write JSON with all fields, one object on each line")
    return flags


def _line_flags() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(add_help=False)
    source = flags.add_mutually_exclusive_group(required=True)
    source.add_argument("texts", nargs="*", default=[], metavar="TEXT", help="a text")
    source.add_argument("--file", help="read one text from each line of FILE; - is standard input")
    flags.add_argument("--model", default="", metavar="NAME", help="the model (default: the server's)")
    flags.add_argument(
        "--keep-going", action="store_true", help="go on after a refused line: its output is empty, the exit code 1"
    )
    flags.add_argument("--progress", action="store_true", help="tell progress even if standard error is no terminal")
    flags.add_argument(
        "--concurrency",
        type=_request_count,
        default=DEFAULT_CONCURRENCY,
        metavar="N",
        help="most requests under way at once (default: %(default)d)",
    )
    return flags


def _add_translate_flags(translate: argparse.ArgumentParser) -> None:
    translate.add_argument("--source-language", default="", metavar="CODE", help="BCP-47 code of the texts")
    translate.add_argument("--target-language", default="", metavar="CODE", help="BCP-47 code to translate into")
    translate.add_argument("--num-beams", type=_int32, metavar="N", help="hypotheses kept at every step; 1 is greedy")
    translate.add_argument(
        "--num-return-sequences", type=_int32, metavar="N", help="hypotheses returned; --json shows them all"
    )
    translate.add_argument("--max-new-tokens", type=_int32, metavar="N", help="most tokens of a translation")
    translate.add_argument("--length-penalty", type=float, metavar="X", help="above 0 favours long hypotheses")
    translate.add_argument("--early-stopping", choices=EARLY_STOPPING, help="when beam search ends")
    translate.add_argument(
        "--timings", action="store_true", help="tell where the time of each text went, on standard error"
    )


# The types of the flags; argparse shows ArgumentTypeError's message with the flag's name


def _target(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError(f"is empty; give HOST:PORT, such as {DEFAULT_TARGET}")
    return text


def _authorities(path: str) -> TlsOptions:
    try:
        return TlsOptions(root_certificates=Path(path).read_bytes())
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from error


def _seconds(text: str) -> float:
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text} is not a positive, finite number of seconds")
    return value


def _int32(text: str) -> int:
    """The server knows the ranges; this is only what its messages can hold."""
    value = int(text)
    if not -(2**31) <= value < 2**31:
        raise argparse.ArgumentTypeError(f"{value} does not fit 32 bits")
    return value


def _request_count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{value} is not from 1 to 1000")
    return value
