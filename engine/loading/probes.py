"""Known answers: what a decoder must say of the sources in a package's manifest before it serves."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from engine.batch.running_batch import RunningBatch
from engine.decoder import Decoder
from engine.errors import KernelsRefused
from engine.observer import Unobserved
from engine.request import Event, Failed, Finished, Translate
from engine.targets import TargetRules
from models.decoding import Decoding
from models.package.declared.graphs import Probe

SCORE_TOLERANCE = 0.01
"""Of a token's log-probability. Processors differ by roundings of fp32, which move a number to the next of its 8 bits
now and then; a wrong kernel is off by whole units."""


def check_probes(decoder: Decoder[Any], rules: TargetRules, probes: Sequence[Probe]) -> None:
    """Decodes all probes in one batch by greedy search. Raises KernelsRefused, with both answers."""
    batch = RunningBatch(decoder, max(1, len(probes)), Unobserved(), worker=0)
    answers: list[list[Event]] = [[] for _ in probes]
    batch.admit([request(probe, rules, answer.append) for probe, answer in zip(probes, answers, strict=True)])
    while not batch.idle:
        batch.step()
    for number, (probe, [answer]) in enumerate(zip(probes, answers, strict=True)):
        if (wrong := difference(probe, answer)) is not None:
            raise KernelsRefused(f"probe {number} {wrong}")


def fitting(probes: Sequence[Probe], source_tokens: int | None, target_tokens: int | None) -> list[Probe]:
    """Those that rows of so many tokens have room for. None: as many as the model takes."""
    return [
        probe
        for probe in probes
        if len(probe.source_ids) <= (source_tokens or len(probe.source_ids))
        and len(probe.token_ids) <= (target_tokens or len(probe.token_ids))
    ]


def request(probe: Probe, rules: TargetRules, deliver: Callable[[Event], None]) -> Translate:
    """Asks for a probe's answer, by greedy search."""
    decoding = Decoding(max_new_tokens=len(probe.token_ids), length_penalty=0.0)
    # Else the last token that fits would be forced, whatever the model says.
    free = replace(rules, forced_end_id=None)
    return Translate(probe.source_ids, deliver, decoding=decoding, rules=free)


def difference(probe: Probe, answer: Event) -> str | None:
    """What is wrong with an answer. None: nothing."""
    if isinstance(answer, Failed):
        return f"failed: {answer.error}"
    assert isinstance(answer, Finished)
    [found] = answer.hypotheses
    if found.token_ids != probe.token_ids:
        return f"has the tokens {list(found.token_ids)}, expected {list(probe.token_ids)}"
    most = SCORE_TOLERANCE * len(probe.token_ids)
    if not abs(found.score - probe.score) <= most:  # NaN compares with nothing
        return f"has the score {found.score:.5f}, expected {probe.score:.5f} within {most:g}"
    return None
