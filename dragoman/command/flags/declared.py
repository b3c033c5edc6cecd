"""The flags there are."""

import argparse
from functools import partial
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor

from dragoman.channel import DEFAULT_TARGET
from dragoman.client import DEFAULT_TIMEOUT_S, RELOAD_TIMEOUT_S
from dragoman.command.commands import OWN
from dragoman.command.flags.parsing import Parser
from dragoman.command.flags.values import (
    authorities,
    best_count,
    bias,
    glossary,
    int32,
    int64,
    number,
    one_of,
    request_count,
    seconds,
    text,
)
from dragoman.v1.decoding_options import DOCS, GROUPS
from dragoman.wire.documents import FORMATS
from dragoman.wire.encoding import POOLINGS, TRUNCATIONS, TYPES
from dragoman.wire.labels import GROUPINGS
from dragoman.wire.messages import OPTIONS
from dragoman.wire.options import ENUMS

DOCUMENT_TIMEOUT_S = 3600.0
DEFAULT_CONCURRENCY = 64
LINE_COMMANDS = {
    "translate": "a text",
    "encode": "a text",
    "classify": "a text",
    "score": "a text and its translations with tabs between them",
}
"""Those that answer lines, and what a line is."""

Group = argparse._ArgumentGroup
"""Flags under a heading of `--help`."""


def parser(command: str) -> Parser:
    """The flags of one of them."""
    flags = Parser(f"dragoman {command}", OWN[command])
    if command in LINE_COMMANDS:
        _add_line_flags(flags, LINE_COMMANDS[command])
    if command in ("translate", "encode", "score"):
        flags.add_argument(
            "--prompt", type=text, metavar="NAME", help="a prompt of the model, which is put before each text"
        )
    if command in ("translate", "score"):
        _add_language_flags(flags)
    if command == "translate":
        _add_translate_flags(flags)
    if command == "score":
        flags.add_argument(
            "--tokens", action="store_true", help="tell the probability of every token, on standard error"
        )
    if command == "encode":
        _add_encode_flags(flags)
    if command == "classify":
        _add_classify_flags(flags)
    if command == "health":
        flags.add_argument("--service", type=text, default="", help="a gRPC service (default: the whole server)")
    if command == "reload":
        flags.add_argument(
            "--model", type=text, default="", metavar="NAME", help="which model (default: the server's first)"
        )
    _add_connection_flags(flags)
    if command == "reload":
        flags.set_defaults(timeout=RELOAD_TIMEOUT_S)
    return flags


def _add_connection_flags(flags: Parser) -> None:
    flags.add_argument(
        "--target",
        action="append",
        dest="targets",
        default=[],
        metavar="HOST:PORT",
        help=f"the server; may be given for several (default: $DRAGOMAN_TARGET or {DEFAULT_TARGET})",
    )
    flags.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help=f"most time for each request (default: {DEFAULT_TIMEOUT_S:g}; {DOCUMENT_TIMEOUT_S:g} for a document)",
    )
    flags.add_argument("--tls", action="store_true", help="use TLS; without it the connection is plaintext")
    flags.add_argument(
        "--ca", type=authorities, metavar="FILE", help="use TLS and trust the authorities of this PEM file"
    )
    flags.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the token that says who calls (default: $DRAGOMAN_TOKEN_FILE, or the token is $DRAGOMAN_TOKEN)",
    )
    flags.add_argument("--json", action="store_true", help="write JSON with all fields, one object on each line")


def _add_line_flags(flags: Parser, what: str) -> None:
    flags.add_argument(
        "texts", nargs="*", default=[], metavar="TEXT", help=f"{what}; each line of it is one of its own"
    )
    flags.add_argument(
        "--file",
        help=f"read {what} from each line of FILE; - is standard input, which is read without it if it is no terminal",
    )
    flags.add_argument("--model", type=text, default="", metavar="NAME", help="the model (default: the server's)")
    flags.add_argument(
        "--keep-going", action="store_true", help="go on after a refused line: its output is empty, the exit code 1"
    )
    flags.add_argument("--progress", action="store_true", help="tell progress even if standard error is no terminal")
    flags.add_argument(
        "--concurrency",
        type=request_count,
        default=DEFAULT_CONCURRENCY,
        metavar="N",
        help="most requests under way at once (default: %(default)d)",
    )


def _add_language_flags(flags: Parser) -> None:
    flags.add_argument(
        "--source-language", "--from", type=text, default="", metavar="CODE", help="BCP-47 code of the texts"
    )
    flags.add_argument(
        "--target-language", "--to", type=text, default="", metavar="CODE", help="BCP-47 code of the translations"
    )


