"""The operators of a device step, against numpy: on the CPU provider everywhere, and on CUDA's where there is a GPU."""

import math
from dataclasses import replace

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from bench.gpu.sides.operators import (
    Case,
    Sizes,
    best_logits,
    embed_tokens,
    firsts_of,
    history_attention,
    keep_sources,
    packed_attention,
    row_linear,
    slot_attention,
)
from kernels.device_library import LIBRARY

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="make -C kernels device")

PROVIDERS = [
    name for name in ("CPUExecutionProvider", "CUDAExecutionProvider") if name in ort.get_available_providers()
]
SIZES = [Sizes(1, 8, 64, 40), Sizes(5, 2, 32, 300), Sizes(3, 4, 40, 17), Sizes(4, 1, 128, 70), Sizes(2, 2, 256, 9)]
HALF = 2.0**-10
"""Of fp16, relative."""


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def look(query: NDArray[np.float64], keys: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """query: [heads, head_dim]; keys, values: [heads, places, head_dim]. Returns [heads, head_dim]."""
    scores = np.einsum("hd,hpd->hp", query, keys) / query.shape[1] ** 0.5
    weights = np.exp(scores - scores.max(1, keepdims=True))
    found: NDArray[np.float64] = np.einsum("hp,hpd->hd", weights / weights.sum(1, keepdims=True), values)
    return found


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_row_attends_to_its_history_wherever_it_lies(sizes: Sizes, provider: str) -> None:
    case = history_attention(sizes, np.random.default_rng(1))
    found = case.run(LIBRARY, provider)
    given = case.inputs
    for row, (slot, position) in enumerate(zip(given["slots"], given["positions"], strict=True)):
        query, *fresh = given["qkv"][row].astype(np.float64).reshape(3, sizes.heads, sizes.head_dim)
        from_slots, before = given["history"][slot, :position], np.arange(position)
        past = [
            np.concatenate([given[name][from_slots, :, before].swapaxes(0, 1), new[:, None]], 1).astype(np.float64)
            for name, new in zip(("keys", "values"), fresh, strict=True)
        ]
        expected = look(query, *past)
        np.testing.assert_allclose(found["attended"][row].reshape(expected.shape), expected, rtol=HALF, atol=HALF)
        for name, new in zip(("present_keys", "present_values"), fresh, strict=True):
            np.testing.assert_array_equal(found[name][slot, :, position], new)


@pytest.mark.parametrize("sizes", SIZES[:2], ids=str)
def test_nothing_but_the_new_places_is_written(sizes: Sizes, provider: str) -> None:
    case = history_attention(sizes, np.random.default_rng(2))
    found, given = case.run(LIBRARY, provider), case.inputs
    for name, before in (("present_keys", "keys"), ("present_values", "values")):
        changed = np.argwhere((found[name] != given[before]).any((1, 3)))
        written = zip(given["slots"].tolist(), given["positions"].tolist(), strict=True)
        assert set(map(tuple, changed.tolist())) <= set(written)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_row_attends_to_the_source_of_its_slot(sizes: Sizes, provider: str) -> None:
    case = slot_attention(sizes, np.random.default_rng(3))
    found, given = case.run(LIBRARY, provider), case.inputs
    for row, (slot, last) in enumerate(zip(given["slots"], given["last"], strict=True)):
        query = given["query"][row].astype(np.float64).reshape(sizes.heads, sizes.head_dim)
        keys, values = (given[name][slot, :, : last + 1].astype(np.float64) for name in ("keys", "values"))
        expected = look(query, keys, values)
        np.testing.assert_allclose(found["attended"][row].reshape(expected.shape), expected, rtol=HALF, atol=HALF)


SOURCES = [(1,), (3, 1, 1, 1), (17, 64, 5, 2), (512, 1, 33)]


@pytest.mark.parametrize(("heads", "head_dim"), [(8, 64), (2, 32), (4, 40), (1, 128), (2, 256), (3, 8)])
@pytest.mark.parametrize("lengths", SOURCES, ids=str)
def test_tokens_attend_to_their_own_source(lengths: tuple[int, ...], heads: int, head_dim: int, provider: str) -> None:
    case = packed_attention(lengths, heads, head_dim, np.random.default_rng(10))
    found = case.run(LIBRARY, provider)["attended"].reshape(-1, heads, head_dim)
    qkv = case.inputs["qkv"].astype(np.float64).reshape(-1, 3, heads, head_dim)
    for first, length in zip(firsts_of(lengths), lengths, strict=True):
        queries, keys, values = qkv[first : first + length].transpose(1, 2, 0, 3)
        expected = [look(queries[:, token], keys, values) for token in range(length)]
        np.testing.assert_allclose(found[first : first + length], expected, rtol=HALF, atol=HALF)


def test_a_source_that_is_not_finite_changes_no_other(provider: str) -> None:
    case = packed_attention((3, 40, 7), 2, 64, np.random.default_rng(11))
    before = case.run(LIBRARY, provider)["attended"]
    case.inputs["qkv"][5] = np.nan
    after = case.run(LIBRARY, provider)["attended"]
    assert np.isnan(after[3:43]).all()
    np.testing.assert_array_equal(np.delete(after, np.s_[3:43], 0), np.delete(before, np.s_[3:43], 0))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sources_are_kept_in_their_slots_and_nothing_else_is_written(sizes: Sizes, provider: str) -> None:
    tensors = 4
    case = keep_sources(sizes, tensors, np.random.default_rng(12))
    given = case.inputs
    cross = given["cross"].reshape(-1, tensors, sizes.heads, sizes.head_dim)
    expected = given["cache"].copy()
    for first, length, slot in zip(given["firsts"], given["lengths"], given["slots"], strict=True):
        expected[:, slot, :, :length] = cross[first : first + length].transpose(1, 2, 0, 3)
    np.testing.assert_array_equal(case.run(LIBRARY, provider)["kept"], expected)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("slots", 7, "slots has 7 at 0; there are 7"),
        ("lengths", 31, "and 31 at 0; there are"),
        ("lengths", 0, "and 0 at 0; there are"),
        ("firsts", 10_000, "firsts and lengths have 10000 and"),
    ],
)
def test_sources_that_are_none_are_refused(name: str, value: int, message: str) -> None:
    case = keep_sources(Sizes(5, 2, 32, 30), 2, np.random.default_rng(13))
    case.inputs[name][0] = value
    with pytest.raises(Exception, match=message):
        case.run(LIBRARY, "CPUExecutionProvider")


