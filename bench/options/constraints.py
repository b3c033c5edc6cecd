"""`python -m bench.options.constraints [PACKAGE]`: phrases that translations must have, and the rest of them.

FLORES-200 dev, English to Portuguese. Two phrases of each reference, of one to three words, are to be in its
translation; which, is drawn with a fixed seed. Token ids in and out, one worker, by turns without and with the phrases.
See docs/benchmarks.md.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import sacrebleu

from bench.flags.values import beams, package_at, whole
from bench.measure import alternate, seconds
from bench.pages.markdown import machine, table
from bench.sentences import flores
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.offline import decode
from engine.request import FinishReason, Hypothesis
from models.decoding import Decoding
from models.package.folder import Package
from models.tokenizers.tokenizer import Tokenizer

ROOT = Path(__file__).parent.parent.parent
ZOO = ROOT / "models" / "zoo" / "en-pt"
SENTENCES, SEED, MOST_WORDS = 500, 18, 3

Phrases = tuple[str, ...]
Translate = Callable[[], list[Hypothesis]]


@dataclass(frozen=True)
class Quality:
    """Of the translations of one text."""

    bleu: float
    met: int
    """Translations that have both phrases."""
    cut: int
    """Those that did not end by themselves."""


def drawn(reference: str, chance: random.Random, tokenizer: Tokenizer) -> Phrases:
    """Two phrases of a reference that do not overlap, if the model can write both as they are."""
    words = reference.split()
    sizes = [min(chance.randint(1, MOST_WORDS), len(words) // 2) for _ in range(2)]
    first = chance.randint(0, len(words) - sum(sizes))
    second = chance.randint(first + sizes[0], len(words) - sizes[1])
    places = ((first, sizes[0]), (second, sizes[1]))
    phrases = (" ".join(words[start : start + size]) for start, size in places)
    return tuple(phrase for phrase in phrases if phrase in tokenizer.decode(tokenizer.encode_target(phrase)))


def quality(
    found: Sequence[Hypothesis], wanted: Sequence[Phrases], references: Sequence[str], tokenizer: Tokenizer
) -> Quality:
    """Compares translations with what they were to have, and with their references."""
    texts = [tokenizer.decode(one.token_ids) for one in found]
    met = sum(all(phrase in text for phrase in phrases) for phrases, text in zip(wanted, texts, strict=True))
    cut = sum(one.finish_reason is FinishReason.LENGTH for one in found)
    return Quality(sacrebleu.corpus_bleu(texts, [references]).score, met, cut)


def compare(package: Package, num_beams: int, sentences: int, repeats: int) -> list[list[str]]:
    """Rows of the table: without phrases, and with them. repeats: 0 measures no speed."""
    tokenizer, model, chance = package.tokenizer(), Loadable.of(package), random.Random(SEED)
    sources = [tuple(tokenizer.encode(text)) for text in flores("en")[:sentences]]
    references = flores("pt")[:sentences]
    wanted = [drawn(reference, chance, tokenizer) for reference in references]
    plain = Decoding(num_beams=num_beams, max_new_tokens=256)
    constrained = [
        replace(plain, must_include=tuple(tuple(tokenizer.encode_target(phrase)) for phrase in phrases))
        for phrases in wanted
    ]
    with load(model, CPU, Limits(workers=1)) as runner:

        def translate(decodings: Sequence[Decoding]) -> list[Hypothesis]:
            requests = zip(sources, decodings, strict=True)
            return [answer.hypotheses[0] for answer in decode(runner, model.rules, requests)]

        sides: dict[str, Translate] = {
            f"beam {num_beams}": partial(translate, [plain] * len(sources)),
            f"beam {num_beams}, must_include": partial(translate, constrained),
        }
        found = {name: quality(side(), wanted, references, tokenizer) for name, side in sides.items()}
        rates = {name: "" for name in sides}
        if repeats:
            series = alternate({name: partial(seconds, side) for name, side in sides.items()}, repeats)
            rates = {name: f"{len(sources) / one.median:.1f}" for name, one in series.items()}
    return [
        [name, f"{one.met} of {sentences}", f"{one.bleu:.2f}", str(one.cut), rates[name]] for name, one in found.items()
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.options.constraints", description=__doc__)
    parser.add_argument("package", nargs="?", type=package_at, default=ZOO, metavar="PACKAGE", help="of en-pt")
    parser.add_argument("--num-beams", type=beams, default=4, metavar="N", help="default: 4")
    parser.add_argument("--sentences", type=whole, default=SENTENCES, metavar="N", help=f"default: {SENTENCES}")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="turns of each side; 0: no speed")
    chosen = parser.parse_args()
    print(f"{machine()}\n", flush=True)
    rows = compare(Package.open(chosen.package), chosen.num_beams, chosen.sentences, chosen.repeats)
    print(table(["search", "phrases met", "BLEU", "cut", "sentences/s"], rows))


if __name__ == "__main__":
    main()
