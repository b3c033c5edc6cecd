"""The peer: transformers' `generate` on the same device."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from bench.gpu.plan import Plan
from export.verification.reference import until_end

Tokens = tuple[int, ...]

BATCH = 64
"""Sentences that are decoded at once, where all of a list are wanted."""
EAGER: Mapping[str, Mapping[str, Any]] = {
    "dynamic cache": {},
    "static cache": {"cache_implementation": "static", "disable_compile": True},
}
COMPILED: Mapping[str, Any] = {"cache_implementation": "static"}
"""`generate` compiles the decoder's step by itself, with CUDA graphs, where it can: greedy search on a GPU."""


class HuggingFace:
    """A checkpoint in transformers, with PyTorch's scaled dot-product attention."""

    def __init__(self, folder: Path, device: str, dtype: torch.dtype) -> None:
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self._device = device
        self._model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        )
        self._model = self._model.to(device).eval()

    def translate_all(self, sources: Sequence[Tokens], num_beams: int, max_new_tokens: int) -> list[Tokens]:
        """The best target of every source, up to its end token. Sources of like length are decoded together."""
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        targets: dict[int, Tokens] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            found = self.translate([sources[index] for index in batch], num_beams, max_new_tokens, {})
            targets |= zip(batch, found, strict=True)
        return [targets[index] for index in range(len(sources))]

    @torch.no_grad()
    def translate(
        self, sources: Sequence[Tokens], num_beams: int, max_new_tokens: int, variant: Mapping[str, Any]
    ) -> list[Tokens]:
        """The best target of every source, up to its end token. variant: more arguments of `generate`."""
        ids, mask = (tensor.to(self._device) for tensor in self._pad(sources))
        output = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=False,
            num_beams=num_beams,
            max_new_tokens=max_new_tokens,
            **variant,
        )
        return [until_end(row, self._model.config.eos_token_id) for row in output[:, 1:].tolist()]

    @contextlib.contextmanager
    def compiled(self) -> Iterator[None]:
        """Its whole forward pass compiled: for beam search, whose step `generate` does not compile."""
        plain = self._model.forward
        self._model.forward = torch.compile(plain)
        try:
            yield
        finally:
            self._model.forward = plain

    def _pad(self, sources: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """Ids and attention mask, both [sentences, source]."""
        lengths = torch.tensor([len(source) for source in sources])
        ids = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(source) for source in sources], True, self._model.config.pad_token_id
        )
        return ids, (torch.arange(ids.shape[1]) < lengths.unsqueeze(1)).long()


def open_peer(plan: Plan, model: str = "base") -> HuggingFace:
    """A model in fp16: in fp32 on the CPU, where PyTorch is slow in fp16."""
    dtype = torch.float16 if plan.device == "cuda" else torch.float32
    return HuggingFace(plan.checkpoint(model), plan.torch_device, dtype)
