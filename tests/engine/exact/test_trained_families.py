"""A BART and a T5 that have learnt something: greedy and beam tokens are those of `generate`, and mostly right.

In 8 bits they are mostly right too.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cpu.decoder import CpuDecoder
from engine.native.decoder import NativeDecoder
from export.native.graphs import native_graphs
from export.quantization.make import make_recipe
from export.quantization.model import standard_model
from export.tracing.graphs import Graphs
from export.tracing.trace import trace
from export.weights.save import save
from kernels.library import LibraryError, open_library
from tests.engine.exact.test_families import answers, read
from tests.models.number_words import FOLDER, HELD_OUT, corpus, encode
from tests.oracles import HuggingFace

SENTENCES = 60
LONGEST = 48
PAIRS, IDS = corpus()
SOURCES, TARGETS = zip(
    *((encode(source, IDS), encode(target, IDS)) for source, target in PAIRS[:HELD_OUT][:SENTENCES]), strict=True
)


def decoders(graphs: Graphs, folder: Path) -> Iterator[CpuDecoder | NativeDecoder]:
    """Of standard operators, and of our own where they are built."""
    files = save(graphs, folder)
    yield CpuDecoder(files, LONGEST, LONGEST)
    with suppress(LibraryError):
        assert files.spec.native is not None
        yield NativeDecoder(files, files.spec.native, open_library(), LONGEST, LONGEST)


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_tokens_are_those_of_generate(family: str, tmp_path: Path) -> None:
    trained = read(FOLDER / family)
    oracle, right = HuggingFace(FOLDER / family), list[int]()
    default = replace(trained.generation.decoding(), max_new_tokens=LONGEST - 1)
    decodings = [replace(default, num_beams=beams, num_return_sequences=beams) for beams in (1, 4)]
    expected = [[[tokens for tokens, _ in one] for one in oracle.generate(SOURCES, each)] for each in decodings]
    for one in decoders(trace(trained.model).with_native(native_graphs(trained.model)), tmp_path):
        with closing(one) as decoder:
            for decoding, answer in zip(decodings, expected, strict=True):
                found = [[one.token_ids for one in found] for found in answers(trained, decoder, SOURCES, decoding)]
                assert found == answer
                right.append(sum(best[0] == target for best, target in zip(found, TARGETS, strict=True)))
    assert min(right) > 0.9 * SENTENCES


def test_8_bits_are_as_often_right(tmp_path: Path) -> None:
    trained = read(FOLDER / "t5")
    calibration = [(encode(source, IDS), encode(target, IDS)) for source, target in PAIRS[HELD_OUT:][:SENTENCES]]
    recipe = make_recipe(trained.model, calibration)
    graphs = trace(standard_model(trained.model, recipe)).with_native(native_graphs(trained.model, recipe))
    decoding = replace(trained.generation.decoding(), max_new_tokens=LONGEST - 1)
    for one in decoders(graphs, tmp_path):
        with closing(one) as decoder:
            found = answers(trained, decoder, SOURCES, decoding)
        assert sum(best[0].token_ids == target for best, target in zip(found, TARGETS, strict=True)) > 0.9 * SENTENCES
