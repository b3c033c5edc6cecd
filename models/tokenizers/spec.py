"""Which tokenizer a package has, and what opens it."""

from pathlib import Path
from typing import Annotated, Any, assert_never

from pydantic import BaseModel, Discriminator, Tag

from models.tokenizers.byte_tokenizer import ByteSpec, ByteTokenizer
from models.tokenizers.moses_bpe import MosesBpe, MosesSpec
from models.tokenizers.parlai_bpe import ParlaiBpe, ParlaiSpec
from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec
from models.tokenizers.tokenizer import Tokenizer
from models.tokenizers.tokenizer_json import TokenizerJson, TokenizerJsonSpec

OLDEST = "sentencepiece-pair"
"""What a manifest means that names no kind."""


def _kind(spec: Any) -> str:
    return str(getattr(spec, "kind", "") if isinstance(spec, BaseModel) else dict(spec).get("kind", OLDEST))


TokenizerSpec = Annotated[
    Annotated[SentencePieceSpec, Tag(OLDEST)]
    | Annotated[TokenizerJsonSpec, Tag("tokenizers")]
    | Annotated[ByteSpec, Tag("bytes")]
    | Annotated[MosesSpec, Tag("moses")]
    | Annotated[ParlaiSpec, Tag("parlai")],
    Discriminator(_kind),
]


def open_tokenizer(folder: Path, spec: TokenizerSpec) -> Tokenizer:
    """Reads the files that the spec names. Raises TokenizerError."""
    match spec:
        case SentencePieceSpec():
            return SentencePiecePair.load(folder, spec)
        case TokenizerJsonSpec():
            return TokenizerJson.load(folder, spec)
        case ByteSpec():
            return ByteTokenizer(spec)
        case MosesSpec():
            return MosesBpe.load(folder, spec)
        case ParlaiSpec():
            return ParlaiBpe.load(folder, spec)
        case _:
            assert_never(spec)
