"""The package: the folder that export writes and the server opens.

    manifest.json   what everything is, with the size and SHA-256 of every other file. Written last
    encoder.onnx    the graphs of `models.package.signature`
    decoder.onnx
    output.onnx     with a shortlist only
    native_encoder.onnx   graphs of our own operators (kernels/README.md). Optional
    native_decoder.onnx
    native_named.onnx     logits of few tokens
    logits.onnx     whole rows of logits for them
    weights.bin     the weights of all graphs, each once; or the checkpoint's model.safetensors
    shortlist.bin   the tokens that each source token may become, see `models.package.shortlist`. Optional
    ...             the tokenizer's files

A folder that is half written, cut short or altered does not open.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from pydantic import ValidationError

from models.disk import hold, sync, turn
from models.encoding.classifier import Classifier
from models.encoding.dense import Dense, DenseError, DenseSpec
from models.package import format1
from models.package.checked import EXPORT_AGAIN, PackageError, check, unreadable
from models.package.graph_files import GraphFiles
from models.package.graph_tensors import check_graphs
from models.package.manifest import FORMAT_VERSION, FileEntry, Manifest, first_fault
from models.package.shortlist import Shortlist, ShortlistError
from models.tokenizers.spec import open_tokenizer
from models.tokenizers.tokenizer import Tokenizer

MANIFEST = "manifest.json"
MOST_MANIFEST = 1 << 24
"""Bytes. One of two hundred languages has some 100 kB."""
FIRST_KEYS = 1 << 12
"""Bytes of a manifest in which its format version is."""
SIGNATURE = "manifest.json.sig"
"""Who made it, if anybody says so: see `models.package.seal`."""
Seal = Callable[[Path], object]
"""Signs a manifest."""
SAMPLE = "A cat, 2 cats."
"""A text that every tokenizer has tokens for."""
DRAFT, REPLACED = "package", "replaced"
"""In the folder that a package is prepared in: itself, and the former one while they change places."""
CHECKPOINT = "config.json"
"""No package that stands alone has it."""


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
            check(folder / name, entry)
        _check_vocabulary(folder, manifest)
        return cls(folder, manifest, hashlib.sha256(data).hexdigest())

    def tokenizer(self) -> Tokenizer:
        """Loads the tokenizer.

        Raises TokenizerError, and PackageError if its files have changed since the package was opened, or it gives
        tokens that the model does not have.
        """
        tokenizer = open_tokenizer(self.folder, self.manifest.tokenizer)
        self._check_again(self.manifest.tokenizer.files)
        self._check_tokens(tokenizer)
        return tokenizer

    def _check_tokens(self, tokenizer: Tokenizer) -> None:
        """Of a text in every language: what is around each of them is in all requests."""
        manifest, size = self.manifest, self.manifest.graphs.vocabulary.source_size
        pairs = [("", ""), *(("", source) for source in manifest.source_languages)]
        for target, source in [*pairs, *((target, "") for target in manifest.target_languages)]:
            strange = [token for token in tokenizer.encode(SAMPLE, target, source) if not 0 <= token < size]
            if strange:
                raise PackageError(
                    f"{self.folder}: the tokenizer gives {SAMPLE!r} the token {strange[0]}; the model has {size} "
                    f"source tokens, from 0 on: {EXPORT_AGAIN}"
                )

    def tokenizes_as(self, other: "Package") -> bool:
        """Whether both have the same tokenizer, file by file."""
        spec, ours, theirs = self.manifest.tokenizer, self.manifest.files, other.manifest.files
        return spec == other.manifest.tokenizer and all(ours.get(name) == theirs.get(name) for name in spec.files)

    def dense(self) -> tuple[Dense, ...]:
        """What pooled vectors go through. Raises PackageError."""
        return self._load(self.manifest.encoding.dense)

    def scores(self) -> Dense | None:
        """What scores a hidden state, of a model with the pooling "attention". Raises PackageError."""
        spec = self.manifest.encoding.scores
        return None if spec is None else self._load([spec])[0]

    def classifier(self) -> Classifier | None:
        """What gives labels, if something does. Raises PackageError."""
        spec = self.manifest.classifier
        return None if spec is None else Classifier(spec, self._load(spec.layers))

    def _load(self, layers: Iterable[DenseSpec]) -> tuple[Dense, ...]:
        specs = tuple(layers)
        try:
            loaded = tuple(Dense.load(self.folder, spec) for spec in specs)
        except DenseError as error:
            raise PackageError(f"{error}; {EXPORT_AGAIN}") from error
        self._check_again(spec.file for spec in specs)
        return loaded

    def graphs(self) -> GraphFiles:
        """The graphs, with the shortlist, if there is one. Raises PackageError."""
        shortlist, files, weights = self._shortlist(), self.manifest.files, self.manifest.weights
        # Where a link leads now: it may lead to the next version when a graph is first needed.
        graphs = GraphFiles(self.folder.resolve(), self.manifest.graphs, shortlist, files, weights, self.folder)
        check_graphs(graphs)
        return graphs

    def _shortlist(self) -> Shortlist | None:
        name = self.manifest.shortlist
        if name is None:
            return None
        try:
            table = Shortlist.load(self.folder / name, self.manifest.graphs.vocabulary)
        except ShortlistError as error:
            raise PackageError(f"{error}; {EXPORT_AGAIN}") from error
        self._check_again([name])
        return table

    def _check_again(self, names: Iterable[str]) -> None:
        """Files that were read after they were checked are as they were: what was read is what is signed."""
        for name in names:
            check(self.folder / name, self.manifest.files[name])


@contextmanager
def draft(target: Path) -> Iterator[Path]:
    """A folder to prepare a package in, on the same file system as `target`.

    It is gone afterwards, with everything in it, unless `publish` moved it to its place. So are those of processes that
    were killed. Raises PackageError where `target` is something that a package must not replace.
    """
    check_target(target)
    target = _behind(target)
    _remove_left(target)
    new_parents = [parent for parent in target.parents if not parent.exists()]
    workspace = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    with ExitStack() as held:  # until it is gone
        try:  # before the first folder is made: Ctrl-C may come at any point
            _make(workspace, target)
            held.enter_context(turn(workspace))  # without locks nobody takes it for one that was left
            folder = workspace / DRAFT
            folder.mkdir()
            yield folder
        except OSError as error:
            error.filename = error.filename or str(target)  # who writes to a full disk is not told where
            raise
        finally:
            if workspace.exists():
                shutil.rmtree(workspace)
            for parent in new_parents:
                with suppress(OSError):  # not empty: the package is there
                    parent.rmdir()


def _remove_left(target: Path) -> None:
    """What processes left beside it that were killed: a folder that nobody holds, and has something in it already."""
    for workspace in [*target.parent.glob(f".{escape(target.name)}.{'[0-9a-f]' * 16}")]:
        with suppress(OSError), hold(workspace, wait=False):
            if not (workspace / DRAFT).exists() and not (workspace / REPLACED).exists():
                continue  # one that begins
            if (workspace / REPLACED).exists() and not target.exists():
                (workspace / REPLACED).rename(target)
            shutil.rmtree(workspace)


def file_entries(folder: Path) -> dict[str, FileEntry]:
    """What `Manifest.files` says of the files of a folder."""
    files = sorted(folder.iterdir())
    return {file.name: FileEntry(sha256=sha256(file), size_bytes=file.stat().st_size) for file in files}


def publish(folder: Path, manifest: Manifest, target: Path, seal: Seal | None = None) -> None:
    """Makes a finished draft the package at `target`, or where a link there leads. The former one stands until then.

    Of several processes that do so the last one's stands.
    """
    target = _behind(target)
    _finish(folder, manifest, seal)
    for path in [*folder.iterdir(), folder]:
        sync(path)
    replaced = folder.parent / REPLACED
    with turn(target.parent):
        try:
            if target.exists():
                target.rename(replaced)
            folder.rename(target)
        except BaseException:  # Ctrl-C too must not leave the target empty
            if replaced.exists() and not target.exists():
                replaced.rename(target)
            raise
        sync(target.parent)


def _behind(target: Path) -> Path:
    """A link says where the package lies, and stays: what is in its place may have no room for one."""
    return target.resolve() if target.is_symlink() else target


def publish_beside(folder: Path, manifest: Manifest, checkpoint: Path, seal: Seal | None = None) -> None:
    """Moves what is new of a finished draft into the folder of the checkpoint it was made of, the manifest last."""
    _finish(folder, manifest, seal)
    with turn(checkpoint):  # files of two exports would be no package
        (checkpoint / SIGNATURE).unlink(missing_ok=True)
        for name in [*manifest.files, MANIFEST, *([] if seal is None else [SIGNATURE])]:
            file, place = folder / name, checkpoint / name
            if not place.exists() or sha256(place) != sha256(file):
                sync(file)
                file.replace(place)
        sync(checkpoint)


def _finish(folder: Path, manifest: Manifest, seal: Seal | None) -> None:
    (folder / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    if seal is not None:
        seal(folder / MANIFEST)


def sha256(file: Path) -> str:
    """Of a file's content, lower-case hexadecimal."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _read_manifest(folder: Path) -> bytes:
    file = folder / MANIFEST
    try:
        if file.exists() and not file.is_file():  # a pipe would never be read to its end
            raise PackageError(f"{file} is no file; {EXPORT_AGAIN}")
        with file.open("rb") as content:
            data = content.read(MOST_MANIFEST + 1)
    except PermissionError as error:
        raise unreadable(file, error) from error
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte, or with half a character
        raise PackageError(
            f"{folder} is not a package: {MANIFEST} cannot be read ({getattr(error, 'strerror', None) or error}). "
            f"Make one with: python -m export {_made_of(folder)}"
        ) from error
    if len(data) > MOST_MANIFEST:
        raise PackageError(f"{file} has more than {MOST_MANIFEST} bytes, which no manifest has; {EXPORT_AGAIN}")
    return data


