"""The vocabulary of a model under training, as Marian's tokenizer files; SentencePiece trains it for a new model."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import sentencepiece
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from training import config
from training.data.files import new_folder
from training.errors import TrainingError

END_ID, UNKNOWN_ID = 0, 1
"""As in every Marian model."""
PADDING = "<pad>"
"""Comes after the pieces; it is also what a decoder starts with."""
MAX_SENTENCES = 4_000_000
"""Most lines that SentencePiece looks at; of more, a sample."""


def train_vocabulary(folder: Path, settings: config.Vocabulary, sentences: Iterator[str], seed: int) -> None:
    """Writes source.spm, target.spm, vocab.json and tokenizer_config.json. Raises TrainingError."""
    model = train_model(settings, sentences, seed)
    with new_folder(folder) as draft:
        write_vocabulary(draft, model, settings.source_language, settings.target_language)


def write_vocabulary(folder: Path, model: bytes, source_language: str, target_language: str) -> None:
    """Writes a SentencePiece model of both languages as Marian's tokenizer files."""
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(model)
    _write_json(folder / "vocab.json", piece_ids(model))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(source_language, target_language))


def train_model(settings: config.Vocabulary, sentences: Iterator[str], seed: int) -> bytes:
    """A unigram model (Kudo 2018). Raises TrainingError."""
    model = io.BytesIO()
    sentencepiece.set_random_generator_seed(seed)
    try:
        SentencePieceTrainer.train(
            sentence_iterator=sentences,
            model_writer=model,
            vocab_size=settings.size,
            character_coverage=settings.character_coverage,
            eos_id=END_ID,
            unk_id=UNKNOWN_ID,
            bos_id=-1,
            pad_id=-1,
            input_sentence_size=MAX_SENTENCES,
            shuffle_input_sentence=True,
            minloglevel=2,
        )
    except RuntimeError as error:  # all that SentencePiece raises
        reason = str(error).rpartition("] ")[2]
        raise TrainingError(f"a vocabulary of {settings.size} pieces cannot be trained: {reason}") from error
    return model.getvalue()


def piece_ids(model: bytes) -> dict[str, int]:
    """Piece -> id: those of SentencePiece, and the padding."""
    processor = SentencePieceProcessor(model_proto=model)
    pieces: list[str] = processor.id_to_piece(list(range(processor.get_piece_size())))
    return {piece: token_id for token_id, piece in enumerate([*pieces, PADDING])}


def _tokenizer_config(source_language: str, target_language: str) -> dict[str, object]:
    return {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": source_language,
        "target_lang": target_language,
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": PADDING,
        "separate_vocabs": False,
    }


def _write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