@pytest.mark.parametrize(
    ("heads", "message"), [(0, "heads is 0; it must be at least 1"), (7, "for 7 heads"), (16, "head_dim is 4;")]
)
def test_numbers_of_heads_that_do_not_fit_are_refused(heads: int, message: str) -> None:
    case = replace(packed_attention((3, 4), 2, 32, np.random.default_rng(14)), attributes={"heads": heads})
    with pytest.raises(Exception, match=message):
        case.run(LIBRARY, "CPUExecutionProvider")


def exact(case: Case) -> NDArray[np.float64]:
    """Logits [rows, columns]."""
    given = {name: array.astype(np.float64) for name, array in case.inputs.items()}
    logits: NDArray[np.float64] = given["hidden"] @ given["weight"].T + given["bias"]
    return logits


@pytest.mark.parametrize(("rows", "width", "columns", "k"), [(1, 64, 8, 4), (3, 256, 5000, 8), (2, 512, 58112, 64)])
def test_best_tokens_are_those_of_products_in_full(rows: int, width: int, columns: int, k: int, provider: str) -> None:
    case = best_logits(rows, width, columns, k, np.random.default_rng(4))
    found, logits = case.run(LIBRARY, provider), exact(case)
    order = np.argsort(-logits, 1, kind="stable")[:, :k]
    np.testing.assert_array_equal(found["ids"], order)
    log_probs = np.take_along_axis(logits, order, 1) - np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(found["log_probs"], log_probs, atol=1e-3)
    np.testing.assert_allclose(found["logits"], logits, atol=2.0**-6)


def test_of_equal_logits_the_lower_tokens_come_first(provider: str) -> None:
    case = best_logits(2, 64, 4096, 8, np.random.default_rng(5))
    for name in ("products", "weight", "bias"):
        case.inputs[name][:] = 0
    found = case.run(LIBRARY, provider)
    assert found["ids"].tolist() == [list(range(8))] * 2
    np.testing.assert_allclose(found["log_probs"], -np.log(4096), rtol=1e-5)


def test_rising_logits_leave_many_that_may_be_among_the_best(provider: str) -> None:
    """The best lie side by side, so that single threads have many of them."""
    case = best_logits(1, 64, 58112, 8, np.random.default_rng(6))
    case.inputs["weight"][:] = 0
    case.inputs["products"][:] = 0
    case.inputs["bias"][:] = np.linspace(-20, 20, 58112).astype(np.float16)
    found = case.run(LIBRARY, provider)
    order = np.argsort(-case.inputs["bias"].astype(np.float32), kind="stable")[:8]
    assert found["ids"][0].tolist() == order.tolist()


def test_a_row_that_is_not_finite_changes_no_other(provider: str) -> None:
    case = best_logits(3, 64, 4096, 8, np.random.default_rng(7))
    before = case.run(LIBRARY, provider)
    case.inputs["hidden"][1] = np.nan
    case.inputs["products"][1] = np.nan
    after = case.run(LIBRARY, provider)
    assert np.isnan(after["log_probs"][1]).all()
    for row in (0, 2):
        np.testing.assert_array_equal(after["ids"][row], before["ids"][row])
        np.testing.assert_array_equal(after["log_probs"][row], before["log_probs"][row])


