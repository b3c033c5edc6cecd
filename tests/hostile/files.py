"""`python -m tests.hostile.files`: damaged files of packages and checkpoints, each opened by what opens it in earnest.

Each is refused with an error that says so, or opens: no crash, no endless wait, no other exception, no huge memory. The
seeds are the files of `corpus` and of models/zoo. A case is told before it is tried, so that whatever kills the process
can be told by the last line.
"""

import argparse
import hashlib
import json
import random
import re
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.devices.session import CPU, DeviceError, open_session
from models.checkpoint import CheckpointError, load_checkpoint
from models.package.checked import PackageError
from models.package.declared.graphs import Vocabulary
from models.package.folder import MANIFEST, Package
from models.package.graph_files import Graph
from models.package.shortlist import Shortlist, ShortlistError
from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec
from models.tokenizers.tokenizer import TokenizerError
from tests.hostile.fuzz.messages import mutated

CORPUS = Path(__file__).parent / "corpus"
ZOO = Path(__file__).parents[2] / "models" / "zoo" / "en-pt-int8"
WAIT_S = 120
"""For one file, on a machine that does other things, too."""
MOST_BYTES = 1 << 29
"""That the process may grow by. The largest file has 18 MB."""
JSON_TOKEN = re.compile(rb'-?\d+(?:\.\d+)?|"[^"]*"|true|false|null')
JSON_VALUES = [
    *(b"0", b"1", b"-1", b"7", b"2.5", b"1e999", b"NaN", b"2147483648", b"99999999999999999999", b"9" * 5000, b"null"),
    *(b"true", b'""', b'"x"', b'"\\ud800"', b'"\\u0000"', b'"../x"', b"[]", b"{}", b"[" * 100_000, b'{"a":' * 50_000),
]
VOCABULARY = Vocabulary(source_size=40, target_size=40, shared=True, pad_id=39, end_id=0, start_id=39)
TEXTS = ["A cat.", "", "\ud7ff\u2581 e\u0301 \U0001f468", ">>pt<< x", "a" * 500]
SPEC = SentencePieceSpec(end_id=0, unknown_id=1, hidden_ids=(0, 210), target_model="source.spm")


@dataclass(frozen=True)
class Kind:
    """A file, among whatever it needs beside it."""

    name: str
    file: str
    """That is damaged."""
    beside: Callable[[Path], object]
    """Fills a folder with it and the others."""
    open: Callable[[Path], object]
    """Of the folder."""
    refused: type[Exception]


def _copy(*files: Path) -> Callable[[Path], object]:
    return lambda folder: [shutil.copyfile(file, folder / file.name) for file in files]


def _package(folder: Path) -> None:
    """A manifest that its files are as it says, though they are nothing."""
    manifest = json.loads((ZOO / MANIFEST).read_bytes())
    for name, entry in manifest["files"].items():
        content = bytes(9_000_000 if name == manifest["weights"] else 8)
        (folder / name).write_bytes(content)
        entry.update(sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))
    (folder / MANIFEST).write_text(json.dumps(manifest))


def _format1(folder: Path) -> None:
    _package(folder)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    manifest = {name: value for name, value in manifest.items() if name not in ("graphs", "native_certificate")}
    (folder / MANIFEST).write_text(json.dumps(manifest | {"format_version": 1, "precision": "fp32"}))


def _use_tokenizer(folder: Path) -> None:
    tokenizer = SentencePiecePair.load(folder, SPEC)
    for text in TEXTS:
        tokenizer.decode(tokenizer.encode(text, "pt"))
    tokenizer.decode(range(300))


def _open_graph(file: str) -> Callable[[Path], object]:
    weights = (ZOO / "weights.bin").read_bytes()
    return lambda folder: open_session(Graph((folder / file).read_bytes(), "weights.bin", weights), CPU)


def _load_shortlist(folder: Path) -> None:
    shortlist = Shortlist.load(folder / "shortlist.bin", VOCABULARY)
    shortlist.allowed(range(40))
    shortlist.most_allowed(512)


def kinds() -> dict[str, Kind]:
    """All, by name."""
    marian, marian_nmt = sorted((CORPUS / "marian").iterdir()), sorted((CORPUS / "marian_nmt").iterdir())
    tokenizer = CORPUS / "marian" / "source.spm", CORPUS / "marian" / "vocab.json"
    normalizing = ZOO / "source.spm", ZOO / "vocab.json"
    tokens = _use_tokenizer, TokenizerError
    found = [
        Kind("manifest", MANIFEST, _package, Package.open, PackageError),
        Kind("manifest-1", MANIFEST, _format1, Package.open, PackageError),
        Kind("sentencepiece", "source.spm", _copy(*tokenizer), *tokens),
        Kind("sentencepiece-normalizing", "source.spm", _copy(*normalizing), *tokens),
        Kind("vocabulary", "vocab.json", _copy(*tokenizer), *tokens),
        Kind("shortlist", "shortlist.bin", _copy(CORPUS / "shortlist.bin"), _load_shortlist, ShortlistError),
    ]
    for graph in ("encoder.onnx", "decoder.onnx"):
        found.append(Kind(graph, graph, _copy(ZOO / graph), _open_graph(graph), DeviceError))
    for folder, files in (("marian", marian), ("marian_nmt", marian_nmt)):
        for file in files:
            kind = Kind(f"{folder}/{file.name}", file.name, _copy(*files), load_checkpoint, CheckpointError)
            found.append(kind)
    return {kind.name: kind for kind in found}


def damaged(data: bytes, chance: random.Random) -> bytes:
    """What is left of a file. JSON mostly stays JSON, with other values."""
    if data[:1] != b"{" or chance.random() < 0.3:
        return mutated(data, chance)
    for _ in range(chance.choice([1, 1, 2, 5])):
        places = [match.span() for match in JSON_TOKEN.finditer(data)]
        start, end = chance.choice(places)
        data = data[:start] + chance.choice(JSON_VALUES) + data[end:]
    return data


def attempt(kind: Kind, folder: Path, intact: bytes, seed: int) -> bool:
    """Whether a damaged file opens."""
    (folder / kind.file).write_bytes(damaged(intact, random.Random(f"{kind.name} {seed}")))
    try:
        kind.open(folder)
    except kind.refused:
        return False
    return True


def attempt_all(kind: Kind, first: int, cases: int) -> None:
    """Opens the intact file, then damaged ones of seeds from `first` on."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        kind.beside(folder)
        kind.open(folder)
        intact, opened = (folder / kind.file).read_bytes(), 0
        before = _peak_bytes()
        for seed in range(first, first + cases):
            print(f"{kind.name} {seed}", flush=True)
            signal.alarm(WAIT_S)
            opened += attempt(kind, folder, intact, seed)
            signal.alarm(0)
            assert (grown := _peak_bytes() - before) < MOST_BYTES, f"{grown} bytes more"
    print(f"{kind.name}: {cases} damaged, {opened} of them opened", flush=True)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.files", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--kinds", nargs="*", default=list(every := kinds()), choices=every, help="which files")
    given = parser.parse_args(arguments)
    for name in given.kinds:
        attempt_all(every[name], given.first, given.cases)


if __name__ == "__main__":
    main()
