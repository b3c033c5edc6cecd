"""The Ray that bulk and the application of deploy/ray are made for."""

from importlib.metadata import PackageNotFoundError, version

from dragoman.bulk.errors import WrongUsage

RAY = "2.60.0"
"""Of every node as well: Ray lets no other join."""


def check_version() -> None:
    """Raises WrongUsage where another one is installed, or none."""
    try:
        found = version("ray")
    except PackageNotFoundError as error:
        raise WrongUsage(f"Ray is not installed here: pip install '.[ray]' has {RAY}") from error
    if found != RAY:
        raise WrongUsage(f"Ray {found} is installed, and {RAY} is needed: pip install 'ray[data,serve]=={RAY}'")
