"""The peer: CTranslate2 on the same checkpoint, in any of its precisions, at its best of some set-ups."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import sentencepiece

from bench.cpu.sides.vmap import write_vmap
from bench.cpu.work import MAX_TOKENS, WORKERS, Work
from bench.measure import seconds

ComputeType = Literal["float32", "int8"]
TRIALS = 2
"""Readings of each set-up after the first, of which the faster counts."""
HOPELESS = 2.0
"""A set-up that takes so many times as long as the fastest at first is not tried again."""
TRIED_SENTENCES = 4
"""For each place of the batches, so many sentences of the work are tried."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a user of CTranslate2 may choose."""

    workers: int = WORKERS
    """inter_threads"""
    threads: int = 1
    """intra_threads, of each worker"""
    batch_type: Literal["examples", "tokens"] = "examples"

    def __str__(self) -> str:
        return f"{self.workers} x {self.threads}, {self.batch_type}"


SAME = (Setup(),)
"""Two workers of one thread, as ours."""
EXAMPLES = (*SAME, Setup(1, 2))
"""What there is to choose where targets have lengths: their batches are made beforehand."""
SETUPS = (*EXAMPLES, Setup(batch_type="tokens"), Setup(1, 2, "tokens"))


def force_avx512() -> None:
    """Makes CTranslate2 use AVX512 where the processor has it. Left alone it takes AVX2 on AMD, and is slower.

    It reads this when it is first imported.
    """
    if "avx512f" in Path("/proc/cpuinfo").read_text():
        os.environ["CT2_FORCE_CPU_ISA"] = "AVX512"


