"""The command line of export. It imports nothing that takes long."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn, get_args

from dragoman import __version__
from dragoman.command.flags.parsing import Outspoken, suggest
from export.sources import source_of
from models.package.declared.precision import AttentionKind, OutputLayer, Precision

PROGRAMS = ("python -m export", "dragoman export")
"""What people call it. The latter sets sys.argv."""
MOZILLA = "https://storage.googleapis.com/moz-fx-translations-data--303e-prod-translations-data/db/models.json"
"""Where Mozilla lists its models."""
FIRST, BEST = 50, 50
"""Of Firefox's shortlists."""
EXPORT = Path(__file__).parents[1]
SAMPLES = EXPORT / "verification" / "samples.en.txt"
CALIBRATION = EXPORT / "command" / "calibration.en.txt"
"""Written for this; no test set has a sentence of it."""


class Options(argparse.Namespace):
    """What the command line says, checked as far as argparse does."""

    checkpoint: str
    out: Path | None
    in_place: bool
    name: str | None
    source_language: list[str] | None
    target_language: list[str] | None
    task: list[str]
    keep_typography: bool
    no_shortlist: bool
    shortlist: list[Path] | None
    shortlist_first: int | None
    shortlist_best: int | None
    precision: Precision
    attention: AttentionKind
    output_layer: OutputLayer
    device: Literal["cpu", "cuda"]
    verify: Literal["transformers", "pytorch"]
    verify_samples: int
    samples: Path
    calibration: Path | None
    references: Path | None
    most_bleu_loss: float | None
    most_chrf_loss: float | None
    firefox_registry: str
    sign: Path | None
    quiet: bool


class Parser(Outspoken):
    """Refuses a slip in one line."""

    def error(self, message: str) -> NoReturn:
        """Exits the process with 2."""
        self.exit(2, f"error: {message} (options: {self.prog} --help)\n")

    def refuse_unknown(self, arguments: Sequence[str]) -> None:
        """Says which option may have been meant, where argparse only says which was not."""
        known = list(self._option_string_actions)
        for argument in arguments:
            flag = argument.partition("=")[0]
            if flag == "--":
                return
            if flag.startswith("--") and flag not in known:
                self.error(f"there is no option {flag}{suggest(flag, known)}")


def parse(arguments: Sequence[str] | None) -> Options:
    """Reads the command line. Exits the process for `--help`, `--version` and what it does not understand."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = build(sys.argv[0] if sys.argv[0] in PROGRAMS else PROGRAMS[0])
    parser.refuse_unknown(given)
    options = parser.parse_args(given, Options())
    for option in ("calibration", "references"):
        if getattr(options, option) is not None and options.precision != "int8":
            parser.error(f"--{option} belongs to --precision int8; the precision is {options.precision}")
    for option in ("most_bleu_loss", "most_chrf_loss"):
        if getattr(options, option) is not None and options.references is None:
            parser.error(f"--{option.replace('_', '-')} belongs to --references, by which loss is measured")
    for option in ("shortlist_first", "shortlist_best"):
        if getattr(options, option) is not None and options.shortlist is None:
            parser.error(f"--{option.replace('_', '-')} belongs to --shortlist, of whose text a list is made")
    if options.in_place and options.precision != "fp32":
        parser.error(f"--in-place keeps the checkpoint's weights, which are not in {options.precision}: say --out")
    if options.in_place and source_of(options.checkpoint) != "folder":
        parser.error("--in-place makes a folder of yours a package; a model that is fetched goes where --out says")
    return options


def build(program: str) -> Parser:
    """The options, with their help."""
    # A shortened flag would change its meaning when a longer one is added.
    parser = Parser(program, description="Make a verified ONNX package of a checkpoint.", allow_abbrev=False)
    parser.add_argument(
        "checkpoint",
        help="folder of the checkpoint; or hf:OWNER/NAME[@REVISION], a model of the Hugging Face Hub; or firefox:PAIR, "
        "like firefox:en-pt (see docs/checkpoints.md)",
    )
    for add in (_add_package, _add_texts, _add_shortlist, _add_computation, _add_quantization, _add_verification):
        add(parser)
    parser.add_argument(
        "--firefox-registry", default=MOZILLA, metavar="URL", help="list of Firefox's models (default: Mozilla's)"
    )
    parser.add_argument("--quiet", action="store_true", help="do not list what the package holds")
    parser.add_argument("--version", action="version", version=f"Dragoman {__version__}")
    return parser


def _path(text: str) -> Path:
    """An empty one would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; leave it out")
    return Path(text)


