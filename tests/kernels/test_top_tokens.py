"""TopTokens against PyTorch."""

import numpy as np
import pytest
import torch

from kernels.library import Library
from tests.kernels.node import Array, Node, Ports


@pytest.fixture(scope="module")
def node(library: Library) -> Node:
    inputs: Ports = [("logits", np.float32), ("ranks", np.int64)]
    return Node(library, "TopTokens", inputs, {}, [("ids", np.int64), ("log_probs", np.float32)])


def random_logits(rows: int, vocabulary: int) -> Array:
    return (4 * np.random.default_rng(0).standard_normal((rows, vocabulary))).astype(np.float32)


@pytest.mark.parametrize("k", [1, 5, 64])
@pytest.mark.parametrize("vocabulary", [64, 1003])
def test_the_best_tokens(node: Node, vocabulary: int, k: int) -> None:
    logits = random_logits(5, vocabulary)
    ids, log_probs = node(logits=logits, ranks=np.arange(k))
    expected = torch.from_numpy(logits).double().log_softmax(1).topk(k)
    np.testing.assert_array_equal(ids, expected.indices.numpy())
    np.testing.assert_allclose(log_probs, expected.values.numpy(), atol=2e-6, rtol=1e-6)


def test_the_lower_of_equal_tokens_comes_first(node: Node) -> None:
    ids, _ = node(logits=np.zeros((2, 40), np.float32), ranks=np.arange(3))
    assert ids.tolist() == [[0, 1, 2]] * 2


def test_more_than_there_are(node: Node) -> None:
    ids, log_probs = node(logits=np.zeros((1, 3), np.float32), ranks=np.arange(5))
    assert ids.tolist() == [[0, 1, 2, -1, -1]]
    np.testing.assert_allclose(log_probs[0, :3], -np.log(3), rtol=1e-6)
    assert (log_probs[0, 3:] == -np.inf).all()


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_none_stay_in_their_row(node: Node, number: float) -> None:
    logits = random_logits(3, 100)
    [expected] = node(logits=logits[[0, 2]], ranks=np.arange(2))[1:]
    logits[1, 70] = number
    ids, log_probs = node(logits=logits, ranks=np.arange(2))
    np.testing.assert_array_equal(log_probs[[0, 2]], expected)
    assert ids[1].tolist() == [-1, -1]
    assert np.isnan(log_probs[1]).all()


def test_what_is_refused(node: Node) -> None:
    with pytest.raises(Exception, match="65 tokens are asked for; 1 to 64 can be found"):
        node(logits=random_logits(1, 100), ranks=np.arange(65))
