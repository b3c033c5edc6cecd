"""The packages of a node: the same as where the application was deployed from, or the replica does not start."""

from collections.abc import Sequence

from deploy.ray.arguments import Group
from server.catalog.packages import OpenPackage, open_packages
from server.config import ConfigError

WAY_OUT = "put the same packages on every node, and deploy again"


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
