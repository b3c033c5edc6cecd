"""The flags of the command `dragoman`."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from google.protobuf.descriptor import FieldDescriptor

from dragoman.channel import DEFAULT_TARGET, TlsOptions, Token, check_target, listed_targets, token_metadata
from dragoman.client import DEFAULT_TIMEOUT_S, RELOAD_TIMEOUT_S
from dragoman.command.commands import OWN
from dragoman.command.parsing import Parser
from dragoman.command.values import (
    authorities,
    bias,
    glossary,
    int32,
    int64,
    number,
    one_of,
    request_count,
    seconds,
)
from dragoman.v1.decoding_options import DOCS, GROUPS, DecodingKeywords
from dragoman.wire.documents import ENDINGS, FORMATS, DocumentOptions, format_of
from dragoman.wire.encoding import (
    POOLINGS,
    TRUNCATIONS,
    TYPES,
    EmbeddingType,
    EncodingOptions,
    Pooling,
    Truncation,
)
from dragoman.wire.messages import OPTIONS, TranslationOptions
from dragoman.wire.options import ENUMS
from dragoman.wire.scoring import ScoreOptions

DOCUMENT_TIMEOUT_S = 3600.0
DEFAULT_CONCURRENCY = 64
LINE_COMMANDS = {
    "translate": "a text",
    "encode": "a text",
    "score": "a text and its translations with tabs between them",
}
"""Those that answer lines, and what a line is."""

PICTURES = (".png", ".svg", ".pdf")
"""What attention may be drawn as."""

Group = argparse._ArgumentGroup
"""Flags under a heading of `--help`."""


class Arguments(argparse.Namespace):
    """What the command line says. `models` and `health` have only the first block, `translate` decoding options too."""

    command: str
    targets: list[str]
    """Of every server."""
    timeout: float
    tls: bool
    ca: TlsOptions | None
    token_file: Path | None
    json: bool

    texts: list[str]
    file: str | None
    model: str
    keep_going: bool
    progress: bool
    concurrency: int

    source_language: str
    target_language: str
    no_cache: bool
    pivot: bool
    html: bool
    sentences: bool
    document: Path | None
    """A file to translate."""
    output: Path | None
    """What it becomes."""
    glossary: Mapping[str, str] | None
    timings: bool
    attention: Path | None
    """A picture of it."""
    tokens: bool

    poolings: list[Pooling] | None
    dimensions: int | None
    normalize: bool | None
    type: EmbeddingType | None
    truncation: Truncation | None
    prompt: str | None
    service: str

    @property
    def unit(self) -> str:
        """What is counted: an argument of several lines is as many texts."""
        return "line" if self.file is not None or any("\n" in text for text in self.texts) else "text"

    def tls_options(self) -> TlsOptions | None:
        """Transport security; None is plaintext."""
        return self.ca or (TlsOptions() if self.tls else None)

    @property
    def token(self) -> Token:
        """Who calls. A file is read for each call: somebody may renew it."""
        return os.environ.get("DRAGOMAN_TOKEN") if self.token_file is None else self.token_file.read_text

    def translation_options(self) -> TranslationOptions:
        """The options of a translation; those left out are None."""
        return {
            "source_language": self.source_language,
            "target_language": self.target_language,
            "model": self.model,
            "prompt": self.prompt,
            "no_cache": self.no_cache,
            "pivot": self.pivot,
            "format": "html" if self.html else None,
            "segmentation": "sentences" if self.sentences else None,
            "glossary": self.glossary,
            **decoding_options(self),
            **({"with_attention": True} if self.attention is not None else {}),
        }

    def document_options(self) -> DocumentOptions:
        """The options of a document; those left out are None."""
        return {
            "source_language": self.source_language,
            "target_language": self.target_language,
            "model": self.model,
            "prompt": self.prompt,
            "no_cache": self.no_cache,
            "pivot": self.pivot,
            "glossary": self.glossary,
            **decoding_options(self),
        }

    def score_options(self) -> ScoreOptions:
        """What translations are scored for."""
        return {
            "source_language": self.source_language,
            "target_language": self.target_language,
            "model": self.model,
            "prompt": self.prompt,
        }

    def encoding_options(self) -> EncodingOptions:
        """The options of vectors; those left out are None."""
        return {
            "poolings": self.poolings,
            "dimensions": self.dimensions,
            "normalize": self.normalize,
            "type": self.type,
            "truncation": self.truncation,
            "prompt": self.prompt,
            "model": self.model,
        }


def decoding_options(args: argparse.Namespace) -> DecodingKeywords:
    """What the flags of `add_decoding_flags` say; those left out are None."""
    return cast(DecodingKeywords, {name: getattr(args, name) for name in OPTIONS})


def parse(command: str, arguments: Sequence[str]) -> Arguments:
    """Reads the flags and texts of one of the client's own commands.

    Exits the process for wrong usage, `--help` and `--version`.
    """
    flags = parser(command)
    args = flags.parse(arguments, Arguments(command=command))
    args.targets = args.targets or os.environ.get("DRAGOMAN_TARGET", "").split() or [DEFAULT_TARGET]
    if args.token_file is None and (file := os.environ.get("DRAGOMAN_TOKEN_FILE")):
        args.token_file = Path(file)
    try:
        token_metadata(args.token)
    except (OSError, ValueError) as error:
        flags.error(f"--token-file: {error}")
    try:
        for target in listed_targets(args.targets):
            check_target(target, args.tls_options())
    except ValueError as error:
        flags.error(f"--target: {error}")
    if args.timeout is None:
        args.timeout = DOCUMENT_TIMEOUT_S if getattr(args, "document", None) else DEFAULT_TIMEOUT_S
    if command == "translate" and args.document is not None:
        _check_document(flags, args)
    elif command in LINE_COMMANDS:
        if args.texts and args.file is not None:
            flags.error("--file: not allowed with a TEXT")
        if not args.texts and args.file is None:
            if sys.stdin is None or sys.stdin.isatty():
                flags.error("there is no text: give TEXT, --file FILE, or standard input from a pipe or a file")
            args.file = "-"
    if command == "translate" and args.attention is not None:
        _check_picture(flags, args)
    return args


def _check_document(flags: Parser, args: Arguments) -> None:
    """Says what it is to be called where that is left out: letter.docx becomes letter.pt.docx."""
    document = args.document
    assert document is not None
    if args.texts or args.file is not None:
        flags.error("--document: not allowed with a TEXT or --file")
    if args.html or args.sentences or args.attention is not None:
        flags.error("--document: is translated as its format says; leave --html, --sentences and --attention out")
    if format_of(document.name) is None:
        flags.error(f"--document: {document.name} ends with none of {', '.join(sorted([*FORMATS, *ENDINGS]))}")
    args.output = args.output or document.with_suffix(f".{args.target_language or 'translated'}{document.suffix}")
    if args.output.resolve() == document.resolve():
        flags.error("--output: is the document itself")


def _check_picture(flags: Parser, args: Arguments) -> None:
    """Exits the process where nothing can be drawn, before anything is asked for."""
    if args.file is not None or len("\n".join(args.texts).split("\n")) != 1:
        flags.error("--attention: is of one text; give it as TEXT, of one line")
    if find_spec("matplotlib") is None:
        flags.error("--attention: takes matplotlib, which is not installed: pip install 'dragoman[attention]'")
    if (suffix := args.attention.suffix if args.attention else "") not in PICTURES:
        flags.error(f"--attention: {suffix or 'no suffix'} is not one of {', '.join(PICTURES)}")


def parser(command: str) -> Parser:
    """The flags of one of them."""
    flags = Parser(f"dragoman {command}", OWN[command])
    if command in LINE_COMMANDS:
        _add_line_flags(flags, LINE_COMMANDS[command])
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
    if command == "health":
        flags.add_argument("--service", default="", help="a gRPC service (default: the whole server)")
    if command == "reload":
        flags.add_argument("--model", default="", metavar="NAME", help="which model (default: the server's first)")
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
    flags.add_argument("--model", default="", metavar="NAME", help="the model (default: the server's)")
    flags.add_argument("--prompt", metavar="NAME", help="a prompt of the model, which is put before each text")
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
    flags.add_argument("--source-language", default="", metavar="CODE", help="BCP-47 code of the texts")
    flags.add_argument("--target-language", "--to", default="", metavar="CODE", help="BCP-47 code of the translations")


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
            flags.add_argument(flag, action=action, metavar="TEXT", help=told)
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
        flags.add_argument(flag, action=action, metavar="TEXT", help=told)
    else:
        flags.add_argument(flag, type=number, metavar="X", help=told)
