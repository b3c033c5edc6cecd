"""Known answers: what an engine must say of the sources in a package's manifest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from engine.batch.running_batch import RunningBatch
from engine.decoder import Decoder
from engine.devices.session import DeviceError
from engine.errors import KernelsRefused
from engine.host.encoded import EncodedText
from engine.niceness import AT_ONCE, Pace
from engine.observer import Unobserved
from engine.request import Encode, Encoded, Event, Failed, Finished, Request, Translate
from engine.targets import TargetRules
from models.decoding import Decoding
from models.encoding import Encoding, Pooling
from models.package.checked import EXPORT_AGAIN
from models.package.declared.graphs import GraphsSpec, Probe, VectorProbe

SCORE_TOLERANCE = 0.01
"""Of a token's log-probability. Processors differ by roundings of fp32, which move a number to the next of its 8 bits
now and then; a wrong kernel is off by whole units."""
VECTOR_TOLERANCE = 0.05
"""Of a vector's largest number. As above; a wrong kernel is off by as much as the numbers are large."""
FIRST_TOKENS = 3
"""Of a probe's answer, which standard graphs are asked for: a start waits ten milliseconds for them. The cache is read
from the second on."""
ROUGH_VECTOR_TOLERANCE = 0.5
"""Of their vectors: 8 bits round otherwise from processor to processor."""

Deliver = Callable[[Event], None]


class KnownAnswer(Protocol):
    """A source, and what comes of it."""

    def request(self, deliver: Deliver) -> Request:
        """Asks for it."""

    def difference(self, answer: Event) -> str | None:
        """What is wrong with an answer. None: nothing."""

    def learnt(self, answer: Event) -> Self | None:
        """The same source with another known answer. None: that is none."""


@dataclass(frozen=True)
class KnownTranslation:
    """By greedy search."""

    probe: Probe
    rules: TargetRules
    """Of the model."""

    def request(self, deliver: Deliver) -> Translate:
        decoding = Decoding(max_new_tokens=len(self.probe.token_ids), length_penalty=0.0)
        # Else the last token that fits would be forced, whatever the model says.
        free = replace(self.rules, forced_end_id=None)
        return Translate(self.probe.source_ids, deliver, decoding=decoding, rules=free)

    def difference(self, answer: Event) -> str | None:
        if (wrong := self.other_tokens(answer)) is not None:
            return wrong
        assert isinstance(answer, Finished)
        [found] = answer.hypotheses
        most = SCORE_TOLERANCE * len(self.probe.token_ids)
        if not abs(found.score - self.probe.score) <= most:  # NaN compares with nothing
            return f"has the score {found.score:.5f}, expected {self.probe.score:.5f} within {most:g}"
        return None

    def other_tokens(self, answer: Event) -> str | None:
        """As `difference`, whatever their score."""
        if isinstance(answer, Failed):
            return f"failed: {answer.error}"
        assert isinstance(answer, Finished)
        [found] = answer.hypotheses
        if found.token_ids != self.probe.token_ids:
            return f"has the tokens {list(found.token_ids)}, expected {list(self.probe.token_ids)}"
        return None

    def learnt(self, answer: Event) -> "KnownTranslation | None":
        if not isinstance(answer, Finished):
            return None
        [found] = answer.hypotheses
        probe = self.probe.model_copy(update={"token_ids": found.token_ids, "score": found.score})
        return replace(self, probe=probe)


@dataclass(frozen=True)
class KnownVector:
    """The mean of its hidden states."""

    probe: VectorProbe

    def request(self, deliver: Deliver) -> Encode:
        return Encode(self.probe.source_ids, deliver, encoding=Encoding((Pooling.MEAN,)))

    def difference(self, answer: Event) -> str | None:
        if isinstance(answer, Failed):
            return f"failed: {answer.error}"
        assert isinstance(answer, Encoded)
        return vector_difference(self.probe, answer.vectors.data)

    def learnt(self, answer: Event) -> "KnownVector | None":
        if not isinstance(answer, Encoded):
            return None
        numbers = tuple(answer.vectors.data[: len(self.probe.numbers)].tolist())
        return replace(self, probe=self.probe.model_copy(update={"numbers": numbers}))


class Encoder(Protocol):
    """Of a model that is an encoder alone."""

    def encode(self, sources: Sequence[Sequence[int]]) -> list[EncodedText]:
        """Runs it on sources, the end tokens included."""


