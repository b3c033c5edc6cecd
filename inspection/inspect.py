"""A package and a text -> what there is to show."""

from pathlib import Path

from inspection.alone import inspect_encoder
from inspection.findings import Findings, InspectionError, Wanted, inspect_search
from models.package.folder import Package


def inspect(folder: Path, wanted: Wanted) -> Findings:
    """Runs a package on one text. Raises PackageError, TokenizerError, DeviceError, EngineError, InspectionError."""
    try:
        wanted.text.encode()
    except UnicodeEncodeError as error:
        raise InspectionError(f"the text is not UTF-8: character {error.start + 1} is not whole") from error
    package = Package.open(folder)
    if package.manifest.graphs.decoder is None:
        return inspect_encoder(package, wanted)
    return inspect_search(package, wanted)
