"""The losses against what they are defined as."""

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.models.test_transformer import config, random_model
from training.data.batches import Batch
from training.objective import losses
from training.objective.objective import Translation
from training.objective.pondering import PonderingTranslation

TOKENS, VOCABULARY, WIDTH, PAD = 7, 11, 4, 10


@pytest.fixture
def logits() -> torch.Tensor:
    """With padding as impossible as in a model."""
    logits = torch.randn(TOKENS, VOCABULARY, generator=torch.Generator().manual_seed(1))
    logits[:, PAD] = -1e4
    return logits


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.arange(TOKENS)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_cross_entropy_is_that_of_torch_over_all_tokens_but_padding(
    logits: torch.Tensor, labels: torch.Tensor, smoothing: float
) -> None:
    loss, plain = losses.cross_entropy(logits, labels, smoothing, PAD)
    real = logits[:, :PAD]
    torch.testing.assert_close(loss, F.cross_entropy(real, labels, label_smoothing=smoothing, reduction="sum"))
    torch.testing.assert_close(plain, F.cross_entropy(real, labels, reduction="sum"))


def test_padding_gets_no_gradient(logits: torch.Tensor, labels: torch.Tensor) -> None:
    logits.requires_grad_()
    losses.cross_entropy(logits, labels, 0.1, PAD)[0].backward()
    assert logits.grad is not None
    assert logits.grad[:, PAD].eq(0).all()
    assert logits.grad[:, :PAD].ne(0).all()


def test_divergence(logits: torch.Tensor) -> None:
    other = logits.flip(0)
    expected = (other.softmax(1) * (other.log_softmax(1) - logits.log_softmax(1))).sum()
    torch.testing.assert_close(losses.divergence(logits, other), expected)
    assert losses.divergence(logits, logits).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 256])
def test_gradients_are_those_of_torch_however_many_rows_are_looked_at_together(
    monkeypatch: pytest.MonkeyPatch, logits: torch.Tensor, labels: torch.Tensor, rows: int
) -> None:
    monkeypatch.setitem(losses.ROWS, "cpu", rows)
    other, inner = logits.flip(0), logits[:, :PAD]

    def gradient(loss: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor) -> torch.Tensor:
        at = at.clone().requires_grad_()
        (2 * loss(at)).backward()
        assert at.grad is not None
        return at.grad

    torch.testing.assert_close(
        gradient(lambda x: losses.divergence(x, other), logits),
        gradient(lambda x: F.kl_div(x.log_softmax(1), other.log_softmax(1), reduction="sum", log_target=True), logits),
    )
    torch.testing.assert_close(
        gradient(lambda x: losses.cross_entropy(x, labels, 0.1, PAD)[0], logits)[:, :PAD],
        gradient(lambda x: F.cross_entropy(x, labels, label_smoothing=0.1, reduction="sum"), inner),
    )


def test_squared_logit_error_is_that_of_the_logits() -> None:
    generator = torch.Generator().manual_seed(2)
    table = torch.randn(VOCABULARY, WIDTH, generator=generator)
    student, teacher = torch.randn(2, TOKENS, WIDTH, generator=generator)
    difference = student @ table.T - teacher @ table.T
    difference -= difference.mean(1, keepdim=True)  # which no softmax sees
    found = losses.squared_logit_error(student, teacher, losses.gram_matrix(table))
    torch.testing.assert_close(found, difference.square().mean(1).sum())


def test_hidden_error() -> None:
    student, teacher = torch.zeros(TOKENS, WIDTH), torch.full((TOKENS, WIDTH), 3.0)
    assert losses.hidden_error(student, teacher).item() == 9 * TOKENS


def test_depths_have_their_price_where_there_is_a_token() -> None:
    shape = config(shared_layers=True, depth_signal=True, halting=True, encoder_layers=3, decoder_layers=3)
    model, lengths = random_model(shape).train(), torch.tensor([6, 4])
    ids = torch.tensor([[5, 9, 11, 30, 8, 0], [40, 41, 3, 0, 7, 7]])
    is_token = torch.arange(6) < lengths.unsqueeze(1)
    batch = Batch(np.arange(2), ids, lengths, ids.roll(1, 1), ids, is_token)
    translation, plain = Translation(model, 0.1)(batch)
    costs = model.encoder_halting.take_cost(), model.decoder_halting.take_cost()
    expected = sum(cost.view(2, 6)[is_token].mean() for cost in costs) * 0.5 * 10
    assert all(bool((cost > 1).all()) for cost in costs)
    loss, same = PonderingTranslation(model, 0.1, price=0.5).train()(batch)
    torch.testing.assert_close(loss - translation, expected)
    assert same.item() == plain.item()
    deepcopy(model)  # as a validation does
    assert PonderingTranslation(model, 0.1, price=0.5).eval()(batch)[0].item() == translation.item()
