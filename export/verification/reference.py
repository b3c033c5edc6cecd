"""What the exported graphs are compared with: the PyTorch model, and transformers on the checkpoint itself."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from engine.processors.chain import chain
from engine.processors.processor import Seen
from engine.targets import TargetRules, target_rules
from models.architectures.architecture import Architecture
from models.attention.attention import compared
from models.checkpoint.contents import CheckpointError
from models.checkpoint.generation import of_generate
from models.package.derived import vocabulary
from models.package.manifest import GenerationDefaults
from models.package.shortlist import Shortlist

BATCH = 16
"""Sentences that transformers decodes at once."""


@torch.no_grad()
def log_probs(
    model: Architecture, source_ids: Sequence[int], target_ids: Sequence[int], shortlist: Shortlist | None = None
) -> Tensor:
    """Of every token after each target token, by the teacher-forced pass.

    target_ids: beginning with the decoder's start token. Returns [target, vocabulary]. Tokens that a shortlist does not
    allow have -inf.
    """
    return _logits(model, source_ids, target_ids, shortlist).log_softmax(dim=1)


Attention = tuple[Tensor, Tensor, Tensor | None]
"""Where the encoder looks [layers, heads, source, source], the decoder in the source [layers, heads, target, source],
and in the target before [layers, heads, target, target], unless it has a recurrence for that."""


@torch.no_grad()
def attention(model: Architecture, source_ids: Sequence[int], target_ids: Sequence[int]) -> Attention:
    """Of a source, and of the teacher-forced pass over a target, which begins with the decoder's start token."""
    with compared() as layers:
        model(torch.tensor([source_ids]), torch.tensor([len(source_ids)]), torch.tensor([target_ids]))
    within = [layer.weights()[0] for layer in layers if layer.lengths is None]
    weights = [layer.weights()[0] for layer in layers if layer.lengths is not None]
    encoder = model.config.encoder_layers
    return torch.stack(weights[:encoder]), torch.stack(weights[encoder:]), torch.stack(within) if within else None


@torch.no_grad()
def greedy_tokens(
    model: Architecture,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    generation: GenerationDefaults,
    shortlist: Shortlist | None = None,
    rules: TargetRules | None = None,
) -> tuple[int, ...]:
    """The token greedy decoding chooses after each beginning of a target.

    If that is the target itself then, by induction, the target is what greedy decoding finds.

    rules: of the target's language. None: the model's own
    """
    rules = rules or target_rules(vocabulary(model.config), generation)
    [start] = rules.prefix_ids
    fed = [start, *target_ids[:-1]]
    scores = _logits(model, source_ids, fed, shortlist)
    for processor in chain(generation.decoding(), rules):
        for step, of_step in enumerate(scores.numpy()):
            processor(of_step[None], Seen(np.array([fed[: step + 1]]), [source_ids], np.array([step])))
    scores[:, list(generation.suppressed_ids)] = -torch.inf
    scores[: generation.min_new_tokens, model.config.end_id] = -torch.inf
    chosen: list[int] = scores.argmax(dim=1).tolist()
    if rules.forced_begin_id is not None:
        chosen[0] = rules.forced_begin_id
    if len(chosen) == generation.max_new_tokens and generation.forced_end_id is not None:
        chosen[-1] = generation.forced_end_id
    return tuple(chosen)


def _logits(
    model: Architecture, source_ids: Sequence[int], target_ids: Sequence[int], shortlist: Shortlist | None
) -> Tensor:
    lengths = torch.tensor([len(source_ids)])
    logits: Tensor = model(torch.tensor([source_ids]), lengths, torch.tensor([target_ids]))[0]
    if shortlist is not None:
        forbidden = torch.ones(logits.shape[1], dtype=torch.bool)
        forbidden[torch.from_numpy(shortlist.allowed(source_ids))] = False
        logits[:, forbidden] = -torch.inf
    return logits


