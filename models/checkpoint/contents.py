"""What every checkpoint family is read into."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from models.architectures import AnyConfig
from models.architectures.architecture import Architecture
from models.config import ModelConfig
from models.encoding import Encoding, EncodingDefaults
from models.encoding.classifier import Classifier
from models.encoding.dense import Dense
from models.package.manifest import GenerationDefaults, TargetLanguage
from models.tokenizers.sentencepiece_pair import SentencePieceSpec
from models.tokenizers.spec import TokenizerSpec, open_tokenizer
from models.tokenizers.tokenizer import Tokenizer
from models.tokenizers.tokenizer_json import TokenizerJson, TokenizerJsonSpec
from models.transformer import Transformer


class CheckpointError(Exception):
    """A checkpoint that cannot be used. The message names the file, the key, what was expected and what was found."""


def write_made(folder: Path, made: Mapping[str, str]) -> None:
    """Writes what was made for a package: name -> content."""
    for name, content in made.items():
        (folder / name).write_text(content, encoding="utf-8")


@contextmanager
def tokenizer_folder(folder: Path, made: Mapping[str, str], files: Mapping[str, Path]) -> Iterator[Path]:
    """Where a checkpoint's tokenizer can be opened: its own folder, or for a moment another, if files were made.

    files: what belongs beside them
    """
    if not made:
        yield folder
        return
    with TemporaryDirectory() as written:
        for name, file in files.items():
            (Path(written) / name).symlink_to(file.resolve())
        write_made(Path(written), made)
        yield Path(written)


class EncoderTokenizer(NamedTuple):
    """The tokenizer of an encoder alone."""

    spec: TokenizerJsonSpec
    """What stands around a text, by the tokenizer's own template."""
    made: str
    """The content of its tokenizer.json."""
    lower_cases: bool
    """Its normalizer makes texts lower case before it does anything that this could change."""
    types: bool
    """transformers tells the model which of two texts a token is of."""

    @property
    def end_id(self) -> int:
        """The id that ends a text."""
        return self.spec.affixes.suffix_ids[-1]


class EncoderModel(NamedTuple):
    """An encoder alone, as a family's reader gives it."""

    config: ModelConfig
    model: Transformer
    """With its weights, in fp32."""
    tokenizer: EncoderTokenizer
    weights: Path
    classifier: Classifier | None
    """What gives labels, if something does."""


@dataclass(frozen=True)
class EncoderCheckpoint:
    """A trained encoder, with all that a package says of it."""

    config: ModelConfig
    model: Transformer
    """With its weights, in fp32."""
    tokenizer: TokenizerJsonSpec
    source_languages: tuple[str, ...]
    """BCP-47 tags. None, where the checkpoint does not say."""
    encoding: EncodingDefaults
    dense: tuple[Dense, ...]
    """Of the encoding."""
    scores: Dense | None
    """Of the encoding."""
    classifier: Classifier | None
    """What gives labels, if something does."""
    in_transformers: bool
    """Hugging Face transformers reads the folder too."""
    head_in_transformers: bool
    """It has a class with that head: sentence-transformers alone has those of modules.json."""
    files: dict[str, Path]
    """What belongs into a package as it is."""
    made_files: Mapping[str, str]
    """What was made for the package, and is in no folder yet: name -> content."""
    folder: Path
    """Of the encoder itself."""
    sha256: str
    """Of the weights: see `models.checkpoint.files.weights`."""

    @property
    def vectors(self) -> Encoding:
        """What makes the vectors of a request that leaves all to the model."""
        own = self.encoding
        return Encoding(own.poolings, own.dimensions, own.normalize, dense=self.dense, scores=self.scores)

    def save_layers(self, folder: Path) -> None:
        """Writes the numbers of the encoding's layers."""
        layers = [*self.dense, *([] if self.scores is None else [self.scores])]
        for spec, dense in zip(self.encoding.layers, layers, strict=True):
            dense.save(folder, spec.file)

    def open_tokenizer(self) -> TokenizerJson:
        """Raises TokenizerError."""
        with tokenizer_folder(self.folder, self.made_files, self.files) as folder:
            return TokenizerJson.load(folder, self.tokenizer)


@dataclass(frozen=True)
class Trained:
    """A model that translates, as a family's reader gives it, and how it chooses targets."""

    config: ModelConfig
    model: Transformer
    """With its weights, in fp32."""
    generation: GenerationDefaults
    weights: Path
    start_said: bool = True
    """Its files say what the decoder is fed first."""


@dataclass(frozen=True)
class Checkpoint:
    """A trained model, with all that a package says of it."""

    name: str
    config: AnyConfig
    model: Architecture
    """With its weights, in fp32."""
    tokenizer: TokenizerSpec
    generation: GenerationDefaults
    source_languages: tuple[str, ...]
    """BCP-47 tags. None, where the checkpoint does not say."""
    target_languages: tuple[str, ...]
    files: dict[str, Path]
    """What belongs into a package as it is: the tokenizer's files, licences and notices."""
    sha256: str
    """Of the weights: see `models.checkpoint.files.weights`."""
    in_transformers: bool
    """Hugging Face transformers reads the folder too."""
    needs_languages: bool = True
    """It is for translation, so that a package has to say them. Else it may be of whatever language."""
    made_files: Mapping[str, str] = field(default_factory=dict)
    """What was made for the package, and is in no folder yet: name -> content."""
    languages: Mapping[str, TargetLanguage] = field(default_factory=dict)
    """What the decoder is told of each target language, if it is told."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """What may be put before a text, by name; the first is put there unless a request says otherwise."""
    encoding: EncodingDefaults = field(default_factory=EncodingDefaults)
    scores: Dense | None = None
    """Of the encoding."""
    shortlist: Path | None = None
    """A lexical shortlist, see `models.package.shortlist`."""
    pinned: str | None = None
    """The name it was fetched by, see `models.package.manifest.Origin`."""

    def open_tokenizer(self, folder: Path) -> Tokenizer:
        """folder: the checkpoint's. Raises TokenizerError."""
        with tokenizer_folder(folder, self.made_files, self.files) as found:
            return open_tokenizer(found, self.tokenizer)

    def make_files(self, folder: Path) -> None:
        """Writes what was made, and what scores a hidden state."""
        write_made(folder, self.made_files)
        if self.encoding.scores is not None and self.scores is not None:
            self.scores.save(folder, self.encoding.scores.file)

    @property
    def transformer(self) -> Transformer:
        """Its model, for what knows no other architecture. Raises CheckpointError where it is another."""
        if not isinstance(self.model, Transformer):
            raise CheckpointError(
                f"{self.name} is a model of the architecture {self.config.architecture!r}; this takes a transformer"
            )
        return self.model

    @property
    def sentencepiece(self) -> SentencePieceSpec:
        """Its tokenizer, for what works with pieces. Raises CheckpointError where it has another kind."""
        if not isinstance(self.tokenizer, SentencePieceSpec):
            raise CheckpointError(
                f"{self.name} has a tokenizer of kind {self.tokenizer.kind!r}; this takes one of SentencePiece models"
            )
        return self.tokenizer
