"""`python -m bench.server.embedding`: how long rows wait for long texts that become vectors. See docs/benchmarks.md.

One worker decodes, alone and while it encodes texts of as many tokens as the model takes, in turns.
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from pathlib import Path

from bench.flags.values import package_at, whole
from bench.measure import percentile
from bench.sentences import english
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.observer import Unobserved, UnobservedWorker
from engine.request import Encode, Encoded, Event, Failed, Translate
from engine.runner import Runner
from models.decoding import Decoding
from models.package.folder import Package

ZOO = Path(__file__).parents[2] / "models" / "zoo"


@dataclass
class Waits(UnobservedWorker):
    """Of a running batch: how long its rows waited before each step, and how long steps took."""

    before_s: list[float] = field(default_factory=list)
    steps_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    """Of every encoder run."""
    _ended: float | None = None

    def steps(self, made: int, rows: int, seconds: float, model_seconds: float) -> None:
        """Some were made one after the other."""
        now = time.perf_counter()
        if self._ended is not None:
            self.before_s.append(max(0.0, now - seconds - self._ended))
        self.steps_s.append(seconds / made)
        self._ended = now

    def encoded(self, source_tokens: int, computed_tokens: float) -> None:
        """Of texts that were encoded together."""
        self.tokens.append(source_tokens)

    def clear(self) -> None:
        """Forgets all."""
        self.before_s, self.steps_s, self.tokens, self._ended = [], [], [], None


class Observed(Unobserved):
    """Tells one worker's."""

    def __init__(self) -> None:
        self.waits = Waits()

    def worker(self, number: int) -> Waits:
        return self.waits


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.server.embedding", description=__doc__)
    parser.add_argument("--package", type=package_at, default=ZOO / "en-pt", help="the model")
    parser.add_argument("--rows", type=whole, default=8, help="that are decoded")
    parser.add_argument("--steps", type=whole, default=400, help="of each turn")
    parser.add_argument("--texts", type=whole, default=64, help="that become vectors meanwhile")
    parser.add_argument("--repeats", type=whole, default=5, help="turns of each side")
    arguments = parser.parse_args()
    package = Package.open(arguments.package)
    model, most = Loadable.of(package), package.manifest.model.max_positions
    sentences = [tuple(package.tokenizer().encode(text)) for text in english(arguments.rows)]
    decoding = Decoding(1, 1, arguments.steps, 1.0, False, min_new_tokens=arguments.steps)
    rows = [(source, decoding) for source in sentences]
    text = (*islice(chain.from_iterable(cycle(sentences)), most - 1), sentences[0][-1])
    observed = Observed()
    with load(model, CPU, Limits(arguments.rows, 1, most, arguments.steps), observed) as runner:

        def turn(texts: int) -> Waits:
            observed.waits.clear()
            asked = [_submit(runner, model, source, wish) for source, wish in rows]
            vectors = [_encode(runner, text) for _ in range(texts)]
            wait(asked)
            found = Waits(observed.waits.before_s, observed.waits.steps_s, observed.waits.tokens)
            for answer in (*asked, *vectors):
                if isinstance(event := answer.result(), Failed):
                    raise event.error
            return found

        alone_s = sorted(_timed(_encode(runner, text)) for _ in range(arguments.repeats))[arguments.repeats // 2]
        turns = [(turn(0), turn(arguments.texts)) for _ in range(arguments.repeats)]
    without, beside = ([one[side] for one in turns] for side in (0, 1))
    step_s = percentile([step for found in without for step in found.steps_s], 50)
    _tell("alone", without, step_s, alone_s)
    _tell("beside texts", beside, step_s, alone_s)
    print(f"a step alone: {1e3 * step_s:.2f} ms; a text of {len(text)} tokens alone: {1e3 * alone_s:.1f} ms")


def _submit(runner: Runner, model: Loadable, source: tuple[int, ...], decoding: Decoding) -> "Future[Event]":
    answer: Future[Event] = Future()
    runner.submit(Translate(source, answer.set_result, decoding=decoding, rules=model.rules))
    return answer


def _encode(runner: Runner, source: tuple[int, ...]) -> "Future[Event]":
    answer: Future[Event] = Future()
    runner.submit(Encode(source, answer.set_result))
    return answer


def _timed(answer: "Future[Event]") -> float:
    """What the encoder took."""
    event = answer.result()
    assert isinstance(event, Encoded)
    return event.timings.encode


def _tell(name: str, turns: Sequence[Waits], step_s: float, text_s: float) -> None:
    waits = [before for found in turns for before in found.before_s]
    most, share = max(waits), sum(waits) / sum(sum(found.before_s) + sum(found.steps_s) for found in turns)
    print(
        f"{name}: {len(waits)} steps; rows waited {1e3 * percentile(waits, 50):.2f} ms before one in the median, "
        f"{1e3 * percentile(waits, 99):.1f} of 99 %, {1e3 * most:.1f} at most ({most / step_s:.1f} steps, "
        f"{most / text_s:.2f} texts), {share:.0%} of the time; "
        f"{max((tokens for found in turns for tokens in found.tokens), default=0)} tokens in the largest encoder run"
    )


if __name__ == "__main__":
    main()
