"""The package: the folder that export writes and the server opens.

    manifest.json   what everything is, with the size and SHA-256 of every other file. Written last
    encoder.onnx    the graphs of `models.signature`
    decoder.onnx
    output.onnx     with a shortlist only
    weights.bin     the weights of all graphs, each once
    shortlist.bin   the tokens that each source token may become, see `models.shortlist`. Optional
    ...             the tokenizer's files

A folder that is half written, cut short or altered does not open.
"""

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from models.config import Frozen, ModelConfig
from models.disk import sync
from models.precision import AttentionKind, Precision
from models.shortlist import Shortlist, ShortlistedOutput, ShortlistError
from models.tokenizer import Tokenizer, TokenizerSpec

FORMAT_VERSION: Literal[1] = 1
MANIFEST = "manifest.json"
ENCODER, DECODER, OUTPUT, WEIGHTS = "encoder.onnx", "decoder.onnx", "output.onnx", "weights.bin"
SHORTLIST = "shortlist.bin"
EXPORT_AGAIN = "export the checkpoint again"

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
FileName = Annotated[str, Field(pattern=NAME_PATTERN)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class PackageError(Exception):
    """A package that cannot be opened or written. The message names the file, and says what to do."""


class FileEntry(Frozen):
    """A file of the package."""

    sha256: Sha256
    size_bytes: int = Field(ge=0)


class Source(Frozen):
    """The checkpoint that the package was made from."""

    name: str
    sha256: Sha256
    """Of its weights file."""


class GenerationDefaults(Frozen):
    """How targets are chosen where a request does not say. Names and meanings of Hugging Face `generate`."""

    num_beams: int = Field(default=1, gt=0)
    max_new_tokens: int = Field(gt=0)
    length_penalty: float = Field(default=1.0, allow_inf_nan=False)
    early_stopping: bool | Literal["never"] = False
    forced_end_id: int | None = None
    """The token that every target of `max_new_tokens` ends with."""
    suppressed_ids: tuple[int, ...] = ()
    """Tokens that are never produced."""


class StepError(Frozen):
    """How far the decoder graph is from the PyTorch model, over one step of a batch."""

    rows: int
    past: int
    """Tokens in the cache before the step; of the longest row where `ragged`."""
    ragged: bool
    """Every row is at a position of its own, with a source of its own length."""
    log_prob_error: float
    """Largest absolute difference of a candidate's log-probability."""


class Agreement(Frozen):
    """How many sentences the package translates to exactly the tokens of a reference."""

    reference: Literal["pytorch", "transformers"]
    num_beams: int
    sentences: int
    equal: int


class Certificate(Frozen):
    """What export measured before it wrote the package."""

    device: str = "cpu"
    """What ran the graphs."""
    tolerance: float
    """Largest error that would have been accepted."""
    encoder_error: float
    """Largest absolute difference of a hidden state from the PyTorch model's."""
    steps: tuple[StepError, ...]
    agreements: tuple[Agreement, ...]


class Manifest(Frozen):
    """What manifest.json says."""

    format_version: Literal[1] = FORMAT_VERSION
    name: FileName
    """What requests call the model."""
    model: ModelConfig
    tokenizer: TokenizerSpec
    source_languages: tuple[str, ...]
    """BCP-47 tags."""
    target_languages: tuple[str, ...]
    generation: GenerationDefaults
    precision: Precision = "fp32"
    attention: AttentionKind = "fused"
    encoder_graph: FileName = ENCODER
    decoder_graph: FileName = DECODER
    output_graph: FileName | None = None
    """Of the output layer; there is one if there is a shortlist."""
    shortlist: FileName | None = None
    weights: FileName = WEIGHTS
    files: dict[FileName, FileEntry]
    """Every file but the manifest."""
    checkpoint: Source
    tools: dict[str, str]
    """Versions of the libraries that made it."""
    certificate: Certificate

    @model_validator(mode="after")
    def _complete(self) -> "Manifest":
        if (self.output_graph is None) != (self.shortlist is None):
            raise ValueError(f"output_graph is {self.output_graph} and shortlist is {self.shortlist}; both or neither")
        optional = [file for file in (self.output_graph, self.shortlist) if file is not None]
        used = [self.encoder_graph, self.decoder_graph, self.weights, *optional, *self.tokenizer.files]
        missing = sorted(set(used) - set(self.files))
        if missing:
            raise ValueError(f"files has no entry for {', '.join(missing)}")
        return self


@dataclass(frozen=True)
class Package:
    """A package that was found to be whole."""

    folder: Path
    manifest: Manifest
    sha256: str
    """Of manifest.json, and so of everything it lists."""

    @classmethod
    def open(cls, folder: Path) -> "Package":
        """Reads the manifest and checks every file against it. Raises PackageError."""
        data = _read_manifest(folder)
        manifest = _parse_manifest(folder, data)
        for name, entry in manifest.files.items():
            _check_file(folder / name, entry)
        return cls(folder, manifest, hashlib.sha256(data).hexdigest())

    @property
    def encoder_graph(self) -> Path:
        return self.folder / self.manifest.encoder_graph

    @property
    def decoder_graph(self) -> Path:
        return self.folder / self.manifest.decoder_graph

    def tokenizer(self) -> Tokenizer:
        """Loads the tokenizer."""
        return Tokenizer.load(self.folder, self.manifest.tokenizer)

    def choice(self) -> ShortlistedOutput | None:
        """Loads the shortlist, if there is one. Raises PackageError."""
        manifest = self.manifest
        if manifest.shortlist is None or manifest.output_graph is None:
            return None
        try:
            shortlist = Shortlist.load(self.folder / manifest.shortlist, manifest.model)
        except ShortlistError as error:
            raise PackageError(f"{error}; {EXPORT_AGAIN}") from error
        return ShortlistedOutput(shortlist, self.folder / manifest.output_graph)


@contextmanager
def draft(target: Path) -> Iterator[Path]:
    """A folder to prepare a package in, on the same file system as `target`.

    It is gone afterwards, with everything in it, unless `publish` moved it to its place. Raises PackageError where
    `target` is something that a package must not replace.
    """
    _check_target(target)
    new_parents = [parent for parent in target.parents if not parent.exists()]
    workspace = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:  # before the first folder is made: Ctrl-C may come at any point
        folder = workspace / "package"
        folder.mkdir(parents=True)
        yield folder
    finally:
        if workspace.exists():
            shutil.rmtree(workspace)
        for parent in new_parents:
            with suppress(OSError):  # not empty: the package is there
                parent.rmdir()


def file_entries(folder: Path) -> dict[str, FileEntry]:
    """What `Manifest.files` says of the files of a folder."""
    files = sorted(folder.iterdir())
    return {file.name: FileEntry(sha256=sha256(file), size_bytes=file.stat().st_size) for file in files}


def publish(folder: Path, manifest: Manifest, target: Path) -> None:
    """Makes a finished draft the package at `target`. A package that stood there stands until then."""
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    for path in [*folder.iterdir(), folder]:
        sync(path)
    replaced = folder.parent / "replaced"
    try:
        if target.exists():
            target.rename(replaced)
        folder.rename(target)
    except BaseException:  # Ctrl-C too must not leave the target empty
        if replaced.exists() and not target.exists():
            replaced.rename(target)
        raise
    sync(target.parent)


def sha256(file: Path) -> str:
    """Of a file's content, lower-case hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _read_manifest(folder: Path) -> bytes:
    try:
        return (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise PackageError(
            f"{folder} is not a package: {MANIFEST} cannot be read ({error.strerror}). "
            f"Make one with: python -m export CHECKPOINT --out {folder}"
        ) from error


def _parse_manifest(folder: Path, data: bytes) -> Manifest:
    file = folder / MANIFEST
    try:
        content = json.loads(data)
    except ValueError as error:
        raise PackageError(f"{file} is not JSON ({error}); {EXPORT_AGAIN}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        raise PackageError(
            f"{file} has format version {version!r}; this Dragoman reads version {FORMAT_VERSION}. "
            f"Use the Dragoman that wrote it, or {EXPORT_AGAIN} with this one"
        )
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        raise PackageError(f"{file}: {describe(error)}; {EXPORT_AGAIN}") from error


def _check_file(file: Path, expected: FileEntry) -> None:
    try:
        size = file.stat().st_size
        found = sha256(file)
    except OSError as error:
        raise PackageError(f"{file} cannot be read ({error.strerror}); {EXPORT_AGAIN}") from error
    if size != expected.size_bytes:
        raise PackageError(
            f"{file} was changed: it has {size} bytes, {MANIFEST} says {expected.size_bytes}; {EXPORT_AGAIN}"
        )
    if found != expected.sha256:
        raise PackageError(
            f"{file} was changed: its SHA-256 is {found}, {MANIFEST} says {expected.sha256}; {EXPORT_AGAIN}"
        )


def describe(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def _check_target(target: Path) -> None:
    """Export replaces packages, and nothing else: `--out` with a slip in it must not cost anyone a folder."""
    if target.exists() and not (target / MANIFEST).exists() and not (target.is_dir() and not any(target.iterdir())):
        raise PackageError(f"{target} exists and is not a package; choose another place, or delete it first")
