"""`python -m bench.options.encoding CHECKPOINT PACKAGE ...`: how fast vectors are, beside other libraries.

Sentences of FLORES-200 dev, mixed with beginnings of theirs, so that lengths differ. A call of gRPC to two workers of
one thread each, and two threads of every other library on the same checkpoint, in turn: sentence-transformers on
PyTorch and, where `--peers` says where they are, sentence-transformers on ONNX Runtime and fastembed. See
docs/benchmarks.md.
"""

import argparse
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.cpu.work import WORKERS
from bench.flags.values import folder_at, package_at, whole
from bench.machine.noise import instructions
from bench.measure import Series, alternate, seconds
from bench.options.embedder import FASTEMBED, KINDS, ONNX, TORCH
from bench.pages.markdown import machine, table
from bench.process import Side, serving, side
from bench.sentences import flores
from dragoman import Client

ASKED = {TORCH: 2.0, ONNX: 1.3, FASTEMBED: 1.2}
"""So many times as fast as these ours is to be."""
TIMEOUT_S = 600
ROOT = Path(__file__).parents[2]

Vectors = NDArray[np.float32]
"""[texts, numbers]"""


def mixed(count: int) -> list[str]:
    """Sentences, and beginnings of some."""
    chance, sentences = random.Random(7), flores("en")
    words = [chance.choice(sentences).split() for _ in range(count)]
    return [" ".join(text if chance.random() < 0.5 else text[: chance.randint(1, len(text))]) for text in words]


def ours(client: Client, texts: Sequence[str]) -> Vectors:
    """By one call."""
    found = client.encode(list(texts), timeout_s=TIMEOUT_S)
    return np.array([embedding.values for embedding in found], np.float32)


def took(library: Side) -> float:
    """Seconds that another library's vectors take now."""
    return float(library.ask(""))


def vectors_of(library: Side, folder: Path) -> Vectors:
    """Another library's. folder: where it may leave them."""
    library.ask(str(folder / "vectors.npy"))
    vectors: Vectors = np.load(folder / "vectors.npy")
    return vectors


def cosine(ours: Vectors, theirs: Vectors) -> str:
    """Of each text's two vectors: mean and least."""
    products = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    return f"{products.mean():.6f}, {products.min():.6f}"


def rows(series: Mapping[str, Series], others: Sequence[str], texts: int, alike: Mapping[str, str]) -> list[list[str]]:
    """Of the table: each side, and its ratios to the other libraries."""
    told = []
    for name, own in series.items():
        ratios = []
        for other in others:
            found = sorted(b / a for a, b in zip(own.values, series[other].values, strict=True))
            spread = f"{found[len(found) // 2]:.2f} ({found[0]:.2f} to {found[-1]:.2f})"
            ratios.append("" if name in others else spread)
        told.append([name, f"{texts / own.median:,.0f}", *ratios, alike[name]])
    return told


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.options.encoding", description=__doc__)
    parser.add_argument("checkpoint", type=folder_at, help="folder of sentence-transformers")
    parser.add_argument("packages", type=package_at, nargs="+", metavar="PACKAGE", help="exported from it")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="with optimum-onnx, fastembed and what they want")
    parser.add_argument("--texts", type=whole, default=1000)
    parser.add_argument("--repeats", type=whole, default=7, help="readings of each side")
    arguments = parser.parse_args()
    texts, others = mixed(arguments.texts), KINDS if arguments.peers else (TORCH,)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        checkpoint = Path(shutil.copytree(arguments.checkpoint, work / "checkpoint"))  # a graph comes to it
        sides, vectors = dict[str, Callable[[], float]](), dict[str, Vectors]()
        for kind in others:
            command = ["-m", "bench.options.embedder", kind, str(checkpoint), str(WORKERS)]
            library = stack.enter_context(side(command, ROOT, None if kind == TORCH else arguments.peers))
            library.tell(json.dumps(texts))
            sides[kind] = partial(took, library)
            vectors[kind] = vectors_of(library, work)
        for package in arguments.packages:
            options = ["--package", str(package), "--workers", str(WORKERS), "--cache-mb", "0"]
            server = stack.enter_context(serving("server", options))
            encode = partial(ours, stack.enter_context(Client(server.target)), texts)
            sides[package.name], vectors[package.name] = partial(seconds, encode), encode()
        alike = {name: cosine(found, vectors[TORCH]) for name, found in vectors.items()}
        series = alternate(sides, arguments.repeats)
    print(f"{machine()}, {instructions()}\n", flush=True)
    ratios = [f"over {other}, median and range (asked {ASKED[other]:g})" for other in others]
    header = ["side", "texts/s", *ratios, f"cosine to {TORCH}: mean, least"]
    print(table(header, rows(series, others, len(texts), alike)))


if __name__ == "__main__":
    main()
