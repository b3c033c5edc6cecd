"""The tokenizer of a Marian checkpoint: the reference is transformers' `MarianTokenizer`."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.pointers import check_fetched
from models.checkpoint.files.reading import JsonKeys, parse, read_json
from models.checkpoint.languages.codes import target_codes
from models.checkpoint.tokenizers.case import check_case
from models.config import ModelShape
from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec, load_vocabulary
from models.tokenizers.tokenizer import TokenizerError
from models.tokenizers.typography import normalization_table


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


Token = Annotated[str, BeforeValidator(_content)]
"""A special token: its text, or an object with its text."""
Language = Annotated[str, Field(pattern=r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$")]


class MarianTokenizerConfig(JsonKeys):
    """What tokenizer_config.json says."""

    source_lang: Language
    target_lang: Language
    eos_token: Token = "</s>"
    unk_token: Token = "<unk>"
    separate_vocabs: bool = False


def read_tokenizer_config(folder: Path) -> MarianTokenizerConfig:
    """Reads tokenizer_config.json. Raises CheckpointError."""
    file = folder / "tokenizer_config.json"
    return parse(MarianTokenizerConfig, read_json(file), file)


def tokenizer_spec(folder: Path, tokens: MarianTokenizerConfig, config: ModelShape) -> SentencePieceSpec:
    """Which files the tokenizer is, and which characters they need replaced. Raises CheckpointError."""
    target_vocabulary = "target_vocab.json" if tokens.separate_vocabs else None
    names = ("source.spm", "target.spm", "vocab.json", target_vocabulary)
    check_fetched(*(folder / name for name in names if name is not None))
    models = {name: _bytes(folder / name) for name in ("source.spm", "target.spm")}
    same_model = models["source.spm"] == models["target.spm"]
    try:
        source_ids = load_vocabulary(folder / "vocab.json")
        target_ids = load_vocabulary(folder / target_vocabulary) if target_vocabulary else source_ids
        _check_ids(folder / "vocab.json", source_ids, config.source_vocab_size, (tokens.eos_token, tokens.unk_token))
        _check_ids(folder / (target_vocabulary or "vocab.json"), target_ids, config.target_vocab_size, ())
        _check_end(folder / (target_vocabulary or "vocab.json"), target_ids, tokens.eos_token, config.end_id)
        spec = SentencePieceSpec(
            target_model="source.spm" if same_model else "target.spm",
            target_vocabulary=target_vocabulary,
            end_id=source_ids[tokens.eos_token],
            unknown_id=source_ids[tokens.unk_token],
            hidden_ids=tuple(sorted({config.end_id, config.pad_id, config.decoder_start_id})),
            target_codes=target_codes(source_ids),
        )
        table = normalization_table(SentencePiecePair.load(folder, spec))
    except TokenizerError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    for name, model in models.items():
        check_case(model, folder / name)
    return spec.model_copy(update={"normalization": table})


def _check_ids(file: Path, ids: dict[str, int], size: int, needed: tuple[str, ...]) -> None:
    """Every id has a row in the embedding table, and no two pieces share one."""
    for token in needed:
        if token not in ids:
            raise CheckpointError(f"{file} has no {token}")
    for piece, token_id in ids.items():
        if not 0 <= token_id < size:
            raise CheckpointError(f"{file}: {piece!r} has id {token_id}; the model has {size} tokens")
    if len(set(ids.values())) < len(ids):
        raise CheckpointError(f"{file}: {len(ids)} pieces share {len(set(ids.values()))} ids; expected an id for each")


def _check_end(file: Path, ids: dict[str, int], token: str, end_id: int) -> None:
    if ids.get(token) != end_id:
        raise CheckpointError(f"{file}: {token} has id {ids.get(token)}; config.json says eos_token_id is {end_id}")


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}") from error
