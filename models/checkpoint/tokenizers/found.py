"""The tokenizer of a checkpoint folder of Hugging Face's, whatever class of transformers it belongs to."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.checkpoint.contents import CheckpointError
from models.checkpoint.languages.tokens import language_tokens
from models.checkpoint.tokenizers.fast import fast_tokenizer, open_by_transformers
from models.tokenizers.moses_bpe import LOOKS_AHEAD, MosesSpec
from models.tokenizers.parlai_bpe import ParlaiSpec
from models.tokenizers.sentencepiece_pair import SentencePieceSpec, load_vocabulary
from models.tokenizers.spec import TokenizerSpec
from models.tokenizers.tokenizer import TokenizerError


@dataclass(frozen=True)
class FoundTokenizer:
    """What becomes of it in a package."""

    spec: TokenizerSpec
    largest_source_id: int
    largest_target_id: int
    languages: dict[str, int] = field(default_factory=dict)
    """BCP-47 tag -> the token that names the language, for a tokenizer of many."""
    pair: tuple[str, str] | None = None
    """BCP-47 tags of the source language and of the target language, where a tokenizer has one of each."""
    files: dict[str, Path] = field(default_factory=dict)
    """What belongs into a package as it is."""
    made_files: dict[str, str] = field(default_factory=dict)
    """What was made for the package: name -> content."""


def read_tokenizer(folder: Path, multilingual: bool = False) -> FoundTokenizer:
    """See `models.checkpoint.tokenizers.fast.read_fast_tokenizer`; here, some that are written in Python do, too.

    Raises CheckpointError.
    """
    tokenizer = open_by_transformers(folder)
    if read := IN_PYTHON.get(type(tokenizer).__name__):
        return read(tokenizer, folder)
    fast = fast_tokenizer(tokenizer, folder, multilingual)
    made = {fast.spec.file: fast.content}
    return FoundTokenizer(fast.spec, fast.largest_id, fast.largest_id, fast.languages, made_files=made)


def m2m100(tokenizer: Any, folder: Path) -> FoundTokenizer:
    """SentencePiece, a vocab.json, and behind its ids one for each language of the family's list.

    Raises CheckpointError.
    """
    _check_special(tokenizer, folder, "eos_token", "unk_token")
    _check_added(tokenizer, folder)
    files = {name: folder / name for name in ("sentencepiece.bpe.model", "vocab.json")}
    if missing := [name for name, file in files.items() if not file.is_file()]:
        raise CheckpointError(f"{folder}: M2M100Tokenizer has no {missing[0]}")
    ids: dict[str, int] = tokenizer.lang_token_to_id
    languages = {tag: ids[token] for tag, token in language_tokens(ids).items()}
    largest = max(_largest_id(files["vocab.json"]), tokenizer.eos_token_id, tokenizer.unk_token_id, *ids.values())
    spec = SentencePieceSpec(
        source_model="sentencepiece.bpe.model",
        target_model="sentencepiece.bpe.model",
        vocabulary="vocab.json",
        end_id=tokenizer.eos_token_id,
        unknown_id=tokenizer.unk_token_id,
        hidden_ids=tuple(sorted({*tokenizer.all_special_ids, *ids.values()})),
        source_ids=languages,
        source_id=tokenizer.cur_lang_id,
    )
    return FoundTokenizer(spec, largest, largest, languages, files=files)


def plbart(tokenizer: Any, folder: Path) -> FoundTokenizer:
    """SentencePiece, whose ids fairseq has moved by one, and behind them one for each language.

    Raises CheckpointError.
    """
    _check_special(tokenizer, folder, "eos_token", "unk_token")
    _check_added(tokenizer, folder)
    name = "sentencepiece.bpe.model"
    if not (folder / name).is_file():
        raise CheckpointError(f"{folder}: PLBartTokenizer has no {name}")
    pieces = [tokenizer.sp_model.IdToPiece(index) for index in range(tokenizer.sp_model.get_piece_size())]
    ids: dict[str, int] = tokenizer.lang_code_to_id
    languages = {PLBART_LANGUAGES[code.strip("_")]: token_id for code, token_id in ids.items()}
    special = {*tokenizer.all_special_ids, *ids.values()}
    own = [token_id for token_id in tokenizer.suffix_tokens if token_id in ids.values()]
    spec = SentencePieceSpec(
        source_model=name,
        target_model=name,
        vocabulary="vocab.json",
        end_id=tokenizer.eos_token_id,
        unknown_id=tokenizer.unk_token_id,
        hidden_ids=tuple(sorted(special)),
        source_ids=languages,
        source_id=own[0] if own else None,
        source_id_last=True,
        cleans_up=bool(tokenizer.clean_up_tokenization_spaces),
    )
    vocabulary = dict(zip(pieces, tokenizer.convert_tokens_to_ids(pieces), strict=True))
    largest = max(*vocabulary.values(), *ids.values())
    made = {"vocab.json": json.dumps(vocabulary, ensure_ascii=False)}
    return FoundTokenizer(spec, largest, largest, languages, files={name: folder / name}, made_files=made)


def _check_special(tokenizer: Any, folder: Path, *names: str) -> None:
    """Raises CheckpointError where a control token is none, which tokenizer_config.json may say."""
    for name in names:
        if not (token := getattr(tokenizer, name)):
            raise CheckpointError(
                f"{folder / 'tokenizer_config.json'}: {name} is {token!r}; {type(tokenizer).__name__} needs one"
            )


def _largest_id(file: Path) -> int:
    """Of a vocabulary. Raises CheckpointError for a file that is none, which transformers may have taken."""
    try:
        return max(load_vocabulary(file).values())
    except TokenizerError as error:
        raise CheckpointError(f"{file.parent}: {error}; fetch the file again") from error


def _check_added(tokenizer: Any, folder: Path) -> None:
    """Raises CheckpointError for tokens of texts that somebody has added, and the vocabulary does not know."""
    if added := sorted(tokenizer.get_added_vocab().keys() - {*tokenizer.all_special_tokens}):
        raise CheckpointError(
            f"{folder}: {type(tokenizer).__name__} has {len(added)} tokens that were added, the first {added[0]!r}; "
            "those of its vocabulary alone are read"
        )


def moses(tokenizer: Any, folder: Path) -> FoundTokenizer:
    """FSMT's: words by the rules of Moses, then byte-pair encoding, and a vocabulary for each side.

    Raises CheckpointError.
    """
    if tokenizer.tgt_lang in LOOKS_AHEAD:
        raise CheckpointError(
            f"{folder}: targets are in {tokenizer.tgt_lang!r}, whose words sacremoses does not join as they come"
        )
    _check_special(tokenizer, folder, "sep_token", "unk_token")
    names = ("vocab-src.json", "vocab-tgt.json", "merges.txt")
    hidden = {token_id for token_id in tokenizer.all_special_ids if token_id is not None}
    spec = MosesSpec(
        source_rules=tokenizer.src_lang,
        target_rules=tokenizer.tgt_lang,
        lower_case=tokenizer.do_lower_case,
        end_id=tokenizer.sep_token_id,
        unknown_id=tokenizer.unk_token_id,
        hidden_ids=tuple(sorted(hidden)),
    )
    return FoundTokenizer(
        spec,
        max(_largest_id(folder / "vocab-src.json"), tokenizer.sep_token_id, tokenizer.unk_token_id),
        _largest_id(folder / "vocab-tgt.json"),
        files={name: folder / name for name in names},
        pair=(tokenizer.src_lang, tokenizer.tgt_lang),
    )


def parlai(tokenizer: Any, folder: Path) -> FoundTokenizer:
    """Blenderbot-small's: lower case, then byte-pair encoding, with nothing around a text."""
    _check_special(tokenizer, folder, "unk_token")
    _check_added(tokenizer, folder)
    spec = ParlaiSpec(
        unknown_id=tokenizer.unk_token_id,
        hidden_ids=tuple(sorted(tokenizer.all_special_ids)),
        cleans_up=bool(tokenizer.clean_up_tokenization_spaces),
    )
    largest = max(_largest_id(folder / spec.vocabulary), tokenizer.unk_token_id)
    return FoundTokenizer(spec, largest, largest, files={name: folder / name for name in spec.files})


PLBART_LANGUAGES = {
    "en_XX": "en",
    "java": "x-java",
    "python": "x-python",
    "javascript": "x-js",
    "php": "x-php",
    "ruby": "x-ruby",
    "go": "x-go",
}
"""BCP 47 has no tags of programming languages, but leaves those that begin with x to whoever wants some."""
IN_PYTHON: dict[str, Callable[[Any, Path], FoundTokenizer]] = {
    "BlenderbotSmallTokenizer": parlai,
    "FSMTTokenizer": moses,
    "M2M100Tokenizer": m2m100,
    "PLBartTokenizer": plbart,
}
"""By the name of their class."""