def normed(case: Case, name: str) -> NDArray[np.float64]:
    """Of an input what its norm makes, if it has one."""
    x = case.inputs[name].astype(np.float64)
    if f"{name}_scale" not in case.inputs:
        return x
    scaled = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + case.attributes["epsilon"])
    found: NDArray[np.float64] = scaled * case.inputs[f"{name}_scale"] + case.inputs[f"{name}_shift"]
    return found


def linear(case: Case) -> NDArray[np.float64]:
    """x weight^T + bias, before activation and residual."""
    y = normed(case, "x") @ case.inputs["weight"].astype(np.float64).T
    return y + case.inputs["bias"] if "bias" in case.inputs else y


SUBLAYERS = {
    "nothing but weights": "bias x_scale x_shift residual residual_scale residual_shift",
    "pre-norm in": "residual residual_scale residual_shift",
    "pre-norm out": "x_scale x_shift residual_scale residual_shift",
    "post-norm out": "x_scale x_shift",
    "all": "",
}


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 31, 33, 64, 65, 130])
@pytest.mark.parametrize("without", SUBLAYERS.values(), ids=SUBLAYERS)
def test_a_linear_layer_reads_through_norms(rows: int, without: str, provider: str) -> None:
    case = row_linear(rows, 136, 72, np.random.default_rng(10), without=without)
    expected = linear(case)
    if "residual" in case.inputs:
        expected += normed(case, "residual")
    np.testing.assert_allclose(case.run(LIBRARY, provider)["y"], expected, rtol=2 * HALF, atol=16 * HALF)


@pytest.mark.parametrize(
    ("rows", "width", "outputs"), [(1, 512, 1536), (5, 2048, 512), (40, 512, 2048), (256, 1024, 512)]
)
def test_linear_layers_of_the_sizes_that_models_have(rows: int, width: int, outputs: int, provider: str) -> None:
    case = row_linear(rows, width, outputs, np.random.default_rng(11))
    expected = linear(case) + normed(case, "residual")
    np.testing.assert_allclose(case.run(LIBRARY, provider)["y"], expected, rtol=2 * HALF, atol=16 * HALF)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2,
    "swish": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_linear_layer_with_an_activation(activation: str, provider: str) -> None:
    without = "residual residual_scale residual_shift"
    case = row_linear(3, 64, 40, np.random.default_rng(12), activation, without)
    expected = ACTIVATIONS[activation](linear(case))
    np.testing.assert_allclose(case.run(LIBRARY, provider)["y"], expected, rtol=2 * HALF, atol=16 * HALF)


def test_a_row_of_a_linear_layer_that_is_not_finite_changes_no_other(provider: str) -> None:
    case = row_linear(5, 64, 40, np.random.default_rng(13))
    before = case.run(LIBRARY, provider)["y"]
    case.inputs["x"][2] = np.nan
    after = case.run(LIBRARY, provider)["y"]
    assert np.isnan(after[2]).all()
    np.testing.assert_array_equal(np.delete(after, 2, 0), np.delete(before, 2, 0))


def test_an_unknown_activation_is_refused() -> None:
    case = row_linear(1, 8, 8, np.random.default_rng(14), "tanh")
    with pytest.raises(Exception, match="activation is 'tanh'; it can be none, relu"):
        case.run(LIBRARY, "CPUExecutionProvider")


@pytest.mark.parametrize("places", [True, False])
def test_tokens_are_embedded_at_their_positions(places: bool, provider: str) -> None:
    case = embed_tokens(9, 72, 100, 22.6274, np.random.default_rng(15))
    given = case.inputs
    expected = given["tokens"][given["ids"]].astype(np.float64) * 22.6274
    if places:
        expected += given["places"][given["positions"]]
    else:
        del given["places"]
    np.testing.assert_allclose(case.run(LIBRARY, provider)["embedded"], expected, rtol=2 * HALF, atol=32 * HALF)


@pytest.mark.parametrize(
    ("name", "value", "message"), [("slots", 9, "slots has 9 at 0; there are 6"), ("positions", -1, "positions has -1")]
)
def test_indices_that_are_none_are_refused(name: str, value: int, message: str) -> None:
    case = history_attention(Sizes(5, 2, 32, 30), np.random.default_rng(8))
    case.inputs[name][0] = value
    with pytest.raises(Exception, match=message):
        case.run(LIBRARY, "CPUExecutionProvider")


def test_heads_of_another_size_are_refused() -> None:
    with pytest.raises(Exception, match="head_dim is 12; it must be a multiple of 8, and 256 at most"):
        history_attention(Sizes(2, 2, 12, 8), np.random.default_rng(9)).run(LIBRARY, "CPUExecutionProvider")
