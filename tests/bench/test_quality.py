"""What the figures of translation quality are made of."""

import re

import pytest

from bench.quality import main, measure, stutters
from bench.sentences import flores
from models.package.folder import Package


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


def test_a_package_is_scored_through_a_server(
    zoo_package: Package, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources, references = flores("en")[:12], flores("pt")[:12]
    sides = {"en": sources, "pt": references}
    monkeypatch.setattr("bench.quality.SETS", {"a dozen": sides.__getitem__})
    monkeypatch.setattr("sys.argv", ["quality", str(zoo_package.folder), "--num-beams", "1"])
    main()
    row = capsys.readouterr().out.splitlines()[-1]
    found = re.fullmatch(r"\| en-pt \| a dozen \(12\) \| greedy \| (\S+) \| (\S+) \| 0 \| 0 \|", row)
    assert found is not None, row
    assert float(found[1]) > 30 and float(found[2]) > 55