def open_by_transformers(kind: Any, folder: Path) -> Any:
    """A checkpoint's model of a class of transformers, in fp32. Raises CheckpointError where it refuses a setting."""
    with quiet():
        try:
            return kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
        except Exception as error:  # each setting raises its own
            reason = str(error).partition("\n")[0]
            raise CheckpointError(
                f"{folder}: transformers does not open the model: {reason}; mend what it names in config.json or "
                "generation_config.json"
            ) from error


class TransformersModel:
    """The checkpoint, loaded and decoded by Hugging Face transformers."""

    def __init__(self, folder: Path, shortlist: Shortlist | None = None) -> None:
        """shortlist: what each source may become. Raises CheckpointError where transformers does not open it."""
        self._shortlist = shortlist
        self._model = open_by_transformers(transformers.AutoModelForSeq2SeqLM, folder)

    @torch.no_grad()
    def translate(
        self,
        sources: Sequence[Sequence[int]],
        num_beams: int,
        generation: GenerationDefaults,
        rules: Sequence[TargetRules],
    ) -> list[tuple[int, ...]]:
        """The best target of each source, up to its end token. rules: of each target's language."""
        targets: dict[int, tuple[int, ...]] = {}
        # What pads a source would be a part of it.
        together = 1 if generation.decoding().looks_at_source else BATCH
        for told in {(one.prefix_ids, one.forced_begin_id): one for one in rules}.values():
            alike = (index for index, one in enumerate(rules) if one == told)
            order = sorted(alike, key=lambda index: len(sources[index]))
            for start in range(0, len(order), together):
                indices = order[start : start + together]
                found = self._generate([sources[index] for index in indices], num_beams, generation, told)
                targets |= zip(indices, found, strict=True)
        return [targets[index] for index in range(len(sources))]

    @torch.no_grad()
    def attention(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> Attention:
        """As the function `attention`, by `output_attentions`."""
        with quiet():
            self._model.set_attn_implementation("eager")  # kernels that compute it as one operation do not tell of it
            found = self._model(
                input_ids=torch.tensor([source_ids]),
                decoder_input_ids=torch.tensor([target_ids]),
                output_attentions=True,
                use_cache=False,  # with one, FSMT sees but the last token of a target
            )
        of_source, of_target = torch.cat(found.encoder_attentions), torch.cat(found.decoder_attentions)
        return of_source, torch.cat(found.cross_attentions), of_target

    def _generate(
        self, sources: Sequence[Sequence[int]], num_beams: int, generation: GenerationDefaults, rules: TargetRules
    ) -> list[tuple[int, ...]]:
        ids, mask = self._pad(sources)
        decoding = replace(generation.decoding(), num_beams=num_beams, num_return_sequences=1, do_sample=False)
        told: dict[str, object] = {"decoder_start_token_id": rules.prefix_ids[0]}
        if rules.forced_begin_id is not None:
            told["forced_bos_token_id"] = rules.forced_begin_id
        with quiet():
            output = self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                **self._restriction(sources),
                **(told | of_generate(decoding)),
            )
        end_id = self._model.config.eos_token_id
        return [until_end(row, end_id) for row in output[:, 1:].tolist()]

    def _restriction(self, sources: Sequence[Sequence[int]]) -> dict[str, object]:
        """Log-probabilities are over the tokens that are allowed."""
        if self._shortlist is None:
            return {}
        allowed = [self._shortlist.allowed(source).tolist() for source in sources]
        return {"prefix_allowed_tokens_fn": lambda row, _: allowed[row], "renormalize_logits": True}

    def _pad(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Ids and attention mask, both [sentences, source]."""
        ids = torch.full((len(sources), max(map(len, sources))), self._model.config.pad_token_id)
        mask = torch.zeros_like(ids)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = torch.tensor(source)
            mask[row, : len(source)] = 1
        return ids, mask


def until_end(tokens: list[int], end_id: int) -> tuple[int, ...]:
    """The first of these tokens, up to an end token, if there is one."""
    return tuple(tokens[: tokens.index(end_id) + 1] if end_id in tokens else tokens)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and the advice of transformers."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        transformers.logging.enable_progress_bar()
