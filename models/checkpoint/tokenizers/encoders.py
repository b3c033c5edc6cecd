"""The tokenizers of encoders alone."""

import json
from pathlib import Path
from typing import Any

from models.checkpoint.contents import CheckpointError, EncoderTokenizer
from models.checkpoint.tokenizers.fast import PROBE, largest_used, read_fast_tokenizer, spec_of
from models.tokenizers.tokenizer_json import Affixes, TokenizerJsonSpec, parse_backend


def read_encoders_tokenizer(folder: Path, vocab_size: int) -> EncoderTokenizer:
    """What transformers makes of the folder's tokenizer.json, or of its vocabulary. Raises CheckpointError.

    What tokenizer_config.json says goes before: BERT's classes take no more than the vocabulary of a tokenizer.json.
    """
    fast, file = read_fast_tokenizer(folder), folder / "tokenizer.json"
    backend = parse_backend(fast.content.encode(), file.name)
    return EncoderTokenizer(encoders_spec(backend, file, vocab_size), fast.content, lower_cases(backend), fast.types)


def encoders_spec(backend: Any, file: Path, vocab_size: int) -> TokenizerJsonSpec:
    """What a package says of a tokenizer that this file has. Raises CheckpointError."""
    spec = spec_of(backend)
    affixes = spec.affixes.model_copy(update={"between_ids": between_ids(backend, spec.affixes)})
    spec = spec.model_copy(update={"affixes": affixes, "file": file.name})
    if (largest := largest_used(backend, spec)) >= vocab_size:
        raise CheckpointError(f"{file} has token {largest}; the model has {vocab_size} tokens")
    if not affixes.suffix_ids:
        raise CheckpointError(f"{file}: no token ends a text; expected a template with one, such as [SEP]")
    return spec


def lower_cases(backend: Any) -> bool:
    """Whether sentence-transformers' do_lower_case changes nothing.

    It puts a Lowercase before the normalizer, unless there is one among its parts. BERT's does the same itself: of no
    character does it make anything else where one comes before.
    """
    normalizer = json.loads(backend.to_str())["normalizer"] or {"type": None}
    parts = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    return any(part["type"] == "Lowercase" for part in parts) or bool(parts and parts[0].get("lowercase"))


def between_ids(backend: Any, around: Affixes) -> tuple[int, ...]:
    """What the tokenizer's template puts between two texts, which ends the first. Empty: it has none for them."""
    inside, both = backend.encode(PROBE, add_special_tokens=False).ids, backend.encode(PROBE, PROBE).ids
    before, after = [*around.prefix_ids, *inside], [*inside, *around.suffix_ids]
    between = both[len(before) : len(both) - len(after)]
    fits = [*before, *between, *after] == both and between[:1] == list(around.suffix_ids[-1:])
    return tuple(between) if fits else ()
