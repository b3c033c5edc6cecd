"""Minimum Bayes risk: of samples, the one that the others agree with most, and not the likeliest.

Samples say what the model believes. The expected utility of a translation is its mean likeness to all of them (Kumar
and Byrne 2004; by samples, Eikema and Aziz 2020, section 5): chrF as sacrebleu has it, from 0 to 100.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from math import fsum
from threading import Event

from engine.request import Hypothesis
from models.tokenizers.tokenizer import Span
from server.errors import ExtraMissing, WouldBeLate
from server.telemetry.calls import current_call
from server.translation.targets import Detokenized, TargetWriter


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of the samples."""

    sample: int
    utility: float
    """Its expected one."""


class MinimumRisk:
    """Chooses on a thread of its own, since each pair of samples takes a fifth of a millisecond."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "minimum-risk")

    async def write(
        self,
        samples: Sequence[Hypothesis],
        writer: TargetWriter,
        most: int,
        source_spans: Callable[[], Sequence[Span]] | None = None,
    ) -> tuple[tuple[Hypothesis, ...], Detokenized]:
        """The best samples, at most so many, best first, and their texts. Raises WouldBeLate.

        source_spans: see `TargetWriter.write`
        """
        started = time.perf_counter()
        every = await writer.write([replace(sample, log_probs=()) for sample in samples])
        chosen = await self.choose([target.text for target in every.texts], most)
        hypotheses = tuple(samples[one.sample] for one in chosen)
        written = await writer.write(hypotheses, source_spans)
        pairs = zip(written.texts, chosen, strict=True)
        texts = tuple(replace(text, expected_utility=one.utility) for text, one in pairs)
        return hypotheses, Detokenized(texts, started, time.perf_counter() - started)

    async def choose(self, texts: Sequence[str], most: int) -> list[Chosen]:
        """The best of some texts, at most so many, best first. Equal ones are one. Raises WouldBeLate.

        Whoever is cancelled here ends the work.
        """
        left = Event()
        work = partial(_choose, texts, most, current_call().deadline, left)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            left.set()


def check_installed() -> None:
    """Raises ExtraMissing, where sacrebleu is not."""
    if find_spec("sacrebleu") is None:
        raise ExtraMissing("mbr_samples", "sacrebleu", "mbr")


def _choose(texts: Sequence[str], most: int, deadline: float | None, left: Event) -> list[Chosen]:
    counts = Counter(texts)
    utilities = _utilities(counts, deadline, left)
    best = sorted(utilities, key=utilities.__getitem__, reverse=True)[:most]  # of equal ones, the first is first
    return [Chosen(texts.index(text), utilities[text]) for text in best]


def _utilities(counts: Counter[str], deadline: float | None, left: Event) -> dict[str, float]:
    """The expected utility of every text. counts: how many samples it is."""
    from sacrebleu.metrics.chrf import CHRF  # not among what the server requires

    references = [(CHRF(references=[[text]]), count) for text, count in counts.items()]  # whose n-grams are kept
    utilities = dict[str, float]()
    for text in counts:
        likeness = list[float]()
        for reference, count in references:
            if left.is_set():
                return {}
            if deadline is not None and (late := time.perf_counter() - deadline) > 0:
                raise WouldBeLate(0.0, -late)
            time.sleep(0)  # engine and event loop need not wait until the interpreter takes its lock away
            likeness.append(count * reference.corpus_score([text], None).score)
        utilities[text] = fsum(likeness) / counts.total()
    return utilities
