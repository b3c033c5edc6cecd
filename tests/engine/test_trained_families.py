"""A BART and a T5 that have learnt something: greedy and beam tokens are those of `generate`, and mostly right."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cpu.decoder import CpuDecoder
from export.tracing.trace import trace
from export.weights.save import save
from tests.engine.test_families import answers, read
from tests.models.number_words import FOLDER, HELD_OUT, corpus, encode
from tests.oracles import HuggingFace

SENTENCES = 60
LONGEST = 48


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_tokens_are_those_of_generate(family: str, tmp_path: Path) -> None:
    pairs, ids = corpus()
    sources, targets = zip(
        *((encode(source, ids), encode(target, ids)) for source, target in pairs[:HELD_OUT][:SENTENCES]), strict=True
    )
    trained = read(FOLDER / family)
    oracle, right = HuggingFace(FOLDER / family), list[int]()
    default = replace(trained.generation.decoding(), max_new_tokens=LONGEST - 1)
    with closing(CpuDecoder(save(trace(trained.model), tmp_path), LONGEST, LONGEST)) as decoder:
        for beams in (1, 4):
            decoding = replace(default, num_beams=beams, num_return_sequences=beams)
            found = [[one.token_ids for one in found] for found in answers(trained, decoder, sources, decoding)]
            assert found == [[tokens for tokens, _ in those] for those in oracle.generate(sources, decoding)]
            right.append(sum(best[0] == target for best, target in zip(found, targets, strict=True)))
    assert min(right) > 0.9 * SENTENCES
