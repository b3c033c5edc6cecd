"""The packages of a node: the same as where the application was made, or the replica does not start.

Ray Serve makes it of its file in a task, which runs on any node of the cluster.
"""

from collections.abc import Sequence
from pathlib import Path

from deploy.ray.arguments import Group
from dragoman.bulk.engine import package_hashes
from dragoman.bulk.errors import WrongUsage
from models.package.checked import PackageError
from models.package.folder import Package
from server.catalog.packages import OpenPackage, open_packages, package_folders
from server.config import ConfigError

MADE = "where Ray Serve has made the application"
WAY_OUT = "put the same packages on every node, and deploy again with another `revision` in args"


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


def hashes_of(group: Group, node: str) -> list[str]:
    """The SHA-256 of its packages on this node. Raises ConfigError, which names it, where one is not there."""
    try:
        return package_hashes(group.packages)
    except WrongUsage as error:
        raise ConfigError(f"on node {node}, where the application is made: {error}; {WAY_OUT}") from error


def packages_of(group: Group, hashes: Sequence[str], made_on: str, node: str) -> list[OpenPackage]:
    """Raises ConfigError, which names the node, where a package is not there, or another one.

    hashes: their SHA-256 on the node `made_on`, where the application was made
    """
    try:
        packages = open_packages(group.server_settings())
    except ConfigError as error:
        raise ConfigError(f"on node {node}: {error}; {WAY_OUT}") from error
    if len(packages) != len(hashes):
        folders = ", ".join(str(one.package.folder) for one in packages)
        told = f"there are {len(packages)} packages ({folders}), and {len(hashes)} on node {made_on}, {MADE}"
        raise ConfigError(f"on node {node}: of {group.name} {told}: {WAY_OUT}")
    wrong = [
        f"{one.package.folder} has SHA-256 {one.package.sha256}, and {expected} on node {made_on}, {MADE}"
        for one, expected in zip(packages, hashes, strict=True)
        if one.package.sha256 != expected
    ]
    if wrong:
        raise ConfigError(f"on node {node}: {'; '.join(wrong)}: {WAY_OUT}")
    return packages
