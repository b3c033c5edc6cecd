"""`python -m bench.server.libretranslate`: LibreTranslate itself beside our face of it. See docs/benchmarks.md.

Argos's packages are made for LibreTranslate from the same checkpoints, by CTranslate2, whose sentences are told apart
by spaCy's rules: its own models have to be fetched. Both are asked for the same sentences by the same clients.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import copy

import sacrebleu

from bench.flags.values import package_at, whole
from bench.measure import alternate, seconds
from bench.pages.markdown import table
from bench.process import free_port, serving
from bench.sentences import flores
from bench.server.faces import ZOO, translate_by_libretranslate
from dragoman.quickstart import HOST

DIRECTIONS = (("en", "English", "pt", "Portuguese"), ("pt", "Portuguese", "en", "English"))
"""Both: with fewer than two packages LibreTranslate fetches all there are."""
ASKED = 3.0
"""Sentences a second, over LibreTranslate."""
START_TIMEOUT_S, POLL_S = 120, 0.2
NOWHERE = f"http://{HOST}:9/"
"""Where it is told to look for packages."""
NEEDED = ("libretranslate", "spacy")
MISSING = """
import sys
from importlib.util import find_spec

print(*(name for name in sys.argv[1:] if find_spec(name) is None), sep=", ")
"""
"""Imports nothing: that would make folders."""
BLANK_PIPELINE = "import sys, spacy; spacy.blank(sys.argv[2]).to_disk(sys.argv[1])"


@dataclass(frozen=True)
class Choice:
    """Of what all sides are asked for, and with what."""

    python: Path
    package: Path
    compute_type: str
    workers: int
    callers: int
    repeats: int
    together: int
    """Sentences of a text, which either side takes apart again."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.server.libretranslate", description=__doc__)
    parser.add_argument(
        "--python", type=python_of, required=True, help="of an environment with libretranslate and spacy"
    )
    parser.add_argument("--package", type=package_at, default=ZOO / "en-pt", help="what our server serves")
    parser.add_argument(
        "--beams", type=whole, nargs="+", default=[1, 4], help="of both; 4 is LibreTranslate's own choice"
    )
    parser.add_argument(
        "--compute-type", choices=("int8", "float32"), default="int8", help="its own packages have int8"
    )
    parser.add_argument("--workers", type=whole, default=os.cpu_count() or 1, help="of both: one for each core")
    parser.add_argument("--callers", type=whole, default=32, help="at once")
    parser.add_argument("--sentences", type=whole, default=256, help="of each reading")
    parser.add_argument("--together", type=whole, default=1, help="sentences of a text: both take them apart again")
    parser.add_argument("--repeats", type=whole, default=5, help="readings of each side")
    given = parser.parse_args()
    choice = Choice(
        given.python,
        given.package,
        given.compute_type,
        given.workers,
        given.callers,
        given.repeats,
        given.together,
    )
    with ExitStack() as stack:
        sides = opened(choice, given.beams, stack)
        compare(sides, choice, given.sentences)