class MarianPieces:
    """Of a Marian checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._source = sentencepiece.SentencePieceProcessor(str(checkpoint / "source.spm"))

    def tokenize(self, text: str) -> list[str]:
        return [*self._source.encode(text, out_type=str), "</s>"]

    def detokenize(self, pieces: Sequence[str]) -> str:
        text: str = self._source.decode_pieces(list(pieces))
        return text


class FamilyPieces:
    """Of any checkpoint that transformers has a tokenizer for."""

    def __init__(self, checkpoint: Path) -> None:
        import transformers

        self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)

    def tokenize(self, text: str) -> list[str]:
        pieces: list[str] = self._tokenizer.convert_ids_to_tokens(self._tokenizer(text).input_ids)
        return pieces

    def detokenize(self, pieces: Sequence[str]) -> str:
        text: str = self._tokenizer.convert_tokens_to_string(list(pieces))
        return text


class Ctranslate2:
    """A translator made from a Hugging Face checkpoint."""

    def __init__(
        self,
        checkpoint: Path,
        folder: Path,
        compute_type: ComputeType = "float32",
        vmap: Path | None = None,
        setups: Sequence[Setup] = SAME,
    ) -> None:
        """Converts `checkpoint` into `folder`, unless that was done before.

        vmap: a shortlist of Marian's for the checkpoint's vocabulary, which is then used as a vocabulary mapping
        """
        force_avx512()
        from ctranslate2.converters import TransformersConverter

        if not (folder / "model.bin").exists():
            TransformersConverter(str(checkpoint)).convert(str(folder), quantization="float32")
        if vmap is not None and not (folder / "vmap.txt").exists():
            write_vmap(vmap, checkpoint, folder / "vmap.txt")
        self._folder, self._compute_type, self._vmap, self._setups = folder, compute_type, vmap is not None, setups
        self._pieces_of: MarianPieces | FamilyPieces
        self._pieces_of = MarianPieces(checkpoint) if (checkpoint / "source.spm").exists() else FamilyPieces(checkpoint)
        self._translators: dict[tuple[int, int], Any] = {}
        self._setup = setups[0]
        self._work: Work
        self._pieces: list[list[str]]

    def tokenize(self, text: str) -> list[str]:
        """The pieces of a text, as the checkpoint wants them."""
        return self._pieces_of.tokenize(text)

    def detokenize(self, pieces: Sequence[str]) -> str:
        return self._pieces_of.detokenize(pieces)

    def translate_pieces(self, sources: Sequence[Sequence[str]], num_beams: int, batch: int) -> list[list[str]]:
        """Translates all sources, `batch` at a time on each worker, sorted by length as CTranslate2 does.

        With scores, which greedy decoding could do without: ours has them, and the work is to be the same.
        """
        if self._setup.batch_type == "tokens":
            batch *= round(sum(map(len, sources)) / len(sources))
        results = self._translator().translate_batch(
            sources,
            max_batch_size=batch,
            batch_type=self._setup.batch_type,
            max_decoding_length=MAX_TOKENS,
            **self._options(num_beams),
        )
        return [result.hypotheses[0] for result in results]

    def prepare(self, work: Work) -> str:
        self._translators.clear()
        self._choose(work)
        self._take(work)
        self.translate()
        return str(self._setup)

    def translate(self) -> int:
        work = self._work
        pieces = [self.tokenize(text) for text in work.texts] if work.from_text else self._pieces
        if work.target_tokens is not None:
            return self._translate_to_length(pieces, work)
        found = self.translate_pieces(pieces, work.num_beams, work.batch)
        if work.from_text:
            for target in found:
                self.detokenize(target)
        return sum(len(target) + 1 for target in found)

    def answers(self, texts: Sequence[str], num_beams: int) -> list[str]:
        found = self.translate_pieces([self.tokenize(text) for text in texts], num_beams, 32)
        return [self.detokenize(target) for target in found]

    def _take(self, work: Work) -> None:
        self._work, self._pieces = work, [self.tokenize(text) for text in work.texts]

    def _choose(self, work: Work) -> None:
        """Takes the set-up that is fastest at some of the work."""
        tried = min(len(work.texts), TRIED_SENTENCES * work.batch)
        lengths = None if work.target_tokens is None else work.target_tokens[:tried]
        self._take(Work(work.texts[:tried], work.num_beams, work.batch, lengths))
        if len(self._setups) == 1:
            return
        first = {setup: self._try(setup) for setup in self._setups}
        hopeful = [setup for setup in first if first[setup] < HOPELESS * min(first.values())]
        again = {setup: min(self._try(setup) for _ in range(TRIALS)) for setup in hopeful}
        self._setup = min(again, key=again.__getitem__)

    def _try(self, setup: Setup) -> float:
        """Seconds."""
        self._setup = setup
        return seconds(self.translate)

    def _translate_to_length(self, pieces: Sequence[Sequence[str]], work: Work) -> int:
        """Batches of targets of about the same length, all cut at their mean: CTranslate2 has one limit for a batch.

        So it has no batch in which a target waits for another, which is to its advantage.
        """
        assert work.target_tokens is not None
        order = sorted(range(len(pieces)), key=work.target_tokens.__getitem__)
        started, tokens = [], 0
        for first in range(0, len(order), work.batch):
            group = order[first : first + work.batch]
            length = round(sum(work.target_tokens[index] for index in group) / len(group))
            options = self._options(work.num_beams) | {"max_decoding_length": length, "asynchronous": True}
            started += self._translator().translate_batch([pieces[index] for index in group], **options)
        for result in started:
            tokens += len(result.result().hypotheses[0])
        return tokens

    def _options(self, num_beams: int) -> dict[str, Any]:
        return {"beam_size": num_beams, "return_scores": True, "use_vmap": self._vmap}

    def _translator(self) -> Any:
        """The translator of the set-up."""
        import ctranslate2

        threads = self._setup.workers, self._setup.threads
        if threads not in self._translators:
            self._translators[threads] = ctranslate2.Translator(
                str(self._folder), compute_type=self._compute_type, inter_threads=threads[0], intra_threads=threads[1]
            )
        return self._translators[threads]
