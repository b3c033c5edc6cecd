"""The sentences and options of test_token_exact, and what transformers says of them, which is kept in tests/data.

It takes transformers minutes of processor time; a test asks it again for some of them. After a change of the model, of
the sentences or of the options, `python -m tests.engine.exact.cases` asks it for all.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from models.decoding import Decoding
from models.package.folder import Package, sha256
from tests.checkpoints import ZOO, flores
from tests.oracles import HuggingFace, Scored, Tokens

DATA = Path(__file__).parents[2] / "data"
HELDOUT, RECORDED = DATA / "heldout.en-pt.tsv", DATA / "transformers.en-pt.json.gz"
LONGEST = 128


@dataclass(frozen=True)
class Case:
    """Options, and the sentences that are decoded with them."""

    decoding: Decoding
    sentences: range


def options(num_beams: int, length_penalty: float, early_stopping: bool, max_new_tokens: int = LONGEST) -> Decoding:
    """Wants all its hypotheses."""
    return Decoding(num_beams, num_beams, max_new_tokens, length_penalty, early_stopping)


GREEDY = options(1, 1.0, False)
WIDTHS = (2, 4, 8)
DEFAULT = (1.0, False)
OTHERS = [pair for pair in product((0.6, 1.0, 2.0), (False, True)) if pair != DEFAULT]
ALL_OPTIONS = [GREEDY, *(options(width, *pair) for width in WIDTHS for pair in (DEFAULT, *OTHERS))]

SENTENCES = 200
ALL = range(SENTENCES)
CASES = [
    Case(GREEDY, ALL),
    *(Case(options(width, *DEFAULT), ALL) for width in WIDTHS),
    *(Case(options(width, *pair), ALL[index :: len(OTHERS)]) for width in WIDTHS for index, pair in enumerate(OTHERS)),
    # Too short for most, so that the end is forced.
    *(Case(options(width, *DEFAULT, max_new_tokens=16), ALL[::5]) for width in (1, 4)),
]


def read_sources(package: Package) -> list[Tokens]:
    """Half of them news, half of them from software and games."""
    heldout = [line.split("\t")[2] for line in HELDOUT.read_text(encoding="utf-8").splitlines()]
    texts = [english for english, _ in flores()[:: len(flores()) // 100][:100]] + heldout[:: len(heldout) // 100][:100]
    tokenizer = package.tokenizer()
    return [tuple(tokenizer.encode(text)) for text in texts]


def weights_sha256() -> str:
    """Of the model that was asked."""
    return sha256(ZOO / "model.safetensors")


class Recorded:
    """transformers, as far as it was asked before."""

    def __init__(self) -> None:
        recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
        self.weights: str = recorded["weights"]
        self._answers: dict[tuple[Decoding, Tokens], Scored] = {
            (Decoding(**case["decoding"]), tuple(source)): [(tuple(tokens), score) for tokens, score in hypotheses]
            for case in recorded["cases"]
            for source, hypotheses in zip(case["sources"], case["answers"], strict=True)
        }

    @cached_property
    def asked(self) -> HuggingFace:
        """It itself."""
        return HuggingFace(ZOO)

    def generate(self, sources: Sequence[Tokens], decoding: Decoding) -> list[Scored]:
        """The hypotheses of every source. KeyError: it was not asked."""
        return [self._answers[decoding, source] for source in sources]

    def score(self, source: Tokens, target: Tokens, decoding: Decoding) -> float:
        """The score of any target."""
        return self.asked.score(source, target, decoding)


def record() -> None:
    """Asks transformers for all."""
    sources, asked, cases = read_sources(Package.open(ZOO)), HuggingFace(ZOO), list[dict[str, Any]]()
    for case in CASES:
        some = [sources[index] for index in case.sentences]
        answers = [
            [(tokens, round(score, 7)) for tokens, score in found] for found in asked.generate(some, case.decoding)
        ]
        cases.append({"decoding": asdict(case.decoding), "sources": some, "answers": answers})
    text = json.dumps({"weights": weights_sha256(), "cases": cases}, separators=(",", ":"))
    RECORDED.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    record()
