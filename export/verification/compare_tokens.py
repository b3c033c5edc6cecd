"""How many sample sentences the exported graphs translate to exactly the tokens of a reference."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from engine.batch.running_batch import RunningBatch
from engine.decoder import Decoder, S
from engine.observer import Unobserved
from engine.request import Event, Failed, Finished, Hypothesis, Translate
from engine.targets import TargetRules, target_rules
from export.tell import Tell
from export.verification.alignment import Sentence
from export.verification.compare_numbers import random_pair
from export.verification.pairs import sample_pairs, sample_rules
from export.verification.reference import Attention, TransformersModel, greedy_tokens
from models.checkpoint import Checkpoint
from models.decoding import Decoding, TokenIds
from models.package.declared.graphs import Vocabulary
from models.package.derived import vocabulary
from models.package.manifest import Agreement, GenerationDefaults
from models.package.shortlist import Shortlist
from models.tokenizers.tokenizer import pieces, without_spaces

BEAMS = (1, 4)
ENGINE_ROWS = 16
"""Less than the samples need, so that rows are used again."""


@dataclass(frozen=True)
class Reference:
    """What the targets of all samples should be."""

    name: Literal["pytorch", "transformers"]
    num_beams: int
    targets: Sequence[TokenIds]


@dataclass(frozen=True)
class Comparison:
    """What came of the samples."""

    greedy: Sequence[Hypothesis]
    agreements: tuple[Agreement, ...]
    differences: tuple[str, ...]
    """For each reference that disagrees too often: how often, and the first sentence."""


class Samples:
    """Sample sentences, which graphs and references translate."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        folder: Path,
        capacity: int,
        texts: Sequence[str],
        share: float,
        shortlist: Shortlist | None = None,
    ) -> None:
        """Of long sentences the beginning is taken: so many tokens as a row has room for, its `capacity`.

        share: the least that must be equal
        shortlist: the decoder's
        """
        self._shortlist, self._vocabulary = shortlist, vocabulary(checkpoint.config)
        self._model, self._share = checkpoint.model, share
        self._transformers_folder = folder if checkpoint.in_transformers else None
        limit = min(checkpoint.generation.max_new_tokens, capacity)
        self._generation = replace(checkpoint.generation, max_new_tokens=limit)
        self._tokenizer = checkpoint.open_tokenizer(folder)
        self._texts = texts
        self._pairs = sample_pairs(checkpoint, len(texts))
        self._rules = sample_rules(checkpoint, self._generation, self._pairs)
        whole = [
            self._tokenizer.encode(text, target, source)
            for text, (source, target) in zip(texts, self._pairs, strict=True)
        ]
        self.sources = [shorten(source, capacity) for source in whole]
        """Token ids."""
        self._of_transformers: dict[int, list[TokenIds]] = {}
        """By number of beams."""
        self.attention: Attention | None = None
        """Where transformers looks in the `random_pair`."""

    def ask_transformers(self, tell: Tell) -> None:
        """Has transformers translate and say where it looks, if it reads the checkpoint.

        Its copy of the weights is gone when this returns.
        """
        if self._transformers_folder is None:
            return
        transformers = TransformersModel(self._transformers_folder, self._shortlist)
        for num_beams in BEAMS:
            tell(f"translations by transformers, {search_name(num_beams)}")
            self._of_transformers[num_beams] = transformers.translate(
                self.sources, num_beams, self._generation, self._rules
            )
        source, target = random_pair(self._model.config)
        self.attention = transformers.attention(source, target[:-1])

    def attended(self, decoder: Decoder[S], found: Sequence[Hypothesis]) -> Iterator[Sentence]:
        """What was found of every sentence that is whole, and where a decoder's graphs look there."""
        samples = zip(self._texts, self._pairs, self._rules, self.sources, found, strict=True)
        for text, (language, target_language), rules, source, one in samples:
            spans = self._tokenizer.spans(text, target_language, language)
            if len(spans) != len(source):
                continue
            [encoded] = decoder.encode([source])
            wanted = Decoding(with_attention=True)
            [looked] = decoder.given_targets.look(encoded.hidden(), rules.prefix_ids, [one.token_ids], wanted)
            target, attention = self._tokenizer.decode(one.token_ids), looked[0].attention
            added = pieces(self._tokenizer, one.token_ids)
            target_spans = [without_spaces(target, begin, begin + len(piece)) for piece, begin in added]
            assert attention is not None
            yield Sentence(text, target, spans, target_spans, attention)

    def compare(self, decoder: Decoder[S], tell: Tell) -> Comparison:
        """Holds a decoder to the references. Raises NotFinite where its numbers for a sample are none."""
        tell(f"translations of {len(self._texts)} sentences, greedy and beam {max(BEAMS)}")
        found = translate(self._vocabulary, self._generation, decoder, self.sources, self._rules)
        targets = {num_beams: [hypothesis.token_ids for hypothesis in best] for num_beams, best in found.items()}
        agreements, differences = list[Agreement](), list[str]()
        for reference in self._references(targets[1], tell):
            wrong = [i for i, target in enumerate(reference.targets) if target != targets[reference.num_beams][i]]
            agreements.append(
                Agreement(
                    reference=reference.name,
                    num_beams=reference.num_beams,
                    sentences=len(self._texts),
                    equal=len(self._texts) - len(wrong),
                )
            )
            if len(wrong) > (1 - self._share) * len(self._texts):
                differences.append(self._difference(reference, wrong, targets[reference.num_beams]))
        return Comparison(found[1], tuple(agreements), tuple(differences))

    def _references(self, greedy: Sequence[TokenIds], tell: Tell) -> Iterator[Reference]:
        tell("translations by PyTorch, greedy")
        samples = zip(self.sources, greedy, self._rules, strict=True)
        targets = [
            greedy_tokens(self._model, source, target, self._generation, self._shortlist, rules)
            for source, target, rules in samples
        ]
        yield Reference("pytorch", 1, targets)
        for num_beams, found in self._of_transformers.items():
            yield Reference("transformers", num_beams, found)

    def _difference(self, reference: Reference, wrong: Sequence[int], found: Sequence[TokenIds]) -> str:
        first = wrong[0]
        return (
            f"{len(wrong)} of {len(found)} translations differ from {reference.name}, "
            f"{search_name(reference.num_beams)}; at least {self._share:.0%} must be equal. "
            f"The first: {self._texts[first]!r}\n"
            f"    expected {self._show(reference.targets[first])}\n"
            f"    found    {self._show(found[first])}"
        )

    def _show(self, target: TokenIds) -> str:
        return f"{self._tokenizer.decode(target)!r} {list(target)}"


