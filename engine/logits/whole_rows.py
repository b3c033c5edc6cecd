"""From what the graph of a step gives besides the best tokens, to what a search asks of it."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from engine.decoder import NOT_FINITE, Ask, Found, LogitsOf, NamedOf, NormaliserOf
from engine.errors import NotOffered
from models.package.declared.graphs import GraphsSpec


def asks_logits(ask: Ask) -> bool:
    """Whether that takes more logits than those of the best tokens."""
    return ask.named or ask.normaliser or ask.logits


def asks_more(ask: Ask) -> bool:
    """Whether the best tokens alone do not answer it."""
    return asks_logits(ask) or ask.attention


def check_offered(ask: Ask, spec: GraphsSpec, reads_scores: bool = False) -> None:
    """Raises NotOffered where the graphs do not give what is asked. reads_scores: the decoder knows `cross_scores`."""
    if spec.logits is None and asks_logits(ask):
        raise NotOffered("log-probabilities of other tokens than the best")
    if ask.attention and spec.cross_query is None and not (reads_scores and spec.cross_scores):
        raise NotOffered("attention")


def mark_not_finite(found: Found) -> None:
    """Puts NOT_FINITE in the place of a row's best tokens where their log-probabilities are no numbers."""
    broken = np.isnan(found.log_probs[:, 0])
    if broken.any():
        found.token_ids[broken] = NOT_FINITE


def answer(
    ask: Ask,
    best: Found,
    logits: LogitsOf | None,
    attention: NDArray[np.float32] | None = None,
    named: NamedOf | None = None,
    normaliser: NDArray[np.float32] | None = None,
) -> Found:
    """What was asked.

    logits: gives those of some rows; -inf: the token is not allowed
    attention: [rows, source], as `attend` gives it
    named: gives the logits of tokens by name, where there is a shorter way to them
    normaliser: where it is known [rows]
    """
    if logits is None:
        return Found(best.token_ids, best.log_probs, attention=attention)
    named = named or partial(_of_whole_rows, logits)
    normaliser_of = partial(_normaliser, best, named, normaliser)
    return Found(
        best.token_ids,
        best.log_probs,
        partial(_log_probs, named, normaliser_of) if ask.named else None,
        normaliser_of if ask.normaliser else None,
        logits if ask.logits else None,
        attention,
    )


def _normaliser(
    best: Found, logits: NamedOf, known: NDArray[np.float32] | None, rows: NDArray[np.intp]
) -> NDArray[np.float32]:
    if known is not None:
        return known[rows]
    # The graph has summed up the whole row for the best token already.
    found: NDArray[np.float32] = logits(rows, best.token_ids[rows, :1])[:, 0] - best.log_probs[rows, 0]
    return found


def _log_probs(
    logits: NamedOf, normaliser: NormaliserOf, rows: NDArray[np.intp], token_ids: NDArray[np.int64]
) -> NDArray[np.float32]:
    return logits(rows, token_ids) - normaliser(rows)[:, None]


def _of_whole_rows(logits: LogitsOf, rows: NDArray[np.intp], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
    found = np.take_along_axis(logits(rows), np.maximum(token_ids, 0), 1)
    masked: NDArray[np.float32] = np.where(token_ids < 0, -np.inf, found).astype(np.float32)
    return masked


def attend(
    query: NDArray[np.float32], keys: NDArray[np.float32], source_last: NDArray[np.int32], scale: float
) -> NDArray[np.float32]:
    """Where rows look: softmax(scale * query key^T) over their sources, the mean of the heads [rows, longest source].

    query: [rows, heads * head_dim]; keys: [rows, heads, places, head_dim]
    source_last: place of each row's last token [rows]
    """
    rows, heads, _, head_dim = keys.shape
    keys = keys[:, :, : int(source_last.max()) + 1]
    scores = np.einsum("rhd,rhpd->rhp", query.reshape(rows, heads, head_dim), keys) * scale
    return attend_by_scores(scores, source_last)


def attend_by_scores(scores: NDArray[np.float32], source_last: NDArray[np.int32]) -> NDArray[np.float32]:
    """The same from the scores themselves [rows, heads, longest source]."""
    seen = np.arange(scores.shape[2]) <= source_last[:, None, None]
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    mean: NDArray[np.float32] = (weights / weights.sum(2, keepdims=True)).mean(1, dtype=np.float32)
    return mean
