"""export.quantization.coarse, and the operator that looks so: against numpy's full product in fp64."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from export.quantization.coarse import PROBES, find_coarse_look
from export.quantization.recipe import CoarseLook
from kernels.library import Library
from tests.kernels.conftest import library
from tests.kernels.node import Node, Ports

__all__ = ["library"]

Floats = NDArray[np.float32]
VOCABULARY, WIDTH = 9001, 160
RNG = np.random.default_rng(7)
IMPORTANCE = 0.93 ** np.arange(WIDTH)
"""Of what rows and tokens are made of: most lies in few directions, as in models that are trained."""
MIX = np.linalg.qr(RNG.standard_normal((WIDTH, WIDTH)))[0]
SCALES = np.full(VOCABULARY, 0.02, np.float32)
BIAS = RNG.standard_normal(VOCABULARY).astype(np.float32)
WEIGHT = np.rint(RNG.standard_normal((VOCABULARY, WIDTH)) * IMPORTANCE @ MIX * 50 + 3).clip(-127, 127).astype(np.int8)


def hidden(rows: int, seed: int) -> Floats:
    """Like those of a model: around a centre, and of unlike variance."""
    numbers = np.random.default_rng(seed).standard_normal((rows, WIDTH)) * IMPORTANCE * 2 @ MIX
    found: Floats = (numbers + np.linspace(-0.5, 0.5, WIDTH)).astype(np.float32)
    return found


def logits(x: Floats) -> NDArray[np.float64]:
    product: NDArray[np.float64] = x.astype(np.float64) @ (WEIGHT * SCALES[:, None].astype(np.float64)).T + BIAS
    return product


def found_look() -> CoarseLook:
    look = find_coarse_look(hidden(2000, 1), WEIGHT * SCALES[:, None], BIAS)
    assert look is not None
    return look


@pytest.fixture(scope="module", params=[4, 8])
def look(request: pytest.FixtureRequest) -> CoarseLook:
    return replace(found_look(), key_bits=request.param)


def operator(library: Library, look: CoarseLook, weight: NDArray[Any] = WEIGHT, **others: Any) -> Node:
    inputs: Ports = [("x", np.float32), ("ranks", np.int64), ("weight", weight.dtype.type), ("scales", np.float32)]
    inputs += [("bias", np.float32), ("allowed", None)]
    parts = {"coarse_query": look.query, "coarse_key": look.key, "coarse_centre": look.centre}
    constants = {"weight": weight, "scales": SCALES, "bias": BIAS} | parts
    constants |= {name: value for name, value in others.items() if name in constants}
    attributes = {"zero_point": 128, "margin": look.margin, "strange": look.strange, "key_bits": look.key_bits}
    attributes |= {name: value for name, value in others.items() if name in attributes}
    inputs += [(name, np.float32) for name in parts]
    outputs: Ports = [("ids", np.int64), ("log_probs", np.float32), ("normaliser", np.float32)]
    return Node(library, "BestTokens", inputs, constants, outputs, **attributes)


def test_the_best_token_is_that_of_the_full_product(library: Library, look: CoarseLook) -> None:
    """Of rows that calibration has not seen, none of which is computed whole."""
    x, before = hidden(500, 2), library.counters()
    ids, log_probs, normaliser = operator(library, look)(x=x, ranks=np.arange(1))
    after, expected = library.counters(), logits(x)
    assert (after.rows - before.rows, after.whole_rows - before.whole_rows) == (500, 0)
    np.testing.assert_array_equal(ids[:, 0], expected.argmax(1))
    totals = np.log(np.exp(expected - expected.max(1, keepdims=True)).sum(1)) + expected.max(1)
    off = np.abs(log_probs[:, 0] - (expected.max(1) - totals))
    assert np.quantile(off, 0.99) < 0.05
    assert off.max() < (0.05 if look.key_bits == 8 else 0.15)
    np.testing.assert_allclose(log_probs[:, 0] + normaliser, expected.max(1), atol=1e-3)


@pytest.mark.parametrize("spread", [1.0, 0.3, 0.05])
def test_what_is_told_of_a_row_is_the_same_however_many_tokens_are_wanted(
    library: Library, look: CoarseLook, spread: float
) -> None:
    """Also of rows that hardly tell tokens apart, so that more look good than are kept."""
    node, x = operator(library, look), hidden(40, 3)
    x = look.centre + np.float32(spread) * (x - look.centre)
    most = node(x=x, ranks=np.arange(64))
    assert (np.sort(most[0], 1)[:, 1:] != np.sort(most[0], 1)[:, :-1]).all()
    np.testing.assert_allclose(most[1] + most[2][:, None], np.take_along_axis(logits(x), most[0], 1), atol=1e-3)
    for k in (1, 2, 8, 17, 33):
        ids, log_probs, normaliser = node(x=x, ranks=np.arange(k))
        np.testing.assert_array_equal(ids, most[0][:, :k])
        np.testing.assert_array_equal(log_probs, most[1][:, :k])
        np.testing.assert_array_equal(normaliser, most[2])


def test_a_row_is_the_same_alone_and_among_others(library: Library, look: CoarseLook) -> None:
    node, x = operator(library, look), hidden(67, 4)
    x[3] *= 40
    x[5, 2] = np.nan
    together = node(x=x, ranks=np.arange(8))
    for r in (0, 3, 5, 33, 66):
        for got, wanted in zip(node(x=x[r : r + 1], ranks=np.arange(8)), together, strict=True):
            np.testing.assert_array_equal(got[0], wanted[r])


def test_rows_unlike_those_that_were_seen_are_computed_whole(library: Library, look: CoarseLook) -> None:
    x = 3 * np.random.default_rng(5).standard_normal((20, WIDTH)).astype(np.float32)
    before = library.counters()
    ids, _, normaliser = operator(library, look)(x=x, ranks=np.arange(4))
    assert library.counters().whole_rows - before.whole_rows == 20
    expected = logits(x)
    np.testing.assert_array_equal(ids, np.argsort(-expected, 1)[:, :4])
    np.testing.assert_allclose(
        normaliser, np.log(np.exp(expected - expected.max(1, keepdims=True)).sum(1)) + expected.max(1), atol=1e-3
    )


def test_rows_that_are_not_finite(library: Library, look: CoarseLook) -> None:
    node, x = operator(library, look), hidden(6, 6)
    good = node(x=x, ranks=np.arange(3))
    x[1, 5], x[4, 90] = np.nan, np.inf
    ids, log_probs, normaliser = node(x=x, ranks=np.arange(3))
    assert (ids[[1, 4]] == -1).all()
    assert np.isnan(log_probs[[1, 4]]).all()
    assert np.isnan(normaliser[[1, 4]]).all()
    for got, wanted in zip((ids, log_probs, normaliser), good, strict=True):
        np.testing.assert_array_equal(np.delete(got, [1, 4], 0), np.delete(wanted, [1, 4], 0))


@pytest.mark.parametrize("k", [1, 8])
def test_more_equal_tokens_than_are_kept(library: Library, look: CoarseLook, k: int) -> None:
    same = np.tile(WEIGHT[:1], (VOCABULARY, 1))
    node = operator(library, look, same, bias=np.zeros(VOCABULARY, np.float32))
    ids, log_probs, _ = node(x=hidden(5, 8), ranks=np.arange(k))
    np.testing.assert_array_equal(ids, np.tile(np.arange(k), (5, 1)))
    np.testing.assert_allclose(log_probs, -np.log(VOCABULARY), atol=0.05)


def test_tokens_that_the_bias_forbids(library: Library, look: CoarseLook) -> None:
    bias = BIAS.copy()
    bias[::2] = -np.inf
    x = hidden(9, 9)
    ids, _, _ = operator(library, look, bias=bias)(x=x, ranks=np.arange(8))
    assert (ids % 2 == 1).all()
    np.testing.assert_array_equal(ids[:, 0], 1 + 2 * logits(x)[:, 1::2].argmax(1))


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"margin": 0.0}, "margin is 0; it must be positive"),
        ({"strange": -1.0}, "strange is -1; it must not be negative"),
        ({"key_bits": 5}, "key_bits is 5; it must be 4 or 8"),
        ({"coarse_centre": np.zeros(3, np.float32)}, r"coarse_centre has the shape \[3\]"),
        ({"coarse_query": np.zeros((8, WIDTH), np.float32)}, "coarse_query has 8 rows for the 80 numbers"),
        ({"weight": WEIGHT.astype(np.float32)}, "a coarse look is for weights of 8 bits"),
    ],
)
def test_what_the_operator_refuses(library: Library, look: CoarseLook, others: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        operator(library, look, **{"weight": WEIGHT} | others)


def test_a_look_has_half_of_the_numbers_and_probes(look: CoarseLook) -> None:
    assert (look.query.shape, look.key.shape) == ((WIDTH // 2 + PROBES, WIDTH), (WIDTH // 2, WIDTH))
    assert look.margin >= 8
    assert look.strange > 0


def test_keys_have_the_bits_that_keep_the_margin_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("export.quantization.coarse.LEAST_MARGIN", 0.0)
    few = found_look()
    assert few.key_bits == 4
    monkeypatch.setattr("export.quantization.coarse.MOST_MARGIN", few.margin - 0.001)
    more = found_look()
    assert more.key_bits == 8
    assert more.margin < few.margin


def test_directions_that_no_weight_has(library: Library) -> None:
    """Half of them: they must not become large."""
    flat = WEIGHT.astype(np.float64) @ MIX.T
    flat[:, WIDTH // 2 :] = 0
    weight = np.rint(flat @ MIX).clip(-127, 127).astype(np.int8)
    look = find_coarse_look(hidden(2000, 1), (weight - weight.mean(0)) * SCALES[:, None], BIAS)
    assert look is not None
    assert np.isfinite(look.key).all()
    assert np.abs(look.key).max() < 1e8


def test_there_is_none_where_it_would_not_pay() -> None:
    rows, weight = hidden(2000, 1), WEIGHT * SCALES[:, None]
    assert find_coarse_look(rows, weight[:8000], BIAS[:8000]) is None, "a small vocabulary"
    assert find_coarse_look(rows[:600], weight, BIAS) is None, "few rows to learn from"
    assert find_coarse_look(rows[:, :96], weight[:, :96], BIAS) is None, "few numbers"
    alike = RNG.standard_normal((2000, WIDTH)).astype(np.float32)
    any_weight = RNG.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)
    assert find_coarse_look(alike, any_weight, BIAS) is None, "all directions tell as much"
