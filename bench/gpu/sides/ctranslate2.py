"""The other peer: CTranslate2 on the same device, where it is installed and can use it."""

import json
from collections.abc import Sequence
from typing import Any

from bench.gpu.plan import Plan


class Ctranslate2:
    """The checkpoint with random weights, in fp16 on CUDA and in fp32 on the CPU."""

    def __init__(self, plan: Plan) -> None:
        """Converts and loads it. Raises ImportError, or what CTranslate2 does where it cannot use the device."""
        import ctranslate2
        from ctranslate2.converters import TransformersConverter

        if plan.device == "cuda" and not ctranslate2.get_cuda_device_count():
            raise RuntimeError("CTranslate2 finds no CUDA device")
        precision = "float16" if plan.device == "cuda" else "float32"
        checkpoint, folder = plan.checkpoint("base"), plan.work / "ctranslate2"
        TransformersConverter(str(checkpoint)).convert(str(folder), quantization=precision)
        self._translator: Any = ctranslate2.Translator(
            str(folder), device=plan.device, device_index=plan.device_id, compute_type=precision
        )
        ids = json.loads((checkpoint / "vocab.json").read_text(encoding="utf-8"))
        self._piece = {token_id: piece for piece, token_id in ids.items()}

    def pieces(self, sources: Sequence[Sequence[int]]) -> list[list[str]]:
        """Sources as it wants them."""
        return [[self._piece[token_id] for token_id in source] for source in sources]

    def translate(self, sources: Sequence[Sequence[str]], num_beams: int, target_tokens: int) -> list[list[str]]:
        """The best target of each source, all in one batch."""
        results = self._translator.translate_batch(
            sources,
            beam_size=num_beams,
            max_decoding_length=target_tokens,
            min_decoding_length=target_tokens,
            return_scores=True,  # ours has them
        )
        return [result.hypotheses[0] for result in results]
