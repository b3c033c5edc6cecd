"""Known answers of graphs, which they must give again (`engine.loading.probes`)."""

from collections.abc import Iterator, Sequence

from engine.request import FinishReason, Hypothesis
from models.package.declared.graphs import Probe

COUNT = 3
LONGEST = 24
"""Tokens of a source, and of its target: a start must not wait for them."""


def record_probes(
    sources: Sequence[tuple[int, ...]],
    standard: Sequence[Hypothesis],
    native: Sequence[Hypothesis],
    length_penalty: float,
) -> tuple[Probe, ...]:
    """The longest that are short, of those that both kinds of graphs answer alike.

    standard, native: what each has found by greedy search, with scores by this length penalty. The same where there
        are no others
    """
    known = _known(sources, standard, native, length_penalty)
    return tuple(sorted(known, key=lambda probe: len(probe.token_ids), reverse=True)[:COUNT])


def _known(
    sources: Sequence[tuple[int, ...]],
    standard: Sequence[Hypothesis],
    native: Sequence[Hypothesis],
    length_penalty: float,
) -> Iterator[Probe]:
    for source, expected, found in zip(sources, standard, native, strict=True):
        ended = found.finish_reason is FinishReason.END_TOKEN
        if ended and expected.token_ids == found.token_ids and max(len(source), len(found.token_ids)) <= LONGEST:
            score = found.score * len(found.token_ids) ** length_penalty
            yield Probe(source_ids=source, token_ids=found.token_ids, score=score)
