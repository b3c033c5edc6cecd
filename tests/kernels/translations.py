"""`python -m tests.kernels.translations LIBRARY ISA`: what en-pt-int8 says by a built library's instructions, as JSON.

They are chosen once in a process, so each set has a process of its own.
"""

import json
import sys
from functools import partial
from pathlib import Path

from bench.sentences import flores
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.native import library as opening
from engine.offline import decode
from kernels.library import open_library
from models.decoding import Decoding
from models.package.folder import Package

PACKAGE = Path(__file__).parents[2] / "models" / "zoo" / "en-pt-int8"
SENTENCES = 6
SEARCHES = [Decoding(max_new_tokens=128), Decoding(num_beams=4, max_new_tokens=128)]

Answers = list[tuple[list[int], float]]
"""Tokens and score of the best hypothesis of each search and sentence."""


def answers(path: Path, isa: str) -> Answers:
    """Once in a process."""
    open_library(path).use(isa)
    opening.open_library = partial(open_library, path)
    package = Package.open(PACKAGE)
    model, tokenizer = Loadable.of(package), package.tokenizer()
    by_length = sorted(flores(), key=len)
    sources = [tuple(tokenizer.encode(text)) for text in by_length[:: len(by_length) // SENTENCES][:SENTENCES]]
    with load(model, CPU, Limits(8, 1), kernels="required") as runner:
        found = decode(runner, model.rules, [(source, search) for search in SEARCHES for source in sources])
        return [(list(answer.hypotheses[0].token_ids), answer.hypotheses[0].score) for answer in found]


if __name__ == "__main__":
    json.dump(answers(Path(sys.argv[1]), sys.argv[2]), sys.stdout)