def add_decoding_flags(flags: Parser) -> None:
    """The options of decoding, in their groups."""
    groups = {name: flags.add_argument_group(name) for name in GROUPS.values()}
    for name, field in OPTIONS.items():
        _add_option(groups[GROUPS[name]], field, DOCS[name].replace("`", "").replace("%", "%%"))


def _add_translate_flags(flags: Parser) -> None:
    add_decoding_flags(flags)
    flags.add_argument("--html", action="store_true", help="every text is a piece of HTML, whose tags come back")
    flags.add_argument("--sentences", action="store_true", help="every text may have several sentences, and any length")
    flags.add_argument(
        "--document",
        type=Path,
        metavar="FILE",
        help=f"translate a file of one of {', '.join(FORMATS)}",
    )
    flags.add_argument(
        "--output", type=Path, metavar="FILE", help="what the document becomes (default: letter.docx: letter.pt.docx)"
    )
    flags.add_argument("--glossary", type=glossary, metavar="FILE", help="lines TERM<TAB>TRANSLATION, or TERM")
    flags.add_argument(
        "--pivot", action="store_true", help="go by way of a third language where no model has both, if the server may"
    )
    flags.add_argument(
        "--no-cache", action="store_true", help="decode every text anew, even if the server has kept its answer"
    )
    flags.add_argument(
        "--n-best",
        type=best_count,
        metavar="N",
        help="the N best translations of each text, by a search with so many beams, or with --num-beams",
    )
    flags.add_argument(
        "--align", dest="with_alignment", action="store_const", const=True, help="the same as --with-alignment"
    )
    flags.add_argument(
        "--attention",
        type=Path,
        metavar="FILE",
        help="draw where every head looks for the one text, as with-attention gives it: PNG, SVG or PDF by the suffix",
    )
    flags.add_argument(
        "--timings", action="store_true", help="tell where the time of each text went, on standard error"
    )


def _add_encode_flags(flags: Parser) -> None:
    flags.add_argument(
        "--pooling",
        dest="poolings",
        action="append",
        choices=list(POOLINGS),
        help="what makes one vector of those of all tokens; given more than once, one vector after the other",
    )
    flags.add_argument("--dimensions", type=int32, metavar="N", help="the first so many values of a vector")
    flags.add_argument("--normalize", action=argparse.BooleanOptionalAction, help="divide every vector by its L2 norm")
    flags.add_argument("--type", choices=list(TYPES), help="the numbers that vectors are sent in")
    _add_truncation_flag(flags)


def _add_classify_flags(flags: Parser) -> None:
    flags.add_argument(
        "--most-labels", type=int32, metavar="N", help="so many labels, the most probable, of each text or token"
    )
    flags.add_argument("--grouping", choices=list(GROUPINGS), help="label each token, or neighbours of one kind")
    flags.add_argument("--pairs", action="store_true", help="lines are two texts with a tab between, labelled together")
    _add_truncation_flag(flags)


def _add_truncation_flag(flags: Parser) -> None:
    flags.add_argument(
        "--truncation", choices=list(TRUNCATIONS), help="refuse a text that is too long (error), or cut it (end)"
    )


def _add_option(flags: Group, field: FieldDescriptor, told: str) -> None:
    """A decoding option of the API as a flag, which may be given several times for several values.

    The server knows the ranges.
    """
    flag, action = f"--{field.name.replace('_', '-')}", "append" if field.is_repeated else "store"
    if field.message_type is not None:
        if field.message_type.name == "SequenceBias":
            flags.add_argument(flag, action=action, type=bias, metavar="TEXT=X", help=told)
        else:
            flags.add_argument(flag, action=action, type=text, metavar="TEXT", help=told)
    elif field.enum_type is not None:
        values = {str(value).lower(): value for value in ENUMS[field.enum_type.name]}
        flags.add_argument(flag, type=partial(one_of, values), metavar=f"{{{','.join(values)}}}", help=told)
    elif field.type == FieldDescriptor.TYPE_BOOL:
        flags.add_argument(flag, action=argparse.BooleanOptionalAction, help=told)
    elif field.type == FieldDescriptor.TYPE_INT32:
        flags.add_argument(flag, action=action, type=int32, metavar="N", help=told)
    elif field.type == FieldDescriptor.TYPE_INT64:
        flags.add_argument(flag, type=int64, metavar="N", help=told)
    elif field.type == FieldDescriptor.TYPE_STRING:
        flags.add_argument(flag, action=action, type=text, metavar="TEXT", help=told)
    else:
        flags.add_argument(flag, type=number, metavar="X", help=told)
