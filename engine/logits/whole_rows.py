"""From what the graph of a step gives besides the best tokens, to what a search asks of it."""

import numpy as np
from numpy.typing import NDArray

from engine.decoder import NOT_FINITE, Ask, Found, LogitsOf
from engine.errors import NotOffered
from models.package.graphs import GraphsSpec


def asks_logits(ask: Ask) -> bool:
    """Whether that takes the logits of whole rows."""
    return bool(ask.tokens) or ask.normaliser or ask.logits


def asks_more(ask: Ask) -> bool:
    """Whether the best tokens alone do not answer it."""
    return asks_logits(ask) or ask.attention


def check_offered(ask: Ask, spec: GraphsSpec) -> None:
    """Raises NotOffered where the graphs do not give what is asked."""
    if spec.logits is None and asks_logits(ask):
        raise NotOffered("log-probabilities of other tokens than the best")
    if spec.cross_query is None and ask.attention:
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
    normaliser: NDArray[np.float32] | None = None,
) -> Found:
    """What was asked.

    logits: gives those of some rows; -inf: the token is not allowed
    attention: [rows, source], as `attend` gives it
    normaliser: where it is known [rows]; else it is found if it was asked for
    """
    tokens = None
    if logits is not None and (ask.tokens or (ask.normaliser and normaliser is None)):
        rows = np.arange(len(best.token_ids))
        whole = logits(rows)
        # The graph has summed up the whole row for the best token already.
        normaliser = whole[rows, best.token_ids[:, 0]] - best.log_probs[:, 0]
        tokens = whole[:, list(ask.tokens)] - normaliser[:, None]
    return Found(
        best.token_ids,
        best.log_probs,
        tokens if ask.tokens else None,
        normaliser if ask.normaliser or ask.logits else None,
        logits if ask.logits else None,
        attention,
    )


def attend(
    query: NDArray[np.float32], keys: NDArray[np.float32], source_last: NDArray[np.int32], scale: float
) -> NDArray[np.float32]:
    """Where rows look: softmax(scale * query key^T) over their sources, the mean of the heads [rows, longest source].

    query: [rows, heads * head_dim]; keys: [rows, heads, places, head_dim]
    source_last: place of each row's last token [rows]
    """
    rows, heads, _, head_dim = keys.shape
    places = np.arange(int(source_last.max()) + 1)
    scores = np.einsum("rhd,rhpd->rhp", query.reshape(rows, heads, head_dim), keys[:, :, : len(places)]) * scale
    scores = np.where(places <= source_last[:, None, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    mean: NDArray[np.float32] = (weights / weights.sum(2, keepdims=True)).mean(1, dtype=np.float32)
    return mean
