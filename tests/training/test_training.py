"""Whole runs of a tiny model: what they write, and that nothing stops them for good."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from models.checkpoint import load_checkpoint
from tests.checkpoints import ROOT, write_checkpoint
from tests.training.experiments import LAST, STEP, refusal, run, same, weights, write_config
from training.__main__ import main
from training.config import Optimizer
from training.loop import state
from training.loop.outputs import Outputs
from training.loop.processes import Processes
from training.loop.schedule import learning_rate
from training.loop.trainer import Trainer

WAIT_S = 300
"""A process imports a lot first."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """What an experiment with `threads` sets for the whole process."""
    torch.set_num_threads(1)


def losses(run: Path) -> list[float]:
    """What TensorBoard shows of the training."""
    curves = EventAccumulator(str(run / "tensorboard"))
    curves.Reload()
    return [point.value for point in curves.Scalars("train/loss")]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing interrupted."""
    torch.set_num_threads(1)
    return run(tmp_path_factory.mktemp("straight"))


def test_a_seed_repeats_a_run_to_the_bit(straight: Path, tmp_path: Path) -> None:
    assert same(weights(run(tmp_path)), weights(straight))


def test_another_seed_does_not(straight: Path, tmp_path: Path) -> None:
    file = write_config(tmp_path)
    file.write_text("seed = 2\n" + file.read_text())
    assert main([str(file)]) == 0
    assert not same(weights(tmp_path / "run"), weights(straight))


def test_it_writes_a_model_the_curves_and_as_many_checkpoints_as_it_needs(straight: Path) -> None:
    checkpoint = load_checkpoint(straight / "model")
    assert (checkpoint.source_languages, checkpoint.config.width) == (("en",), 16)
    assert [file.name for file in Outputs(straight).all_checkpoints()] == [
        f"step-{step:08}.pt" for step in (LAST - 2 * STEP, LAST - STEP, LAST)
    ]
    curves = EventAccumulator(str(straight / "tensorboard"))
    curves.Reload()
    losses = {name: curves.Scalars(f"{name}/loss") for name in ("train", "validation")}
    assert [point.step for point in losses["train"]] == list(range(10, LAST + 1, 10))
    assert [point.step for point in losses["validation"]] == list(range(2 * STEP, LAST + 1, 2 * STEP))
    for points in losses.values():
        assert points[0].value > points[-1].value
    rates = [point.value for point in curves.Scalars("train/learning_rate")]
    assert rates == pytest.approx(
        [learning_rate(step, Optimizer(warmup_steps=4), LAST) for step in range(10, LAST + 1, 10)]
    )
    assert not list(straight.rglob("*.partial"))


def test_the_last_checkpoints_are_averaged(straight: Path) -> None:
    files = Outputs(straight).all_checkpoints()[-2:]
    some, others = (state.load(file)["model"] for file in files)
    mean = state.average(files)
    name = "decoder.0.cross.query.weight"
    assert not torch.equal(some[name], others[name])
    torch.testing.assert_close(mean[name], (some[name] + others[name]) / 2)


def test_the_mean_of_equal_weights_is_the_same_to_the_bit(straight: Path) -> None:
    """Or else position tables that were Hugging Face's own would have to be written out, rounded to fp16."""
    file = Outputs(straight).all_checkpoints()[-1]
    mean = state.average([file] * 5)
    assert all(torch.equal(tensor, mean[name]) for name, tensor in state.load(file)["model"].items())


KILLED = f"""
import os, signal, sys
from training.__main__ import main
from training.loop.trainer import Trainer

update = Trainer._update

def killed(trainer, *of_the_step):
    if trainer.progress.step > {STEP}:
        os.kill(os.getpid(), signal.SIGKILL)
    return update(trainer, *of_the_step)

Trainer._update = killed
sys.exit(main(sys.argv[1:]))
"""
"""Training that is killed when it has made one step more than its first checkpoint knows."""


