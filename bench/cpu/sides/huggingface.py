"""`generate` of transformers, with PyTorch or, by optimum, with ONNX Runtime below it: one process, two threads."""

import logging
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from bench.cpu.work import MAX_TOKENS, WORKERS, Work

MOST_BATCHES, LEAST_SENTENCES = 2, 8
"""Of a turn: it is slow, and so few show how fast it is."""


class HuggingFace:
    """A checkpoint in fp32. Sentences are sorted by length, and translated as many at a time as both workers would."""

    def __init__(self, checkpoint: Path, runtime: Literal["torch", "onnxruntime"]) -> None:
        """Raises ImportError where optimum is not installed, or wants another transformers."""
        os.environ["HF_HUB_OFFLINE"] = "1"
        warnings.simplefilter("ignore")
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        logging.getLogger("optimum").setLevel(logging.ERROR)
        self._torch = torch
        torch.set_num_threads(WORKERS)
        self._tokenizer: Any = transformers.MarianTokenizer.from_pretrained(str(checkpoint))
        self._model: Any = _open(checkpoint, runtime)
        self._work: Work
        self._texts: Sequence[str]

    def prepare(self, work: Work) -> str:
        if work.target_tokens is not None or work.from_text:
            raise ValueError("it is asked for tokens a second of targets that end by themselves, and nothing else")
        self._work = work
        self._texts = work.texts[: max(LEAST_SENTENCES, MOST_BATCHES * WORKERS * work.batch)]
        self._generate(work.texts[: WORKERS * work.batch], work)
        return f"1 x {WORKERS}, batches of {WORKERS * work.batch}"

    def translate(self) -> int:
        return sum(map(len, self._generate(self._texts, self._work)))

    def answers(self, texts: Sequence[str], num_beams: int) -> list[str]:
        found = self._generate(texts, Work(tuple(texts), num_beams))
        decoded: list[str] = self._tokenizer.batch_decode(found, skip_special_tokens=True)
        return decoded

    def _generate(self, texts: Sequence[str], work: Work) -> list[list[int]]:
        """Target tokens, each end token counted."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        found: dict[int, list[int]] = {}
        padding = self._tokenizer.pad_token_id
        for first in range(0, len(order), WORKERS * work.batch):
            group = order[first : first + WORKERS * work.batch]
            encoded = self._tokenizer([texts[index] for index in group], return_tensors="pt", padding=True)
            with self._torch.inference_mode():
                targets = self._model.generate(
                    **encoded, num_beams=work.num_beams, do_sample=False, max_new_tokens=MAX_TOKENS, early_stopping=True
                )
            for index, target in zip(group, targets[:, 1:].tolist(), strict=True):
                found[index] = [token for token in target if token != padding]
        return [found[index] for index in range(len(texts))]


def _open(checkpoint: Path, runtime: str) -> Any:
    if runtime == "torch":
        from transformers import MarianMTModel

        return MarianMTModel.from_pretrained(str(checkpoint), dtype="float32").eval()
    import onnxruntime
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = WORKERS
    return ORTModelForSeq2SeqLM.from_pretrained(str(checkpoint), export=True, session_options=options)
