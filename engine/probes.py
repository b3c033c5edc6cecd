"""Known answers: what a decoder must say of the sources in a package's manifest before it serves."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine.batch.running_batch import RunningBatch
from engine.decoder import Decoder
from engine.errors import KernelsRefused
from engine.observer import Unobserved
from engine.request import Event, Failed, Finished, Translate
from engine.targets import TargetRules
from models.decoding import Decoding
from models.package.graphs import Probe

SCORE_TOLERANCE = 0.01
"""Of a token's log-probability. Processors differ by roundings of fp32, which move a number to the next of its 8 bits
now and then; a wrong kernel is off by whole units."""


def check_probes(decoder: Decoder[Any], rules: TargetRules, probes: Sequence[Probe]) -> None:
    """Decodes all probes in one batch by greedy search. Raises KernelsRefused, with both answers."""
    batch = RunningBatch(decoder, max(1, len(probes)), Unobserved(), worker=0)
    answers: list[list[Event]] = [[] for _ in probes]
    batch.admit([_request(probe, rules, answer) for probe, answer in zip(probes, answers, strict=True)])
    while not batch.idle:
        batch.step()
    for number, (probe, [answer]) in enumerate(zip(probes, answers, strict=True)):
        _compare(number, probe, answer)


def _request(probe: Probe, rules: TargetRules, answer: list[Event]) -> Translate:
    decoding = Decoding(max_new_tokens=len(probe.token_ids), length_penalty=0.0)
    # Else the last token that fits would be forced, whatever the model says.
    free = replace(rules, forced_end_id=None)
    return Translate(probe.source_ids, answer.append, decoding=decoding, rules=free)


def _compare(number: int, probe: Probe, answer: Event) -> None:
    if isinstance(answer, Failed):
        raise KernelsRefused(f"probe {number} failed: {answer.error}") from answer.error
    assert isinstance(answer, Finished)
    [found] = answer.hypotheses
    if found.token_ids != probe.token_ids:
        raise KernelsRefused(f"probe {number} has the tokens {list(found.token_ids)}, expected {list(probe.token_ids)}")
    most = SCORE_TOLERANCE * len(probe.token_ids)
    if not abs(found.score - probe.score) <= most:  # NaN compares with nothing
        raise KernelsRefused(
            f"probe {number} has the score {found.score:.5f}, expected {probe.score:.5f} within {most:g}"
        )
