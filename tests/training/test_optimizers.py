"""Which optimizer updates what, and Muon's arithmetic against a singular value decomposition."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from models.config import ModelConfig
from models.transformer import Transformer
from tests.training.experiments import LAST, refusal, run, same, weights
from training.config import Optimizer
from training.loop.optimizers import ADAM_LENGTH, MOMENTUM, Muon, make_optimizers, orthogonalised

SHAPES = [(16, 16), (48, 16), (16, 64)]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def tiny_model() -> Transformer:
    return Transformer(
        ModelConfig(
            source_vocab_size=20,
            target_vocab_size=20,
            width=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_heads=2,
            decoder_heads=2,
            encoder_ffn=32,
            decoder_ffn=32,
            max_positions=8,
            pad_id=19,
            end_id=0,
            decoder_start_id=19,
        )
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_orthogonalising_keeps_directions_and_levels_their_lengths(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    lengths = torch.diagonal(left.T @ orthogonalised(matrix) @ right.T)
    assert lengths.min() > 0.6 and lengths.max() < 1.3
    torch.testing.assert_close(left @ lengths.diag() @ right, orthogonalised(matrix), atol=1e-4, rtol=0)


def updated(gradient: Tensor, packed: bool, weight_decay: float = 0.0) -> Tensor:
    """What a matrix of ones becomes in one step."""
    matrix = nn.Parameter(torch.ones_like(gradient))
    matrix.grad = gradient.clone()
    Muon([] if packed else [matrix], [matrix] if packed else [], 0.1, weight_decay).step()
    return matrix.detach()


@pytest.mark.parametrize("shape", SHAPES)
def test_an_update_is_as_long_as_one_of_adam(shape: tuple[int, int]) -> None:
    moved = updated(torch.randn(shape) * 1e-6, packed=False) - 1
    assert moved.square().mean().sqrt() == pytest.approx(0.1 * ADAM_LENGTH, rel=0.2)


def test_packed_projections_are_updated_each_by_itself() -> None:
    parts = [torch.randn(16, 16) * size for size in (1, 100, 0.01)]
    together = updated(torch.cat(parts), packed=True)
    torch.testing.assert_close(together, torch.cat([updated(part, packed=False) for part in parts]))
    assert not torch.allclose(together, updated(torch.cat(parts), packed=False), atol=1e-3)


def test_weights_decay() -> None:
    gradient = torch.randn(16, 16)
    shrunk = updated(gradient, packed=False) - updated(gradient, packed=False, weight_decay=0.5)
    torch.testing.assert_close(shrunk, torch.full_like(shrunk, 0.1 * 0.5))


def test_momentum_looks_ahead() -> None:
    first, second = torch.randn(2, 16, 16)
    matrix = nn.Parameter(torch.zeros(16, 16))
    optimizer = Muon([matrix], [], 1.0, 0.0)
    for gradient in (first, second):
        before = matrix.detach().clone()
        matrix.grad = gradient.clone()
        optimizer.step()
    momentum = MOMENTUM * (1 - MOMENTUM) * first + (1 - MOMENTUM) * second
    expected = orthogonalised((1 - MOMENTUM) * second + MOMENTUM * momentum) * ADAM_LENGTH * 4
    torch.testing.assert_close(before - matrix.detach(), expected, atol=1e-4, rtol=1e-4)


def test_each_parameter_has_one_optimizer_and_embeddings_are_adams() -> None:
    model = tiny_model()
    model.get_parameter("decoder.0.feed_forward.up.weight").requires_grad_(False)
    muon, adam = make_optimizers(Optimizer(kind="muon"), model)
    names = {parameter: name for name, parameter in model.named_parameters()}
    updated = [
        [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
        for optimizer in (muon, adam)
    ]
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert sorted(updated[0] + updated[1]) == sorted(trained)
    assert {"cross_kv.weight", "encoder.0.attention.qkv.weight"} <= set(updated[0])
    assert "source_embedding" in updated[1]
    assert all(name.endswith(".weight") and ".norm." not in name for name in updated[0])


def test_adamw_alone_is_what_nobody_has_to_ask_for() -> None:
    (adam,) = make_optimizers(Optimizer(), tiny_model())
    assert isinstance(adam, torch.optim.AdamW)


def test_a_run_with_muon_learns_and_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    muon = {"kind": "muon", "warmup_steps": 4}
    straight = weights(run(tmp_path / "straight", optimizer=muon))
    run(tmp_path / "halves", optimizer=muon, training={"max_steps": LAST // 2})
    assert same(weights(run(tmp_path / "halves", optimizer=muon)), straight)


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, training={"max_steps": LAST // 2})
    error = refusal(capfd, tmp_path, optimizer={"kind": "muon"})
    assert "is of another optimizer" in error and "optimizer.kind" in error
