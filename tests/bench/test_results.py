"""The results in bench/results: the JSON holds what the tables are made of, and no reading beside it."""

import datetime
from pathlib import Path

import pytest

from bench.cpu.curves import Curve
from bench.cpu.plan import CT2_FP32, CT2_INT8, FP32, INT8, Pair
from bench.cpu.races import judge, tokens
from bench.cpu.random_models import RealLengths
from bench.cpu.report import RESULTS, Report
from bench.cpu.service import Footprint, Latency, Percentiles
from bench.cpu.steps import Floor, Step
from bench.cpu.turns import Turns
from bench.cpu.work import Reading
from bench.machine.noise import Noise
from bench.machine.peak import Peaks
from bench.pages.plots import OURS, THEIRS
from tests.checkpoints import ZOO

QUIET, NOISY = (Noise(busy=busy, stolen=0.0, load=0.1, mhz=2600.0) for busy in (0.01, 0.4))


def report(noise: Noise = QUIET) -> Report:
    """With every part."""
    readings = {
        INT8: [Reading(100, 1.0, 2.0), Reading(100, 2.0, 2.0), Reading(100, 1.0, 1.0)],
        CT2_INT8: [Reading(90, 3.0, 3.0), Reading(90, 3.0, 6.0), Reading(90, 3.0, 3.0)],
    }
    turns = Turns(readings, {CT2_INT8: "2 x 1, tokens"}, {"fp32": "LookupError: the package has no native graphs"})
    seconds = [0.001 * call for call in range(1, 10_001)]
    race = judge("greedy, 8", "tokens", turns, [Pair(INT8, CT2_INT8, {"greedy, 8": 3.5})], tokens)
    server = Footprint(name=INT8, start_s=0.4, rss_mb=210, peak_rss_mb=220, asked_start_s=0.5, asked_rss_mb=200)
    return Report(
        how="By turns.",
        noise=noise,
        races={"decoding": [race], "file": [race]},
        latency=[
            Latency(
                arrivals="Poisson",
                rate=44.4,
                ours=INT8,
                theirs=CT2_INT8,
                our_calls=Percentiles.of(seconds),
                their_calls=Percentiles.of([4 * value for value in seconds]),
                asked_p50=0.2,
                asked_p99=0.34,
            )
        ],
        footprints=[server],
        floor=Floor(
            peaks=Peaks(int8=9e10, int8_by="avx2", fp32=4e10, read={1 << 20: 8e10}),
            steps=[Step(name=INT8, rows=1, seconds=1.3e-4, floor_s=1e-4)],
        ),
        curves=[Curve(axis="rows", values=[1, 2], series={INT8: [20.0, None], "floor int8": [10.0, 5.0]})],
    )


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.json")), ids=lambda file: file.stem)
def test_the_tables_come_out_of_the_json(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert Report.model_validate_json(text).markdown() == file.with_suffix(".md").read_text(encoding="utf-8")


def test_every_table_has_its_json() -> None:
    tables = {file.stem for file in RESULTS.glob("*.md")}
    assert tables == {file.stem for file in RESULTS.glob("*.json")} != set()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """However many calls were made: of them the file holds how many there were, and their percentiles."""
    table = report().write(tmp_path)
    written = table.with_suffix(".json").read_text(encoding="utf-8")
    assert Report.model_validate_json(written) == report()
    assert len(written.splitlines()) < 300
    text = table.read_text(encoding="utf-8")
    assert "| int8 over CTranslate2 int8 | 3.33 / 3.33 (asked 3.5: **short**) |" in text
    assert "| int8 | 100.0 (50.0) |" in text
    assert "fp32: LookupError: the package has no native graphs." in text
    assert "CTranslate2 int8: 2 x 1, tokens" in text
    assert "| p50 | 5000 | 20000 | 0.25 | 0.20 | **short** |" in text
    assert "| p99 | 9900 | 39600 | 0.25 | 0.34 | met |" in text
    assert "| int8, resident memory under load, MB | 210 | 200 | **short** |" in text
    assert "| int8 | 1 | 130 | 100 | 1.30 x |" in text
    assert "| int8 | 20.0 |  |" in text


def test_pairs_that_ran_one_after_the_other_are_columns_of_one_table() -> None:
    one, other = report(), report()
    readings = {name: [Reading(100, 2.0, 2.0)] for name in (FP32, CT2_FP32)}
    race = judge("greedy, 8", "tokens", Turns(readings), [Pair(FP32, CT2_FP32, {"greedy, 8": 1.2})], tokens)
    one.add("decoding", race)
    other.add("decoding", race.model_copy(update={"name": "greedy, 1"}))
    assert "| fp32 over CTranslate2 fp32 | 1.00 / 1.00 (asked 1.2: **short**) |" in one.markdown()
    assert [len(each.races["decoding"]) for each in (one, other)] == [1, 2]
    assert set(one.races["decoding"][0].rates) == {INT8, CT2_INT8, FP32, CT2_FP32}


def test_short_sentences_keep_their_own_lengths() -> None:
    every, short = RealLengths(ZOO), RealLengths(ZOO, 16)
    texts, lengths = short(300)
    assert max(lengths) == 16 and len(set(texts)) < len(texts) == 300
    assert set(zip(texts, lengths, strict=True)) < set(zip(*every(1504), strict=True))


def test_some_parts_leave_the_results_of_a_whole_run_alone(tmp_path: Path) -> None:
    whole, some = report().write(tmp_path), report().model_copy(update={"parts": ("t5", "nllb"), "quick": True})
    assert some.write(tmp_path).stem == f"{whole.stem}-t5-nllb-quick"
    sides = some.model_copy(update={"sides": ("int8",)})
    assert sides.write(tmp_path).stem == f"{whole.stem}-t5-nllb-some-quick"


def test_processors_of_one_name_and_other_instructions_have_results_of_their_own(tmp_path: Path) -> None:
    for instructions, kind in (("avx2 fma f16c", "avx2"), ("avx512f avx512_vnni avx2 fma", "avx512_vnni")):
        table = report().model_copy(update={"instructions": instructions}).write(tmp_path)
        assert table.stem.endswith(f"-{kind}")
    assert len(list(tmp_path.glob("*.md"))) == 2


def test_a_million_characters_cost_what_the_cores_do_meanwhile() -> None:
    """At 100 characters a second two cores take 10,000 seconds, which is 5.56 core-hours."""
    text = report().model_copy(update={"core_hour": 0.09}).markdown()
    assert "| int8 | 0.50000 | 10000.0 |" in text


def test_a_noisy_run_says_so_in_its_title() -> None:
    titles = [report(noise).markdown().splitlines()[0] for noise in (QUIET, NOISY)]
    assert [title.endswith(", noisy") for title in titles] == [False, True]
    assert titles[0].startswith(f"# {datetime.date.today().isoformat()}, ")


def test_plots_have_every_side(tmp_path: Path) -> None:
    report().plot(tmp_path)
    speed, curves = ((tmp_path / name).read_text(encoding="utf-8") for name in ("speed.svg", "cost-curves.svg"))
    assert speed.count(f"fill: {OURS}") == speed.count(f"fill: {THEIRS}") == 1  # a bar each
    assert ">int8<" in speed and ">CTranslate2 int8<" in speed and ">100<" in speed and ">30<" in speed
    assert ">by rows<" in curves and "stroke-dasharray: 5" in curves
