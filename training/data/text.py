"""Parallel text -> token ids."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.lines import NoText, lines_of
from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec
from models.tokenizers.target_side import target_side
from training.config import Data, ParallelText
from training.errors import TrainingError

EXAMPLES = 5
"""Words quoted in a message."""


@dataclass(frozen=True)
class Sentences:
    """Token ids of many sentences, in one array: millions of small ones would not fit into memory."""

    token_ids: NDArray[np.int32]
    """[tokens of all sentences]"""
    ends: NDArray[np.int64]
    """Where each sentence ends in it [sentences]."""

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        start = self.ends[index - 1] if index else 0
        return self.token_ids[start : self.ends[index]]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sentence, the end token included."""
        return np.diff(self.ends, prepend=0)


@dataclass(frozen=True)
class Corpus:
    """Sentence n of the target is the translation of sentence n of the source."""

    source: Sentences
    target: Sentences
    dropped: int = 0
    """Pairs that were too long."""

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of all its tokens, in their order."""
        digest = hashlib.sha256()
        for side in (self.source, self.target):
            digest.update(side.ends.tobytes())
            digest.update(side.token_ids.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class TextPair:
    """The lines of two aligned files."""

    files: ParallelText
    source: Sequence[str]
    target: Sequence[str]


class Codec:
    """Text -> ids for both sides of a vocabulary."""

    def __init__(self, folder: Path, spec: SentencePieceSpec) -> None:
        """Loads the tokenizer of a checkpoint folder. Raises TokenizerError; TrainingError for two vocabularies."""
        if spec.target_vocabulary is not None:
            raise TrainingError(f"{folder} has a vocabulary for each side; training supports one for both")
        self.unknown_id = spec.unknown_id
        self.source = SentencePiecePair.load(folder, spec)
        self.target = target_side(folder, spec)


def read_pair(files: ParallelText) -> TextPair:
    """Reads two aligned files. Raises TrainingError where they are empty, not UTF-8, or not aligned."""
    source, target = read_lines(files.source), read_lines(files.target)
    if len(source) != len(target):
        raise TrainingError(
            f"{files.source} has {len(source)} lines and {files.target} has {len(target)}; line n of one must be the "
            "translation of line n of the other"
        )
    for file, lines in ((files.source, source), (files.target, target)):
        for number, line in enumerate(lines, 1):
            if not line.strip():
                raise TrainingError(f"{file}, line {number} is empty; remove the line from both files of the pair")
    return TextPair(files, source, target)


def encode(pairs: Sequence[TextPair], codec: Codec, data: Data, drop_long: bool) -> Corpus:
    """Tokenises pairs of files. Raises TrainingError for a long line, and for text that the vocabulary does not know.

    drop_long: leave pairs with a long side out instead.
    """
    sides = []
    for pair in pairs:
        source = _encode_lines(pair.files.source, pair.source, codec.source, data)
        target = _encode_lines(pair.files.target, pair.target, codec.target, data)
        if not drop_long:
            for file, encoded in ((pair.files.source, source), (pair.files.target, target)):
                _refuse_long(file, encoded, data.max_tokens, may_drop=pair.files != data.validation)
        sides += list(zip(source, target, strict=True))
    kept = [(s, t) for s, t in sides if max(len(s), len(t)) <= data.max_tokens]
    if not kept:
        raise TrainingError(
            f"every pair is longer than data.max_tokens = {data.max_tokens}: nothing is left to train on"
        )
    return Corpus(pack([s for s, _ in kept]), pack([t for _, t in kept]), dropped=len(sides) - len(kept))


def all_lines(pairs: Sequence[TextPair]) -> Iterator[str]:
    """Of both sides."""
    for pair in pairs:
        yield from pair.source
        yield from pair.target


def read_lines(file: Path) -> list[str]:
    """The lines of a text file. Raises TrainingError where it is empty, not UTF-8, or has a zero byte."""
    try:
        lines = lines_of(file.read_bytes(), file)
    except OSError as error:
        raise TrainingError(f"{file} cannot be read: {error.strerror}") from error
    except NoText as error:
        raise TrainingError(str(error)) from error
    if lines == [""]:
        raise TrainingError(f"{file} is empty; give at least one sentence")
    return lines


def _encode_lines(
    file: Path, lines: Sequence[str], tokenizer: SentencePiecePair, data: Data
) -> list[NDArray[np.int32]]:
    encoded = [np.array(tokenizer.encode(line), np.int32) for line in lines]
    unknown = [int((ids == tokenizer.spec.unknown_id).sum()) for ids in encoded]
    share = sum(unknown) / sum(map(len, encoded))
    if share > data.max_unknown:
        examples = [line for line, count in zip(lines, unknown, strict=True) if count][:EXAMPLES]
        raise TrainingError(
            f"{file}: the vocabulary does not know {share:.1%} of the tokens; data.max_unknown is "
            f"{data.max_unknown:.1%}. Raise vocabulary.character_coverage, or begin with a checkpoint for this "
            f"language. Examples: {' | '.join(line[:80] for line in examples)}"
        )
    return encoded


def _refuse_long(file: Path, encoded: Sequence[NDArray[np.int32]], limit: int, may_drop: bool) -> None:
    for number, ids in enumerate(encoded, 1):
        if len(ids) > limit:
            raise TrainingError(
                f"{file}, line {number} has {len(ids)} tokens; data.max_tokens is {limit}. Raise it, shorten the line"
                + (', or leave such training pairs out with data.too_long = "drop"' if may_drop else ", or remove it")
            )


def pack(sentences: Sequence[NDArray[np.int32]]) -> Sentences:
    """One behind the other."""
    return Sentences(np.concatenate(sentences), np.cumsum([len(ids) for ids in sentences]))
