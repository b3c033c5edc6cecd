"""What the command line says."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from grpc import StatusCode

from dragoman.channel import DEFAULT_TARGET, TlsOptions, Token, check_target, listed_targets, token_metadata
from dragoman.client import DEFAULT_TIMEOUT_S
from dragoman.command.flags.declared import DOCUMENT_TIMEOUT_S, LINE_COMMANDS, parser
from dragoman.command.flags.parsing import Parser
from dragoman.errors import Unauthenticated
from dragoman.v1.decoding_options import DecodingKeywords
from dragoman.wire.documents import ENDINGS, FORMATS, DocumentOptions, format_of
from dragoman.wire.encoding import EmbeddingType, EncodingOptions, Pooling, Truncation
from dragoman.wire.labels import ClassifyOptions, Grouping
from dragoman.wire.messages import OPTIONS, TranslationOptions
from dragoman.wire.scoring import ScoreOptions

PICTURES = (".png", ".svg", ".pdf")
"""What attention may be drawn as."""


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
    n_best: int | None
    by_n_best: Sequence[str] = ()
    """Options that it sets."""
    num_beams: int | None
    num_return_sequences: int | None
    do_sample: bool | None
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

    most_labels: int | None
    grouping: Grouping | None
    pairs: bool
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
        return os.environ.get("DRAGOMAN_TOKEN") if self.token_file is None else self._read_token

    def _read_token(self) -> str:
        """Raises OSError, or Unauthenticated for a file that has none, such as one that is just being written."""
        assert self.token_file is not None
        try:
            token = self.token_file.read_text(encoding="utf-8")
            token_metadata(token)
        except ValueError as error:
            raise Unauthenticated(f"{self.token_file}: {error}", StatusCode.UNAUTHENTICATED) from error
        return token

    def as_given(self, refusal: str) -> str:
        """A server's refusal, under the flag that was given and not the option that this sets."""
        for option in self.by_n_best:
            refusal = refusal.replace(f"decoding.{option} is ", "--n-best is ")
        return refusal

    def translation_options(self) -> TranslationOptions:
        """The options of a translation; those left out are None."""
        return {
            **self.document_options(),
            "format": "html" if self.html else None,
            "segmentation": "sentences" if self.sentences else None,
            **({"with_attention": True} if self.attention is not None else {}),
        }

    def document_options(self) -> DocumentOptions:
        """The options of a document; those left out are None."""
        return {
            **self.score_options(),
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

    def classify_options(self) -> ClassifyOptions:
        """The options of labels; those left out are None."""
        return {
            "most_labels": self.most_labels,
            "grouping": self.grouping,
            "truncation": self.truncation,
            "model": self.model,
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
    given, texts = _divided(arguments) if command in LINE_COMMANDS else (arguments, ())
    args = flags.parse(given, Arguments(command=command))
    if texts:
        args.texts = [*args.texts, *texts]
    _find_token(flags, args)
    _find_targets(flags, args)
    if args.timeout is None:
        args.timeout = DOCUMENT_TIMEOUT_S if getattr(args, "document", None) else DEFAULT_TIMEOUT_S
    if command == "translate" and args.n_best is not None:
        _take_n_best(flags, args)
    if command == "translate" and args.document is not None:
        _check_document(flags, args)
    elif command == "translate" and args.output is not None:
        flags.error("--output: is what a --document becomes; translations of lines go to standard output: > FILE")
    elif command in LINE_COMMANDS:
        _find_lines(flags, args)
    if command == "translate" and args.attention is not None:
        _check_picture(flags, args)
    return args


def _find_token(flags: Parser, args: Arguments) -> None:
    """Where the flags do not say, the environment may."""
    by_token = "--token-file" if args.token_file is not None else "DRAGOMAN_TOKEN"
    if args.token_file is None and (file := os.environ.get("DRAGOMAN_TOKEN_FILE")):
        args.token_file, by_token = Path(file), "DRAGOMAN_TOKEN_FILE"
    try:
        token_metadata(args.token)
    except OSError as error:
        flags.error(f"{by_token}: {args.token_file}: {error.strerror}")
    except Unauthenticated as error:
        flags.error(f"{by_token}: {error.message}")
    except ValueError as error:
        flags.error(f"{by_token}: {error}")


def _find_targets(flags: Parser, args: Arguments) -> None:
    """Where the flags name none, the environment may."""
    by_target = "--target" if args.targets else "DRAGOMAN_TARGET"
    args.targets = args.targets or os.environ.get(by_target, "").split() or [DEFAULT_TARGET]
    try:
        for target in listed_targets(args.targets):
            check_target(target, args.tls_options())
    except ValueError as error:
        flags.error(f"{by_target}: {error}")


def _find_lines(flags: Parser, args: Arguments) -> None:
    """In the texts that are given, in a file, or else in standard input."""
    if args.texts and args.file is not None:
        flags.error("--file: not allowed with a TEXT")
    if not args.texts and args.file is None:
        if sys.stdin is None or sys.stdin.isatty():
            flags.error("there is no text: give TEXT, --file FILE, or standard input from a pipe or a file")
        args.file = "-"
    if args.file == "-" and sys.stdin is None:
        flags.error("--file: - is standard input, which is closed")
    if args.file == "":
        flags.error("--file: is empty; name a file, or - for standard input")


def _divided(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What stands before the first "--", and the texts behind it, whatever they begin with.

    The argparse of Python 3.11 takes those for flags, where flags may stand between texts.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:end], arguments[end + 1 :]


def _take_n_best(flags: Parser, args: Arguments) -> None:
    """What it is short for."""
    if args.num_return_sequences is not None:
        flags.error("--n-best: not allowed with --num-return-sequences, which it sets")
    args.num_return_sequences = args.n_best
    args.by_n_best = ["num_return_sequences"]
    if args.num_beams is None and not args.do_sample:
        args.num_beams = args.n_best
        args.by_n_best.append("num_beams")


def _check_document(flags: Parser, args: Arguments) -> None:
    """Says what it is to be called where that is left out: letter.docx becomes letter.pt.docx."""
    document = args.document
    assert document is not None
    if args.texts or args.file is not None:
        flags.error("--document: not allowed with a TEXT or --file")
    if args.html or args.sentences or args.attention is not None:
        flags.error("--document: is translated as its format says; leave --html, --sentences and --attention out")
    if args.keep_going or args.timings:
        flags.error("--document: has no lines; leave --keep-going and --timings out")
    if format_of(document.name) is None:
        flags.error(f"--document: {document} ends with none of {', '.join(sorted([*FORMATS, *ENDINGS]))}")
    if args.output is None and "/" in args.target_language:
        flags.error(f"--output: {args.target_language} cannot be in the name of a file: say what it becomes")
    args.output = args.output or document.with_suffix(f".{args.target_language or 'translated'}{document.suffix}")
    if args.output.resolve() == document.resolve():
        flags.error("--output: is the document itself")
    if args.output.exists() and not args.output.is_file():
        flags.error(f"--output: {args.output} is there, and is no file: write to another place")
    if not args.output.parent.is_dir():
        flags.error(f"--output: {args.output.parent} is no folder: make it first, or write to another place")
    if not os.access(place := args.output.resolve().parent, os.W_OK | os.X_OK):
        flags.error(f"--output: {place} is a folder that nothing can be written to: write to another place")


def _check_picture(flags: Parser, args: Arguments) -> None:
    """Exits the process where nothing can be drawn, before anything is asked for."""
    if args.file is not None or len("\n".join(args.texts).split("\n")) != 1:
        flags.error("--attention: is of one text; give it as TEXT, of one line")
    if find_spec("matplotlib") is None:
        flags.error("--attention: takes matplotlib, which is not installed: pip install 'dragoman[attention]'")
    if (suffix := args.attention.suffix if args.attention else "") not in PICTURES:
        flags.error(f"--attention: {suffix or 'no suffix'} is not one of {', '.join(PICTURES)}")
