"""`python -m bench.options.exactness [PACKAGE ...]`: whether packages answer as `generate` of transformers does.

FLORES-200 dev, English to Portuguese, greedily and with 4 beams, by standard operators and by our own. Where tokens
differ, transformers scores both answers: within TIE of each other they tie. See docs/benchmarks.md.
"""

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import torch
from torch.nn.utils.rnn import pad_sequence

from bench.flags.values import folder_at, package_at, whole
from bench.machine.noise import instructions
from bench.pages.markdown import machine, table
from bench.sentences import flores
from engine.devices.session import CPU
from engine.loading.load import Kernels, Limits, Loadable, load
from engine.offline import decode
from models.checkpoint.generation import of_generate
from models.decoding import Decoding
from models.package.folder import Package

ZOO = Path(__file__).parents[2] / "models" / "zoo" / "en-pt"
SENTENCES = 997
LONGEST = 256
"""Tokens of a target."""
ROWS = 64
"""Decoded at a time, by either side."""
TIE = 1e-5
"""Difference of two scores, each the mean of a target's log-probabilities, which rounding may turn round."""
SEARCHES = {"greedy": Decoding(max_new_tokens=LONGEST), "beam 4": Decoding(num_beams=4, max_new_tokens=LONGEST)}
OPERATORS: dict[Kernels, str] = {"off": "standard", "required": "our own"}
assert set(OPERATORS) < set(get_args(Kernels))

Tokens = tuple[int, ...]


class Transformers:
    """A checkpoint as transformers runs it."""

    def __init__(self, checkpoint: Path) -> None:
        from transformers import AutoModelForSeq2SeqLM

        self._model: Any = AutoModelForSeq2SeqLM.from_pretrained(
            checkpoint, dtype=torch.float32, local_files_only=True
        ).eval()
        self.score = cache(self._score)

    @torch.inference_mode()
    def generate(self, sources: Sequence[Tokens], decoding: Decoding) -> list[Tokens]:
        """The best target of every source. Sources of like length are decoded together."""
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        size, found = ROWS // decoding.num_beams, dict[int, Tokens]()
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            ids = [torch.tensor(sources[index]) for index in batch]
            padding = self._model.config.pad_token_id
            padded, mask = pad_sequence(ids, True, padding), pad_sequence([torch.ones_like(row) for row in ids], True)
            output = self._model.generate(input_ids=padded, attention_mask=mask, **of_generate(decoding))
            rows = [[token for token in row if token != padding] for row in output[:, 1:].tolist()]
            found |= zip(batch, map(tuple, rows), strict=True)
        return [found[index] for index in range(len(sources))]

    @torch.inference_mode()
    def _score(self, source: Tokens, target: Tokens) -> float:
        """Mean log-probability of a target's tokens."""
        given = torch.tensor([[self._model.generation_config.decoder_start_token_id, *target[:-1]]])
        logits = self._model(input_ids=torch.tensor([source]), decoder_input_ids=given).logits[0]
        return float(logits.double().log_softmax(1)[range(len(target)), target].mean())


@dataclass(frozen=True)
class Compared:
    """Answers of a package with those of `generate`."""

    sentences: int
    equal: int
    gaps: tuple[float, ...]
    """Of the answers that are others: how far the score of `generate`'s own is above, by transformers."""
    score_error: float
    """Largest difference of an answer's score from what transformers says of it."""

    @property
    def ties(self) -> int:
        """Of the answers that are others."""
        return sum(abs(gap) <= TIE for gap in self.gaps)


def compare(
    oracle: Transformers, sources: Sequence[Tokens], expected: Sequence[Tokens], found: Sequence[tuple[Tokens, float]]
) -> Compared:
    """found: targets and their scores."""
    answers = list(zip(sources, expected, found, strict=True))
    gaps = [
        oracle.score(source, theirs) - oracle.score(source, ours)
        for source, theirs, (ours, _) in answers
        if ours != theirs
    ]
    errors = [abs(score - oracle.score(source, ours)) for source, _, (ours, score) in answers]
    return Compared(len(answers), len(answers) - len(gaps), tuple(gaps), max(errors))


def answers(
    package: Package, sources: Sequence[Tokens], decoding: Decoding, kernels: Kernels
) -> list[tuple[Tokens, float]]:
    """By the engine, one worker."""
    model = Loadable.of(package)
    with load(model, CPU, Limits(ROWS, workers=1), kernels=kernels) as runner:
        found = decode(runner, model.rules, [(source, decoding) for source in sources])
        return [(answer.hypotheses[0].token_ids, answer.hypotheses[0].score) for answer in found]


def row(name: str, operators: str, search: str, compared: Compared) -> list[str]:
    """Of the table."""
    others = [gap for gap in compared.gaps if abs(gap) > TIE]
    return [
        *(name, operators, search),
        f"{compared.equal} of {compared.sentences}",
        str(compared.ties) + "".join(f" ({gap:+.1e})" for gap in compared.gaps if abs(gap) <= TIE),
        str(len(others)) + "".join(f" ({gap:+.1e})" for gap in others),
        f"{compared.score_error:.1e}",
    ]


def main() -> None:
    """Command line."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(prog="python -m bench.options.exactness", description=__doc__)
    parser.add_argument(
        "packages", nargs="*", type=package_at, default=[ZOO], metavar="PACKAGE", help="of en-pt in fp32"
    )
    parser.add_argument(
        "--checkpoint", type=folder_at, default=ZOO, help="what transformers reads; default: models/zoo"
    )
    parser.add_argument("--sentences", type=whole, default=SENTENCES, metavar="N", help=f"default: {SENTENCES}")
    parser.add_argument("--threads", type=whole, default=1, metavar="N", help="of transformers; default: 1")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    print(f"{machine()}, {instructions()}\n", flush=True)
    oracle, rows = Transformers(chosen.checkpoint), list[list[str]]()
    packages = [Package.open(folder) for folder in chosen.packages]
    tokenizer = packages[0].tokenizer()
    sources = [tuple(tokenizer.encode(text)) for text in flores()[: chosen.sentences]]
    for search, decoding in SEARCHES.items():
        expected = oracle.generate(sources, decoding)
        for package in packages:
            for kernels, operators in OPERATORS.items():
                compared = compare(oracle, sources, expected, answers(package, sources, decoding, kernels))
                rows.append(row(package.manifest.name, operators, search, compared))
                print("\t".join(rows[-1]), flush=True)
    header = ["package", "operators", "search", "tokens of `generate`", "ties", "others", "scores off by at most"]
    print("\n" + table(header, rows))


if __name__ == "__main__":
    main()