def translate(
    vocabulary: Vocabulary,
    generation: GenerationDefaults,
    decoder: Decoder[S],
    sources: Sequence[TokenIds],
    rules: Sequence[TargetRules] | None = None,
) -> dict[int, list[Hypothesis]]:
    """Runs every source with each of BEAMS, all in one batch. Returns the best hypotheses by number of beams.

    rules: of each target's language. None: the model's own
    Raises what the engine failed with, such as NotFinite.
    """
    rules = rules or [target_rules(vocabulary, generation)] * len(sources)
    batch = RunningBatch(decoder, ENGINE_ROWS, Unobserved(), worker=0)
    answers: dict[tuple[int, int], Hypothesis] = {}
    keys = [(num_beams, index) for index in range(len(sources)) for num_beams in BEAMS]
    decodings = {n: replace(generation.decoding(), num_beams=n, num_return_sequences=1, do_sample=False) for n in BEAMS}
    waiting = deque(
        Translate(
            sources[index],
            partial(_keep, answers, (num_beams, index)),
            decoding=decodings[num_beams],
            rules=rules[index],
        )
        for num_beams, index in keys
    )
    while waiting or not batch.idle:
        while waiting and waiting[0].rows <= batch.free_rows:
            batch.admit([waiting.popleft()])
        batch.step()
    return {num_beams: [answers[num_beams, index] for index in range(len(sources))] for num_beams in BEAMS}


def shorten(source_ids: Sequence[int], limit: int) -> TokenIds:
    """At most `limit` tokens, the end token among them."""
    return tuple(source_ids) if len(source_ids) <= limit else (*source_ids[: limit - 1], source_ids[-1])


def search_name(num_beams: int) -> str:
    """As people say it."""
    return "greedy" if num_beams == 1 else f"beam {num_beams}"


def _keep(answers: dict[tuple[int, int], Hypothesis], key: tuple[int, int], event: Event) -> None:
    if isinstance(event, Failed):
        raise event.error
    assert isinstance(event, Finished), event
    answers[key] = event.hypotheses[0]
