"""`python -m tests.kernels.translations ISA`: what en-pt-int8 says by these instructions of the library, as JSON.

They are chosen once in a process, so each set has a process of its own.
"""

import json
import sys
from pathlib import Path

from bench.sentences import flores
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.offline import decode
from kernels.library import open_library
from models.decoding import Decoding
from models.package.folder import Package

PACKAGE = Path(__file__).parents[2] / "models" / "zoo" / "en-pt-int8"
SENTENCES = 6
SEARCHES = [Decoding(max_new_tokens=128), Decoding(num_beams=4, max_new_tokens=128)]

Answers = list[tuple[list[int], float]]
"""Tokens and score of the best hypothesis of each search and sentence."""


def answers(isa: str) -> Answers:
    """Once in a process."""
    open_library().use(isa)
    package = Package.open(PACKAGE)
    model, tokenizer = Loadable.of(package), package.tokenizer()
    by_length = sorted(flores(), key=len)
    sources = [tuple(tokenizer.encode(text)) for text in by_length[:: len(by_length) // SENTENCES][:SENTENCES]]
    with load(model, CPU, Limits(8, 1), kernels="required") as runner:
        found = decode(runner, model.rules, [(source, search) for search in SEARCHES for source in sources])
        return [(list(answer.hypotheses[0].token_ids), answer.hypotheses[0].score) for answer in found]


if __name__ == "__main__":
    json.dump(answers(sys.argv[1]), sys.stdout)
