"""Shortlists for tests: made up, and written as Marian writes them."""

import random
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from models.package.shortlist import MAGIC

FIRST, BEST = 10, 7


def random_lists(source_tokens: int, target_tokens: int) -> list[list[int]]:
    """For each source token up to BEST target tokens."""
    chance = random.Random(5)
    return [sorted(chance.sample(range(target_tokens), k=chance.randint(0, BEST))) for _ in range(source_tokens)]


def encode(lists: Sequence[Sequence[int]], first: int = FIRST) -> bytes:
    """A file with these lists."""
    offsets = np.cumsum([0, *map(len, lists)]).astype("<u8")
    entries = np.array([token for tokens in lists for token in tokens], "<u4")
    body = struct.pack("<4Q", first, BEST, len(offsets), len(entries)) + offsets.tobytes() + entries.tobytes()
    return struct.pack("<2Q", MAGIC, checksum(body)) + body


def checksum(body: bytes) -> int:
    """Of everything after it, as marian-dev's src/common/hash.h does it with 64 bits."""
    found = 0
    for start in range(0, len(body) - 7, 8):
        [word] = struct.unpack_from("<Q", body, start)
        found = found ^ ((word + 0x9E3779B9 + (found << 6) + (found >> 2)) & 0xFFFF_FFFF_FFFF_FFFF)
    return found


def write(file: Path, lists: Sequence[Sequence[int]], first: int = FIRST) -> Path:
    file.write_bytes(encode(lists, first))
    return file