def _made_of(folder: Path) -> str:
    """What export is to be given for a package in a folder, which may be the checkpoint itself."""
    return str(folder) if os.path.isfile(folder / "config.json") else f"CHECKPOINT --out {folder}"


def _parse_manifest(folder: Path, data: bytes) -> Manifest:
    file = folder / MANIFEST
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PackageError(f"{file} is not JSON ({error}); {EXPORT_AGAIN}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if type(version) is not int or version not in (1, FORMAT_VERSION):
        raise PackageError(
            f"{file} has format version {version!r}; this Dragoman reads versions 1 and {FORMAT_VERSION}. "
            f"Use the Dragoman that wrote it, or {EXPORT_AGAIN} with this one"
        )
    try:
        return Manifest.model_validate_json(json.dumps(format1.to_format2(content)) if version == 1 else data)
    except ValidationError as error:
        raise PackageError(f"{file}: {first_fault(error)}; {EXPORT_AGAIN}") from error


def _check_vocabulary(folder: Path, manifest: Manifest) -> None:
    """A token has a number of at least a byte for each unit of the model's width."""
    spec = manifest.graphs
    tokens = max(spec.vocabulary.source_size, spec.vocabulary.target_size)
    weights = manifest.files[manifest.weights].size_bytes
    if tokens * spec.width > weights:
        raise PackageError(
            f"{folder / MANIFEST}: {tokens} tokens of width {spec.width} take at least {tokens * spec.width} bytes, "
            f"and the weights have {weights}; {EXPORT_AGAIN}"
        )


def _make(workspace: Path, target: Path) -> None:
    """Raises PackageError, which names what was asked for."""
    try:
        workspace.mkdir(parents=True)
    except OSError as error:
        raise PackageError(f"{target} cannot be made ({error.strerror}); choose another place") from error


def check_target(target: Path) -> None:
    """Export replaces packages, and nothing else: `--out` with a slip in it must not cost anyone a folder.

    Nor the time until it would be written. Raises PackageError.
    """
    if target.is_symlink() and not target.exists():
        raise PackageError(f"{target} is a link to what is not there; choose another place, or remove it first")
    if _behind(target).name in ("", ".."):  # whoever stands in a folder goes with it where another takes its place
        raise PackageError(f"{target} is the folder that you are in, or one around it; name it from outside")
    place = next(parent for parent in _behind(target).absolute().parents if parent.exists())
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        raise PackageError(f"{target} cannot be made: {place} is no folder to write to; choose another place")
    if (target / CHECKPOINT).exists():  # which nobody is to be told to delete
        raise PackageError(
            f"{target} has a checkpoint ({CHECKPOINT}); choose another place, or make it a package with --in-place"
        )
    if target.exists() and not _is_package(target) and not (target.is_dir() and not any(target.iterdir())):
        raise PackageError(f"{target} exists and is not a package; choose another place, or delete it first")


def _is_package(folder: Path) -> bool:
    """Whether a manifest of ours is there, be it cut short: browsers' extensions have a manifest.json, too."""
    file = folder / MANIFEST
    if not file.is_file():
        return False
    with file.open("rb") as content:
        return b'"format_version"' in content.read(FIRST_KEYS)
