"""The lexical shortlist: which target tokens a source may become. Reads and writes Marian's binary files.

    6 x uint64   magic, checksum, first, best, offsets, entries
    uint64       [offsets]  where the list of each source token begins; one more than there are source tokens
    uint32       [entries]  the lists of target tokens

A target may have the `first` tokens of the vocabulary, which are the most frequent ones, and those that each token of
its source lists, of which there are at most `best`. marian-dev: src/data/shortlist.h.
"""

import os
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.package.declared.graphs import Vocabulary

MAGIC = 0xF11A48D5013417F5
HEADER = struct.Struct("<6Q")
HASHED_FROM = 16
"""The checksum is of everything after itself."""


class ShortlistError(Exception):
    """A shortlist that cannot be used. The message names the file, what was expected and what was found."""


@dataclass(frozen=True, slots=True, eq=False)
class Shortlist:
    """A shortlist for one model."""

    vocabulary: Vocabulary
    first: int
    """So many tokens are always allowed."""
    best: int
    """Most tokens that a list was meant to have."""
    offsets: NDArray[np.int64]
    """Where each source token's list begins, and at last where the last one ends [source tokens + 1]."""
    entries: NDArray[np.int64]
    """The lists."""

    @classmethod
    def load(cls, file: Path, vocabulary: Vocabulary) -> "Shortlist":
        """Reads a shortlist of this model. Raises ShortlistError."""
        first, best, offsets, entries = _parse(_read(file))
        _check(file, vocabulary, first, offsets, entries)
        return cls(vocabulary, first, best, offsets, entries)

    def save(self, file: Path) -> None:
        """Writes the file that `load` has read, or would read."""
        body = struct.pack("<4Q", self.first, self.best, len(self.offsets), len(self.entries))
        body += self.offsets.astype("<u8").tobytes() + self.entries.astype("<u4").tobytes()
        file.write_bytes(struct.pack("<2Q", MAGIC, _checksum(body)) + body)

    def most_allowed(self, source_tokens: int) -> int:
        """Of a source of so many tokens."""
        longest = int(np.diff(self.offsets).max(initial=0))
        return min(self.vocabulary.target_size, self.first + 1 + source_tokens * (longest + 1))

    def allowed(self, source_ids: Sequence[int], named: Sequence[int] = ()) -> NDArray[np.int64]:
        """The target tokens that a source may become, sorted. The end token is always among them, and what is named."""
        allowed = np.zeros(self.vocabulary.target_size, np.bool_)
        allowed[: self.first] = True
        allowed[self.vocabulary.end_id] = True
        ids = np.unique(np.array(source_ids, np.int64))
        if self.vocabulary.shared:  # a name is often copied
            allowed[ids] = True
        listed = ids[ids < len(self.offsets) - 1].tolist()
        lists = [self.entries[self.offsets[token] : self.offsets[token + 1]] for token in listed]
        allowed[np.concatenate([self.entries[:0], *lists])] = True
        allowed[list(named)] = True
        return np.flatnonzero(allowed)


def is_shortlist(file: Path) -> bool:
    """Whether a file begins as one does. Raises OSError."""
    with file.open("rb") as content:
        return content.read(8) == MAGIC.to_bytes(8, "little")


def verify_checksum(file: Path) -> None:
    """Raises ShortlistError where a file is not what its checksum says.

    It takes a second, so export does it; the server checks a package's own checksums.
    """
    data = _read(file)
    found = _checksum(data[HASHED_FROM:])
    expected = HEADER.unpack_from(data)[1]
    if found != expected:
        raise ShortlistError(f"{file} was changed: its checksum is {found:#x}, it says {expected:#x}; get it again")


def _checksum(body: bytes) -> int:
    """Of all behind it, half a word at the end left out. marian-dev: src/common/hash.h."""
    found = 0
    for word in np.frombuffer(body, "<u8", len(body) // 8).tolist():
        found ^= (word + 0x9E3779B9 + (found << 6) + (found >> 2)) % (1 << 64)
    return found


def _read(file: Path) -> bytes:
    """A file whose size is what its header says: it may be huge, or something that has no end."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise ShortlistError(f"{file} is no file")
        with file.open("rb") as content:
            header = content.read(HEADER.size)
            offset_count, entry_count = _read_counts(file, header)
            expected, found = HEADER.size + 8 * offset_count + 4 * entry_count, os.fstat(content.fileno()).st_size
            if found == expected:
                data = header + content.read(expected - HEADER.size)
                found = len(data)
    except OSError as error:
        raise ShortlistError(f"{file} cannot be read ({error.strerror})") from error
    if found != expected:
        raise ShortlistError(
            f"{file} has {found} bytes; its {offset_count} offsets and {entry_count} entries need {expected}"
        )
    return data


def _read_counts(file: Path, header: bytes) -> tuple[int, int]:
    """How many offsets and entries a file has."""
    if len(header) < HEADER.size:
        raise ShortlistError(
            f"{file} is no shortlist: it has {len(header)} bytes, its header alone needs {HEADER.size}"
        )
    magic, _, _, _, offset_count, entry_count = HEADER.unpack(header)
    if magic != MAGIC:
        raise ShortlistError(f"{file} is no binary shortlist of Marian: it begins with {magic:#x}, not {MAGIC:#x}")
    return offset_count, entry_count


def _parse(data: bytes) -> tuple[int, int, NDArray[np.int64], NDArray[np.int64]]:
    """The header's `first` and `best`, the offsets and the entries."""
    _, _, first, best, offset_count, entry_count = HEADER.unpack_from(data)
    offsets = np.frombuffer(data, "<u8", offset_count, HEADER.size)
    entries = np.frombuffer(data, "<u4", entry_count, HEADER.size + 8 * offset_count)
    # One beyond int64 becomes negative, and is found so.
    return first, best, offsets.astype(np.int64), entries.astype(np.int64)


def _check(
    file: Path, vocabulary: Vocabulary, first: int, offsets: NDArray[np.int64], entries: NDArray[np.int64]
) -> None:
    """Raises ShortlistError where a file is not for the model, or contradicts itself."""
    source, target = vocabulary.source_size, vocabulary.target_size
    lists = len(offsets) - 1
    # The token that targets start with may be one of our own, which no file knows.
    if lists not in (source, source - 1):
        raise ShortlistError(f"{file} has lists of {lists} source tokens; the model has {source}")
    if first > target:
        raise ShortlistError(f"{file} allows the first {first} tokens; the model has {target}")
    if offsets[0] != 0:
        raise ShortlistError(f"{file}: offset 0 is {offsets[0]}; expected 0")
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if len(falls):
        before, after = offsets[falls[0] :][:2]
        raise ShortlistError(f"{file}: offset {falls[0] + 1} is {after}; expected {before} or more")
    if offsets[-1] != len(entries):
        raise ShortlistError(f"{file}: the lists end at {offsets[-1]}; there are {len(entries)} entries")
    if len(entries) and (largest := int(entries.max())) >= target:
        raise ShortlistError(f"{file} lists token {largest}; the model has {target}")
