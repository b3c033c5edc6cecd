"""The graphs of a package where they lie."""

from dataclasses import dataclass
from pathlib import Path

from models.package.graphs import GraphsSpec
from models.package.shortlist import Shortlist


@dataclass(frozen=True, slots=True)
class GraphFiles:
    """What a decoder opens: the graphs of a folder, which need not be a whole package yet."""

    folder: Path
    spec: GraphsSpec
    shortlist: Shortlist | None = None
    """What each source may become, if there is an output graph."""

    @property
    def encoder(self) -> Path:
        return self.folder / self.spec.encoder.file

    @property
    def decoder(self) -> Path:
        return self.folder / self.spec.decoder.file

    @property
    def output(self) -> Path | None:
        return None if self.spec.output is None else self.folder / self.spec.output.file
