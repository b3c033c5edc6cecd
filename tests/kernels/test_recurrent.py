"""GatedUnit and AdditiveAttention against PyTorch."""

import numpy as np
import pytest
import torch
from torch import nn

from kernels.library import Library
from tests.kernels.node import Array, Node, Ports

UNIT: Ports = [("given", np.float32), ("kept", np.float32), ("state", np.float32)]
ATTENTION: Ports = [
    *((name, np.float32) for name in ("query", "weight", "keys", "values")),
    ("last", np.int32),
]
LONGEST = 33


@pytest.mark.parametrize("width", [64, 20])
def test_gated_unit(library: Library, width: int) -> None:
    torch.manual_seed(0)
    cell = nn.GRUCell(width, width)
    x, state = torch.randn(5, width), torch.randn(5, width)
    order = [1, 0, 2]  # PyTorch has r before z
    given, kept = (
        torch.cat([part.chunk(3, 1)[gate] for gate in order], 1).detach().numpy()
        for part in (x @ cell.weight_ih.T + cell.bias_ih, state @ cell.weight_hh.T + cell.bias_hh)
    )
    [after] = Node(library, "GatedUnit", UNIT, {}, [("after", np.float32)])(given=given, kept=kept, state=state.numpy())
    np.testing.assert_allclose(after, cell(x, state).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_gated_unit_in_place_and_with_numbers_that_are_none(library: Library) -> None:
    rng = np.random.default_rng(0)
    given, kept, state = (rng.standard_normal((3, size)).astype(np.float32) for size in (72, 72, 24))
    given[0, :2], given[2, 0] = (100.0, -100.0), np.nan
    node = Node(library, "GatedUnit", UNIT, {}, [("after", np.float32)])
    [expected] = node(given=given, kept=kept, state=state)
    node.in_place({"given": given, "kept": kept, "state": state}, {"after": state})
    np.testing.assert_array_equal(state, expected)
    assert np.isnan(state).sum() == 1
    assert np.isnan(state[2, 0])


def attention_inputs(width: int, lengths: list[int]) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {"query": (len(lengths), width), "weight": (width,)}
    shapes |= dict.fromkeys(("keys", "values"), (len(lengths), 1, LONGEST, width))
    inputs: dict[str, Array] = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return inputs | {"last": np.array(lengths, np.int32) - 1}


def attend(inputs: dict[str, Array]) -> tuple[Array, Array]:
    """PyTorch's, and the scores, of which those behind a source say nothing."""
    query, weight, keys, values = (torch.from_numpy(inputs[name]) for name in ("query", "weight", "keys", "values"))
    scores = torch.tanh(query[:, None] + keys[:, 0]) @ weight
    seen = torch.arange(LONGEST) <= torch.from_numpy(inputs["last"])[:, None]
    weights = scores.masked_fill(~seen, -torch.inf).softmax(1)
    return torch.einsum("rp,rpw->rw", weights, values[:, 0]).numpy(), scores.numpy()


@pytest.mark.parametrize("width", [64, 20])
def test_additive_attention(library: Library, width: int) -> None:
    lengths = [1, 16, 17, 5, 30]
    inputs = attention_inputs(width, lengths)
    outputs: Ports = [("found", np.float32), ("scores", np.float32)]
    found, scores = Node(library, "AdditiveAttention", ATTENTION, {}, outputs)(**inputs)
    expected, looked = attend(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)
    assert scores.shape == (5, max(lengths))
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(scores[row, :length], looked[row, :length], rtol=1e-5, atol=1e-5)
        assert (scores[row, length:] < -1e38).all()


def test_additive_attention_of_a_row_has_the_same_bits_in_any_batch(library: Library) -> None:
    inputs = attention_inputs(40, [7, 33, 20])
    node = Node(library, "AdditiveAttention", ATTENTION, {}, [("found", np.float32)])
    [together] = node(**inputs)
    for row in range(3):
        one = {name: array if name == "weight" else array[row : row + 1] for name, array in inputs.items()}
        np.testing.assert_array_equal(node(**one)[0], together[row : row + 1])


def test_numbers_that_are_none_stay_in_their_row(library: Library) -> None:
    inputs = attention_inputs(24, [4, 4, 4])
    inputs["query"][1, 3] = np.nan
    inputs["values"][2, 0, 9] = np.nan  # behind its source
    [found] = Node(library, "AdditiveAttention", ATTENTION, {}, [("found", np.float32)])(**inputs)
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "keys",
            np.zeros((2, 1, LONGEST, 24), np.float32),
            r"keys has the shape \[2, 1, 33, 24\], not \[3, 1, any, 24\]",
        ),
        ("values", np.zeros((3, 1, 5, 24), np.float32), r"values has the shape \[3, 1, 5, 24\], not \[3, 1, 33, 24\]"),
        ("weight", np.zeros(25, np.float32), r"weight has the shape \[25\], not \[24\]"),
        ("last", np.array([0, LONGEST, 1], np.int32), "row 1: last 33 with a capacity of 33"),
        ("last", np.array([0, 1, -1], np.int32), "row 2: last -1 with a capacity of 33"),
    ],
)
def test_attention_that_is_refused(library: Library, name: str, value: Array, said: str) -> None:
    node = Node(library, "AdditiveAttention", ATTENTION, {}, [("found", np.float32)])
    with pytest.raises(Exception, match=said):
        node(**attention_inputs(24, [4, 4, 4]) | {name: value})


def test_units_that_are_refused(library: Library) -> None:
    given, state = np.zeros((3, 72), np.float32), np.zeros((3, 24), np.float32)
    with pytest.raises(Exception, match=r"kept has the shape \[2, 72\], not \[3, 72\]"):
        Node(library, "GatedUnit", UNIT, {}, [("after", np.float32)])(given=given, kept=given[:2], state=state)
