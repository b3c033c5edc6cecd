"""What stands against our server in the races: CTranslate2 behind our API, begun as ours is."""

from pathlib import Path

import pytest

from bench.cpu.plan import Models
from bench.cpu.service import Opposed, both_serving
from dragoman.client import Client
from tests.server_process import ROOT

pytest.importorskip("ctranslate2")

ZOO = ROOT / "models" / "zoo" / "en-pt"
TEXTS = ["The cat sleeps on the table.", "I have two brothers.", "Where is the station?"]


@pytest.mark.timeout(300)
def test_both_servers_give_the_same_translations(tmp_path: Path) -> None:
    models = Models(ZOO, ZOO, ZOO, ZOO, tmp_path / "converted")
    translations = list[list[str]]()
    with both_serving(models, Opposed("ours", "theirs", ZOO, "float32")) as servers:
        for server in servers:
            with Client(server.target) as client:
                translations.append([client.translate(text, num_beams=1).text for text in TEXTS])
    ours, theirs = translations
    assert ours == theirs and all(ours)
