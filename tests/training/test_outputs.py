"""A run's folder: what a run goes on from, what it refuses to go on from, and what it leaves alone."""

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from models.checkpoint import load_checkpoint
from models.tokenizers.sentencepiece_pair import load_vocabulary
from tests.checkpoints import ROOT
from tests.training.experiments import STEP, refusal, run, write_config
from training.config import Optimizer
from training.loop import state
from training.loop.optimizers import adamw
from training.loop.outputs import Outputs
from training.loop.processes import Processes


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """What an experiment with `threads` sets for the whole process."""
    torch.set_num_threads(1)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, training={"max_steps": STEP})
    error = refusal(capfd, tmp_path, model={"ffn": 48})
    assert "step-00000002.pt is of a model whose encoder_ffn is 32; that of this experiment is 48. Choose" in error


@pytest.mark.parametrize(("key", "value"), [("heads", 1), ("activation", "gelu")])
def test_so_is_one_whose_weights_have_the_same_shapes(
    key: str, value: object, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, training={"max_steps": STEP})
    error = refusal(capfd, tmp_path, model={key: value})
    assert re.search(rf"is of a model whose \w*{key} is \w+; that of this experiment is {value}", error)


@pytest.mark.parametrize(("key", "was", "now"), [("size", 160, 150), ("target_language", "pt", "pt-BR")])
def test_another_vocabulary_is_refused(
    key: str, was: object, now: object, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, training={"max_steps": STEP})
    error = refusal(capfd, tmp_path, vocabulary={key: now})
    assert f"run/vocabulary was made with vocabulary.{key} = {was}; it is {now} now. Choose another output" in error


def test_a_vocabulary_that_no_checkpoint_needs_is_made_anew(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "positions; lower it" in refusal(capfd, tmp_path, data={"max_tokens": 65})
    assert load_vocabulary(tmp_path / "run" / "vocabulary" / "vocab.json")
    run(tmp_path, training={"max_steps": STEP}, vocabulary={"size": 150, "target_language": "de"})
    assert load_checkpoint(tmp_path / "run" / "model").target_languages == ("de",)


def test_weights_of_a_run_whose_checkpoints_are_gone_are_no_candidate(tmp_path: Path) -> None:
    folder = run(tmp_path, training={"max_steps": 2 * STEP})
    best = Outputs(folder).best
    before = best.read_bytes()
    shutil.rmtree(folder / "checkpoints")
    shutil.rmtree(folder / "model")
    run(tmp_path, training={"max_steps": STEP})
    assert before and not best.exists()


def test_a_folder_that_no_run_wrote_is_not_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "run" / "model" / "mine.py"
    mine.parent.mkdir(parents=True)
    mine.write_text("precious", encoding="utf-8")
    error = refusal(capfd, tmp_path, training={"max_steps": STEP})
    assert "run/model is there, and " in error and "choose another output folder, or move it away" in error
    assert mine.read_text(encoding="utf-8") == "precious" and os.listdir(tmp_path / "run") == ["model"]


def test_nor_is_one_with_the_name_of_the_vocabulary(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "run" / "vocabulary" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("precious", encoding="utf-8")
    error = refusal(capfd, tmp_path, training={"max_steps": STEP})
    assert "run/vocabulary is a folder of the run's own, and has mine.txt: choose another output folder" in error
    assert mine.read_text(encoding="utf-8") == "precious" and os.listdir(tmp_path / "run") == ["vocabulary"]


@pytest.mark.parametrize(
    ("most", "told"),
    [
        (100_000, r"error: \S+/run/vocabulary: File too large\n"),
        (300_000, r"error: \S+/step-00000002.pt cannot be written: File too large\. There is no checkpoint yet: make"),
    ],
    ids=["vocabulary", "checkpoint"],
)
def test_what_has_no_room_is_told(most: int, told: str, tmp_path: Path) -> None:
    """In a process of its own, no file of which may be longer."""
    config = write_config(tmp_path, training={"max_steps": STEP}, model={"ffn": 4096})
    limited = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}));"
        "from training.__main__ import main; sys.exit(main([sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, str(config)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 2
    assert re.search(told, done.stderr), done.stderr
    assert not list((tmp_path / "run").rglob("*.partial"))


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    with Outputs(folder).claimed(Processes(torch.device("cpu"))):
        assert "another run writes to" in refusal(capfd, tmp_path, training={"max_steps": STEP})
    run(tmp_path, training={"max_steps": STEP})


@pytest.mark.parametrize(("number", "stops"), [(errno.ENOSYS, False), (errno.ENOLCK, False), (errno.EIO, True)])
def test_a_file_system_without_locks_is_trained_on(
    number: int, stops: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    told = pytest.raises(OSError, match=os.strerror(number)) if stops else nullcontext()
    with told, Outputs(tmp_path).claimed(Processes(torch.device("cpu"))):
        pass


def test_settings_of_the_optimizer_may_be_others_when_a_run_goes_on() -> None:
    """Those of the checkpoint, which has them too, won."""
    weight = torch.nn.Parameter(torch.ones(2, 2))
    kept = adamw(Optimizer(), [weight]).state_dict()
    optimizer = adamw(Optimizer(betas=(0.5, 0.6), epsilon=1e-3, weight_decay=0.25), [weight])
    state.fill_optimizer(optimizer, kept)
    (group,) = optimizer.param_groups
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.5, 0.6), 1e-3, 0.25)


def test_other_text_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, training={"max_steps": STEP})
    for side in ("en", "pt"):
        with (tmp_path / "text" / f"train.{side}").open("a", encoding="utf-8") as file:
            file.write("one\n")
    error = refusal(capfd, tmp_path)
    assert "the checkpoint is of a run on other text, or with another vocabulary: put data back as it was" in error


def test_a_damaged_checkpoint_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (file,) = Outputs(run(tmp_path, training={"max_steps": STEP})).all_checkpoints()
    file.write_bytes(file.read_bytes()[:1000])
    error = refusal(capfd, tmp_path)
    assert "step-00000002.pt cannot be read: it is damaged, or was not written by training. Delete it" in error
    assert "Delete it to go on from an earlier one" in error


def test_what_torch_makes_of_a_full_disk_is_told_as_that(tmp_path: Path) -> None:
    """It closes its file, which fails in its own words, `unexpected pos 768 vs 662`."""
    limited = (
        "import resource, sys, torch; from pathlib import Path; from training.loop.outputs import Outputs;"
        "from training.loop.state import save; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000));"
        "save(Outputs(Path(sys.argv[1])), Path(sys.argv[1]) / 'step.pt', {'a': torch.zeros(10_000)})"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "step.pt cannot be written: File too large. There is no checkpoint yet" in done.stderr.splitlines()[-1]


def test_a_run_that_is_measured_otherwise_looks_for_the_best_anew(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A BLEU is never below a loss with its sign turned."""
    run(tmp_path, training={"max_steps": 2 * STEP}, validation={"sentences": 2})
    assert "BLEU" in capfd.readouterr().err
    folder = run(tmp_path, training={"max_steps": 4 * STEP}, validation={"sentences": 0})
    said = capfd.readouterr().err
    assert "the best by BLEU counts no more: from now on it is that by loss" in said
    assert re.search(r"step 8: validation loss [\d.]+ \(best\)", said)
    assert state.load(Outputs(folder).best)["step"] == 4 * STEP
