"""`python -m bench.options.encoding CHECKPOINT PACKAGE ...`: how fast vectors are, beside sentence-transformers.

Sentences of FLORES-200 dev, mixed with beginnings of theirs, so that lengths differ. A call of gRPC to two workers of
one thread each, and two threads of PyTorch on the same checkpoint, in turn. See docs/benchmarks.md.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.cpu.work import WORKERS
from bench.machine.noise import instructions
from bench.measure import Series, alternate, seconds
from bench.pages.markdown import machine, table
from bench.process import serving
from bench.sentences import flores
from dragoman import Client

PEER = "sentence-transformers"
BATCH = 32
"""What sentence-transformers takes if nobody says."""
TIMEOUT_S = 600

Vectors = NDArray[np.float32]
"""[texts, numbers]"""
Encode = Callable[[], Vectors]


def mixed(count: int) -> list[str]:
    """Sentences, and beginnings of some."""
    chance, sentences = random.Random(7), flores("en")
    words = [chance.choice(sentences).split() for _ in range(count)]
    return [" ".join(text if chance.random() < 0.5 else text[: chance.randint(1, len(text))]) for text in words]


def ours(client: Client, texts: Sequence[str]) -> Vectors:
    """By one call."""
    found = client.encode(list(texts), timeout_s=TIMEOUT_S)
    return np.array([embedding.values for embedding in found], np.float32)


def theirs(checkpoint: Path, texts: Sequence[str]) -> Encode:
    """By its own batches, of like lengths."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(WORKERS)
    model = SentenceTransformer(str(checkpoint), device="cpu")
    return lambda: np.asarray(model.encode(list(texts), batch_size=BATCH, show_progress_bar=False), np.float32)


def cosine(ours: Vectors, theirs: Vectors) -> str:
    """Of each text's two vectors: mean and least."""
    products = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    return f"{products.mean():.6f}, {products.min():.6f}"


def row(name: str, series: dict[str, Series], texts: int, alike: str) -> list[str]:
    """Of the table."""
    ratios = sorted(b / a for a, b in zip(series[name].values, series[PEER].values, strict=True))
    spread = f"{ratios[len(ratios) // 2]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return [name, f"{texts / series[name].median:,.0f}", spread, alike]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.options.encoding", description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="folder of sentence-transformers")
    parser.add_argument("packages", type=Path, nargs="+", metavar="PACKAGE", help="exported from it")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=7, help="readings of each side")
    arguments = parser.parse_args()
    texts = mixed(arguments.texts)
    sides: dict[str, Encode] = {PEER: theirs(arguments.checkpoint, texts)}
    with ExitStack() as stack:
        for package in arguments.packages:
            options = ["--package", str(package), "--workers", str(WORKERS), "--cache-mb", "0"]
            server = stack.enter_context(serving("server", options))
            sides[package.name] = partial(ours, stack.enter_context(Client(server.target)), texts)
        expected = sides[PEER]()
        alike = {name: cosine(encode(), expected) for name, encode in sides.items()}
        series = alternate({name: partial(seconds, encode) for name, encode in sides.items()}, arguments.repeats)
    print(f"{machine()}, {instructions()}\n", flush=True)
    header = ["side", "texts/s", f"over {PEER}, median and range", "cosine to its vectors: mean, least"]
    print(table(header, [row(name, series, len(texts), alike[name]) for name in sides]))


if __name__ == "__main__":
    main()
