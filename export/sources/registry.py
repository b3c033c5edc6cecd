"""Mozilla's model registry: for each pair of languages, the newest model of each architecture.

It is a JSON file that `db/updater.py` of https://github.com/mozilla/translations writes, with the paths of the models'
compressed files. It gives the SHA-256 of a model before compression, and no hash of the other files.
"""

import difflib
import re
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, Field, ValidationError

from export.sources.download import get
from export.sources.fetched import SourceError
from models.package.manifest import first_fault

HASH_LENGTH = 12
"""Digits of a model's SHA-256 that name it."""


class RegistryFile(BaseModel):
    """A file of a model."""

    path: str = Field(pattern=r"^[^/].*/[\w-][\w.-]*\.gz$")
    """Below the registry's base URL."""

    @property
    def name(self) -> str:
        """Without its folder, and unpacked."""
        return self.path.rpartition("/")[2].removesuffix(".gz")


class ModelFile(RegistryFile):
    """The weights."""

    sha256: str = Field(alias="uncompressedHash", pattern=r"^[0-9a-f]{64}$")


class Files(BaseModel):
    """What belongs to a model: one vocabulary, or one for each side, and perhaps a shortlist."""

    model: ModelFile
    vocab: RegistryFile | None = None
    source_vocab: RegistryFile | None = Field(default=None, alias="srcVocab")
    target_vocab: RegistryFile | None = Field(default=None, alias="trgVocab")
    shortlist: RegistryFile | None = Field(default=None, alias="lexicalShortlist")

    @property
    def all(self) -> list[RegistryFile]:
        """Those that there are."""
        files = (self.model, self.vocab, self.source_vocab, self.target_vocab, self.shortlist)
        return [file for file in files if file is not None]


class Record(BaseModel):
    """A model."""

    architecture: str
    release_status: str | None = Field(default=None, alias="releaseStatus")
    """Release, Release Desktop, Release Android, Nightly; none: not in any Firefox."""
    source: str = Field(alias="sourceLanguage")
    target: str = Field(alias="targetLanguage")
    files: Files

    @property
    def version(self) -> str:
        """Names exactly these weights."""
        return self.files.model.sha256[:HASH_LENGTH]

    @property
    def released(self) -> bool:
        return (self.release_status or "").startswith("Release")


class Registry(BaseModel):
    """What the registry says."""

    base_url: str = Field(alias="baseUrl", pattern=r"^https?://")
    models: Mapping[str, Sequence[object]]
    """Records, by pair like en-pt. They are read when they are needed, so that one cannot spoil the others."""

    def find(self, pair: str, which: str) -> Record:
        """The model of a pair; `which`, if not empty, is an architecture or a version. Raises SourceError."""
        records = self._records(pair)
        if not which:
            return min(records, key=lambda record: (not record.released, record.release_status != "Release"))
        for record in records:
            if which == record.architecture or re.fullmatch(rf"{record.version}[0-9a-f]*", which):
                return record
        known = ", ".join(f"@{record.architecture} (now @{record.version})" for record in records)
        raise SourceError(f"firefox:{pair}: there is no {which!r} any more, or never was; there is {known}")

    def _records(self, pair: str) -> list[Record]:
        if not self.models.get(pair):
            raise SourceError(f"firefox:{pair}: Mozilla has no model of this pair; {self._others(pair)}")
        try:
            return [Record.model_validate(record) for record in self.models[pair]]
        except ValidationError as error:
            raise SourceError(
                f"firefox:{pair}: the registry's record is not as expected ({first_fault(error)})"
            ) from error

    def _others(self, pair: str) -> str:
        source, _, target = pair.partition("-")
        from_there = sorted(other for other in self.models if other.partition("-")[0] == source)
        to_there = sorted(other for other in self.models if other.partition("-")[2] == target)
        close = difflib.get_close_matches(pair, self.models, n=5)
        others = [*from_there, *to_there] or close or sorted(self.models)
        return f"there is {', '.join(others)}"


def read_registry(url: str) -> Registry:
    """Gets the registry. Raises SourceError."""
    try:
        return Registry.model_validate_json(get(url))
    except ValidationError as error:
        raise SourceError(f"{url} is no registry of models ({first_fault(error)}); check --firefox-registry") from error
