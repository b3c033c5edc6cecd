"""`python -m bench.bulk`: files into files, beside `dragoman translate` and CTranslate2's `translate_file`.

Each side is a process from its start to its end, with the same distinct English sentences on the lines of a file, two
workers of one thread, in turn. The server that `translate` asks is up before. See docs/benchmarks.md.
"""

import argparse
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cpu.sides.ctranslate2 import Ctranslate2, Setup, force_avx512
from bench.cpu.work import MAX_TOKENS, WORKERS
from bench.flags.values import package_at, whole
from bench.machine.noise import instructions
from bench.measure import Series, alternate, seconds
from bench.pages.markdown import machine, table
from bench.process import serving
from bench.sentences import distinct
from dragoman.bulk.journal import Journal
from dragoman.bulk.unfinished import SUFFIX
from dragoman.bulk.windows import ROWS
from models.package.folder import Package

ZOO = Path(__file__).parent.parent / "models" / "zoo"
SENTENCES, REPEATS = 3000, 5
PARTS = ("memory", "translate", "ctranslate2")
KILLED = "killed"
KILLS = 20
LOOK_S = 0.02
"""Between two looks at how far a run is that is to be killed."""
KILLABLE = """
import sys
from dragoman.bulk import windows

windows.ROWS = int(sys.argv[1])
from dragoman.command.main import main

sys.exit(main(["bulk", *sys.argv[2:]]))
"""
"""The command with windows of so many rows: what each kill makes it do again are three of them."""
SETUPS = (Setup(), Setup(batch_type="tokens"))
"""Of CTranslate2: the faster counts."""
TRANSLATE_FILE = """
import sys
import ctranslate2, sentencepiece

checkpoint, model, compute_type, batch_type, most, workers, limit, source, target = sys.argv[1:]
pieces = sentencepiece.SentencePieceProcessor(f"{checkpoint}/source.spm")
translator = ctranslate2.Translator(model, compute_type=compute_type, inter_threads=int(workers), intra_threads=1)
translator.translate_file(
    source, target, max_batch_size=int(most), batch_type=batch_type, beam_size=1, max_decoding_length=int(limit),
    source_tokenize_fn=lambda text: [*pieces.encode(text, out_type=str), "</s>"],
    target_detokenize_fn=pieces.decode_pieces,
)
"""
MOST = {"examples": 32, "tokens": 1024}

Side = Callable[[], object]


