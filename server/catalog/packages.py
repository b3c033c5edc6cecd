"""The packages that the settings name, each of them whole, and signed if it has to be."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.loading.load import Loadable
from models.package.checked import PackageError
from models.package.folder import MANIFEST, Package
from models.package.seal import SealError, check_seal, public_key
from models.tokenizers.tokenizer import Tokenizer, TokenizerError
from server.config import ConfigError, Settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

log = logging.getLogger(__name__)

LOST_FOUND = "lost+found"
"""Of ext4: at the top of each volume, and root's alone."""


@dataclass(frozen=True)
class OpenPackage:
    """A package, and what is loaded of it."""

    package: Package
    tokenizer: Tokenizer
    loadable: Loadable

    @property
    def name(self) -> str:
        return self.package.manifest.name


def open_packages(settings: Settings) -> list[OpenPackage]:
    """All of them, in their order. Raises ConfigError, which names what cannot be used, or SealError for a bad key."""
    key = None if settings.require_signed is None else public_key(settings.require_signed)
    opened: list[OpenPackage] = []
    for folder in package_folders(settings.package):
        try:
            opened.append(_open(folder, key))
        except (PackageError, SealError, TokenizerError) as error:
            told = str(error) if str(folder) in str(error) else f"{folder}: {error}"
            if not settings.skip_bad:
                raise ConfigError(told) from error
            log.error("a package is left out: %s", told)
    if not opened:
        raise ConfigError("of the packages none can be used; the log says why")
    _check_names(opened)
    if key is not None:
        log.info("%d packages are signed by the owner of %s", len(opened), settings.require_signed)
    return opened


def package_folders(paths: Sequence[Path]) -> Iterator[Path]:
    """The folders of all packages. A folder without a manifest stands for those that it has, in alphabetical order."""
    for path in paths:
        try:
            inside = [] if (path / MANIFEST).exists() else _folders_of(path)
        except (OSError, ValueError):  # a name that is too long, or a folder of others: who opens it says which
            inside = []
        yield from inside if any(map(_may_be_package, inside)) else [path]


def _folders_of(path: Path) -> list[Path]:
    """Those that are not the file system's own, or hidden. A volume of Kubernetes has both."""
    if not path.is_dir():
        return []
    folders = (folder for folder in path.iterdir() if folder.is_dir())
    return sorted(folder for folder in folders if not folder.name.startswith(".") and folder.name != LOST_FOUND)


def _may_be_package(folder: Path) -> bool:
    """Whether it has a manifest, or nobody may look: who opens it says so."""
    try:
        return (folder / MANIFEST).exists()
    except OSError:
        return True


def open_again(settings: Settings, served: OpenPackage) -> OpenPackage:
    """What the folder of a package has now. Raises PackageError, SealError or TokenizerError."""
    key = None if settings.require_signed is None else public_key(settings.require_signed)
    return _open(served.package.folder, key, served)


def _open(folder: Path, key: "Ed25519PublicKey | None", served: OpenPackage | None = None) -> OpenPackage:
    """served: a version whose tokenizer is taken, if it is the same. To load one keeps the interpreter from calls."""
    package = Package.open(folder)
    if key is not None:
        check_seal(package, key)
    known = served if served is not None and package.tokenizes_as(served.package) else None
    return OpenPackage(package, known.tokenizer if known else package.tokenizer(), Loadable.of(package))


def _check_names(opened: Sequence[OpenPackage]) -> None:
    """Raises ConfigError for two of one name: calls could mean either."""
    folders: dict[str, Path] = {}
    for one in opened:
        folder = one.package.folder
        if one.name in folders:
            raise ConfigError(
                f"{folders[one.name]} and {folder} are both named {one.name}: leave one out, or export it again with "
                "another --name"
            )
        folders[one.name] = folder
