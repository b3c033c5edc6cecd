"""What updates the weights: AdamW, or Muon for the matrices and AdamW for the rest."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from models.architectures.architecture import Architecture
from training import config

MOMENTUM = 0.95
ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of a quintic whose iteration takes singular values between 0 and 1 to about 1 quickly, not exactly: Jordan 2024."""
ADAM_LENGTH = 0.2
"""Usual root mean square of an AdamW update, divided by the learning rate: Liu et al. 2025, 2.2."""
PACKED = ("qkv.weight", "cross_kv.weight")
"""Projections that lie below one another in one matrix, each with as many rows as there are columns."""


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum (Jordan 2024, "Muon: An optimizer for hidden layers in neural networks").

    Every direction of a matrix learns at the same speed, however small its gradients. The length of an update is
    AdamW's, so that both take the same learning rate (Liu et al. 2025, "Muon is scalable for LLM training").
    PyTorch's own orthogonalises in bf16, which most CPUs emulate, and takes a packed matrix for one.
    """

    def __init__(self, matrices: Iterable[Tensor], packed: Iterable[Tensor], rate: float, weight_decay: float) -> None:
        groups = [{"params": list(matrices), "packed": False}, {"params": list(packed), "packed": True}]
        super().__init__([group for group in groups if group["params"]], {"lr": rate, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure: it would compute the loss anew
        """Updates the matrices."""
        for group in self.param_groups:
            for matrix in group["params"]:
                state = self.state[matrix]
                if not state:
                    state["momentum"] = torch.zeros_like(matrix)
                momentum = state["momentum"].lerp_(matrix.grad, 1 - MOMENTUM)
                ahead = matrix.grad.lerp(momentum, MOMENTUM)  # Nesterov's
                parts = ahead.split(ahead.shape[1] if group["packed"] else len(ahead))
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(torch.cat([step_of(part) for part in parts]), alpha=-group["lr"])


def step_of(gradient: Tensor) -> Tensor:
    """The nearest matrix with orthogonal rows or columns, about, as long as an update of AdamW's."""
    length: float = ADAM_LENGTH * max(gradient.shape) ** 0.5
    return orthogonalised(gradient) * length


def orthogonalised(matrix: Tensor) -> Tensor:
    """U V^T of a matrix U S V^T, by Newton and Schulz's iteration; singular values end between 0.7 and 1.2."""
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalised(matrix.T).T
    first, third, fifth = COEFFICIENTS
    x: Tensor = matrix / (matrix.norm() + 1e-7)
    for _ in range(ITERATIONS):
        product = x @ x.T
        x = first * x + torch.addmm(product, product, product, beta=third, alpha=fifth) @ x
    return x


def make_optimizers(settings: config.Optimizer, model: Architecture) -> list[torch.optim.Optimizer]:
    """What updates the parameters that are trained. Biases and norms do not decay."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    linear = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    matrices = {name: trained.pop(name) for name in trained.keys() & linear} if settings.kind == "muon" else {}
    optimizers: list[torch.optim.Optimizer] = []
    if matrices:
        packed = [matrices.pop(name) for name in sorted(matrices) if name.endswith(PACKED)]
        others = [matrices[name] for name in sorted(matrices)]
        optimizers.append(Muon(others, packed, settings.peak_learning_rate, settings.weight_decay))
    if trained:
        optimizers.append(adamw(settings, list(trained.values())))
    return optimizers


def adamw(settings: config.Optimizer, trained: list[nn.Parameter]) -> torch.optim.AdamW:
    """AdamW, of which only matrices and tables decay."""
    groups = [
        {"params": [parameter for parameter in trained if parameter.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [parameter for parameter in trained if parameter.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        settings.peak_learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        fused=True,
    )