def python_of(given: str) -> Path:
    """The Python of an environment that has what is needed. Raises ArgumentTypeError."""
    try:
        looked = subprocess.run([given, "-c", MISSING, *NEEDED], stdout=subprocess.PIPE, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise argparse.ArgumentTypeError(f"{given} does not run: {error}") from error
    if missing := looked.stdout.strip():
        raise argparse.ArgumentTypeError(f"{given} has no {missing}: docs/benchmarks.md says how to install it there")
    return Path(given)


def opened(choice: Choice, beams: Sequence[int], stack: ExitStack) -> dict[str, Callable[[str], str]]:
    """Ours and LibreTranslate, with so many beams each."""
    work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    install(work, choice.python, choice.compute_type)
    port, workers = free_port(), str(choice.workers)
    options = ["--package", str(choice.package), "--workers", workers, "--cache-mb", "0", "--http-port", str(port)]
    stack.enter_context(serving("server", options))
    sides = {f"dragoman, {_counted(each)}": translate_by_libretranslate(port, each - 1) for each in beams}
    for each in beams:
        settings = {"ARGOS_INTER_THREADS": workers, "ARGOS_INTRA_THREADS": "1", "ARGOS_BEAM_SIZE": str(each)}
        theirs = stack.enter_context(running(work, choice.python, choice.callers, settings))
        sides[f"LibreTranslate, {_counted(each)}"] = translate_by_libretranslate(theirs)
    return sides


def compare(sides: Mapping[str, Callable[[str], str]], choice: Choice, sentences: int) -> None:
    """Prints a table: in turns, the same sentences."""
    sources, references = (joined(flores(language)[:sentences], choice.together) for language in ("en", "pt"))
    with ThreadPoolExecutor(choice.callers) as pool:
        ask = {name: partial(_translated, pool, side, sources) for name, side in sides.items()}
        rates = alternate({name: partial(_rate, one, sentences) for name, one in ask.items()}, choice.repeats)
        found = {name: one() for name, one in ask.items()}
    best, *_ = sides
    rows = [
        [
            name,
            f"{rates[name].median:.1f}",
            f"{rates[best].median / rates[name].median:.2f} x",
            f"{sacrebleu.corpus_bleu(found[name], [references]).score:.2f}",
            f"{sacrebleu.corpus_chrf(found[name], [references]).score:.2f}",
        ]
        for name in sides
    ]
    print(table(["", "sentences/s", f"of {best} to this (asked {ASKED:g} x)", "BLEU", "chrF"], rows))


def joined(sentences: Sequence[str], together: int) -> list[str]:
    """Texts of so many sentences each."""
    return [" ".join(sentences[first : first + together]) for first in range(0, len(sentences), together)]


def install(work: Path, python: Path, compute_type: str) -> None:
    """Packages of Argos in `work`, of the checkpoints of the zoo."""
    from ctranslate2.converters import TransformersConverter

    for source, source_name, target, target_name in DIRECTIONS:
        checkpoint, folder = ZOO / f"{source}-{target}", work / "packages" / f"{source}_{target}"
        folder.mkdir(parents=True)
        TransformersConverter(str(checkpoint)).convert(str(folder / "model"), quantization=compute_type)
        settings = json.loads((folder / "model/config.json").read_text())
        (folder / "model/config.json").write_text(json.dumps(settings | {"add_source_eos": True}))
        copy(checkpoint / "source.spm", folder / "sentencepiece.model")
        told = {"from_code": source, "from_name": source_name, "to_code": target, "to_name": target_name}
        (folder / "metadata.json").write_text(json.dumps({"package_version": "1.0", "argos_version": "1.9", **told}))
        subprocess.run([python, "-c", BLANK_PIPELINE, folder / "spacy", source], check=True)
    found = work / "cache/argos-translate/spacy/senter/model"  # by which it knows that it need not fetch one
    found.parent.mkdir(parents=True)
    found.touch()


@contextmanager
def running(work: Path, python: Path, threads: int, settings: Mapping[str, str]) -> Iterator[int]:
    """LibreTranslate on a port, until the block ends."""
    homes = {f"XDG_{kind.upper()}_HOME": str(work / kind) for kind in ("data", "config", "cache")}
    own = {"HOME": str(work), "ARGOS_PACKAGES_DIR": str(work / "packages"), "ARGOS_PACKAGE_INDEX": NOWHERE}
    port = free_port()
    program = "import sys; from libretranslate.main import main; sys.exit(main())"
    command = [str(python), "-c", program, "--host", HOST, "--port", str(port), "--threads", str(threads)]
    environment = {**os.environ, **homes, **own, **settings, "ARGOS_CHUNK_TYPE": "SPACY"}
    log = work / f"{port}.log"
    with log.open("w") as told:
        process = subprocess.Popen(command, env=environment, cwd=work, stdout=told, stderr=told)
        try:
            _wait_until_healthy(port, process, log)
            yield port
        finally:
            process.terminate()
            process.wait()


def _wait_until_healthy(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"LibreTranslate ended with exit code {process.returncode}: {log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/health"):
                return
        except urllib.error.URLError:
            time.sleep(POLL_S)
    raise RuntimeError(f"LibreTranslate was not serving within {START_TIMEOUT_S} s")


def _translated(pool: ThreadPoolExecutor, side: Callable[[str], str], texts: Sequence[str]) -> list[str]:
    return list(pool.map(side, texts))


def _rate(ask: Callable[[], object], texts: int) -> float:
    return texts / seconds(ask)


def _counted(beams: int) -> str:
    return "greedy" if beams == 1 else f"{beams} beams"


if __name__ == "__main__":
    main()
