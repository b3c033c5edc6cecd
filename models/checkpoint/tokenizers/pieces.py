"""Where transformers makes other tokens of a text than the SentencePiece model of a checkpoint does."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sentencepiece import SentencePieceProcessor

from models.checkpoint.tokenizers.files import MODELS
from models.tokenizers.sentencepiece_pair import load_sentencepiece
from models.tokenizers.tokenizer_json import parse_backend

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

MADE = "tokenizer.json"
PROBES = ("Two words.", "ab  cd ", "\uff11\uff12 \u2026", "\u00e9 \u2603")
"""A plain text; one with spaces; one that most models normalize; one that many vocabularies lack."""


def other_tokens(folder: Path, made: Mapping[str, str]) -> list[str]:
    """A line that says so, if transformers had that model alone to make a tokenizer of. Raises TokenizerError.

    made: the files that were made of what transformers reads, name -> content
    """
    file = next((folder / name for name in MODELS if (folder / name).is_file()), None)
    if file is None or MADE not in made or (folder / MADE).is_file():
        return []
    model, backend = load_sentencepiece(file), parse_backend(made[MADE].encode(), MADE)
    other = [text for text in PROBES if _ids(text, backend, model) != model.encode(text)]
    if not other:
        return []
    share = f"{len(other)} of {len(PROBES)} texts, such as {other[0]!r}"
    return [
        f"tokenizer: {share}, have other tokens by {file.name} itself than by what transformers makes of it, which the "
        f"package has; a {MADE} beside it goes before"
    ]


def _ids(text: str, backend: "Backend", model: SentencePieceProcessor) -> list[int]:
    """Those of the model for the pieces that the other makes. What it calls by another name is unknown to both."""
    found = backend.encode(text, add_special_tokens=False).ids
    return [model.piece_to_id(backend.id_to_token(token_id) or "") for token_id in found]
