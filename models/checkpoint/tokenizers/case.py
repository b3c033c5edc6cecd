"""Rules of a SentencePiece model that SentencePiece passes over: Marian's own copy of it can write case as pieces.

https://github.com/marian-nmt/sentencepiece, src/sentencepiece_model.proto: two fields of NormalizerSpec.
"""

from collections.abc import Iterator
from pathlib import Path

from models.checkpoint.contents import CheckpointError

NORMALIZERS = (3, 5)
"""Fields of ModelProto: what is done to texts, and to those that are made of pieces."""
RULES = {7: "encode_case", 8: "decode_case"}


def check_case(model: bytes, file: Path) -> None:
    """Raises CheckpointError where a rule is on: whoever does not know it has other tokens and another text."""
    for number, normalizer in _fields(model):
        for rule, on in _fields(normalizer) if number in NORMALIZERS and isinstance(normalizer, bytes) else ():
            if rule in RULES and on:
                raise CheckpointError(
                    f"{file} has {RULES[rule]} of Marian's own SentencePiece, which neither SentencePiece nor this "
                    "reads; expected a vocabulary that was trained without it"
                )


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message of protobuf, which is known to be one."""
    place = 0
    while place < len(message):
        tag, place = _number(message, place)
        match tag & 7:
            case 0:
                value, place = _number(message, place)
                yield tag >> 3, value
            case 2:
                size, place = _number(message, place)
                yield tag >> 3, message[place : place + size]
                place += size
            case kind:
                place += 8 if kind == 1 else 4


def _number(message: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits in each byte, the lowest first, and what is behind it."""
    value = shift = 0
    while message[place] & 0x80:
        value |= (message[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return value | message[place] << shift, place + 1