def _add_package(parser: Parser) -> None:
    group = parser.add_argument_group("the package")
    place = group.add_mutually_exclusive_group()
    place.add_argument(
        "--out",
        type=_path,
        metavar="FOLDER",
        help="folder of the package; a package there is replaced (default: artifacts/ and the model's name)",
    )
    place.add_argument(
        "--in-place",
        action="store_true",
        help="make the checkpoint's folder a package, with graphs that use its model.safetensors",
    )
    group.add_argument(
        "--name", help="what requests call the model (default: the checkpoint's, like opus-mt-en-de or firefox-en-pt)"
    )
    group.add_argument("--sign", type=_path, metavar="KEY", help="sign the package with this Ed25519 private key (PEM)")


def _add_texts(parser: Parser) -> None:
    group = parser.add_argument_group("texts")
    for side in ("source", "target"):
        group.add_argument(
            f"--{side}-language",
            action="append",
            metavar="TAG",
            help=f"language of the {side}, as BCP 47 writes it; may be repeated (default: what the checkpoint says)",
        )
    group.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="PREFIX",
        help='what is put before each text and tells the model its task, like "summarize: "; may be repeated: requests '
        "choose by its words, without what ends it, and the first is the default (default: nothing)",
    )
    group.add_argument(
        "--keep-typography",
        action="store_true",
        help="leave quotes and dashes that the vocabulary lacks as they are (default: replace them by ASCII)",
    )


def _add_shortlist(parser: Parser) -> None:
    group = parser.add_argument_group("the shortlist")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--no-shortlist", action="store_true", help="choose from the whole vocabulary, not from the lexical shortlist"
    )
    which.add_argument(
        "--shortlist",
        type=_path,
        action="append",
        metavar="FILE",
        help="a lexical shortlist for this vocabulary, in Marian's binary format; or make one of this text: lines of "
        "source, tab and target; or, given twice, a file of sources and one of their targets; or sources alone, which "
        "the model translates",
    )
    group.add_argument(
        "--shortlist-first",
        type=int,
        metavar="N",
        help=f"tokens that the shortlist always allows, the first ones of the vocabulary (default: {FIRST})",
    )
    group.add_argument(
        "--shortlist-best",
        type=int,
        metavar="N",
        help=f"tokens that it allows for each token of a source, at most (default: {BEST})",
    )


def _add_computation(parser: Parser) -> None:
    group = parser.add_argument_group("what is computed")
    group.add_argument(
        "--precision", choices=get_args(Precision), default="fp32", help="of weights and activations (default: fp32)"
    )
    group.add_argument(
        "--attention",
        choices=get_args(AttentionKind),
        default="fused",
        help="fused: ONNX Runtime's kernels; plain: standard operators, for fp32 on CUDA (default: fused)",
    )
    group.add_argument(
        "--output-layer",
        choices=get_args(OutputLayer),
        default="screened",
        help="of graphs of standard operators: screened looks at all tokens in 8 bits and computes in fp32 those that "
        "may be best, in fp32 packages with fused attention and no shortlist; full computes all (default: screened)",
    )


def _add_quantization(parser: Parser) -> None:
    group = parser.add_argument_group("with --precision int8")
    group.add_argument(
        "--calibration",
        type=_path,
        metavar="FILE",
        help="sentences of the source language to calibrate on, one per line (default: English ones)",
    )
    group.add_argument(
        "--references",
        type=_path,
        metavar="FILE",
        help="translations of the sentences that are compared, one per line: the certificate has BLEU and chrF by "
        "them, which take sacrebleu",
    )
    for score in ("BLEU", "chrF"):
        group.add_argument(
            f"--most-{score.lower()}-loss",
            type=float,
            metavar="POINTS",
            help=f"{score} by the references that 8 bits may lose; more is refused (default: 0.1)",
        )


def _add_verification(parser: Parser) -> None:
    group = parser.add_argument_group("verification")
    group.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="what runs the graphs to verify them (default: cpu)"
    )
    group.add_argument(
        "--verify",
        choices=("transformers", "pytorch"),
        default="transformers",
        help="what translations are compared with besides the PyTorch model: transformers, where it reads the folder, "
        "which takes memory for its own copy of the weights; or nothing else (default: transformers)",
    )
    group.add_argument(
        "--verify-samples", type=int, default=32, metavar="N", help="sentences to compare token by token (default: 32)"
    )
    group.add_argument(
        "--samples", type=_path, default=SAMPLES, metavar="FILE", help="sentences, one per line (default: English ones)"
    )
