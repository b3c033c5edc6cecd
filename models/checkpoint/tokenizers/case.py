"""Rules of a SentencePiece model that SentencePiece passes over: Marian's own copy of it can write case as pieces.

https://github.com/marian-nmt/sentencepiece, src/sentencepiece_model.proto: two fields of NormalizerSpec.
"""

from pathlib import Path

from google.protobuf.unknown_fields import UnknownFieldSet
from sentencepiece import sentencepiece_model_pb2

from models.checkpoint.contents import CheckpointError

RULES = {7: "encode_case", 8: "decode_case"}


def check_case(model: bytes, file: Path) -> None:
    """Raises CheckpointError where a rule is on: whoever does not know it has other tokens and another text."""
    read = sentencepiece_model_pb2.ModelProto.FromString(model)  # type: ignore[attr-defined]  # it has no stub
    for normalizer in (read.normalizer_spec, read.denormalizer_spec):
        unknown = UnknownFieldSet(normalizer)
        for field in (unknown[number] for number in range(len(unknown))):
            if field.field_number in RULES and field.data:
                raise CheckpointError(
                    f"{file} has {RULES[field.field_number]} of Marian's own SentencePiece, which neither "
                    "SentencePiece nor this reads; expected a vocabulary that was trained without it"
                )
