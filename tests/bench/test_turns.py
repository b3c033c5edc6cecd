"""Sides in processes of their own, by turns, and the floor that they are compared with."""

import os
from functools import partial
from pathlib import Path

import pytest

from bench.arrivals import BURST, arrivals
from bench.cpu.plan import Cell, Pair
from bench.cpu.races import decoding, file
from bench.cpu.sides.ours import Ours
from bench.cpu.steps import TAKE_NIBBLES, output_layer
from bench.cpu.turns import players, race
from bench.cpu.work import Side, Work
from bench.machine.peak import Cost, Numbers, OutputLayer, Peaks, encoding_cost, measure_peaks, step_cost
from bench.sentences import english
from engine.loading.load import Kernels
from kernels.library import open_library
from models.checkpoint import load_checkpoint
from models.package.folder import Package
from tests.bench.counting import Counting
from tests.checkpoints import ROOT

ZOO = ROOT / "models" / "zoo" / "en-pt"


def test_sides_take_turns_in_processes_of_their_own(tmp_path: Path) -> None:
    log, absent = tmp_path / "log", dict[str, str]()
    sides = [
        Side("first", partial(Counting, log, "first")),
        Side("second", partial(Counting, log, "second"), rounds=2),
        Side("nobody", partial(Counting, log, "nobody")),
        Side("third", partial(Counting, log, "third", fails_at=2)),
    ]
    with players(sides, absent) as opened:
        turns = race(opened, Work(("a", "b")), repeats=3)
        assert opened[0].answers(["text"], 4) == ["text 4"]
        again = race(opened, Work(("a",)), repeats=1)
    names, processes = zip(*(line.split() for line in log.read_text().splitlines()), strict=True)
    assert names == ("first", "second", "third", "second", "first", "first", "first", "second")
    assert len(set(processes)) == 3 and str(os.getpid()) not in processes
    assert {name: len(readings) for name, readings in turns.readings.items()} == {"first": 3, "second": 2}
    assert all(reading.tokens == 10 and reading.seconds > 0 for reading in turns.readings["first"])
    assert absent == {"nobody": "LookupError: there is no such engine"}
    assert turns.absent == again.absent == {"third": "its process ended with 3"}
    assert turns.setups["first"] == "2 texts"


@pytest.mark.timeout(300)
def test_our_engine_and_ctranslate2_race(tmp_path: Path) -> None:
    """With tokens that both agree about, since both decode the same model in fp32."""
    ctranslate2 = pytest.importorskip("bench.cpu.sides.ctranslate2")
    sides = [
        Side("ours", partial(Ours, ZOO, "off")),
        Side("theirs", partial(ctranslate2.Ctranslate2, ZOO, tmp_path / "converted")),
        Side("ours, required", partial(Ours, tmp_path / "none", "required")),
    ]
    absent = dict[str, str]()
    with players(sides, absent) as opened:
        (found,) = decoding(opened, [Cell(1, 2, 4)], [Pair("ours", "theirs", {"greedy, 2": 0.0})], repeats=1)
        texts = english(3)
        assert opened[0].answers(texts, 1) == opened[1].answers(texts, 1)
        whole = file(opened, texts, [], repeats=1)
    assert set(absent) == {"ours, required"} and "there is no package none" in absent["ours, required"]
    assert set(found.rates) == {"ours", "theirs"} == set(whole.rates)
    (ratio,) = found.ratios
    assert ratio.wall > 0 and ratio.lowest == ratio.highest == ratio.wall and ratio.asked == 0.0
    assert whole.unit == "characters" and whole.rates["ours"].wall > 0


def test_a_step_and_an_encoding_multiply_what_the_weights_say() -> None:
    """Each weight of a matrix is multiplied once for each row; embeddings are looked up."""
    config, model = Package.open(ZOO).manifest.model, load_checkpoint(ZOO).model
    sizes = {name: weight.numel() for name, weight in model.named_parameters() if weight.dim() == 2}
    decoder = sum(size for name, size in sizes.items() if name.startswith("decoder."))
    cross_kv = sizes["cross_kv.weight"]
    encoder = sum(size for name, size in sizes.items() if name.startswith("encoder."))
    output = config.target_vocab_size * config.width
    step = step_cost(config, rows=3, source=0, target=0, layers="int8", output=OutputLayer("int8"))
    assert step.int8 == 3 * step.weights == 3 * (decoder + output)
    mixed = step_cost(config, rows=1, source=10, target=6, layers="fp32", output=OutputLayer("int8"))
    assert (mixed.int8, mixed.weights) == (output, output + 4 * decoder)
    assert mixed.fp32 == decoder + config.decoder_layers * 2 * config.width * 16
    assert encoding_cost(config, 1, "int8").weights == encoder + cross_kv


def test_a_step_reads_of_the_output_layer_what_its_graph_says() -> None:
    """Half of the numbers of each token, and 16 tokens of a row whole, where there is a coarse look."""
    int8, fp32 = Package.open(ZOO.parent / "en-pt-int8"), Package.open(ZOO)
    vocabulary, width = int8.manifest.model.target_vocab_size, int8.manifest.model.width

    def cost(package: Package, numbers: Numbers, kernels: Kernels, rows: int) -> Cost:
        return step_cost(package.manifest.model, rows, 0, 0, numbers, output_layer(package, numbers, kernels))

    whole, coarse = (cost(int8, "int8", kernels, 3) for kernels in ("off", "required"))
    assert whole.int8 - coarse.int8 == 3 * vocabulary * (width - 128)
    assert coarse.fp32 == 3 * (160 + 16) * width and whole.fp32 == 0
    looked_at = 64 if open_library().isa in TAKE_NIBBLES else 128
    assert whole.weights - coarse.weights == vocabulary * (width - looked_at) - 4 * 160 * width - 3 * 16 * width
    full, screened = (cost(fp32, "fp32", kernels, 3) for kernels in ("off", "required"))
    assert (full.int8, screened.int8) == (0, 3 * vocabulary * width)
    assert full.weights - screened.weights == 3 * vocabulary * width - 4 * 3 * width


def test_the_floor_is_the_larger_of_two_times() -> None:
    config = Package.open(ZOO).manifest.model
    peaks = Peaks(int8=1e11, int8_by="avx2", fp32=5e10, read={1 << 20: 1e11, 1 << 26: 5e10})
    few, many = (step_cost(config, rows, 28, 16, "int8", OutputLayer("int8")) for rows in (1, 64))
    assert few.floor_s(peaks) == few.weights / 5e10
    assert many.floor_s(peaks) == many.int8 / 1e11 + many.fp32 / 5e10


def test_this_machine_has_a_peak() -> None:
    try:
        peaks = measure_peaks((1 << 19, 1 << 20))
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert peaks.int8 > peaks.fp32 > 0
    assert set(peaks.read) == {1 << 19, 1 << 20} and peaks.reads(1 << 30) == peaks.read[1 << 20]


@pytest.mark.parametrize(("kind", "together"), [("Poisson", 1), ("bursts", BURST)])
def test_arrivals_come_at_their_rate(kind: str, together: int) -> None:
    due = arrivals(kind, 4000, 50.0, seed=1)  # type: ignore[arg-type]
    assert due == sorted(due) and len(due) == 4000
    assert len(set(due)) == pytest.approx(4000 / together, abs=1)
    assert due[-1] == pytest.approx(80, rel=0.15)
