"""engine.native on models with random weights: its rows against PyTorch, and against themselves alone."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.decoder import Ask
from engine.host.positions import runs
from engine.native.decoder import NativeDecoder
from engine.native.encoder import encode
from export.verification.reference import log_probs
from kernels.library import Library
from models.config import ModelConfig
from models.package import signature
from models.package.shortlist import Shortlist
from tests.engine.cpu import test_cpu_decoder
from tests.engine.cpu.test_cpu_decoder import Batch, Served, Tokens, play, play_long
from tests.engine.native.graphs import GATED, LONGEST, POST, PRE, RECURRENT, RELATIVE, Exported, export_random
from tests.models.test_transformer import config

pytestmark = pytest.mark.timeout(300)

ATOL = 2e-5
SUM_ATOL = 4e-3
"""Of the logarithm of a row's sum, which is estimated where only a few tokens are computed exactly: the smaller the
vocabulary, the less the errors of the others even out."""
BITS_ATOL, GATED_BITS_ATOL = 0.2, 0.8
"""Of 8 bits everywhere. Scores without a scale magnify what roundings of both sides of a gate come to: 0.08 in the
median and 0.5 at most, in the worst of all rows, of which weights of 8 bits alone are 0.4."""
WIDE = {"source_vocab_size": 1300, "target_vocab_size": 1300}
SHAPES = {
    "post-norm": (POST, False, False),
    "pre-norm": (PRE, False, False),
    "recurrent": (RECURRENT, False, False),
    "relative": (RELATIVE, False, False),
    "gated": (GATED, False, False),
    "shortlist": (config(**POST.model_dump() | WIDE), False, True),
    "8 bits": (POST, True, False),
    "8 bits, recurrent": (RECURRENT, True, False),
    "8 bits, relative": (RELATIVE, True, False),
    "8 bits, gated": (GATED, True, False),
    "8 bits, pre-norm, shortlist": (config(**PRE.model_dump() | WIDE), True, True),
}


class NativeServed(Served):
    """A model, and its native graphs loaded."""

    def __init__(self, exported: Exported, library: Library) -> None:
        super().__init__(exported.model, exported.native(library))
        self.shortlist: Shortlist | None = exported.files.shortlist
        self.native: NativeDecoder = exported.native(library)

    def log_probs(self, source: Tokens, target: Tokens) -> NDArray[np.float32]:
        """PyTorch's, after each target token [target, vocabulary]. Of what is not allowed: -inf."""
        scores: NDArray[np.float32] = log_probs(self.model, source, target, self.shortlist).numpy()
        return scores


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> tuple[ModelConfig, bool, bool]:
    return SHAPES[request.param]


@pytest.fixture(scope="module")
def served(
    shape: tuple[ModelConfig, bool, bool], library: Library, tmp_path_factory: pytest.TempPathFactory
) -> NativeServed:
    return NativeServed(export_random(tmp_path_factory.mktemp("graphs"), *shape), library)


@pytest.fixture(scope="module", params=["long", 1])
def batch(served: NativeServed, request: pytest.FixtureRequest) -> Batch:
    return play_long(served) if request.param == "long" else play(served, request.param)


def test_rows_get_what_pytorch_gives(served: NativeServed, batch: Batch, shape: tuple[ModelConfig, bool, bool]) -> None:
    """The same tokens in the same order; the sum of a row is estimated. 8 bits are near it."""
    config, quantized, _ = shape
    bits_atol = GATED_BITS_ATOL if config.gated else BITS_ATOL
    for row in batch.histories:
        for expected, found in zip(served.log_probs(row.source, row.fed), row.found, strict=True):
            k = min(len(found.token_ids), int(np.isfinite(expected).sum()))
            ids, scores = found.token_ids[:k], found.log_probs[:k]
            assert len(set(ids.tolist())) == k
            np.testing.assert_allclose(scores, expected[ids], atol=bits_atol if quantized else SUM_ATOL, rtol=0)
            if quantized:
                continue
            np.testing.assert_allclose(expected[ids], np.sort(expected)[::-1][:k], atol=ATOL, rtol=0)
            np.testing.assert_allclose(scores - scores[0], expected[ids] - expected[ids[0]], atol=ATOL, rtol=0)


def test_rows_get_what_they_get_alone_to_the_last_bit(served: NativeServed, batch: Batch) -> None:
    for row in batch.histories:
        cache = served.native.open_cache(1)
        cache.join(*served.native.encode([row.source]))
        for token, found in zip(row.fed, row.found, strict=True):
            cache.begin_step([token], Ask(len(found.token_ids)))
            alone = cache.end_step()
            assert alone.token_ids[0].tolist() == found.token_ids.tolist()
            assert alone.log_probs[0].tobytes() == found.log_probs.tobytes()


def test_batches_are_varied(batch: Batch) -> None:
    test_cpu_decoder.test_batches_are_varied(batch)


def test_beams_find_their_source_after_the_memory_changed(served: NativeServed) -> None:
    test_cpu_decoder.test_beams_find_their_source_after_the_memory_changed(served)


def test_rows_change_from_sentence_to_sentence(served: NativeServed) -> None:
    test_cpu_decoder.test_rows_change_from_sentence_to_sentence(served)


def test_how_sources_are_grouped_changes_no_bit(served: NativeServed) -> None:
    chance = random.Random(5)
    sources = [served.random_tokens(chance, length) for length in (1, 40, 3, LONGEST, 17, 1, 90, 2, 16)]
    session = served.native._encoder
    alone = list(encode(session, sources, 1))
    for most in (20, 160, 1000):
        for expected, found in zip(alone, encode(session, sources, most), strict=True):
            assert [part.tobytes() for part in found] == [part.tobytes() for part in expected]


