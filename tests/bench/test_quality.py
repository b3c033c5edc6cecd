"""What the figures of translation quality are made of."""

import re

import pytest

from bench.quality import main, measure, stutters
from bench.sentences import flores
from models.package.folder import Package
from tests.checkpoints import ROOT

ZOO = ROOT / "models" / "zoo" / "en-pt"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Very, very good.", False),
        ("Very, very, VERY good.", True),
        ("de um de um de um lado", True),
        ("de um de um de outro", False),
        ("a b c a b c a b c", False),
        ("não não não", True),
        ("", False),
    ],
)
def test_a_stutter_is_three_times_running(text: str, expected: bool) -> None:
    assert stutters(text) is expected


def test_references_translate_themselves_and_nothing_that_people_wrote_stutters() -> None:
    english, portuguese = flores("en"), flores("pt")
    quality = measure(portuguese, english, portuguese)
    assert [quality.bleu, quality.chrf] == pytest.approx([100, 100])
    assert quality.stutters == 0


def test_a_stutter_of_the_source_is_none_of_the_translation() -> None:
    quality = measure(["no no no", "so so so"], ["não não não", "assim"], ["no no no", "so"])
    assert quality.stutters == 1


@pytest.mark.timeout(300)
def test_a_package_is_scored_through_a_server_and_beside_ctranslate2(
    zoo_package: Package, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources, references = flores("en")[:12], flores("pt")[:12]
    sides = {"en": sources, "pt": references}
    monkeypatch.setattr("bench.quality.SETS", {"a dozen": sides.__getitem__})
    folder = str(zoo_package.folder)
    monkeypatch.setattr("sys.argv", ["quality", folder, "--num-beams", "1", "--ctranslate2", str(ZOO)])
    main()
    ours, fp32, int8 = capsys.readouterr().out.splitlines()[-3:]
    found = re.fullmatch(
        rf"\| {zoo_package.folder.name} \| en-pt \| a dozen \(12\) \| greedy \| (\S+) \| (\S+) \| 12 \| 0 \| 0 \|", ours
    )
    assert found is not None, ours
    assert float(found[1]) > 30 and float(found[2]) > 55
    for row, name, least in ((fp32, "float32", 11), (int8, "int8", 6)):
        found = re.fullmatch(rf"\| CTranslate2 {name} \| en-pt \| .* \| (\S+) \| \S+ \| (\d+) \| 0 \|  \|", row)
        assert found is not None, row
        assert float(found[1]) > 30 and int(found[2]) >= least
