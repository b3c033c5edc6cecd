"""`dragoman bulk`: files of texts into files, by the engine in this process, or by those of a cluster."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from dragoman.bulk.engine import Engine
from dragoman.bulk.errors import BulkError, WrongUsage
from dragoman.bulk.formats import CHOICES
from dragoman.bulk.job import Job, run
from dragoman.bulk.memory import open_memory
from dragoman.bulk.plan import check_memory, planned
from dragoman.bulk.rows import Columns
from dragoman.bulk.unfinished import SUFFIX
from dragoman.bulk.windows import Translated, in_threads
from dragoman.command.commands import OWN
from dragoman.command.flags.arguments import decoding_options
from dragoman.command.flags.declared import add_decoding_flags
from dragoman.command.flags.parsing import WRONG_USAGE, Parser
from dragoman.command.flags.values import cluster, text, worker_count
from dragoman.command.output import complain
from dragoman.command.progress import Progress
from dragoman.errors import DragomanError
from dragoman.wire.messages import TranslationOptions

DONE, FAILED, INTERRUPTED = 0, 1, 130


class Arguments(argparse.Namespace):
    """What the command line says."""

    source: Path
    target: Path
    from_: str
    to: str
    package: list[Path]
    model: str
    prompt: str | None
    pivot: bool
    format: str | None
    column: str
    into: str
    memory: Path | None
    keep_going: bool
    progress: bool
    device: Literal["cpu", "cuda", "auto"]
    workers: int | None
    ray: str | None

    def options(self) -> TranslationOptions:
        """Of every translation; those left out are None, or empty."""
        return {
            "source_language": self.from_,
            "target_language": self.to,
            "model": self.model,
            "prompt": self.prompt,
            "pivot": self.pivot,
            "no_cache": False,
            "format": None,
            "segmentation": None,
            "glossary": None,
            **decoding_options(self),
        }


def main(arguments: Sequence[str]) -> int:
    """Gives the exit code. Exits the process for wrong usage of flags, `--help` and `--version`."""
    args = parser().parse(arguments, Arguments())
    try:
        return _run(args)
    except WrongUsage as error:
        complain(str(error))
        return WRONG_USAGE
    except KeyboardInterrupt:
        _go_on(args)
        return INTERRUPTED
    except (BulkError, DragomanError) as error:
        complain(" ".join(str(error).split()))
    except OSError as error:
        complain(f"{error.filename or args.target}: {error.strerror or error}")
        _go_on(args)
    return FAILED


def parser() -> Parser:
    """The flags."""
    flags = Parser("dragoman bulk", OWN["bulk"])
    flags.add_argument("source", type=Path, metavar="SRC", help="a file, or a folder with all files in it")
    flags.add_argument("target", type=Path, metavar="DST", help="what it becomes; must not be there")
    flags.add_argument("--from", type=text, default="", dest="from_", metavar="CODE", help="BCP-47 code of the texts")
    flags.add_argument("--to", type=text, default="", metavar="CODE", help="BCP-47 code of the translations")
    flags.add_argument(
        "--package",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="the model's package; may be given for several (default: models/zoo/en-pt)",
    )
    flags.add_argument(
        "--model", type=text, default="", metavar="NAME", help="one of several (default: the first that fits)"
    )
    flags.add_argument(
        "--prompt", type=text, metavar="NAME", help="a prompt of the model, which is put before each text"
    )
    flags.add_argument("--pivot", action="store_true", help="go by way of a third language where no model has both")
    flags.add_argument(
        "--format",
        choices=CHOICES,
        help="what the files are (default: what their names say)",
    )
    flags.add_argument(
        "--column", type=text, default="text", metavar="NAME", help="where the texts are (default: %(default)s)"
    )
    flags.add_argument(
        "--into", type=text, default="translation", metavar="NAME", help="the new column (default: %(default)s)"
    )
    flags.add_argument("--memory", type=Path, metavar="FILE", help="translation memory: what it has is not done again")
    flags.add_argument("--keep-going", action="store_true", help="pass over rows that are refused; the exit code is 1")
    flags.add_argument("--progress", action="store_true", help="tell progress even if standard error is no terminal")
    flags.add_argument("--device", choices=["cpu", "cuda", "auto"], default="cpu", help="where the model runs")
    flags.add_argument("--workers", type=worker_count, metavar="N", help="engine threads (default: one for every core)")
    flags.add_argument(
        "--ray", type=cluster, metavar="ADDRESS", help='a Ray cluster that translates: HOST:PORT, or "auto"'
    )
    add_decoding_flags(flags)
    return flags


def _run(args: Arguments) -> int:
    columns, options = Columns(args.column, args.into), args.options()
    items = planned(args.source, args.target, args.format)
    for item in items:
        item.open(columns).check()
    if args.memory is not None:
        check_memory(args.memory, args.source, args.target, items)
    job = Job(args.target, items, columns, args.keep_going)
    chosen = {name: value for name, value in options.items() if value is not None and value != ""}
    with _engine(args, options) as (hashes, translated):
        asked = {"packages": hashes, "options": chosen, "format": args.format}
        with open_memory(args.memory, hashes, chosen) as memory, Progress(_wanted(args), "rows") as progress:
            refused = run(job, asked, memory, translated, _Told(progress))
    if refused:
        complain(f"{refused} rows have no translation, because they were refused")
    return FAILED if refused else DONE


@contextmanager
def _engine(args: Arguments, options: TranslationOptions) -> Iterator[tuple[list[str], Translated]]:
    """The SHA-256 of the packages, and who translates: this process, or a cluster. Raises WrongUsage."""
    asked = args.package or [Path("models/zoo/en-pt")], options, args.device, args.workers
    if args.ray is None:
        with Engine(*asked) as engine:
            yield engine.hashes, in_threads(engine.translate, engine.threads)
    else:
        from dragoman.bulk.cluster.version import check_version

        check_version()
        from dragoman.bulk.cluster.on_ray import OnRay  # Ray is an extra

        with OnRay(args.ray, *asked, complain) as cluster:
            yield cluster.hashes, cluster.translated


def _wanted(args: Arguments) -> bool:
    """Progress."""
    return args.progress or sys.stderr.isatty()


class _Told:
    """What is told of a run, on standard error."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def resumed(self, rows: int) -> None:
        self._say(f"going on after {rows} rows")

    def advanced(self, rows: int, share: float) -> None:
        self._progress.advance(rows, share)

    def passed_over(self, place: str) -> None:
        self._say(place)

    def _say(self, message: str) -> None:
        self._progress.clear()
        complain(message)


def _go_on(args: Arguments) -> None:
    if os.path.isdir(unfinished := f"{args.target}{SUFFIX}"):
        complain(f"what is done is kept in {unfinished}: the same command goes on")
