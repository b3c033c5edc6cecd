"""What targets should be: Hugging Face transformers, and the PyTorch model without a cache."""

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from models.checkpoint import Checkpoint
from models.checkpoint.generation import of_generate
from models.decoding import Decoding

THREADS = 2
BATCH_ROWS = 64

Tokens = tuple[int, ...]
Scored = list[tuple[Tokens, float]]
"""Hypotheses and their scores, best first."""


@cache
def tokenizer_of(folder: Path) -> Any:
    """A checkpoint's tokenizer in transformers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses.")
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)


class HuggingFace:
    """A checkpoint in transformers."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        self._folder = folder
        self._model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=dtype, local_files_only=True).eval()

    def shake(self, seed: int) -> None:
        """Moves every weight by about as much as float32 rounds it."""
        torch.manual_seed(seed)
        with torch.no_grad():
            for weight in self._model.parameters():
                weight *= 1 + torch.finfo(torch.float32).eps * torch.randn_like(weight)

    def generate(self, sources: Sequence[Tokens], decoding: Decoding) -> list[Scored]:
        """The hypotheses of every source. Sources of like length are decoded together.

        Alone, where an option looks at the source: `generate` takes what pads shorter ones for a part of them.
        """
        order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        size = 1 if decoding.looks_at_source else BATCH_ROWS // decoding.num_beams
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        with ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(lambda batch: self._generate([sources[index] for index in batch], decoding), batches))
        answers = dict(zip(order, (hypotheses for batch in found for hypotheses in batch), strict=True))
        return [answers[index] for index in range(len(sources))]

    def score(self, source: Tokens, target: Tokens, decoding: Decoding) -> float:
        """The score of any target."""
        generation = self._model.generation_config
        inputs = torch.tensor([[generation.decoder_start_token_id, *target[:-1]]])
        with torch.no_grad():
            logits = self._model(input_ids=torch.tensor([source]), decoder_input_ids=inputs).logits
        return score(target, chosen_log_probs(target, logits[0]), decoding, generation.forced_eos_token_id)

    def mean_hidden_state(self, source: Tokens) -> Tensor:
        """Of the encoder's last layer [width]."""
        with torch.no_grad():
            hidden: Tensor = self._model.get_encoder()(input_ids=torch.tensor([source])).last_hidden_state
        return hidden[0].mean(dim=0)

    def _generate(self, sources: Sequence[Tokens], decoding: Decoding) -> list[Scored]:
        ids = pad_sequence([torch.tensor(source) for source in sources], True, self._model.config.pad_token_id)
        lengths = torch.tensor([len(source) for source in sources])
        begin = self._prefix(decoding)
        output = self._model.generate(
            input_ids=ids,
            attention_mask=(torch.arange(ids.shape[1]) < lengths[:, None]).long(),
            decoder_input_ids=torch.tensor([begin] * len(sources)),
            **of_generate(decoding),
            tokenizer=tokenizer_of(self._folder) if decoding.stop_strings else None,
            output_logits=decoding.num_beams == 1,
            output_scores=decoding.num_beams > 1,
            return_dict_in_generate=True,
        )
        targets = [
            until_end(
                [token for token in row if token != self._model.config.pad_token_id], self._model.config.eos_token_id
            )
            for row in output.sequences[:, len(begin) :].tolist()
        ]
        if decoding.num_beams == 1:
            scores = self._greedy_scores(targets, torch.stack(output.logits, dim=1), decoding)
        else:
            scores = output.sequences_scores.tolist()
        return grouped(targets, scores, decoding.num_return_sequences)

    def _prefix(self, decoding: Decoding) -> list[int]:
        """What the decoder is fed before it chooses: a language too, where the model begins with one."""
        generation = self._model.generation_config
        language = decoding.forced_bos_token or (generation.forced_bos_token_id,)
        begun = [token for token in language if token is not None] if decoding.target_prefix else []
        return [generation.decoder_start_token_id, *begun, *decoding.target_prefix]

    def _greedy_scores(self, targets: Sequence[Tokens], logits: Tensor, decoding: Decoding) -> list[float]:
        """`generate` gives greedy search no scores. logits: [sentences, steps, vocabulary]"""
        forced_id = self._model.generation_config.forced_eos_token_id
        return [
            score(target, chosen_log_probs(target, rows), decoding, forced_id)
            for target, rows in zip(targets, logits, strict=True)
        ]


@dataclass(frozen=True)
class Forced:
    """What the teacher-forced pass says of a target."""

    log_probs: Tensor
    """Of its tokens [steps]."""
    best: Tokens
    """The token that greedy search would take at each step."""


class Eager:
    """A checkpoint in models.transformer."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._model, self._generation = checkpoint.model, checkpoint.generation
        self._known: dict[tuple[Tokens, Tokens], Forced] = {}
        """One target is often the answer to many searches."""

    def score(self, source: Tokens, target: Tokens, decoding: Decoding) -> float:
        """The score of any target."""
        return score(target, self._forced(source, target).log_probs, decoding, self._generation.forced_end_id)

    def greedy(self, source: Tokens, target: Tokens, decoding: Decoding) -> Tokens:
        """What greedy search takes after each beginning of the target: if it is the target, that is its result."""
        best, forced_id = self._forced(source, target).best, self._generation.forced_end_id
        return best if forced_id is None or len(best) < decoding.max_new_tokens else (*best[:-1], forced_id)

    def _forced(self, source: Tokens, target: Tokens) -> Forced:
        if (source, target) not in self._known:
            self._known[source, target] = self._run(source, target)
        return self._known[source, target]

    def _run(self, source: Tokens, target: Tokens) -> Forced:
        inputs = torch.tensor([[self._model.config.decoder_start_id, *target[:-1]]])
        with torch.no_grad():
            logits: Tensor = self._model(torch.tensor([source]), torch.tensor([len(source)]), inputs)[0]
        log_probs = chosen_log_probs(target, logits)
        logits[:, list(self._generation.suppressed_ids)] = -torch.inf
        return Forced(log_probs, tuple(logits.argmax(dim=1).tolist()))


def chosen_log_probs(target: Tokens, logits: Tensor) -> Tensor:
    """Of the target's tokens [steps]. logits: [steps or more, vocabulary]"""
    return logits[: len(target)].log_softmax(dim=1)[range(len(target)), target]


def score(target: Tokens, log_probs: Tensor, decoding: Decoding, forced_id: int | None) -> float:
    """sum(log p) / length^length_penalty, where a forced token costs nothing."""
    forced = forced_id is not None and len(target) == decoding.max_new_tokens
    chosen = log_probs[:-1] if forced else log_probs
    return float(chosen.sum() / len(target) ** decoding.length_penalty)


def until_end(tokens: list[int], end_id: int) -> Tokens:
    """Without what pads the shorter ones."""
    return tuple(tokens[: tokens.index(end_id) + 1] if end_id in tokens else tokens)


def grouped(targets: Sequence[Tokens], scores: Sequence[float], returned: int) -> list[Scored]:
    """The hypotheses of each sentence.

    Where there are fewer than were asked for, transformers fills up with some that score -1e9.
    """
    scored = list(zip(targets, scores, strict=True))
    groups = [scored[start : start + returned] for start in range(0, len(scored), returned)]
    return [[(target, score) for target, score in group if score > -1e8] for group in groups]
