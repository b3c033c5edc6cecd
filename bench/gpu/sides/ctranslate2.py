"""The other peer: CTranslate2 on the same device, where it is installed and can use it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.gpu.plan import Plan

VOCABULARY = "shared_vocabulary.json"
"""Its file of all pieces, in the order of their ids, where both sides have the same."""


class Ctranslate2:
    """A checkpoint with random weights, in fp16 on CUDA and in fp32 on the CPU."""

    def __init__(self, plan: Plan, model: str, begin_id: int | None = None) -> None:
        """Converts it, unless that was done, and loads it.

        begin_id: the token that every target begins with, if the model wants one
        Raises ImportError, or what CTranslate2 does where it cannot use the device.
        """
        import ctranslate2

        if plan.device == "cuda" and not ctranslate2.get_cuda_device_count():
            raise RuntimeError("CTranslate2 finds no CUDA device")
        folder = convert(plan, model)
        self._translator: Any = ctranslate2.Translator(
            str(folder), device=plan.device, device_index=plan.device_id, compute_type=_precision(plan)
        )
        self._pieces: list[str] = json.loads((folder / VOCABULARY).read_text(encoding="utf-8"))
        self._begin = None if begin_id is None else self._pieces[begin_id]

    def pieces(self, sources: Sequence[Sequence[int]]) -> list[list[str]]:
        """Sources as it wants them."""
        return [[self._pieces[token_id] for token_id in source] for source in sources]

    def translate(self, sources: Sequence[Sequence[str]], num_beams: int, target_tokens: int) -> list[list[str]]:
        """The best target of each source, all in one batch."""
        results = self._translator.translate_batch(
            sources,
            target_prefix=None if self._begin is None else [[self._begin]] * len(sources),
            beam_size=num_beams,
            max_decoding_length=target_tokens,
            min_decoding_length=target_tokens,
            return_scores=True,  # ours has them
        )
        return [result.hypotheses[0] for result in results]


def convert(plan: Plan, model: str) -> Path:
    """Its own form of a checkpoint: the folder, which is made unless it is there. Raises ImportError."""
    from ctranslate2.converters import TransformersConverter

    folder = plan.work / f"{model}-ctranslate2"
    if not folder.exists():
        TransformersConverter(str(plan.checkpoint(model))).convert(str(folder), quantization=_precision(plan))
    return folder


def _precision(plan: Plan) -> str:
    return "float16" if plan.device == "cuda" else "float32"
