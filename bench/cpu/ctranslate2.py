"""The peer: CTranslate2, fp32, two workers of one thread each, on the same checkpoint."""

import os
from collections.abc import Sequence
from pathlib import Path

import sentencepiece

WORKERS = 2
MAX_TOKENS = 256


def force_avx512() -> None:
    """Makes CTranslate2 use AVX512 where the processor has it. Left alone it takes AVX2 on AMD, and is slower.

    It reads this when it is first imported.
    """
    if "avx512f" in Path("/proc/cpuinfo").read_text():
        os.environ["CT2_FORCE_CPU_ISA"] = "AVX512"


class Ctranslate2:
    """A translator made from a Hugging Face checkpoint."""

    def __init__(self, checkpoint: Path, folder: Path) -> None:
        """Converts `checkpoint` into `folder`, unless that was done before, and loads it."""
        force_avx512()
        import ctranslate2
        from ctranslate2.converters import TransformersConverter

        if not (folder / "model.bin").exists():
            TransformersConverter(str(checkpoint)).convert(str(folder), quantization="float32")
        self.version: str = ctranslate2.__version__
        self._translator = ctranslate2.Translator(
            str(folder), compute_type="float32", inter_threads=WORKERS, intra_threads=1
        )
        self._source = sentencepiece.SentencePieceProcessor(str(checkpoint / "source.spm"))

    def tokenize(self, text: str) -> list[str]:
        """The pieces of a text, as Marian checkpoints want them."""
        return [*self._source.encode(text, out_type=str), "</s>"]

    def detokenize(self, pieces: Sequence[str]) -> str:
        text: str = self._source.decode_pieces(list(pieces))
        return text

    def translate(self, sources: Sequence[Sequence[str]], num_beams: int, batch: int) -> list[list[str]]:
        """Translates all sources, `batch` at a time on each worker, sorted by length as CTranslate2 does.

        With scores, which greedy decoding could do without: ours has them, and the work is to be the same.
        """
        results = self._translator.translate_batch(
            sources, beam_size=num_beams, max_batch_size=batch, max_decoding_length=MAX_TOKENS, return_scores=True
        )
        return [result.hypotheses[0] for result in results]

    def translate_all(self, sources: Sequence[Sequence[str]], num_beams: int, batch: int) -> int:
        """Translates all sources. Returns the number of target tokens, the end tokens counted."""
        return sum(len(pieces) + 1 for pieces in self.translate(sources, num_beams, batch))