def check_probes(decoder: Decoder[Any], rules: TargetRules, probes: Sequence[Probe], pace: Pace = AT_ONCE) -> None:
    """Decodes all probes in one batch by greedy search. Raises KernelsRefused, with both answers."""
    known = [KnownTranslation(probe, rules) for probe in probes]
    for number, (one, answer) in enumerate(zip(known, _answers(decoder, known, pace), strict=True)):
        if (wrong := one.difference(answer)) is not None:
            raise KernelsRefused(f"probe {number} {wrong}")


def check_beginnings(decoder: Decoder[Any], rules: TargetRules, probes: Sequence[Probe], pace: Pace = AT_ONCE) -> None:
    """Has standard graphs begin a probe. Raises DeviceError where they begin none as they must, as nonsense does.

    The next one is asked where one is begun otherwise: processors differ by roundings, which move a token now and then.
    """
    wrong = ""
    for number, probe in enumerate(probes):
        begun = KnownTranslation(probe.model_copy(update={"token_ids": probe.token_ids[:FIRST_TOKENS]}), rules)
        [answer] = _answers(decoder, [begun], pace)
        told = begun.other_tokens(answer)
        if told is None:
            return
        wrong = wrong or f"probe {number} {told}"
    if wrong:
        raise DeviceError(f"the standard graphs answer no probe of the package as they must: {wrong}; {EXPORT_AGAIN}")


def _answers(decoder: Decoder[Any], known: Sequence[KnownTranslation], pace: Pace) -> list[Event]:
    """Of all in one batch."""
    batch = RunningBatch(decoder, max(1, len(known)), Unobserved(), worker=0)
    answers: list[list[Event]] = [[] for _ in known]
    batch.admit([one.request(answer.append) for one, answer in zip(known, answers, strict=True)])
    while not batch.idle:
        with pace.piece():
            batch.step()
    return [answer for [answer] in answers]


def check_vectors(encoder: Encoder, probes: Sequence[VectorProbe], pace: Pace = AT_ONCE) -> None:
    """Encodes each probe alone. Raises KernelsRefused, with how far it is off."""
    for number, probe in enumerate(probes):
        with pace.piece():
            [found] = encoder.encode([probe.source_ids])
        if (wrong := vector_difference(probe, mean(found.hidden()))) is not None:
            raise KernelsRefused(f"probe {number} {wrong}")


def check_rough_vector(encoder: Encoder, probes: Sequence[VectorProbe], pace: Pace = AT_ONCE) -> None:
    """Has standard graphs encode a probe. Raises DeviceError, with how far it is off."""
    for probe in probes[:1]:
        with pace.piece():
            [found] = encoder.encode([probe.source_ids])
        if (wrong := vector_difference(probe, mean(found.hidden()), ROUGH_VECTOR_TOLERANCE)) is not None:
            raise DeviceError(f"the standard graphs do not encode as they must: probe 0 {wrong}; {EXPORT_AGAIN}")


def mean(hidden: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of hidden states [tokens, width]."""
    found: NDArray[np.float64] = hidden.mean(axis=0, dtype=np.float64)
    return found


def vector_difference(probe: VectorProbe, found: NDArray[Any], tolerance: float = VECTOR_TOLERANCE) -> str | None:
    """What is wrong with the mean of its hidden states [width]. None: nothing."""
    expected = np.array(probe.numbers)
    largest, error = np.abs(expected).max(), np.abs(found[: len(expected)] - expected).max()
    if not error <= tolerance * largest:  # NaN is above it, too
        return f"is off by {error:.3g}, with numbers up to {largest:.3g}"
    return None


def known_answers(
    spec: GraphsSpec, rules: TargetRules, source_tokens: int | None, target_tokens: int | None
) -> list[KnownAnswer]:
    """Those of a package that rows of so many tokens have room for. None: as many as the model takes."""
    translations = fitting(spec.probes, source_tokens, target_tokens)
    vectors = fitting_vectors(spec.vector_probes, source_tokens)
    return [*(KnownTranslation(probe, rules) for probe in translations), *map(KnownVector, vectors)]


def fitting(probes: Sequence[Probe], source_tokens: int | None, target_tokens: int | None) -> list[Probe]:
    """Those that rows of so many tokens have room for. None: as many as the model takes."""
    return [
        probe
        for probe in probes
        if len(probe.source_ids) <= (source_tokens or len(probe.source_ids))
        and len(probe.token_ids) <= (target_tokens or len(probe.token_ids))
    ]


def fitting_vectors(probes: Sequence[VectorProbe], source_tokens: int | None) -> list[VectorProbe]:
    """As above."""
    return [probe for probe in probes if len(probe.source_ids) <= (source_tokens or len(probe.source_ids))]
