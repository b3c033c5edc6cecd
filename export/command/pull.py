"""Fetches a model and makes a package of it, under a name: `dragoman pull hf:OWNER/NAME`.

Nothing else fetches anything: a server opens only what is there.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from dragoman.command.flags.parsing import Outspoken
from export.__main__ import main as export
from export.command.show import licence
from export.sources import source_of
from models.package.checked import PackageError
from models.package.folder import Package
from models.package.home import home, place_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns what export does: 0, 1, 2 or 130. Exits the process for `--help` and wrong usage."""
    parser = Outspoken(
        "dragoman pull",
        description="Fetches a checkpoint, exports and verifies it, and keeps the package in $DRAGOMAN_HOME.",
        epilog="Options of `dragoman export` may follow, but for --out and --in-place.",
        allow_abbrev=False,
    )
    parser.add_argument("checkpoint", metavar="NAME", help="hf:OWNER/NAME[@REVISION] or firefox:PAIR")
    asked, options = parser.parse_known_args(arguments)
    if source_of(asked.checkpoint) == "folder":
        way = "pull takes hf:OWNER/NAME or firefox:PAIR; of a folder, dragoman export makes a package"
        parser.error(f"{asked.checkpoint} is no name of a model: {way}")
    if {"--out", "--in-place"} & {option.partition("=")[0] for option in options}:
        parser.error("the package goes to $DRAGOMAN_HOME; dragoman export takes --out and --in-place")
    target = place_of(asked.checkpoint)
    if target == home():  # the name has no letter that a folder's may have
        parser.error(f"{asked.checkpoint} is no name of a model; expected hf:OWNER/NAME or firefox:PAIR")
    if target.exists():
        return _fail(
            f"{target} is there already{_whence(target)}: remove it to pull {asked.checkpoint}, or make a package of "
            f"that elsewhere with dragoman export {asked.checkpoint} --out FOLDER"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}; set DRAGOMAN_HOME to a folder for packages")
    code = export([asked.checkpoint, "--out", str(target), *options])
    if code == 0:
        print(f"Licence: {licence(target)}")
        print(f"Or by its name: dragoman serve {target.name}")
    return code


def _whence(folder: Path) -> str:
    """What it was made of: names of which one has a slash where the other has a dash share a folder."""
    try:
        checkpoint = Package.open(folder).manifest.checkpoint
    except PackageError:
        return ""
    return f", made of {checkpoint.pinned or checkpoint.name}"


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
