"""`python -m bench.gpu_check` at toy size on the CPU provider: every part runs, for real."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest

from bench import gpu_check
from bench.gpu import figures, machine, tables, wheels
from bench.gpu.checks.soak import slope
from bench.gpu.measures import served
from bench.gpu.plan import PARTS, TOY, Plan
from engine.devices.machine import Machine
from tests.checkpoints import ROOT

pytestmark = pytest.mark.timeout(600)

Results = dict[str, Any]


def command(out: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "bench.gpu_check", "--device", "cpu", "--toy", "--out", str(out), *options]


def results(out: Path) -> Results:
    """What the JSON file says."""
    (file,) = out.glob("*.json")
    read: Results = json.loads(file.read_text(encoding="utf-8"))
    return read


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one whole run, which had time enough."""
    folder = tmp_path_factory.mktemp("results")
    run = subprocess.run(
        command(folder, "--budget-minutes", "60"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture(scope="module")
def parts(out: Path) -> dict[str, Results]:
    """What each part found."""
    return {name: part["findings"] for name, part in results(out)["parts"].items()}


def test_every_part_ran_to_its_end(out: Path) -> None:
    statuses = {name: part["status"] for name, part in results(out)["parts"].items()}
    assert statuses == {part.name: "done" for part in PARTS}


def test_nothing_runs_but_on_the_chosen_provider(parts: dict[str, Results]) -> None:
    proof = parts["proof"]
    assert proof["device"]["provider"] == "CPUExecutionProvider"
    assert set(proof["decoder, nodes by provider"]) == {"CPUExecutionProvider"}
    assert proof["decoder, nodes by provider"]["CPUExecutionProvider"]["GroupQueryAttention"] == 2
    assert proof["refusals"]["no such device"]


def test_training_does_the_work_that_its_weights_take(parts: dict[str, Results]) -> None:
    """Six FLOPs for each weight and token (Kaplan et al. 2020, 2.1); of so short sentences attention takes no more."""
    (tokens,), base = TOY.training_tokens, TOY.base
    matrix = base.width**2
    encoder = base.layers * (4 * matrix + 2 * base.width * base.ffn)
    decoder = base.layers * (8 * matrix + 2 * base.width * base.ffn) + base.vocab * base.width
    found = parts["training"][f"batches of {tokens} tokens"]
    assert found["tflops"] * 1e12 == pytest.approx(6 * tokens * (encoder + decoder), rel=0.02)
    assert found["target_tokens_per_s"] == pytest.approx(tokens / found["ms"] * 1000)
    peak = parts["training"]["matrix product"]["tflops_per_s"]
    assert found["utilisation"] == pytest.approx(found["tflops"] / found["ms"] * 1000 / peak)


@pytest.mark.parametrize(("precision", "least"), [("fp32", 0.0), ("fp16", 1e-6)])
def test_log_probabilities_are_those_of_pytorch(parts: dict[str, Results], precision: str, least: float) -> None:
    found = parts["parity"][f"base {precision}, log-probabilities"]
    assert least <= found["error"] <= found["accepted"]
    assert len(found["error_by_step"]) == TOY.steps


@pytest.mark.parametrize("search", ["greedy", "beam 4"])
def test_fp32_tokens_are_those_of_transformers(parts: dict[str, Results], search: str) -> None:
    found = parts["parity"][f"base fp32, {search}, as transformers fp32"]
    assert found["equal"] == found["sentences"] > 0


def test_every_side_of_every_cell_is_read(parts: dict[str, Results]) -> None:
    assert set(parts["throughput"]) == {cell.name for cell in TOY.cells}
    for cell in TOY.cells:
        found = parts["throughput"][cell.name]
        for reading in (found["ours"], *found["transformers"].values(), found["ctranslate2"]):
            assert reading["tokens"] == cell.sentences * TOY.target_tokens
            assert reading["tokens_per_s"] > 0
    assert {cell.name for cell in TOY.compiled} == set(parts["compiled"])


def test_every_side_decodes_as_much_at_the_size_of_nllb(parts: dict[str, Results]) -> None:
    found, cell = parts["nllb"], TOY.cells[0]
    assert found["checkpoint"]["seconds"] > 0
    assert found["package"]["seconds"] > 0
    readings = found[cell.name]
    assert set(readings["transformers"]) == {"dynamic cache", "static cache", "static cache, compiled"}
    for reading in (readings["ours"], *readings["transformers"].values(), readings["ctranslate2"]):
        assert reading["tokens"] == cell.sentences * TOY.target_tokens


def test_answers_do_not_depend_on_batch_mates_in_fp32(parts: dict[str, Results]) -> None:
    for search in ("greedy", "beam 4"):
        found = parts["invariance"][f"fp32, {search}"]
        assert found["bits_equal"] == found["sentences"] > 0


def test_the_step_has_a_floor(parts: dict[str, Results]) -> None:
    step = parts["roofline"][f"{TOY.step_rows[0]} rows"]
    shape, tokens = TOY.base, TOY.source_tokens
    weights = 6 * shape.width**2 + 2 * shape.width * shape.ffn + 32128 * shape.width  # rounded up to blocks of 128
    assert step["bytes"] == 2 * (weights + step["rows"] * 2 * shape.width * 2 * tokens)
    assert step["floor_ms"] > 0


def test_the_server_and_its_engine_do_the_same_work(parts: dict[str, Results]) -> None:
    found = parts["served"]
    alone, closed = found["engine alone"], found["closed loop"]
    assert found["server"]["provider"] == "CPUExecutionProvider"
    assert alone["target_tokens_a_text"] == TOY.target_tokens
    assert closed["tokens_per_s"] == pytest.approx(closed["calls_per_s"] * TOY.target_tokens)
    assert closed["source_tokens_a_text"] == pytest.approx(alone["source_tokens_a_text"], abs=0.5)
    loads = [found[f"Poisson arrivals, {load:g} of that"] for load in served.LOADS]
    for load in (closed, *loads):
        assert load["failures"] == 0
        assert 0 < load["p50_ms"] <= load["p99_ms"]
    assert 0 < closed["rows_a_step"] <= TOY.served.callers


def test_without_grpc_only_the_server_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wheels.SERVER_NEEDS, "no_such_module.at_all", "no-such-wheel")
    monkeypatch.setitem(wheels.SERVER_NEEDS, "nor_this", "nor-this")
    with pytest.raises(wheels.MissingModulesError, match="not installed: no-such-wheel, nor-this"):
        next(iter(served.run(Plan("cpu", device_id=0, toy=True, work=tmp_path, soak_s=0))))


@pytest.mark.parametrize(("parts", "said"), [("packages,served", True), ("packages", False)])
def test_that_the_server_will_not_be_measured_is_said_at_start(
    parts: str, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(wheels.SERVER_NEEDS, "no_such_module", "no-such-wheel")
    monkeypatch.setattr(gpu_check, "check", lambda options: 0)
    assert gpu_check.main(["--device", "cpu", "--toy", "--parts", parts]) == 0
    assert ("the part `served` will fail; not installed: no-such-wheel" in capsys.readouterr().err) == said


def test_parts_start_without_grpc() -> None:
    blocked = "import sys; sys.modules['grpc'] = None\n"
    modules = [f"import bench.gpu.{part.room}.{part.name}" for part in PARTS]
    subprocess.run([sys.executable, "-c", blocked + "\n".join(modules)], cwd=ROOT, check=True)


def test_latency_memory_profile_and_soak_are_measured(parts: dict[str, Results]) -> None:
    assert 0 < parts["latency"]["beam 4"]["ours"]["p50_ms"] <= parts["latency"]["beam 4"]["ours"]["p99_ms"]
    assert parts["memory"]["memory"]["used_mb"] > 0
    assert parts["profile"]["operators"]["GroupQueryAttention"]["count"] == 2
    assert parts["soak"]["soak"]["batches"] > 1


def test_figures_of_a_toy_are_not_judged(out: Path) -> None:
    checked = results(out)["figures"]
    assert len(checked) == len(figures.FIGURES)
    assert {figure["verdict"] for figure in checked} == {"open"}


def test_the_report_names_the_machine_and_every_part(out: Path) -> None:
    (file,) = out.glob("*.md")
    text = file.read_text(encoding="utf-8")
    assert results(out)["device"]["name"] in text.splitlines()[0]
    assert all(f"## {part.title}" in text for part in PARTS)
    assert os.uname().nodename not in text


def test_parts_that_have_no_time_are_cut(tmp_path: Path) -> None:
    run = subprocess.run(command(tmp_path, "--budget-minutes", "0.01"), cwd=ROOT, capture_output=True, check=False)
    assert run.returncode == 1
    found = results(tmp_path)["parts"]
    assert found["packages"]["status"] == "cut"
    assert found["proof"] == {"status": "not run", "seconds": 0.0, "error": "no time was left", "findings": {}}


def test_sigterm_keeps_what_was_found(tmp_path: Path) -> None:
    process = subprocess.Popen(command(tmp_path, "--budget-minutes", "60"), cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        while not (list(tmp_path.glob("*.json")) and results(tmp_path)["parts"]["packages"]["findings"]):
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 1
    finally:
        process.kill()
    packages = results(tmp_path)["parts"]["packages"]
    assert packages["error"] == "interrupted"
    assert "base checkpoint" in packages["findings"]


def test_wheels_in_parts_are_joined_and_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / "wheels"
    folder.mkdir()
    data = write_wheel(folder / "tiny-1.0-py3-none-any.whl").read_bytes()
    (folder / "tiny-1.0-py3-none-any.whl").unlink()
    for part, start in enumerate(range(0, len(data), 300)):
        (folder / f"tiny-1.0-py3-none-any.whl.part{part:02}").write_bytes(data[start : start + 300])
    (tmp_path / "installed" / "nvidia" / "cu13").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "installed")
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    site = wheels.install(folder)
    assert (site / "nvidia" / "cu13").is_dir(), "where ONNX Runtime looks for the libraries"
    assert (site / "tiny.py").read_text() == "ANSWER = 42\n"
    (site / "tiny.py").write_text("kept\n")
    assert wheels.install(folder) == site
    assert (site / "tiny.py").read_text() == "kept\n"


def test_an_onnxruntime_that_is_not_imported_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU machine the CPU build may be installed, and the other one brought in wheels and put before it."""
    before = Machine().wheels()
    other = "onnxruntime" if "onnxruntime-gpu" in before else "onnxruntime-gpu"
    info = tmp_path / f"{other.replace('-', '_')}-9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {other}\nVersion: 9.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert distribution(other).version == "9.0"
    assert Machine().wheels() == before


def test_a_folder_without_wheels_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--wheels", str(tmp_path)]) == 2
    assert f"{tmp_path} has no wheels" in capsys.readouterr().err


def test_what_is_missing_is_named_with_the_way_to_bring_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(wheels.NEEDED, "no_such_module", "no-such-wheel")
    assert gpu_check.main(["--device", "cpu", "--toy"]) == 2
    said = capsys.readouterr().err
    assert "not installed: no-such-wheel" in said
    assert "pip download" in said


@pytest.mark.skipif("CUDAExecutionProvider" in ort.get_available_providers(), reason="there is CUDA")
def test_an_onnxruntime_without_cuda_does_not_do_for_cuda(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--toy"]) == 2
    assert "not installed: onnxruntime-gpu" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--wheels", "here", "--toy"], ["--wheels=here", "--toy"]])
def test_the_second_start_does_not_install_again(arguments: list[str]) -> None:
    assert gpu_check.without(arguments, "--wheels") == ["--toy"]


def test_what_nvidia_smi_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\n[ "$4" = --format=csv,noheader,nounits ] && echo 612 || echo "H, 580.1, 9.0, 81559 MiB"\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    plan = Plan("cuda", device_id=1, toy=False, work=tmp_path, soak_s=0)
    assert list(machine.facts(plan).values()) == ["H", "580.1", "9.0", "81559 MiB"]
    assert machine.memory_mb(plan) == 612


def test_without_a_driver_there_is_no_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="is NVIDIA's driver installed"):
        machine.nvidia_smi(0, "name")


@pytest.mark.parametrize("file", sorted(gpu_check.RESULTS.glob("*.md")), ids=lambda file: file.stem)
def test_the_tables_come_out_of_the_json(file: Path) -> None:
    text, found = file.read_text(encoding="utf-8"), json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    shown = [tables.show(name, part["findings"]) for name, part in found["parts"].items() if part["findings"]]
    assert all(table in text for table in (tables.figures(found["figures"]), *shown))


def test_slope() -> None:
    assert slope([(0, 5.0), (1, 7.0), (2, 9.0)]) == pytest.approx(2)
    assert slope([(0, 5.0)]) == 0


def test_figures() -> None:
    """Against the best variant that ran, if it was compiled, too; NaN is not good enough."""
    cell = {"ours": {"tokens_per_s": 60.0}, "transformers": {"slow": {"tokens_per_s": 10.0}, "broken": {"error": "x"}}}
    broken = {"greedy, 1 sentence": {"compiled": {"error": "x"}}}
    found: Results = {"throughput": {"greedy, 1 sentence": cell}, "compiled": broken, "latency": {}}
    assert figures.check(found | {"compiled": {}}, judged=True)[0]["verdict"] == "open"
    first, second, *_ = figures.check(found, judged=True)
    assert (first["measured"], first["verdict"]) == ("6 x", "met")
    assert (second["measured"], second["verdict"]) == (None, "open")
    compiled = {"greedy, 1 sentence": {"compiled": {"tokens_per_s": 20.0}}}
    assert figures.check(found | {"compiled": compiled}, judged=True)[0]["verdict"] == "short"
    nan = {"beam 4": {"ours": {"p50_ms": float("nan")}}}
    verdicts = [figure["verdict"] for figure in figures.check(found | {"latency": nan}, judged=True)]
    assert verdicts.count("short") == 1
    assert figures.check(found, judged=False)[0]["verdict"] == "open"


def test_figures_of_nllb() -> None:
    """Apart from those of the other model's cell of this name; a side that failed leaves its figure open."""
    readings = {"ours": {"tokens_per_s": 60.0}, "transformers": {"slow": {"tokens_per_s": 15.0}}, "ctranslate2": {}}
    checked = figures.check({"nllb": {"greedy, 32 sentences": readings}}, judged=True)
    measured = {line["name"]: line["measured"] for line in checked if line["measured"] is not None}
    assert measured == {f"{figures.OF_NLLB}, over the best of transformers": "4 x"}
    readings["ctranslate2"] = {"tokens_per_s": 50.0}
    checked = figures.check({"nllb": {"greedy, 32 sentences": readings}}, judged=True)
    assert [line["verdict"] for line in checked if figures.OF_NLLB in line["name"]] == ["met", "short"]


def write_wheel(file: Path) -> Path:
    """A wheel with one module."""
    info = "tiny-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("tiny.py", "ANSWER = 42\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: here\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"tiny.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return file
