"""An answer never depends on its batch mates: whoever comes and goes beside it, it is the same, to the last bit.

The engine runs the package of models/zoo/en-pt on ONNX Runtime. hypothesis makes up who arrives when, with which
options, and who leaves early; every request that stays must get the answer it gets alone, in an engine of its own.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.batch.running_batch import RunningBatch
from engine.decoder import Decoder
from engine.devices.session import CPU
from engine.loading.load import Kernels, Loadable, open_decoder
from engine.observer import Unobserved
from engine.request import Event, Finished, Hypothesis, Translate
from models.decoding import Decoding
from models.package.folder import Package
from tests.checkpoints import flores

pytestmark = pytest.mark.timeout(600)

MAX_ROWS = 24
"""Less than most mixes would take, so that requests wait and rows are used again."""
TEXTS = sorted((english for english, _ in flores()[:240]), key=len)[::10]
"""From the shortest to the longest."""
LONGEST = 128
PHRASES = (((27, 142),), ((4,), (366, 30058, 2), (4,)))
"""That targets must have."""

Answer = tuple[Hypothesis, ...]


@dataclass(frozen=True)
class Visit:
    """A request's way through the engine."""

    pause: int
    """Steps between the arrival before and this one."""
    text: int
    decoding: Decoding
    patience: int | None
    """Steps after which its caller leaves. None: it stays."""


@dataclass
class Guest:
    """A request in the engine, or on its way there."""

    visit: Visit
    request: Translate
    due: int
    """The step before which it arrives."""
    leaves: int | None = None
    """The step before which it is cancelled."""


class Translator:
    """Runs visits over a package."""

    def __init__(self, package: Package, kernels: Kernels = "auto") -> None:
        loadable = Loadable.of(package)
        self._decoder: Decoder[Any] = open_decoder(loadable, CPU, LONGEST, LONGEST, kernels)
        self._rules = loadable.rules
        tokenizer = package.tokenizer()
        self._sources = [tuple(tokenizer.encode(text)) for text in TEXTS]
        self.alone: Callable[[int, Decoding], Answer] = cache(self._alone)
        """The answer to a request that has the engine for itself."""

    def together(self, visits: list[Visit]) -> list[Answer | None]:
        """The answers to all visits, None where there was none."""
        engine = self._open_engine()
        answers: list[Answer | None] = [None] * len(visits)
        waiting = deque(self._guests(visits, answers))
        present: list[Guest] = []
        step = 0
        while waiting or not engine.idle:
            arriving: list[Guest] = []
            room = engine.free_rows
            while waiting and waiting[0].due <= step and waiting[0].request.rows <= room:
                arriving.append(waiting.popleft())
                room -= arriving[-1].request.rows
            _arrive(arriving, engine, step)
            present += arriving
            for guest in present:
                if guest.leaves == step:
                    guest.request.cancel()
            engine.step()
            step += 1
        assert engine.free_rows == MAX_ROWS
        return answers

    def _guests(self, visits: list[Visit], answers: list[Answer | None]) -> list[Guest]:
        guests, due = [], 0
        for index, visit in enumerate(visits):
            due += visit.pause
            guests.append(Guest(visit, self._request(visit.text, visit.decoding, answers, index), due))
        return guests

    def _alone(self, text: int, decoding: Decoding) -> Answer:
        [answer] = self.together([Visit(0, text, decoding, None)])
        assert answer is not None
        return answer

    def _request(self, text: int, decoding: Decoding, answers: list[Answer | None], index: int) -> Translate:
        def deliver(event: Event) -> None:
            assert isinstance(event, Finished), event
            answers[index] = event.hypotheses

        return Translate(self._sources[text], deliver, decoding=decoding, rules=self._rules)

    def _open_engine(self) -> RunningBatch[Any]:
        return RunningBatch(self._decoder, MAX_ROWS, Unobserved(), worker=0)


def _arrive(guests: list[Guest], engine: RunningBatch[Any], step: int) -> None:
    engine.admit([guest.request for guest in guests])
    for guest in guests:
        guest.leaves = None if guest.visit.patience is None else step + guest.visit.patience


@st.composite
def decodings(draw: st.DrawFn) -> Decoding:
    num_beams = draw(st.integers(1, 8))
    return Decoding(
        num_beams=num_beams,
        num_return_sequences=draw(st.integers(1, num_beams)),
        max_new_tokens=draw(st.sampled_from([1, 7, 40, LONGEST])),
        length_penalty=draw(st.sampled_from([0.0, 0.6, 1.0, 2.0])),
        early_stopping=draw(st.sampled_from([False, True, "never"])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.0, 1.3])),
        no_repeat_ngram_size=draw(st.sampled_from([0, 0, 0, 2])),
        encoder_repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.0, 1.2])),
        do_sample=num_beams == 1 and draw(st.booleans()),
        top_k=draw(st.sampled_from([50, 50, 0])),
        seed=draw(st.integers(0, 3)),
        must_include=draw(st.sampled_from([(), (), *PHRASES])) if num_beams > 1 else (),
    )


VISITS = st.lists(
    st.builds(
        Visit,
        pause=st.integers(0, 12),
        text=st.integers(0, len(TEXTS) - 1),
        decoding=decodings(),
        patience=st.none() | st.integers(0, 60),
    ),
    min_size=2,
    max_size=16,
)


@pytest.fixture(scope="module")
def translator(zoo_package: Package) -> Translator:
    return Translator(zoo_package)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(visits=VISITS)
def test_every_answer_is_the_one_it_would_be_alone(translator: Translator, visits: list[Visit]) -> None:
    for visit, answer in zip(visits, translator.together(visits), strict=True):
        if answer is None:
            assert visit.patience is not None, "a request that stayed has no answer"
        else:
            assert answer == translator.alone(visit.text, visit.decoding)