def dragoman(*arguments: object) -> None:
    """The command, as a process."""
    subprocess.run([sys.executable, "-m", "dragoman", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def theirs(model: Path, compute_type: str, source: Path, folder: Path) -> dict[str, Side]:
    """CTranslate2 in its set-ups."""
    force_avx512()
    Ctranslate2(ZOO / "en-pt", model)
    return {
        f"CTranslate2, {setup}": partial(
            subprocess.run,
            [
                *(sys.executable, "-c", TRANSLATE_FILE, ZOO / "en-pt", model, compute_type, setup.batch_type),
                *(str(MOST[setup.batch_type]), str(setup.workers), str(MAX_TOKENS), source, folder / "theirs.txt"),
            ],
            check=True,
        )
        for setup in SETUPS
    }


def compare(package: Path, sentences: int, repeats: int, parts: Collection[str], folder: Path) -> list[list[str]]:
    """Rows of the table. folder: for files, and for what CTranslate2 makes of the checkpoint."""
    precision = Package.open(package).manifest.graphs.precision.weights
    source, memory, made = folder / "source.txt", folder / "memory", folder / "ours.txt"
    source.write_text("".join(f"{text}\n" for text in distinct(sentences)), encoding="utf-8")

    def bulk(*more: object) -> None:
        made.unlink(missing_ok=True)
        dragoman("bulk", source, made, "--package", package, "--workers", WORKERS, *more)

    sides: dict[str, Side] = {"bulk": bulk}
    with ExitStack() as stack:
        if "memory" in parts:
            bulk("--memory", memory)
            sides["bulk, all in the memory"] = partial(bulk, "--memory", memory)
        if "translate" in parts:
            arguments = ["--package", str(package), "--workers", str(WORKERS), "--cache-mb", "0"]
            server = stack.enter_context(serving("server", arguments))
            sides["translate --file"] = partial(dragoman, "translate", "--file", source, "--target", server.target)
        if "ctranslate2" in parts:
            sides |= theirs(folder / "ctranslate2", "int8" if precision == "int8" else "float32", source, folder)
        series = alternate({name: partial(seconds, side) for name, side in sides.items()}, repeats)
    return [[package.name, name, *_figures(series["bulk"], one, sentences)] for name, one in series.items()]


def kill(package: Path, sentences: int, window: int, folder: Path) -> tuple[str, bool]:
    """What becomes of a run that gets SIGKILL at random moments and is gone on with, and whether that is right.

    One that ends before its moment is begun anew, and another moment is drawn for that one.

    window: rows that are in the journal or are not
    """
    source, whole, made, kept = folder / "source.txt", folder / "whole.txt", folder / "killed.txt", list[int]()
    source.write_text("".join(f"{text}\n" for text in distinct(sentences)), encoding="utf-8")
    whole_s = seconds(partial(dragoman, "bulk", source, whole, "--package", package, "--workers", WORKERS))
    asked = [str(source), str(made), "--package", str(package), "--workers", str(WORKERS)]
    command = [sys.executable, "-c", KILLABLE, str(window), *asked]
    unfinished, chance, equal = made.with_name(f"{made.name}{SUFFIX}"), random.Random(0), list[bool]()
    journal = unfinished / "0.rows"
    moments = sorted(chance.uniform(0, sentences) for _ in range(KILLS))
    while moments:
        if killed_at(moments[0], command, journal, window, whole_s / sentences):
            kept.append(rows_of(journal))
            moments = moments[1:]
        else:
            moments = sorted([chance.uniform(0, sentences), *moments[1:]])
        if made.exists() and not unfinished.exists():
            equal.append(made.read_bytes() == whole.read_bytes())
            made.unlink()
    dragoman("bulk", *asked)
    equal.append(made.read_bytes() == whole.read_bytes())
    same = "equal to" if all(equal) else "WRONG: not"
    rows = ", ".join(map(str, kept))
    told = f"killed {len(kept)} times, with {rows} rows of {sentences} kept, and ended {len(equal)} times"
    return f"{told}: {same} a whole run's", all(equal)


def killed_at(moment: float, command: list[str], journal: Path, window: int, row_s: float) -> bool:
    """Whether a run was killed, once so many rows were done; or else it had ended. Raises CalledProcessError."""
    done = int(moment) // window * window  # as far as a journal knows
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as run:
        while run.poll() is None and whole_windows(journal) * window < done:
            time.sleep(LOOK_S)
        with suppress(subprocess.TimeoutExpired):
            run.wait((moment - done) * row_s)
        run.kill()
    if run.returncode not in (0, -signal.SIGKILL):
        raise subprocess.CalledProcessError(run.returncode, command)
    return run.returncode != 0


def whole_windows(file: Path) -> int:
    """That a journal has which is being written: it is only looked at."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


def rows_of(file: Path) -> int:
    """That a journal has."""
    if not file.exists():
        return 0
    with closing(Journal(file)) as journal:
        return journal.rows


def _figures(bulk: Series, other: Series, sentences: int) -> tuple[str, str]:
    """Sentences a second, and how many times as long as bulk it takes: median and range."""
    ratios = sorted(b / a for a, b in zip(bulk.values, other.values, strict=True))
    told = f"{ratios[len(ratios) // 2]:.3g} ({ratios[0]:.3g} to {ratios[-1]:.3g})"
    return f"{sentences / other.median:,.0f}", told


def main() -> int:
    """Command line. The exit code is 1 where a run that was killed came to something else."""
    parser = argparse.ArgumentParser(prog="python -m bench.bulk", description=__doc__)
    default = [ZOO / "en-pt", ZOO / "en-pt-int8"]
    parser.add_argument("packages", nargs="*", type=package_at, default=default, metavar="PACKAGE", help="of en-pt")
    parser.add_argument("--sentences", type=whole, default=SENTENCES, help="lines of the file (default: %(default)d)")
    parser.add_argument("--repeats", type=whole, default=REPEATS, help="turns of each side (default: %(default)d)")
    parser.add_argument(
        "--part",
        choices=(*PARTS, KILLED),
        action="append",
        help="beside this; or a run is killed (default: all beside)",
    )
    parser.add_argument(
        "--window",
        type=whole,
        default=ROWS,
        metavar="ROWS",
        help=f"of a run that is killed (default: {ROWS}, as bulk's)",
    )
    arguments = parser.parse_args()
    parts = arguments.part or PARTS
    if KILLED in parts and arguments.window >= arguments.sentences:
        parser.error(
            f"--window is {arguments.window} and --sentences {arguments.sentences}: a run that is killed would keep "
            "nothing; give a smaller window, or more sentences"
        )
    print(f"{machine()}, {instructions()}\n", flush=True)
    rows, failed = list[list[str]](), False
    for package in arguments.packages:
        with TemporaryDirectory() as folder:
            if KILLED in parts:
                told, right = kill(package, arguments.sentences, arguments.window, Path(folder))
                print(told, flush=True)
                failed |= not right
            if set(parts) != {KILLED}:
                rows += compare(package, arguments.sentences, arguments.repeats, parts, Path(folder))
    if rows:
        print(table(["package", "side", "sentences/s", "time over bulk's, median and range"], rows))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
