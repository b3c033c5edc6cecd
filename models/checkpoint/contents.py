"""What every checkpoint family is read into."""

from dataclasses import dataclass
from pathlib import Path

from models.config import ModelConfig
from models.package.manifest import GenerationDefaults
from models.tokenizers.sentencepiece_pair import SentencePieceSpec
from models.tokenizers.spec import TokenizerSpec
from models.transformer import Transformer


class CheckpointError(Exception):
    """A checkpoint that cannot be used. The message names the file, the key, what was expected and what was found."""


@dataclass(frozen=True)
class Checkpoint:
    """A trained model, with all that a package says of it."""

    name: str
    config: ModelConfig
    model: Transformer
    """With its weights, in fp32."""
    tokenizer: TokenizerSpec
    generation: GenerationDefaults
    source_languages: tuple[str, ...]
    """BCP-47 tags. None, where the checkpoint does not say."""
    target_languages: tuple[str, ...]
    files: dict[str, Path]
    """What belongs into a package as it is: the tokenizer's files, licences and notices."""
    sha256: str
    """Of the weights: see `models.checkpoint.weights`."""
    in_transformers: bool
    """Hugging Face transformers reads the folder too."""
    shortlist: Path | None = None
    """A lexical shortlist, see `models.package.shortlist`."""
    pinned: str | None = None
    """The name it was fetched by, see `models.package.manifest.Origin`."""

    @property
    def sentencepiece(self) -> SentencePieceSpec:
        """Its tokenizer, for what works with pieces. Raises CheckpointError where it has another kind."""
        if not isinstance(self.tokenizer, SentencePieceSpec):
            raise CheckpointError(
                f"{self.name} has a tokenizer of kind {self.tokenizer.kind!r}; this takes one of SentencePiece models"
            )
        return self.tokenizer
