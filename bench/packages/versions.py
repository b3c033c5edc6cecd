"""Versions of a package that answer alike."""

import json
import os
import shutil
from pathlib import Path

from models.package.folder import MANIFEST


def take(package: Path, link: Path, number: int) -> Path:
    """Makes the link one to another version of a package: its manifest is written otherwise. Returns its folder."""
    folder = link.with_name(f"v{number}")
    shutil.copytree(package, folder)
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=number), encoding="utf-8")
    following = link.with_name("next")
    following.symlink_to(folder)
    os.replace(following, link)
    return folder
