"""The packages of a node: the same as where the application was deployed from, or the replica does not start."""

from collections.abc import Sequence
from pathlib import Path

from deploy.ray.arguments import Group
from models.package.checked import PackageError
from models.package.folder import Package
from server.catalog.packages import OpenPackage, open_packages, package_folders
from server.config import ConfigError

WAY_OUT = "put the same packages on every node, and deploy again"


def check_models(groups: Sequence[Group]) -> None:
    """Raises ConfigError where two groups have models of one name: an entry would know one of them alone."""
    found: dict[str, tuple[str, Path]] = {}
    for group in groups:
        for folder in package_folders(group.packages):
            try:
                name = Package.open(folder).manifest.name
            except PackageError as error:
                raise ConfigError(f"group {group.name}: {error}") from error
            other, where = found.setdefault(name, (group.name, folder))
            if other != group.name:
                raise ConfigError(
                    f"{where} of group {other} and {folder} of group {group.name} are both named {name}: leave one "
                    "out, or export it again with another --name"
                )


def packages_of(group: Group, hashes: Sequence[str], node: str) -> list[OpenPackage]:
    """Raises ConfigError, which names the node, where a package is not there, or another one.

    hashes: their SHA-256 where the application was deployed from
    """
    try:
        packages = open_packages(group.server_settings())
    except ConfigError as error:
        raise ConfigError(f"on node {node}: {error}; {WAY_OUT}") from error
    if len(packages) != len(hashes):
        folders = ", ".join(str(one.package.folder) for one in packages)
        told = f"there are {len(packages)} packages ({folders}), and {len(hashes)} where it was deployed from"
        raise ConfigError(f"on node {node}: of {group.name} {told}: {WAY_OUT}")
    wrong = [
        f"{one.package.folder} has SHA-256 {one.package.sha256}, and {expected} where it was deployed from"
        for one, expected in zip(packages, hashes, strict=True)
        if one.package.sha256 != expected
    ]
    if wrong:
        raise ConfigError(f"on node {node}: {'; '.join(wrong)}: {WAY_OUT}")
    return packages
