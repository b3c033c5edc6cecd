"""Every family's exported graphs, run as they are served, give the tokens of Hugging Face's `generate`.

Random weights, which transformers itself saved: `tests.models.families`. `python -m tests.engine.test_families 200`
takes more sentences than a test does.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from engine.cpu.decoder import CpuDecoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import Hypothesis
from engine.runner import Runner
from engine.targets import target_rules
from export.trace import trace
from export.weights.save import save
from models.checkpoint.bart_like import Trained, read
from models.decoding import Decoding
from tests.models.families import BART_LIKE, LONGEST, VOCABULARY, Family, write_family
from tests.oracles import HuggingFace, Tokens

SENTENCES = 6


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """In torch: `tests.oracles` has threads of its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("family", BART_LIKE.values(), ids=BART_LIKE)
def test_tokens_are_those_of_generate(family: Family, tmp_path: Path) -> None:
    equal, of, distinct = compare(family, tmp_path, SENTENCES)
    assert equal == of
    assert distinct > 3, "a model that repeats itself shows little"


def compare(family: Family, folder: Path, sentences: int) -> tuple[int, int, int]:
    """How many answers have the tokens of `generate`, of how many, and how many different tokens there are."""
    trained = read(write_family(folder, family))
    sources, asked = random_sources(sentences, trained.config.end_id), HuggingFace(folder)
    default = replace(trained.generation.decoding(), max_new_tokens=40)
    equal, tokens = 0, set[int]()
    with closing(CpuDecoder(save(trace(trained.model), folder), LONGEST, LONGEST)) as decoder:
        for beams in (1, 4):
            decoding = replace(default, num_beams=beams, num_return_sequences=beams)
            found = answers(trained, decoder, sources, decoding)
            expected = asked.generate(sources, decoding)
            for ours, theirs in zip(found, expected, strict=True):
                equal += [hypothesis.token_ids for hypothesis in ours] == [target for target, _ in theirs]
                tokens |= set(ours[0].token_ids)
    return equal, 2 * sentences, len(tokens)


def answers(
    trained: Trained, decoder: CpuDecoder, sources: Sequence[Tokens], decoding: Decoding
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
    for name, family in BART_LIKE.items():
        with TemporaryDirectory() as folder:
            equal, of, distinct = compare(family, Path(folder), int(sys.argv[1]))
        print(f"{name}: {equal} of {of} equal, {distinct} different tokens")


if __name__ == "__main__":
    main()
