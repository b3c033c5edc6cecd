"""Every family's exported graphs, run as they are served, give the tokens of Hugging Face's `generate`.

Random weights, which transformers itself saved: `tests.models.families`.
`python -m tests.engine.exact.test_families 200` takes more sentences than a test does.
"""

import operator
import random
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from engine.cpu.decoder import CpuDecoder
from engine.native.decoder import NativeDecoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import Hypothesis
from engine.runner import Runner
from engine.targets import target_rules
from export.tracing.trace import trace
from export.weights.save import save
from models.checkpoint import bart_like, t5_like
from models.checkpoint.bart_like import Trained
from models.checkpoint.files.reading import read_json
from models.decoding import Decoding
from tests.models.families import BART_LIKE, LONGEST, T5_LIKE, VOCABULARY, Family, write_family
from tests.oracles import HuggingFace, Tokens

pytestmark = pytest.mark.timeout(300)
"""Tracing a family and `generate` take that together on a busy machine."""
SENTENCES = 6
FAMILIES = BART_LIKE | T5_LIKE
TRACED = BART_LIKE | {name: T5_LIKE[name] for name in ("t5", "umt5")}
"""To trace one takes seconds: the others' logits are compared in tests.models.checkpoint.test_t5_like."""


@pytest.mark.parametrize("family", TRACED.values(), ids=TRACED)
def test_tokens_are_those_of_generate(family: Family, tmp_path: Path) -> None:
    equal, same, of, distinct = compare(family, tmp_path, SENTENCES)
    assert (equal, same) == (of, of)
    assert distinct > 3, "a model that repeats itself shows little"


def compare(family: Family, folder: Path, sentences: int) -> tuple[int, int, int, int]:
    """How many answers have the tokens of `generate`, how many have the same bits alone, of how many; different tokens.

    The cache has other capacities alone than with long ones beside, and grows while rows are in use.
    """
    trained = read(write_family(folder, family))
    sources, asked = random_sources(sentences, trained.config.end_id), HuggingFace(folder)
    default = replace(trained.generation.decoding(), max_new_tokens=40)
    equal, same, tokens = 0, 0, set[int]()
    with closing(CpuDecoder(save(trace(trained.model), folder), LONGEST, LONGEST)) as decoder:
        for beams in (1, 4):
            decoding = replace(default, num_beams=beams, num_return_sequences=beams)
            found = answers(trained, decoder, sources, decoding)
            alone = [answers(trained, decoder, [source], decoding)[0] for source in sources]
            same += sum(map(operator.eq, found, alone))
            expected = asked.generate(sources, decoding)
            for ours, theirs in zip(found, expected, strict=True):
                equal += [hypothesis.token_ids for hypothesis in ours] == [target for target, _ in theirs]
                tokens |= set(ours[0].token_ids)
    return equal, same, 2 * sentences, len(tokens)


def read(folder: Path) -> Trained:
    """The model in a folder."""
    like_t5 = read_json(folder / "config.json")["model_type"] in t5_like.FAMILIES
    return t5_like.read(folder) if like_t5 else bart_like.read(folder)


def answers(
    trained: Trained, decoder: CpuDecoder | NativeDecoder, sources: Sequence[Tokens], decoding: Decoding
) -> list[tuple[Hypothesis, ...]]:
    """Of all sources, decoded together."""
    rules = target_rules(decoder.spec.vocabulary, trained.generation)
    with Runner(decoder, 32, 2, Unobserved()) as runner:
        return [answer.hypotheses for answer in decode(runner, rules, [(source, decoding) for source in sources])]


def random_sources(sentences: int, end_id: int) -> list[Tokens]:
    """Of many lengths, the end token included."""
    chance = random.Random(7)
    return [(*chance.choices(range(5, VOCABULARY - 2), k=chance.randrange(1, 30)), end_id) for _ in range(sentences)]


def main() -> None:
    torch.set_num_threads(1)
    for name, family in FAMILIES.items():
        with TemporaryDirectory() as folder:
            equal, same, of, distinct = compare(family, Path(folder), int(sys.argv[1]))
        print(f"{name}: {equal} of {of} equal, {same} the same alone, {distinct} different tokens")


if __name__ == "__main__":
    main()
