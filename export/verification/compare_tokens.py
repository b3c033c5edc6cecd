"""How many sample sentences the exported graphs translate to exactly the tokens of a reference."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Literal

from engine.batch.running_batch import RunningBatch
from engine.decoder import Decoder, S
from engine.observer import Unobserved
from engine.request import Event, Finished, Translate
from engine.targets import target_rules
from export.verification.reference import TransformersModel, greedy_tokens
from models.checkpoint import Checkpoint
from models.package.graphs import Vocabulary
from models.package.manifest import Agreement, GenerationDefaults
from models.package.shortlist import Shortlist
from models.package.signature import vocabulary
from models.tokenizers.sentencepiece_pair import SentencePiecePair

BEAMS = (1, 4)
ENGINE_ROWS = 16
"""Less than the samples need, so that rows are used again."""

TokenIds = tuple[int, ...]


@dataclass(frozen=True)
class Reference:
    """What the targets of all samples should be."""

    name: Literal["pytorch", "transformers"]
    num_beams: int
    targets: Sequence[TokenIds]


class SampleComparison:
    """Translates sample sentences with the graphs and with the references."""

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
        self._tokenizer = SentencePiecePair.load(folder, checkpoint.tokenizer)
        self._texts = texts
        targets = cycle(checkpoint.target_languages)
        self._sources = [shorten(self._tokenizer.encode(text, next(targets)), capacity) for text in texts]
        self.agreements: list[Agreement] = []
        self.differences: list[str] = []
        """For each reference that disagrees too often: how often, and the first sentence."""

    def run(self, decoder: Decoder[S], progress: Callable[[str], None]) -> None:
        """Fills `agreements` and `differences`."""
        progress(f"translations of {len(self._texts)} sentences, greedy and beam {max(BEAMS)}")
        found = translate(self._vocabulary, self._generation, decoder, self._sources)
        for reference in self._references(found[1], progress):
            self._compare(reference, found[reference.num_beams])

    def _references(self, greedy: Sequence[TokenIds], progress: Callable[[str], None]) -> Iterator[Reference]:
        progress("translations by PyTorch, greedy")
        pairs = zip(self._sources, greedy, strict=True)
        targets = [
            greedy_tokens(self._model, source, target, self._generation, self._shortlist) for source, target in pairs
        ]
        yield Reference("pytorch", 1, targets)
        if self._transformers_folder is None:
            return
        transformers = TransformersModel(self._transformers_folder, self._shortlist)
        for num_beams in BEAMS:
            progress(f"translations by transformers, {search_name(num_beams)}")
            targets = transformers.translate(self._sources, num_beams, self._generation)
            yield Reference("transformers", num_beams, targets)

    def _compare(self, reference: Reference, found: Sequence[TokenIds]) -> None:
        wrong = [index for index, target in enumerate(reference.targets) if target != found[index]]
        sentences = len(found)
        self.agreements.append(
            Agreement(
                reference=reference.name,
                num_beams=reference.num_beams,
                sentences=sentences,
                equal=sentences - len(wrong),
            )
        )
        if len(wrong) > (1 - self._share) * sentences:
            first = wrong[0]
            self.differences.append(
                f"{len(wrong)} of {sentences} translations differ from {reference.name}, "
                f"{search_name(reference.num_beams)}; at least {self._share:.0%} must be equal. "
                f"The first: {self._texts[first]!r}\n"
                f"    expected {self._show(reference.targets[first])}\n"
                f"    found    {self._show(found[first])}"
            )

    def _show(self, target: TokenIds) -> str:
        return f"{self._tokenizer.decode(target)!r} {list(target)}"


def translate(
    vocabulary: Vocabulary, generation: GenerationDefaults, decoder: Decoder[S], sources: Sequence[TokenIds]
) -> dict[int, list[TokenIds]]:
    """Runs every source with each of BEAMS, all in one batch. Returns the best targets by number of beams."""
    rules = target_rules(vocabulary, generation)
    batch = RunningBatch(decoder, ENGINE_ROWS, Unobserved(), worker=0)
    answers: dict[tuple[int, int], TokenIds] = {}
    keys = [(num_beams, index) for index in range(len(sources)) for num_beams in BEAMS]
    decodings = {n: replace(generation.decoding(), num_beams=n, num_return_sequences=1) for n in BEAMS}
    waiting = deque(
        Translate(
            sources[index], partial(_keep, answers, (num_beams, index)), decoding=decodings[num_beams], rules=rules
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


def _keep(answers: dict[tuple[int, int], TokenIds], key: tuple[int, int], event: Event) -> None:
    assert isinstance(event, Finished), event
    answers[key] = event.hypotheses[0].token_ids
