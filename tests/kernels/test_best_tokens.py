"""BestTokens against numpy's full product in fp64, on rows made to be hard."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.library import Library
from tests.kernels.node import Array, Node, Ports

Floats = NDArray[np.float32]
VOCABULARY, WIDTH = 5003, 96


class OutputLayer:
    """A random output layer, stored as fp32, fp16 or s8."""

    def __init__(self, kind: str, vocabulary: int = VOCABULARY) -> None:
        rng = np.random.default_rng(0)
        dense = rng.standard_normal((vocabulary, WIDTH)).astype(np.float32) * rng.uniform(0.5, 2, (vocabulary, 1))
        self.bias = rng.standard_normal(vocabulary).astype(np.float32)
        self.scales: Floats | None = None
        if kind == "s8":
            self.scales = (np.abs(dense).max(1) / 127).astype(np.float32)
            self.weight: Array = np.rint(dense / self.scales[:, None]).astype(np.int8)
        else:
            self.weight = dense.astype({"fp32": np.float32, "fp16": np.float16}[kind])

    @property
    def real(self) -> NDArray[np.float64]:
        weight = self.weight.astype(np.float64)
        return weight if self.scales is None else weight * self.scales[:, None].astype(np.float64)

    def logits(self, x: Floats) -> Array:
        return x.astype(np.float64) @ self.real.T + self.bias

    def node(self, library: Library, allowed: bool = False, normaliser: bool = False, **attributes: Any) -> Node:
        scales = ("scales", None if self.scales is None else np.float32)
        inputs: Ports = [
            ("x", np.float32),
            ("ranks", np.int64),
            ("weight", self.weight.dtype.type),
            scales,
            ("bias", np.float32),
        ]
        inputs += [("allowed", np.int32)] * allowed
        constants = {"weight": self.weight, "bias": self.bias}
        if self.scales is not None:
            constants["scales"] = self.scales
        outputs: Ports = [("ids", np.int64), ("log_probs", np.float32)]
        outputs += [("normaliser", np.float32)] * normaliser
        return Node(library, "BestTokens", inputs, constants, outputs, **({"zero_point": 128} | attributes))

    def named_node(self, library: Library) -> Node:
        """The logits of tokens by name."""
        scales = ("scales", None if self.scales is None else np.float32)
        weight = self.weight.dtype.type
        inputs: Ports = [("x", np.float32), ("tokens", np.int64), ("weight", weight), scales, ("bias", np.float32)]
        constants = {"weight": self.weight, "bias": self.bias}
        if self.scales is not None:
            constants["scales"] = self.scales
        return Node(library, "NamedTokens", inputs, constants, [("logits", np.float32)])


def best(logits: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    return np.argsort(-logits, axis=1, kind="stable")[:, :k]


def log_probabilities(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted: NDArray[np.float64] = logits - logits.max(1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return result


def expect_exact(layer: OutputLayer, x: Floats, ids: NDArray[np.int64], log_probs: Floats, tolerance: float) -> None:
    """The tokens of the full product, but where rounding to fp32 decides, and their log-probabilities."""
    logits, k = layer.logits(x), ids.shape[1]
    wanted, rounding = best(logits, k), 1e-6 * np.abs(x).max() * np.abs(layer.real).max() * WIDTH
    found = np.take_along_axis(logits, ids, 1)
    np.testing.assert_allclose(found, np.take_along_axis(logits, wanted, 1), rtol=0, atol=rounding)
    assert all(len(set(row)) == k for row in ids.tolist())
    np.testing.assert_allclose(
        log_probs, np.take_along_axis(log_probabilities(logits), ids, 1), atol=tolerance + 1e-6 * np.abs(found).max()
    )


def hidden(rows: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).standard_normal((rows, WIDTH)).astype(np.float32)


def ranks(k: int) -> NDArray[np.int64]:
    return np.arange(k, dtype=np.int64)


@pytest.mark.parametrize("kind", ["fp32", "fp16", "s8"])
@pytest.mark.parametrize("scale", [0.0, 0.03])
@pytest.mark.parametrize("k", [1, 8, 64])
def test_the_tokens_are_those_of_the_full_product(library: Library, kind: str, scale: float, k: int) -> None:
    layer, x = OutputLayer(kind), hidden(37)
    ids, log_probs = layer.node(library, scale=scale)(x=x, ranks=ranks(k))
    expect_exact(layer, x, ids, log_probs, 2e-3)


@pytest.mark.parametrize("kind", ["fp32", "fp16", "s8"])
@pytest.mark.parametrize("allowed", [False, True])
def test_log_probabilities_and_the_normaliser_are_logits(library: Library, kind: str, allowed: bool) -> None:
    """Also of a row that is computed whole for many tokens. NaN where a row is not finite. Nothing else changes."""
    layer, x = OutputLayer(kind), hidden(9)
    x[4, 3] = np.nan
    named = {"allowed": np.tile(np.arange(0, VOCABULARY, 7, dtype=np.int32), (9, 1))} if allowed else {}
    for k in (1, 8, 64):
        ids, log_probs, normaliser = layer.node(library, allowed, normaliser=True)(x=x, ranks=ranks(k), **named)
        same = layer.node(library, allowed)(x=x, ranks=ranks(k), **named)
        np.testing.assert_array_equal(ids, same[0])
        np.testing.assert_array_equal(log_probs, same[1])
        assert normaliser.shape == (9,) and np.isnan(normaliser[4])
        finite = np.arange(9) != 4
        logits = np.take_along_axis(layer.logits(x)[finite], ids[finite], 1)
        np.testing.assert_allclose(log_probs[finite] + normaliser[finite, None], logits, rtol=1e-5, atol=1e-4)


def test_the_score_is_nearly_exact_where_a_token_stands_out(library: Library) -> None:
    layer = OutputLayer("fp32")
    x = (layer.real[::250][:20] * 0.3).astype(np.float32)
    ids, log_probs = layer.node(library)(x=x, ranks=ranks(4))
    expect_exact(layer, x, ids, log_probs, 2e-3)


@pytest.mark.parametrize("kind", ["fp32", "s8"])
def test_many_tokens_within_the_bound(library: Library, kind: str) -> None:
    """Copies of few rows, moved by less than 8 bits can see: the row is computed whole."""
    layer = OutputLayer(kind)
    rng = np.random.default_rng(3)
    chosen = rng.integers(0, 5, VOCABULARY)
    if layer.scales is not None:
        layer.weight, layer.scales, layer.bias = layer.weight[chosen], layer.scales[chosen], layer.bias[chosen]
        layer.bias = layer.bias + rng.standard_normal(VOCABULARY).astype(np.float32) * np.float32(1e-3)
    else:
        layer.weight = layer.weight[chosen] + rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32) * np.float32(
            1e-3
        )
        layer.bias = layer.bias[chosen]
    x, before = hidden(12), library.counters()
    ids, log_probs = layer.node(library)(x=x, ranks=ranks(8))
    expect_exact(layer, x, ids, log_probs, 1e-4)
    after = library.counters()
    assert (after.rows - before.rows, after.whole_rows - before.whole_rows) == (12, 12)


def test_few_rows_are_computed_whole(library: Library) -> None:
    layer, x = OutputLayer("fp32"), hidden(200)
    before = library.counters()
    layer.node(library)(x=x, ranks=ranks(1))
    after = library.counters()
    assert after.rows - before.rows == 200
    assert after.whole_rows - before.whole_rows <= 2


def test_of_equal_tokens_the_lowest_wins(library: Library) -> None:
    layer = OutputLayer("fp32")
    same = [4000, 17, 2500, 900]
    layer.weight[same], layer.bias[same] = layer.weight[17], 400
    ids = layer.node(library)(x=hidden(9), ranks=ranks(6))[0]
    np.testing.assert_array_equal(ids[:, :4], np.tile([17, 900, 2500, 4000], (9, 1)))
    layer.weight[:], layer.bias[:] = 0, 0
    ids, log_probs = layer.node(library)(x=hidden(3), ranks=ranks(5))
    np.testing.assert_array_equal(ids, np.tile(np.arange(5), (3, 1)))
    np.testing.assert_allclose(log_probs, -np.log(VOCABULARY), rtol=1e-6)


@pytest.mark.parametrize("vocabulary", [1, 2, 15, 16, 17, 33, 63, 64, 65, 100])
def test_small_vocabularies(library: Library, vocabulary: int) -> None:
    layer, x = OutputLayer("fp32", vocabulary), hidden(7)
    ids, log_probs = layer.node(library)(x=x, ranks=ranks(4))
    there = min(4, vocabulary)
    expect_exact(layer, x, ids[:, :there], log_probs[:, :there], 2e-3)
    assert (ids[:, there:] == -1).all()
    assert np.isneginf(log_probs[:, there:]).all()


@pytest.mark.parametrize("size", [1e-30, 1e-4, 1.0, 300.0, 1e6])
def test_small_and_large_logits(library: Library, size: float) -> None:
    layer, x = OutputLayer("fp32"), hidden(11) * np.float32(size)
    ids, log_probs = layer.node(library)(x=x, ranks=ranks(3))
    expect_exact(layer, x, ids, log_probs, 2e-3)


def test_values_beyond_a_static_range(library: Library) -> None:
    """What is cut off belongs to the error, and the error to the bound."""
    layer, x = OutputLayer("fp32"), hidden(9) * 3
    before = library.counters().saturated
    ids, log_probs = layer.node(library, scale=0.01)(x=x, ranks=ranks(8))
    expect_exact(layer, x, ids, log_probs, 1e-3)
    assert library.counters().saturated > before


@pytest.mark.parametrize("allowed", [False, True])
def test_rows_that_are_not_finite(library: Library, allowed: bool) -> None:
    layer, x = OutputLayer("s8"), hidden(8)
    given = {"ranks": ranks(3)} | ({"allowed": np.tile(np.arange(100, dtype=np.int32), (8, 1))} if allowed else {})
    node = layer.node(library, allowed)
    good = node(x=x, **given)
    x[1, 5], x[3, 90], x[7, 0] = np.nan, np.inf, -np.inf
    ids, log_probs = node(x=x, **given)
    assert (ids[[1, 3, 7]] == -1).all()
    assert np.isnan(log_probs[[1, 3, 7]]).all()
    for got, wanted in zip((ids, log_probs), good, strict=True):
        np.testing.assert_array_equal(np.delete(got, [1, 3, 7], 0), np.delete(wanted, [1, 3, 7], 0))


def test_tokens_that_the_bias_forbids(library: Library) -> None:
    layer = OutputLayer("fp32")
    layer.bias[::2], layer.bias[1::4] = -np.inf, -1e9
    x = hidden(9)
    ids, log_probs = layer.node(library)(x=x, ranks=ranks(8))
    assert (ids % 4 == 3).all()
    expect_exact(layer, x, ids, log_probs, 2e-3)


@pytest.mark.parametrize("kind", ["fp32", "fp16", "s8"])
def test_only_allowed_tokens(library: Library, kind: str) -> None:
    layer, x, rng = OutputLayer(kind), hidden(6), np.random.default_rng(5)
    counts = [300, 17, 16, 8, 4, 1]
    allowed = np.full((6, 300), -1, np.int32)
    for row, count in zip(allowed, counts, strict=True):
        row[:count] = rng.permutation(VOCABULARY)[:count]
    ids, log_probs = layer.node(library, allowed=True)(x=x, ranks=ranks(4), allowed=allowed)
    logits = np.full((6, VOCABULARY), -np.inf)
    for r, count in enumerate(counts):
        logits[r, allowed[r, :count]] = layer.logits(x[r : r + 1])[0, allowed[r, :count]]
    wanted, there = best(logits, 4), np.arange(4) < np.array(counts)[:, None]
    np.testing.assert_array_equal(ids[there], wanted[there])
    expected = np.take_along_axis(log_probabilities(logits), wanted, 1)
    np.testing.assert_allclose(log_probs[there], expected[there], atol=1e-2)
    assert (ids[~there] == -1).all()


def test_a_row_is_the_same_alone_and_among_others(library: Library) -> None:
    layer, x = OutputLayer("fp32"), hidden(67)
    node = layer.node(library)
    together = node(x=x, ranks=ranks(8))
    for r in (0, 1, 33, 66):
        for got, wanted in zip(node(x=x[r : r + 1], ranks=ranks(8)), together, strict=True):
            np.testing.assert_array_equal(got[0], wanted[r])


@pytest.mark.parametrize("size", [0.05, 1.0, 5.0])
def test_a_score_is_the_same_however_many_are_wanted(library: Library, size: float) -> None:
    layer, x = OutputLayer("fp32"), hidden(23) * np.float32(size)
    node = layer.node(library)
    ids, log_probs = node(x=x, ranks=ranks(1))
    for k in (2, 8, 64):
        more, their_log_probs = node(x=x, ranks=ranks(k))
        np.testing.assert_array_equal(more[:, :1], ids)
        np.testing.assert_array_equal(their_log_probs[:, :1], log_probs)


@pytest.mark.parametrize("allowed", [False, True])
def test_a_score_is_the_same_where_many_wanted_tokens_make_a_row_whole(library: Library, allowed: bool) -> None:
    """One token stands out among copies of a few others, moved by less than 8 bits can see."""
    layer, x, rng = OutputLayer("fp32"), hidden(12), np.random.default_rng(4)
    moved = rng.standard_normal((VOCABULARY, WIDTH)) * 1e-3
    layer.weight = (layer.weight[rng.integers(0, 2, VOCABULARY)] + moved).astype(np.float32)
    layer.weight[:12] = x * np.float32(0.5)
    layer.bias[:] = 0
    named = {"allowed": np.tile(np.arange(2000, dtype=np.int32), (12, 1))} if allowed else {}
    node = layer.node(library, allowed)
    counted, whole = dict[int, list[Any]](), dict[int, int]()
    for k in (1, 8, 64):
        before = library.counters().whole_rows
        counted[k] = list(node(x=x, ranks=ranks(k), **named))
        whole[k] = library.counters().whole_rows - before
    assert whole[1] < 12 and whole[64] == 12
    for ids, log_probs in counted.values():
        np.testing.assert_array_equal(ids[:, :1], counted[1][0])
        np.testing.assert_array_equal(log_probs[:, :1], counted[1][1])


def test_without_exactness_it_is_the_product_in_8_bits(library: Library) -> None:
    layer, x = OutputLayer("s8"), hidden(9)
    assert layer.scales is not None
    ids, log_probs = layer.node(library, exact=0)(x=x, ranks=ranks(5))
    scale = np.abs(x).max(1, keepdims=True) / np.float32(127)
    q = np.rint(x * (np.float32(1) / scale)).astype(np.int64)
    logits = (q @ layer.weight.T.astype(np.int64)) * (scale.astype(np.float64) * layer.scales) + layer.bias
    np.testing.assert_array_equal(ids, best(logits, 5))
    np.testing.assert_allclose(log_probs, np.take_along_axis(log_probabilities(logits), ids, 1), atol=2e-5)


@pytest.mark.parametrize("kind", ["fp32", "fp16", "s8"])
def test_logits_of_named_tokens_have_the_bits_of_candidates(library: Library, kind: str) -> None:
    """The normaliser of a row that is allowed one token is the logit of that. A row is the same alone."""
    layer, x, rng = OutputLayer(kind), hidden(7), np.random.default_rng(6)
    named = rng.integers(0, VOCABULARY, (7, 5))
    named[2, 1:], named[4, 0] = -1, named[4, 3]
    node, one = layer.named_node(library), layer.node(library, allowed=True, normaliser=True)
    [logits] = node(x=x, tokens=named)
    expected = np.where(named < 0, -np.inf, np.take_along_axis(layer.logits(x), np.maximum(named, 0), 1))
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-4)
    for column in np.flatnonzero((named >= 0).all(0)):
        _, _, normaliser = one(x=x, ranks=ranks(1), allowed=named[:, column, None].astype(np.int32))
        np.testing.assert_array_equal(normaliser, logits[:, column])
    np.testing.assert_array_equal(node(x=x[3:4], tokens=named[3:4, :2])[0], logits[3:4, :2])
    assert node(x=x, tokens=named[:, :0])[0].shape == (7, 0)


def test_named_tokens_of_rows_that_are_not_finite_and_beyond_the_vocabulary(library: Library) -> None:
    layer, x = OutputLayer("fp32"), hidden(3)
    node, named = layer.named_node(library), np.array([[1, 2], [3, -1], [4, 5]])
    [good] = node(x=x, tokens=named)
    x[1, 5] = np.nan
    [logits] = node(x=x, tokens=named)
    assert np.isnan(logits[1, 0])
    np.testing.assert_array_equal(logits[[0, 2]], good[[0, 2]])
    with pytest.raises(Exception, match=f"row 2: token {VOCABULARY} of {VOCABULARY}"):
        node(x=x, tokens=np.array([[1], [2], [VOCABULARY]]))
    with pytest.raises(Exception, match=r"tokens has the shape \[2, 2\]"):
        node(x=x, tokens=named[:2])
