"""What training minimises. Every loss is a sum over target tokens; the caller divides."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ROWS = {"cpu": 256, "cuda": 4096}
"""Tokens whose logits are looked at together: as many as stay in a cache, or keep a GPU busy."""


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float, pad_id: int) -> tuple[Tensor, Tensor]:
    """Label-smoothed cross-entropy (Vaswani et al. 2017, 5.4), and the plain one, which has no gradient.

    The smoothed part goes to all tokens but padding, whose probability is nothing.
    logits: [tokens, vocabulary]; labels: [tokens]
    """
    loss, plain = _CrossEntropy.apply(logits, labels, smoothing, pad_id)  # type: ignore[no-untyped-call]
    return loss, plain


class _CrossEntropy(torch.autograd.Function):
    """With the gradient computed along with the loss, some rows at a time.

    Autograd would go through the tensor of all logits some ten times, and take three times as long.
    """

    @staticmethod
    def forward(context: Any, logits: Tensor, labels: Tensor, smoothing: float, pad_id: int) -> tuple[Tensor, Tensor]:
        """Returns the smoothed and the plain sum."""
        gradient = torch.empty_like(logits) if context.needs_input_grad[0] else None
        loss, plain = (torch.zeros((), dtype=torch.float32, device=logits.device) for _ in range(2))
        others = logits.shape[1] - 1
        count = ROWS[logits.device.type]
        for start in range(0, len(logits), count):
            rows, chosen = logits[start : start + count].float(), labels[start : start + count].unsqueeze(1)
            log_probs = rows.log_softmax(1)
            likelihood = log_probs.gather(1, chosen)
            log_probs[:, pad_id] = 0
            plain -= likelihood.sum()
            loss -= (1 - smoothing) * likelihood.sum() + smoothing / others * log_probs.sum()
            if gradient is not None:
                log_probs[:, pad_id] = -torch.inf
                slope = log_probs.exp_().sub_(smoothing / others)
                slope[:, pad_id] = 0
                slope.scatter_add_(1, chosen, torch.full_like(likelihood, smoothing - 1))
                gradient[start : start + count] = slope
        context.save_for_backward(gradient)
        context.mark_non_differentiable(plain)
        return loss, plain

    @staticmethod
    def backward(context: Any, of_loss: Tensor, of_plain: Tensor) -> tuple[Tensor, None, None, None]:
        """of_plain is ignored."""
        (gradient,) = context.saved_tensors
        return gradient.mul_(of_loss), None, None, None


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Kullback-Leibler divergence of the student's next-token distributions from the teacher's.

    student, teacher: logits [tokens, vocabulary]
    """
    return F.kl_div(student.log_softmax(1), teacher.log_softmax(1), reduction="sum", log_target=True)


def gram_matrix(table: Tensor) -> Tensor:
    """Of an output table [vocabulary, width]: [width, width].

    The mean row is taken out first: it shifts all logits of a token alike, which no softmax sees.
    """
    centred = table - table.mean(dim=0)
    return centred.T @ centred / len(table)


def squared_logit_error(student: Tensor, teacher: Tensor, gram: Tensor) -> Tensor:
    """Mean squared error of all logits of an output table, without the product with the table.

    |W d|^2 = d (W^T W) d, with d the difference of the hidden states: width^2 multiplications, not width * vocabulary.
    student, teacher: [tokens, width]
    """
    difference = student - teacher
    return ((difference @ gram) * difference).sum()


def hidden_error(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared error of hidden states [tokens, width]."""
    return torch.square(student - teacher).mean(1).sum()
