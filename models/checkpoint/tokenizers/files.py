"""The files of a tokenizer, looked at before transformers opens them: it does not say which of them is damaged."""

from pathlib import Path

from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.pointers import check_fetched
from models.checkpoint.files.reading import read_json
from models.tokenizers.sentencepiece_pair import load_sentencepiece
from models.tokenizers.tokenizer import TokenizerError

OBJECTS = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("vocab-src.json", "vocab-tgt.json"),
)
"""JSON."""
MODELS = ("spiece.model", "sentencepiece.bpe.model", "spm.model", "source.spm", "target.spm")
"""SentencePiece's."""
LINES = ("vocab.txt", "merges.txt")
"""Texts."""


def check_files(folder: Path) -> None:
    """Raises CheckpointError for one that is there and cannot be read. A tokenizer.json stands for all vocabularies."""
    for name in OBJECTS:
        if (folder / name).is_file():
            read_json(folder / name)
    if (folder / OBJECTS[0]).is_file():
        return
    check_fetched(*(folder / name for name in (*MODELS, *LINES)))
    for name in MODELS:
        if (folder / name).is_file():
            try:
                load_sentencepiece(folder / name)
            except TokenizerError as error:
                raise CheckpointError(f"{folder}: {error}; fetch the file again") from error
    for name in LINES:
        if (folder / name).is_file():
            _check_lines(folder / name)


def missing_file(folder: Path) -> str | None:
    """What says that a file is not there which the class that the folder names reads. None: nothing is missing."""
    import transformers

    file = folder / "tokenizer_config.json"
    said = read_json(file).get("tokenizer_class") if file.is_file() else None
    kind = getattr(transformers, said, None) if isinstance(said, str) else None
    names = dict(getattr(kind, "vocab_files_names", None) or {})
    whole = names.pop("tokenizer_file", "tokenizer.json" if kind is None else None)
    if whole is not None and (folder / whole).is_file():
        return None
    missing = [name for key, name in names.items() if key != "tokenizer_config_file" and not (folder / name).is_file()]
    if whole is not None:
        missing.insert(0, whole)
    return f"{' and '.join(missing)} are not there{f', which {said} reads' if said else ''}" if missing else None


def _check_lines(file: Path) -> None:
    try:
        content = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{file} is not a text in UTF-8: {error}; fetch it again") from error
    if not content.strip():
        raise CheckpointError(f"{file} is empty; fetch it again")
