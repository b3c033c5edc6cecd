"""manifest.json of a package whose files are all there, though there is nothing in them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from models.package.checked import PackageError
from models.package.folder import MANIFEST, Package
from tests.fuzz import CORPUS, Attempt

WHOLE = CORPUS / "manifests" / "whole.json"


@contextmanager
def trying() -> Iterator[Attempt]:
    with TemporaryDirectory() as folder:
        for name, entry in json.loads(WHOLE.read_bytes())["files"].items():
            (Path(folder) / name).write_bytes(bytes(entry["size_bytes"]))
        yield lambda data: attempt(Path(folder), data)


def attempt(folder: Path, data: bytes) -> None:
    """It is refused, or the package opens; and what it declares can be read, or is refused."""
    (folder / MANIFEST).write_bytes(data)
    with suppress(PackageError):
        package = Package.open(folder)
        package.dense()
        package.classifier()
        package.graphs()
