"""Files of a package that is served are overwritten, cut short and replaced: it goes on as if nothing had happened."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman import Client
from tests.server_process import server_process

ZOO = Path("models/zoo/en-pt-int8")
TEXTS = ["Where can I buy a ticket?", "The weather is nice today.", "Good morning."]


def overwrite(file: Path) -> None:
    """In place, with what is no weight."""
    size = file.stat().st_size
    with file.open("r+b") as content:
        content.write(os.urandom(size))


def cut_short(file: Path) -> None:
    os.truncate(file, 4096)


def copy_over(file: Path) -> None:
    """As `cp` does: the same inode has other content."""
    file.write_bytes((file.parent / "decoder.onnx").read_bytes())


@pytest.mark.parametrize(
    ("harm", "kernels"), [(overwrite, "auto"), (cut_short, "auto"), (copy_over, "auto"), (cut_short, "off")]
)
def test_what_is_served_is_what_was_checked(harm: Callable[[Path], None], kernels: str, tmp_path: Path) -> None:
    folder = tmp_path / "package"
    shutil.copytree(ZOO, folder)
    with server_process(folder, "--kernels", kernels) as server, Client(server.target) as client:
        before = client.translate(TEXTS, no_cache=True)
        for file in folder.iterdir():
            if file.name != "decoder.onnx":
                harm(file)
        after = client.translate(TEXTS, num_beams=1, no_cache=True)
        assert [each.text for each in after] == [each.text for each in before]
        assert server.process.poll() is None
