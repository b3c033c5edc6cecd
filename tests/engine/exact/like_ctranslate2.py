"""Greedy search and hidden states of CTranslate2, on a checkpoint folder: a token's text is its number."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ctranslate2
import numpy as np
import tokenizers
from ctranslate2.converters import TransformersConverter
from numpy.typing import NDArray
from transformers import AutoConfig, PretrainedConfig, PreTrainedTokenizerFast

from models.decoding import Decoding
from models.package.manifest import GenerationDefaults
from tests.oracles import Tokens


class Converter(TransformersConverter):  # type: ignore[misc]  # Any
    """What it expects of a folder, and does not find in one with random weights."""

    def load_tokenizer(self, tokenizer_class: Any, model_name_or_path: str, **kwargs: Any) -> Any:
        """One of numbers."""
        config = AutoConfig.from_pretrained(model_name_or_path)
        begin, end, pad = map(str, (_start(config), config.eos_token_id, config.pad_token_id))
        return _numbers(config.vocab_size, bos_token=begin, eos_token=end, pad_token=pad)

    def load_model(self, model_class: Any, model_name_or_path: str, **kwargs: Any) -> Any:
        """Published folders say where norms stand; transformers 5 has no such keys, and saves none."""
        model = super().load_model(model_class, model_name_or_path, **kwargs)
        model.config.normalize_before = model.config.model_type in ("mbart", "pegasus")
        model.config.normalize_embedding = model.config.model_type in ("bart", "mbart")
        return model

    def _load(self) -> Any:
        """It takes as many heads of a decoder as an encoder has, and as the start of every mBART its language."""
        spec = super()._load()
        config = AutoConfig.from_pretrained(self._model_name_or_path)
        spec.decoder.num_heads = np.int16(config.to_dict().get("decoder_attention_heads", config.num_attention_heads))
        spec.config.decoder_start_token = str(_start(config))
        return spec


class EncoderConverter(TransformersConverter):  # type: ignore[misc]  # Any
    """As above, of encoders alone."""

    def load_tokenizer(self, tokenizer_class: Any, model_name_or_path: str, **kwargs: Any) -> Any:
        """One of numbers."""
        return _numbers(AutoConfig.from_pretrained(model_name_or_path).vocab_size)

    def load_model(self, model_class: Any, model_name_or_path: str, **kwargs: Any) -> Any:
        """It asks for a key that transformers 5 has no more: there are no other positions."""
        model = super().load_model(model_class, model_name_or_path, **kwargs)
        model.config.position_embedding_type = "absolute"
        return model


def _numbers(vocabulary: int, **control: str) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are called by their ids."""
    words = tokenizers.models.WordLevel({str(token): token for token in range(vocabulary)})
    return PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words), unk_token="3", **control)


def _start(config: PretrainedConfig) -> int:
    """What a decoder is fed first."""
    start: int = config.decoder_start_token_id
    return start


class CTranslate2:
    """A checkpoint in CTranslate2, in float32. Raises ValueError: its converter does not know the family."""

    def __init__(self, folder: Path, generation: GenerationDefaults) -> None:
        with TemporaryDirectory() as converted:
            Converter(str(folder)).convert(converted, quantization="float32", force=True)
            self._translator = ctranslate2.Translator(converted, compute_type="float32", intra_threads=1)
        begin = generation.forced_begin_id
        self._begin = [] if begin is None else [str(begin)]
        self._never = [[str(token)] for token in generation.suppressed_ids]

    def greedy(self, sources: Sequence[Tokens], decoding: Decoding) -> list[Tokens]:
        """The best tokens of every source, without the end token."""
        found = self._translator.translate_batch(
            [[str(token) for token in source] for source in sources],
            target_prefix=[self._begin] * len(sources) if self._begin else None,
            beam_size=1,
            max_decoding_length=decoding.max_new_tokens,
            min_decoding_length=decoding.min_new_tokens,
            suppress_sequences=self._never,
        )
        return [tuple(int(token) for token in answer.hypotheses[0]) for answer in found]


def hidden_states(folder: Path, sources: Sequence[Tokens]) -> list[NDArray[np.float32]]:
    """Of an encoder alone, in float32: the last ones [tokens, width] of each source.

    Raises ValueError: its converter does not know the family.
    """
    with TemporaryDirectory() as converted:
        EncoderConverter(str(folder)).convert(converted, quantization="float32", force=True)
        encoder = ctranslate2.Encoder(converted, compute_type="float32", intra_threads=1)
    found = np.array(encoder.forward_batch([[*source] for source in sources]).last_hidden_state)
    return [states[: len(source)] for source, states in zip(sources, found, strict=True)]


NO_CONVERTER = {"plbart", "blenderbot", "blenderbot-small", "fsmt"}
"""Of `tests.models.families`: CTranslate2 4.8 registers none for their configurations."""
