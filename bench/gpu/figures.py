"""The figures that were asked for, read from what the parts found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from bench.gpu.plan import Findings

Parts = Mapping[str, Findings]
"""Each part's findings."""
Verdict = Literal["met", "short", "open"]


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    asked: float
    unit: str
    at_most: bool
    read: Callable[[Parts], float]
    """Raises KeyError where a part did not get so far."""

    def check(self, parts: Parts, judged: bool) -> Findings:
        """What was measured, and whether that will do: open where nothing was, or where it is not to be judged."""
        try:
            measured = self.read(parts)
        except (KeyError, ValueError):
            return {"name": self.name, "measured": None, "asked": self.asked_of, "verdict": "open"}
        met = measured <= self.asked if self.at_most else measured >= self.asked
        verdict: Verdict = ("met" if met else "short") if judged else "open"
        shown = f"{measured:.3g} {self.unit}"
        return {"name": self.name, "measured": shown, "asked": self.asked_of, "verdict": verdict}

    @property
    def asked_of(self) -> str:
        """As people say it."""
        return f"at {'most' if self.at_most else 'least'} {self.asked:g} {self.unit}"


def over_transformers(cell: str) -> Callable[[Parts], float]:
    """Our tokens a second over those of the best variant of transformers, for which it must have been compiled too."""

    def read(parts: Parts) -> float:
        found = parts["throughput"][cell]
        return speed(found["ours"]) / best(found["transformers"] | parts["compiled"][cell])

    return read


def over_ctranslate2(cell: str, part: str = "throughput") -> Callable[[Parts], float]:
    """Our tokens a second over CTranslate2's."""

    def read(parts: Parts) -> float:
        found = parts[part][cell]
        return speed(found["ours"]) / speed(found["ctranslate2"])

    return read


def speed(reading: Findings) -> float:
    """Tokens a second. Raises KeyError where there was an error instead."""
    return float(reading["tokens_per_s"])


def best(variants: Mapping[str, Findings]) -> float:
    """Tokens a second of the fastest variant that ran. Raises ValueError if none did."""
    return max(speed(variant) for variant in variants.values() if "error" not in variant)


def over_floor(rows: int) -> Callable[[Parts], float]:
    """The time of a decode step over the least that it must take."""

    def read(parts: Parts) -> float:
        step = parts["roofline"][f"{rows} rows"]
        return float(step["ms"] / step["floor_ms"])

    return read


def _latency(parts: Parts) -> float:
    return float(parts["latency"]["beam 4"]["ours"]["p50_ms"])


def _memory(parts: Parts) -> float:
    return float(parts["memory"]["memory"]["used_mb"]) / 1000


def _fp16_sentences(parts: Parts) -> float:
    greedy = parts["parity"]
    found = greedy.get("zoo fp16, greedy, as fp32") or greedy["zoo fp16, greedy, as transformers fp32"]
    return 100 * float(found["equal"] / found["sentences"])


def _nllb_over_transformers(parts: Parts) -> float:
    found = parts["nllb"]["greedy, 32 sentences"]
    return speed(found["ours"]) / best(found["transformers"])


def _served(parts: Parts) -> float:
    served = parts["served"]
    return float(served["closed loop"]["tokens_per_s"] / served["engine alone"]["tokens_per_s"])


OF_NLLB = "NLLB-600M's shape, greedy, 32 sentences"
FIGURES = (
    Figure(
        "greedy tokens/s over the best of transformers, 1 row", 5, "x", False, over_transformers("greedy, 1 sentence")
    ),
    Figure("the same, 32 rows", 4, "x", False, over_transformers("greedy, 32 sentences")),
    Figure("the same, 256 rows", 3, "x", False, over_transformers("greedy, 256 sentences")),
    Figure("greedy tokens/s over CTranslate2, 1 row", 1.5, "x", False, over_ctranslate2("greedy, 1 sentence")),
    Figure("the same, 32 rows", 1.5, "x", False, over_ctranslate2("greedy, 32 sentences")),
    Figure("the same, 256 rows", 1.5, "x", False, over_ctranslate2("greedy, 256 sentences")),
    Figure("the same, beam 4, 32 sentences", 1.5, "x", False, over_ctranslate2("beam 4, 32 sentences")),
    Figure(f"{OF_NLLB}, over the best of transformers", 3, "x", False, _nllb_over_transformers),
    Figure(f"{OF_NLLB}, over CTranslate2", 1.3, "x", False, over_ctranslate2("greedy, 32 sentences", "nllb")),
    Figure("one sentence of 32 tokens, beam 4, engine latency p50", 12, "ms", True, _latency),
    Figure("256 gRPC callers, tokens/s over the engine alone", 0.8, "x", False, _served),
    Figure("decode step at 32 rows over its byte or launch floor", 1.5, "x", True, over_floor(32)),
    Figure("the same at 256 rows", 2, "x", True, over_floor(256)),
    Figure("device memory, 64 rows, length 256", 1.0, "GB", True, _memory),
    Figure("fp16 texts equal to fp32's, held-out sentences, greedy", 99, "%", False, _fp16_sentences),
)


def check(parts: Parts, judged: bool) -> list[Findings]:
    """All figures. judged: whether this was the run they are about, full size on CUDA."""
    return [figure.check(parts, judged) for figure in FIGURES]