def test_a_run_that_was_killed_goes_on_as_if_nothing_had_been(straight: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(write_config(tmp_path, training={"max_steps": 10**6}))]
    assert subprocess.run(command, cwd=ROOT, timeout=WAIT_S).returncode == -signal.SIGKILL
    assert [file.name for file in Outputs(tmp_path / "run").all_checkpoints()] == [f"step-{STEP:08}.pt"]
    assert same(weights(run(tmp_path)), weights(straight))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption(
    number: signal.Signals,
    straight: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the first step that no checkpoint knows."""
    update = Trainer._update

    def pressed(trainer: Trainer, *of_the_step: Any) -> Tensor:
        if trainer.progress.step == STEP:
            os.kill(os.getpid(), number)
        return update(trainer, *of_the_step)

    earlier = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_update", pressed)
        assert main([str(write_config(tmp_path, training={"max_steps": 10**6}))]) == 130
    assert signal.getsignal(signal.SIGTERM) == earlier
    said = capfd.readouterr().err.splitlines()[-1]
    assert said == "interrupted. Run the same command again to go on from the last checkpoint, if there is one"
    assert same(weights(run(tmp_path)), weights(straight))


def test_a_finished_run_does_nothing_more(straight: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = weights(straight)
    run(straight.parent)
    assert f"going on from step {LAST}" in capfd.readouterr().err
    assert same(weights(straight), before)


def test_a_longer_run_goes_on_from_a_shorter_one(straight: Path, tmp_path: Path) -> None:
    run(tmp_path, training={"max_steps": STEP})
    assert same(weights(run(tmp_path)), weights(straight))


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = run(tmp_path, training={"max_steps": STEP}) / "checkpoints"
    draft = folder / f"step-{2 * STEP:08}.pt.partial"
    draft.symlink_to("/dev/full")  # where every write fails for lack of space
    error = refusal(capfd, tmp_path)
    assert "step-00000004.pt cannot be written: No space left on device." in error
    assert "The last checkpoint is intact: make room, then run the same command again" in error
    assert [file.name for file in folder.iterdir()] == ["step-00000002.pt"]
    run(tmp_path)


def test_heads_of_any_size_are_translated_with(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    training, validation = {"max_steps": STEP}, {"every_steps": STEP, "sentences": 2}
    run(tmp_path, model={"width": 12}, training=training, validation=validation)
    assert "BLEU" in capfd.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_gpu_that_is_not_there_is_missed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    error = refusal(capfd, tmp_path, training={"device": "cuda"})
    assert "process 0 of this machine finds 0 CUDA devices" in error


def test_it_stops_when_it_gets_no_better(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With no learning rate to speak of, the loss is the same for ever."""
    no_progress, patience = {"peak_learning_rate": 1e-30}, {"every_steps": 1, "patience": 2}
    folder = run(tmp_path, optimizer=no_progress, validation=patience)
    assert capfd.readouterr().err.count(": validation loss") == 3
    assert [file.name for file in Outputs(folder).all_checkpoints()] == ["step-00000002.pt", "step-00000003.pt"]


def test_it_stops_when_its_processor_time_is_over(tmp_path: Path) -> None:
    """It is looked at with the loss, every ten steps."""
    folder = run(tmp_path, training={"processor_seconds": 1e-3})
    last = Outputs(folder).all_checkpoints()[-1]
    assert last.name == "step-00000010.pt"
    assert state.load(last)["progress"]["processor_seconds"] > 1e-3
    assert run(tmp_path, training={"processor_seconds": 1e-3}) == folder, "it goes on, with nothing left to do"
    assert Outputs(folder).all_checkpoints()[-1] == last


def test_it_stops_when_it_is_good_enough(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    validation = {"every_steps": 10, "sentences": 20, "enough": 1e-6}
    folder = run(tmp_path, optimizer={"peak_learning_rate": 1e-2}, training={"max_steps": 400}, validation=validation)
    scores = [float(score) for score in re.findall(r"(?m)^step .* BLEU ([\d.]+)", capfd.readouterr().err)]
    last = state.load(Outputs(folder).all_checkpoints()[-1])["progress"]
    assert last["best_score"] > 0 and last["step"] == 10 * len(scores) < 400


def test_enough_is_of_translations(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    error = refusal(capfd, tmp_path, validation={"sentences": 0, "enough": 99})
    assert "validation.enough is a BLEU, and validation.sentences is 0" in error


def test_bf16_learns_as_fp32_does(straight: Path, tmp_path: Path) -> None:
    rounded, exact = losses(run(tmp_path, training={"precision": "bf16"})), losses(straight)
    assert rounded != exact
    assert rounded == pytest.approx(exact, rel=0.02)


def test_a_run_that_diverges_stops(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, training={"max_steps": STEP})
    error = refusal(capfd, tmp_path, optimizer={"peak_learning_rate": 1e38, "clip_norm": 1e38})
    assert "training diverged before step 4" in error
    assert "the last checkpoint is intact" in error


@pytest.mark.parametrize("sentences", [0, 2])
def test_one_that_diverged_before_a_validation_stops_there(
    sentences: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before the loss is looked at, which is at every tenth step, and before there is a checkpoint."""
    error = refusal(
        capfd,
        tmp_path,
        optimizer={"peak_learning_rate": 1e38, "clip_norm": 1e38},
        validation={"every_steps": 3, "sentences": sentences},
        checkpoints={"every_steps": 20},
    )
    assert "training diverged before step 3: nan is no finite number. Lower optimizer.peak_learning_rate" in error
    assert error.endswith("optimizer.warmup_steps; there is no checkpoint yet")
    assert not (tmp_path / "run" / "best.pt").exists()


def test_no_two_processes_drop_out_the_same() -> None:
    drawn = []
    for rank in (0, 1, 2, 1):
        torch.manual_seed(7)
        Processes(torch.device("cpu"), rank, count=3).reseed(seed=7, step=20)
        drawn.append(float(torch.rand(1)))
    assert len(set(drawn)) == 3
    assert drawn[1] == drawn[3]


def test_two_processes_do_what_one_does_with_twice_the_batches(tmp_path: Path) -> None:
    one = run(tmp_path / "one", batches={"accumulate": 2}, training={"dropout": 0.0, "max_steps": STEP})
    ours, theirs = weights(one, STEP), weights(run_two(tmp_path / "two", dropout=0.0, max_steps=STEP), STEP)
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


def test_two_processes_go_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    whole = run_two(tmp_path / "whole", dropout=0.3, max_steps=2 * STEP)
    halves = tmp_path / "halves" / "run"
    shutil.copytree(whole, halves)
    half, end = Outputs(halves).all_checkpoints()
    end.unlink()
    written = half.stat().st_mtime_ns
    run_two(halves.parent, dropout=0.3, max_steps=2 * STEP)
    assert half.stat().st_mtime_ns == written  # it did not begin anew
    assert same(weights(whole, 2 * STEP), weights(halves, 2 * STEP))


TWO = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
"""As torchrun sets them for the first of two."""


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2, and RANK is not set: start with torchrun, which sets both, or unset"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "WORLD_SIZE is 2, and MASTER_ADDR is not set: start with torchrun"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', not a number as torchrun sets it; unset it"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is 0; it is at least 1"),
        ({"LOCAL_RANK": "-1"}, "LOCAL_RANK is -1; it is at least 0"),
        (TWO | {"RANK": "2"}, "RANK is 2, and WORLD_SIZE 2: ranks go from 0 to 1"),
        (TWO | {"MASTER_PORT": "99999"}, "processes cannot meet at 127.0.0.1:99999, which MASTER_ADDR and MASTER_PORT"),
    ],
)
def test_a_place_among_processes_that_there_is_not_is_refused_by_name(
    environment: dict[str, str],
    told: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert told in refusal(capfd, tmp_path)


def run_two(folder: Path, **training: object) -> Path:
    """Trains in two processes, and returns the folder of what that wrote."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, "-m", "training", str(write_config(folder, training=training))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_a_checkpoint_to_begin_with(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    start = write_checkpoint(tmp_path / "start", max_position_embeddings=128)
    before = load_checkpoint(start).model.state_dict()
    begun = {"checkpoint": str(start), "reset": ["decoder.*.attention.*"], "freeze": ["encoder.*", "source_embedding"]}
    changes = {"data": {"max_unknown": 1.0, "max_tokens": 128}, "vocabulary": None, "model": None}
    after = weights(run(tmp_path, start=begun, **changes))
    for name, tensor in after.items():
        frozen = name.startswith(("encoder.", "source_embedding", "target_embedding", "output_weight"))
        assert torch.equal(tensor, before[name]) == (frozen or name.endswith("positions")), name
    error = refusal(capfd, tmp_path, start=begun | {"freeze": ["encodr.*"]}, **changes)
    assert "start.freeze: no parameter matches 'encodr.*'; there are source_embedding, " in error
    assert error.count("encoder.*.attention.qkv.weight") == 1
    assert "start.freeze leaves nothing to train" in refusal(
        capfd, tmp_path, start=begun | {"freeze": ["*"]}, **changes
    )


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"training": {"max_step": 3}}, "training.max_step: Extra inputs are not permitted"),
        ({"optimizer": {"warmup_steps": 0}}, "optimizer.warmup_steps: Input should be greater than 0; it is 0"),
        ({"model": None}, "give either both [vocabulary] and [model], or [start]"),
        ({"start": {"checkpoint": "x"}}, "give either both [vocabulary] and [model], or [start]"),
        ({"data": {"max_tokens": 65}}, "data.max_tokens is 65, but the model has 64 positions; lower it to that"),
        ({"model": {"heads": 3}}, "[model]: width 16 is not a multiple of 3 heads"),
        ({"vocabulary": {"size": 5000}}, "a vocabulary of 5000 pieces cannot be trained"),
        (
            {"vocabulary": {"size": 2**31}},
            "vocabulary.size: Input should be less than or equal to 1000000; it is 2147483648",
        ),
        (
            {"vocabulary": {"character_coverage": 0.5}},
            "character_coverage: Input should be greater than or equal to 0.98",
        ),
        ({"vocabulary": {"target_language": "en us"}}, "vocabulary.target_language: String should match pattern"),
        ({"optimizer": {"betas": [0.9, 1.0]}}, "optimizer.betas.1: Input should be less than 1"),
        ({"training": {"threads": 10**6}}, "training.threads: Input should be less than or equal to 1024"),
        ({"validation": {"num_beams": 10**5}}, "validation.num_beams: Input should be less than or equal to 64"),
    ],
)
def test_a_bad_experiment_is_refused(
    sections: dict[str, dict[str, object] | None],
    message: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert message in refusal(capfd, tmp_path, **sections)


def test_validation_text_that_fits_no_batch_is_refused_at_the_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_config(tmp_path)
    for side in ("en", "pt"):
        (tmp_path / "text" / f"valid.{side}").write_text("one " * 150, encoding="utf-8")
    room: dict[str, dict[str, object]] = {"data": {"max_tokens": 400}, "model": {"max_positions": 400}}
    error = refusal(capfd, tmp_path, batches={"tokens": 100}, **room)
    assert "batches.tokens is 100, but a sentence has " in error
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_file_that_is_no_experiment_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.toml").write_text("output = ", encoding="utf-8")
    assert main([str(tmp_path / "x.toml")]) == main([str(tmp_path / "y.toml")]) == 2
    first, second = capfd.readouterr().err.splitlines()
    assert "x.toml is not TOML" in first
    assert "y.toml cannot be read: No such file" in second


def test_the_learning_rate_warms_up_and_falls() -> None:
    plain = Optimizer(peak_learning_rate=0.5, warmup_steps=100)
    rates = [learning_rate(step, plain, 1000) for step in (1, 50, 100, 400, 1000)]
    assert rates == pytest.approx([0.005, 0.25, 0.5, 0.25, 0.5 * 0.1**0.5])
    cooled = plain.model_copy(update={"cooldown_steps": 300})
    assert [learning_rate(step, cooled, 1000) for step in (100, 400, 700)] == pytest.approx([0.5, 0.25, 0.5 / 7**0.5])
    ratios = [learning_rate(step, cooled, 1000) / learning_rate(step, plain, 1000) for step in (701, 850, 1000)]
    assert ratios == pytest.approx([300 / 301, 151 / 301, 1 / 301])