class Counted:
    """An encoder whose runs are counted."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.tokens = list[int]()
        """Of each run."""

    def run(self, outputs: Sequence[str], given: Mapping[str, NDArray[np.generic]]) -> Any:
        self.tokens.append(given[signature.NATIVE_ENCODER_INPUTS[0]].size)
        return self._session.run(outputs, given)


def test_large_weights_are_read_for_more_tokens(served: NativeServed, monkeypatch: pytest.MonkeyPatch) -> None:
    """384 of fp32 and 192 of 8 bits."""
    counted = Counted(served.native._encoder)
    monkeypatch.setattr(served.native, "_encoder", counted)
    served.native.encode([served.random_tokens(random.Random(6), 40) for _ in range(20)])
    in_fp32 = served.native.spec.precision.weights == "fp32"
    assert counted.tokens == ([360, 360, 80] if in_fp32 else [160] * 5)


def test_sources_are_what_they_are_for_the_standard_graphs(library: Library, tmp_path: Path) -> None:
    exported = export_random(tmp_path, PRE)
    sources = [(5, 3, 1), (7,), (9, 2, 2, 6, 1)]
    pairs = zip(exported.standard.encode(sources), exported.native(library).encode(sources), strict=True)
    for expected, found in pairs:
        np.testing.assert_allclose(found.hidden(), expected.hidden(), atol=ATOL, rtol=0)
        assert found.length == found.computed_tokens == expected.length


def test_neighbours_run_together_as_long_as_they_fit() -> None:
    lengths = [3, 4, 9, 1, 30, 2]
    assert [lengths[group] for group in runs(lengths, 10)] == [[3, 4], [9, 1], [30], [2]]
    assert [lengths[group] for group in runs(lengths, 1)] == [[length] for length in lengths]
    assert list(runs([], 10)) == []


def test_what_is_too_long_is_refused(served: NativeServed) -> None:
    batch = Batch(served, rows=1)
    with pytest.raises(ValueError, match=f"has {LONGEST} tokens; the cache was opened for {LONGEST - 1}"):
        cache = served.native.open_cache(1)
        source = served.native.encode([(1,) * LONGEST])[0]
        cache._source_capacity = LONGEST - 1
        cache.join(source)
    batch.join((1, 2))
    for _ in range(LONGEST):
        batch.step([4], k=1)
    with pytest.raises(ValueError, match=f"needs {LONGEST + 1} positions; the cache was opened for {LONGEST}"):
        batch.cache.begin_step([4], Ask())


def test_only_second_children_are_copied(served: NativeServed) -> None:
    """And of them what they have decoded, in whole blocks of 16."""
    batch = Batch(served, rows=4)
    batch.join((3, 1, 4))
    batch.join((1, 5, 9, 2))
    for _ in range(3):
        batch.step([4, 4], k=1)
    assert batch.cache.take([0, 1]) == 0
    copied = batch.cache.take([0, 1, 1])
    shapes = [tensor for tensor in served.native._native.cache if tensor.owner == "hypothesis"]
    expected = [tensor.heads * tensor.head_dim * (16 if tensor.grows else 1) for tensor in shapes]
    sizes = {"fp32": 4, "fp16": 2}
    assert copied == sum(count * sizes[tensor.precision] for count, tensor in zip(expected, shapes, strict=True))
    assert batch.cache.take([2, 0]) == 0


def test_named_tokens_are_those_of_whole_rows(served: NativeServed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of an older package, which has no graph of them. Their bits are the same in any batch."""
    size = served.model.config.target_vocab_size
    chance, ask = np.random.default_rng(7), Ask(2, named=True, normaliser=True, logits=True)
    sources = [tuple(chance.integers(1, size, length).tolist()) for length in (5, 1, 12)]
    cache, alone = (served.native.open_cache(rows) for rows in (3, 1))
    for row, source in enumerate(served.native.encode(sources)):
        cache.join(source)
        if row == 2:
            alone.join(source)
    for _ in range(4):
        fed, named = chance.integers(1, size, 3), chance.integers(0, size, (2, 4))
        named[1, 2] = -1
        for one, tokens in ((cache, fed), (alone, fed[2:])):
            one.begin_step(tokens, ask)
        step, rows = cache.end_step(), np.array([2, 0])
        named[:, 0] = step.token_ids[rows, 1]
        assert step.named is not None and step.logits is not None and step.normaliser is not None
        found, whole = step.named(rows, named), step.logits(rows)
        expected = np.take_along_axis(whole, np.maximum(named, 0), 1) - step.normaliser(rows)[:, None]
        np.testing.assert_allclose(found, np.where(named < 0, -np.inf, expected), atol=ATOL, rtol=0)
        np.testing.assert_allclose(found[:, 0], step.log_probs[rows, 1], atol=1e-6, rtol=0)
        by_itself = alone.end_step().named
        assert by_itself is not None and by_itself(np.array([0]), named[:1]).tobytes() == found[:1].tobytes()
        with monkeypatch.context() as older:
            older.setattr(cache, "_names", False)
            fed = chance.integers(1, size, 3)
            cache.begin_step(fed, ask)
            of_older = cache.end_step().named
            alone.begin_step(fed[2:], ask)
            of_this = alone.end_step().named
            assert of_older is not None and of_this is not None
            np.testing.assert_allclose(of_older(rows, named)[:1], of_this(np.array([0]), named[:1]), atol=ATOL, rtol=0)
