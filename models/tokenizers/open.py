"""The tokenizer that a package declares."""

from pathlib import Path

from models.tokenizers.sentencepiece_pair import SentencePiecePair, TokenizerSpec
from models.tokenizers.tokenizer import Tokenizer
from models.tokenizers.tokenizer_json import TokenizerJson, TokenizerJsonSpec


def open_tokenizer(folder: Path, spec: TokenizerSpec | TokenizerJsonSpec) -> Tokenizer:
    """Raises TokenizerError."""
    return (
        TokenizerJson.load(folder, spec)
        if isinstance(spec, TokenizerJsonSpec)
        else SentencePiecePair.load(folder, spec)
    )
