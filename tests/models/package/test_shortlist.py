"""models.package.shortlist: what a file allows a source, and files that are refused."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from models.config import ModelConfig
from models.package.derived import vocabulary
from models.package.shortlist import Shortlist, ShortlistError, verify_checksum
from tests.models.test_transformer import config
from tests.shortlists import encode, random_lists, write

TOKENS = 40
CONFIG = config(source_vocab_size=TOKENS, target_vocab_size=TOKENS, pad_id=39, end_id=2, decoder_start_id=39)
VOCABULARY = vocabulary(CONFIG)
LISTS = [[], [30, 31], [], [33], [3, 33, 35], *([[]] * (TOKENS - 5))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "lex.bin", LISTS, first=2)


@pytest.mark.parametrize(
    ("source", "besides"),
    [((), ()), ((1,), (30, 31)), ((1, 4), (3, 4, 30, 31, 33, 35)), ((4, 4, 3, 2), (3, 4, 33, 35)), ((38, 2), (38,))],
)
def test_the_first_tokens_the_sources_own_and_their_lists(
    file: Path, source: tuple[int, ...], besides: tuple[int, ...]
) -> None:
    allowed = Shortlist.load(file, VOCABULARY).allowed(source)
    assert allowed.tolist() == sorted({0, 1, CONFIG.end_id, *besides})


def test_tokens_of_another_vocabulary_are_not_copied(file: Path) -> None:
    two = config(**CONFIG.model_dump() | {"share_embeddings": False, "tie_output": False})
    assert Shortlist.load(file, vocabulary(two)).allowed((4,)).tolist() == [0, 1, 2, 3, 33, 35]


def test_a_token_of_our_own_has_no_list(tmp_path: Path) -> None:
    """Marian's vocabulary has no token that targets start with, see models.checkpoint.marian_nmt."""
    file = write(tmp_path / "lex.bin", LISTS[:-1], first=2)
    assert Shortlist.load(file, VOCABULARY).allowed((TOKENS - 1,)).tolist() == [0, 1, 2, TOKENS - 1]


def test_most_allowed_is_never_exceeded(file: Path) -> None:
    shortlist = Shortlist.load(file, VOCABULARY)
    assert shortlist.most_allowed(0) == 3
    assert shortlist.most_allowed(1) == 7 >= max(len(shortlist.allowed((token,))) for token in range(TOKENS))
    assert shortlist.most_allowed(1000) == TOKENS


def test_all_lists_are_read(tmp_path: Path) -> None:
    lists = random_lists(131, 131)
    shortlist = Shortlist.load(write(tmp_path / "lex.bin", lists, first=0), vocabulary(config()))
    for token, expected in enumerate(lists):
        assert shortlist.allowed((token,)).tolist() == sorted({config().end_id, token, *expected})


@pytest.mark.parametrize("size", [131, 130])
def test_a_whole_file_has_the_checksum_it_says(tmp_path: Path, size: int) -> None:
    """With an even and an odd number of entries: half a word at the end is not counted."""
    lists = random_lists(size, 131)
    verify_checksum(write(tmp_path / "lex.bin", lists))


@pytest.mark.parametrize("place", [16, 47, 60, 399])
def test_a_changed_byte_is_found(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    with pytest.raises(ShortlistError, match=r"lex\.bin"):
        verify_checksum(file)


def header(place: int, value: int) -> Callable[[bytes], bytes]:
    """Writes another number into the header."""

    def change(data: bytes) -> bytes:
        return data[: 8 * place] + struct.pack("<Q", value) + data[8 * place + 8 :]

    return change


def offset(place: int, value: int) -> Callable[[bytes], bytes]:
    return header(6 + place, value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "has 0 bytes, its header alone needs 48"),
        (lambda data: data[:40], "has 40 bytes, its header alone needs 48"),
        (
            lambda data: b"PK" + data[2:],
            "it begins with 0xf11a48d501344b50, not 0xf11a48d5013417f5",
        ),
        (lambda data: data[:-1], "has 399 bytes; its 41 offsets and 6 entries need 400"),
        (lambda data: data + b"\0", "has 401 bytes; its 41 offsets and 6 entries need 400"),
        (header(4, 1 << 61), "bytes; its 2305843009213693952 offsets"),
        (header(5, 5), "has 400 bytes; its 41 offsets and 5 entries need 396"),
        (header(2, 41), "allows the first 41 tokens; the model has 40"),
        (offset(0, 1), "offset 0 is 1; expected 0"),
        (offset(5, 1), "offset 5 is 1; expected 3 or more"),
        (offset(5, 1 << 63), "offset 5 is -9223372036854775808; expected 3 or more"),
        (offset(40, 7), "the lists end at 7; there are 6 entries"),
        (lambda data: data[:-4] + struct.pack("<I", 40), "lists token 40; the model has 40"),
        (lambda data: data[:-4] + struct.pack("<I", 1 << 31), "lists token 2147483648; the model has 40"),
        (lambda data: encode(LISTS[:-2]), "has lists of 38 source tokens; the model has 40"),
        (lambda data: encode([*LISTS, []]), "has lists of 41 source tokens; the model has 40"),
        (lambda data: header(4, 0)(data[:48] + data[-24:]), "has lists of -1 source tokens; the model has 40"),
    ],
)
def test_bad_files_are_refused(file: Path, change: Callable[[bytes], bytes], said: str) -> None:
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(ShortlistError, match=r"lex\.bin") as refusal:
        Shortlist.load(file, VOCABULARY)
    assert said in str(refusal.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShortlistError, match=r"none\.bin cannot be read \(No such file or directory\)"):
        Shortlist.load(tmp_path / "none.bin", VOCABULARY)


@pytest.mark.parametrize("read", [verify_checksum, lambda file: Shortlist.load(file, VOCABULARY)])
def test_no_more_is_read_than_the_header_says(file: Path, read: Callable[[Path], object]) -> None:
    """A pipe would never be read to its end, and a file may say that it has more bytes than there is memory."""
    os.truncate(file, 1 << 42)
    with pytest.raises(
        ShortlistError, match=r"lex\.bin has 4398046511104 bytes; its 41 offsets and 6 entries need 400"
    ):
        read(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ShortlistError, match=r"lex\.bin is no file"):
        read(file)


def test_another_models_shortlist_is_refused(file: Path) -> None:
    larger: ModelConfig = config()
    with pytest.raises(ShortlistError, match="has lists of 40 source tokens; the model has 131"):
        Shortlist.load(file, vocabulary(larger))
