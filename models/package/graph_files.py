"""The graphs of a package where they lie, and in memory."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from models.package.checked import PackageError, read
from models.package.declared.graphs import GraphsSpec
from models.package.manifest import WEIGHTS, FileEntry
from models.package.shortlist import Shortlist


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph in memory, and the one file that it may take weights from."""

    content: bytes
    weights_file: str
    weights: bytes | Path
    """What the file has, or the folder where it lies."""


class GraphContents:
    """What the files had when they were read. Only for as long as graphs are loaded: the weights are in it.

    Those of a folder that is no package yet are not read: what nobody else knows of, nobody changes, and ONNX Runtime
    maps them.
    """

    def __init__(self, folder: Path, entries: Mapping[str, FileEntry], weights: str) -> None:
        """Reads the weights. Raises PackageError."""
        self._folder, self._entries, self._weights_file = folder, entries, weights
        self._weights = self._read(weights) if entries else folder

    def graph(self, file: str) -> Graph:
        """Raises PackageError."""
        return Graph(self._read(file), self._weights_file, self._weights)

    def _read(self, file: str) -> bytes:
        return read(self._folder / file, self._entries.get(file))


@dataclass(frozen=True, slots=True)
class GraphFiles:
    """What a decoder opens: the graphs of a folder, which need not be a whole package yet."""

    folder: Path
    spec: GraphsSpec
    shortlist: Shortlist | None = None
    """What each source may become, if there is an output graph."""
    entries: Mapping[str, FileEntry] = field(default_factory=dict)
    """What the manifest says of its files. Empty: there is none yet."""
    weights: str = WEIGHTS
    """The file that its graphs take weights from."""
    link: Path | None = None
    """What led to the folder. It may lead to an equal package when that is gone."""

    def contents(self) -> GraphContents:
        """Private copies of a package's: nobody changes what is served.

        Raises PackageError where a file was changed meanwhile.
        """
        try:
            return GraphContents(self.folder, self.entries, self.weights)
        except PackageError:
            if self.link is not None:
                with suppress(PackageError):  # the first one tells of the package that is served
                    return GraphContents(self.link, self.entries, self.weights)
            raise

    @property
    def encoder(self) -> Path:
        return self.folder / self.spec.encoder.file

    @property
    def decoder(self) -> Path:
        """There must be one."""
        assert self.spec.decoder is not None
        return self.folder / self.spec.decoder.file
