"""What training minimises. Every loss is a sum over target tokens; the caller divides."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

ROWS = {"cpu": 256, "cuda": 4096}
"""Tokens whose logits are looked at together: as many as stay in a cache, or keep a GPU busy."""


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float, pad_id: int) -> tuple[Tensor, Tensor]:
    """Label-smoothed cross-entropy (Vaswani et al. 2017, 5.4), and the plain one, which has no gradient.

    The smoothed part goes to all tokens but padding, whose probability is nothing.
    logits: [tokens, vocabulary]; labels: [tokens]
    """
    others = logits.shape[1] - 1

    def of_rows(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        chosen = labels[rows].unsqueeze(1)
        log_probs = logits[rows].float().log_softmax(1)
        likelihood = log_probs.gather(1, chosen)
        plain = -likelihood.sum()
        log_probs[:, pad_id] = 0
        loss = (1 - smoothing) * plain - smoothing / others * log_probs.sum()
        log_probs[:, pad_id] = -torch.inf
        slope = log_probs.exp_().sub_(smoothing / others)
        slope[:, pad_id] = 0
        return loss, plain, slope.scatter_add_(1, chosen, torch.full_like(likelihood, smoothing - 1))

    loss, plain = _SumOverRows.apply(logits, of_rows)  # type: ignore[no-untyped-call]
    return loss, plain


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Kullback-Leibler divergence of the student's next-token distributions from the teacher's, which has no gradient.

    student, teacher: logits [tokens, vocabulary]
    """

    def of_rows(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        ours, theirs = (logits[rows].float().log_softmax(1) for logits in (student, teacher))
        probs = theirs.exp()
        loss = theirs.sub_(ours).mul_(probs).sum()
        return loss, loss, ours.exp_().sub_(probs)

    loss, _ = _SumOverRows.apply(student, of_rows)  # type: ignore[no-untyped-call]
    return cast(Tensor, loss)


class _SumOverRows(torch.autograd.Function):
    """A loss of logits whose gradient is computed along with it, some rows at a time.

    Autograd would go through the tensor of all logits some ten times, and take three times as long.
    """

    @staticmethod
    def forward(
        context: Any, logits: Tensor, of_rows: Callable[[slice], tuple[Tensor, Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Returns the sums of the loss and of what is shown beside it.

        of_rows: both for some rows of the logits, and the gradient of their loss
        """
        gradient = torch.empty_like(logits) if context.needs_input_grad[0] else None
        loss, shown = (torch.zeros((), dtype=torch.float32, device=logits.device) for _ in range(2))
        count = ROWS[logits.device.type]
        for start in range(0, len(logits), count):
            rows = slice(start, start + count)
            of_these, shown_of_these, slope = of_rows(rows)
            loss += of_these
            shown += shown_of_these
            if gradient is not None:
                gradient[rows] = slope
        context.save_for_backward(gradient)
        context.mark_non_differentiable(shown)
        return loss, shown

    @staticmethod
    def backward(context: Any, of_loss: Tensor, of_shown: Tensor) -> tuple[Tensor, None]:
        """of_shown is ignored."""
        (gradient,) = context.saved_tensors
        return gradient.mul_(of_loss), None


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
