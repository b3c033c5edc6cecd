"""Removes a package that `dragoman pull` keeps: `dragoman rm NAME`. It needs no torch."""

import shutil
import sys
from collections.abc import Sequence

from dragoman.command.flags.parsing import Outspoken
from models.package.home import home, local


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 where nothing is kept under the name, or it cannot be removed."""
    parser = Outspoken("dragoman rm", description="Removes a package from $DRAGOMAN_HOME.")
    parser.add_argument("name", help="as `dragoman show` lists it")
    name: str = parser.parse_args(arguments).name
    kept = {folder.name: folder for folder in local()}
    if name not in kept:
        known = ", ".join(kept) or "none"
        print(f"error: {name} is no package in {home()}, which has {known}", file=sys.stderr)
        return 2
    if kept[name].is_symlink():
        kept[name].unlink()
        print(f"{kept[name]} is gone; it was a link, and the package is where it was")
        return 0
    size = sum(file.stat().st_size for file in kept[name].rglob("*") if file.is_file())
    try:
        shutil.rmtree(kept[name])
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"{kept[name]} is gone, and {size / 1e6:.1f} MB are free")
    return 0


if __name__ == "__main__":
    sys.exit(main())
