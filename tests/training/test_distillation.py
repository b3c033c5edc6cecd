"""A teacher writes the text, or gives the logits."""

import fcntl
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from models.decoding import Decoding
from models.package.folder import Package, sha256
from models.transformer import Transformer
from tests.checkpoints import END, edit_json, flores, write_checkpoint
from tests.oracles import HuggingFace
from tests.training.experiments import write_config
from training.__main__ import main as train
from training.config import Distillation, Start
from training.data.batches import Batch
from training.decoding import TargetLimits, open_package
from training.distill import main as distill
from training.objective.objective import WordLevelDistillation
from training.start import from_checkpoint, load_suppressed


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Short sentences."""
    file = tmp_path / "mono.txt"
    file.write_text("".join(f"{english[:25]}\n" for english, _ in flores()[:24]), encoding="utf-8")
    return file


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def oracle(tiny_checkpoint: Path, tmp_path: Path) -> HuggingFace:
    """The teacher in transformers. At its limit a target just stops: it is not given an end."""
    folder = tmp_path / "oracle"
    shutil.copytree(tiny_checkpoint, folder)
    edit_json(folder / "generation_config.json", forced_eos_token_id=None)
    edit_json(folder / "config.json", forced_eos_token_id=None)
    return HuggingFace(folder)


def expected(package: Package, oracle: HuggingFace, source: Path, num_beams: int) -> list[tuple[str, str]]:
    """What transformers translates, without targets that do not end within their limit."""
    tokenizer, positions = package.tokenizer(), package.manifest.model.max_positions
    pairs = []
    for line in lines(source):
        ids = tuple(tokenizer.encode(line))
        decoding = Decoding(num_beams, 1, min(2 * len(ids) + 10, positions), 1.0, False)
        ((target, _),) = oracle.generate([ids], decoding)[0]
        text = " ".join(tokenizer.decode(target).split())
        if target[-1] == END and text:
            pairs.append((line, text))
    return pairs


@pytest.mark.parametrize("num_beams", [1, 3])
def test_the_teacher_writes_the_target_side(
    num_beams: int, tiny_package: Package, oracle: HuggingFace, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "text" / "mono"
    command = [str(tiny_package.folder), "--source", str(source), "--out", str(out), "--num-beams", str(num_beams)]
    assert distill(command) == 0
    pairs = list(zip(lines(out.with_name("mono.en")), lines(out.with_name("mono.pt")), strict=True))
    assert len(pairs) > 3
    assert pairs == expected(tiny_package, oracle, source, num_beams)
    assert sorted(file.name for file in out.parent.iterdir()) == ["mono.en", "mono.pt"]


def test_it_goes_on_where_it_was_interrupted(tiny_package: Package, source: Path, tmp_path: Path) -> None:
    command = [str(tiny_package.folder), "--source", str(source), "--out", str(tmp_path / "mono")]
    assert distill(command) == 0
    whole = lines(tmp_path / "mono.pt")
    heading = {"source": sha256(source), "teacher": tiny_package.sha256, "num_beams": 1}
    begun = tmp_path / "mono.pt.begun"
    begun.write_text(f"{json.dumps(heading)}\nthe first\nthe second\nhalf of the thi", encoding="utf-8")
    assert distill(command) == 0
    assert lines(tmp_path / "mono.en")[:2] == lines(source)[:2]
    found = lines(tmp_path / "mono.pt")
    assert found[:2] == ["the first", "the second"]
    assert found[2:] == whole[-len(found[2:]) :]
    assert not begun.exists()


def test_work_of_another_teacher_is_not_gone_on_with(
    tiny_package: Package, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mono.pt.begun").write_text('{"source": "another"}\nfirst\n', encoding="utf-8")
    assert distill([str(tiny_package.folder), "--source", str(source), "--out", str(tmp_path / "mono")]) == 2
    assert "was begun with another source, teacher or search; delete it" in capfd.readouterr().err
    assert lines(tmp_path / "mono.pt.begun")[1] == "first"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one\n\nthree\n", "line 2 is empty; remove it"),
        (f"one\n{'two ' * 80}\n", "tokens; the teacher takes 80. Shorten it"),
        ("", "is empty; give at least one sentence"),
    ],
)
def test_a_bad_source_is_refused(
    text: str, message: str, tiny_package: Package, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.en").write_text(text, encoding="utf-8")
    command = [str(tiny_package.folder), "--source", str(tmp_path / "bad.en"), "--out", str(tmp_path / "out")]
    assert distill(command) == 2
    assert message in capfd.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["bad.en"]


def test_two_runs_do_not_write_one_text(
    tiny_package: Package, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = [str(tiny_package.folder), "--source", str(source), "--out", str(tmp_path / "mono")]
    with (tmp_path / "mono.pt.begun").open("w") as of_another:
        fcntl.flock(of_another, fcntl.LOCK_EX)
        assert distill(command) == 2
        assert "another run writes to" in capfd.readouterr().err
    assert (tmp_path / "mono.pt.begun").read_bytes() == b""
    assert distill(command) == 0


@pytest.mark.parametrize(("out", "told"), [("mono", "mono.en would be written over"), ("/", "/ is a folder; name the")])
def test_what_would_write_over_its_source_or_has_no_name_is_refused(
    out: str, told: str, tiny_package: Package, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = source.rename(tmp_path / "mono.en")
    before = text.read_bytes()
    assert distill([str(tiny_package.folder), "--source", str(text), "--out", str(tmp_path / out)]) == 2
    assert told in capfd.readouterr().err
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir() if file.is_file()] == [("mono.en", before)]


def test_a_pipe_is_known_by_its_text(
    tiny_package: Package, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What was begun is gone on with for the same text alone."""
    heading = {"source": sha256(source), "teacher": tiny_package.sha256, "num_beams": 1}
    (tmp_path / "mono.pt.begun").write_text(f"{json.dumps(heading)}\nthe first\n", encoding="utf-8")
    command = [str(tiny_package.folder), "--out", str(tmp_path / "mono"), "--source"]
    assert distill([*command, piped("another text\n")]) == 2
    assert "was begun with another source" in capfd.readouterr().err
    assert distill([*command, piped(source.read_text(encoding="utf-8"))]) == 0
    assert lines(tmp_path / "mono.pt")[0] == "the first"


def piped(text: str) -> str:
    """The name of a pipe with it, which a shell gives by `<(...)`. It is shorter than what a pipe holds."""
    read, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    return f"/dev/fd/{read}"


def test_more_translations_than_sentences_are_refused(
    tiny_package: Package, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    heading = {"source": sha256(source), "teacher": tiny_package.sha256, "num_beams": 1}
    (tmp_path / "mono.pt.begun").write_text(f"{json.dumps(heading)}\n" + "one\n" * 25, encoding="utf-8")
    assert distill([str(tiny_package.folder), "--source", str(source), "--out", str(tmp_path / "mono")]) == 2
    assert "mono.pt.begun has 25 translations of 24 sentences; delete it" in capfd.readouterr().err


def test_where_no_translation_ends_it_says_so(
    tiny_package: Package, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    heading = {"source": sha256(source), "teacher": tiny_package.sha256, "num_beams": 1}
    (tmp_path / "mono.pt.begun").write_text(f"{json.dumps(heading)}\n" + "\n" * 24, encoding="utf-8")
    assert distill([str(tiny_package.folder), "--source", str(source), "--out", str(tmp_path / "mono")]) == 2
    assert "none of 24 translations ended by itself" in capfd.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == [source.name]


def test_a_folder_that_is_no_package_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert distill([str(tmp_path), "--source", "x", "--out", "y"]) == 2
    assert "is not a package" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("languages", "told"),
    [
        (
            {"source_languages": ["en", "de"]},
            "has 2 source languages, and the text is in one: export it again with one",
        ),
        (
            {"target_languages": ["pt", "es"]},
            "has 2 target languages, and the text is in one: export it again with one",
        ),
        ({"target_languages": ["en"]}, "has en on both sides, after which both files would be named: export it again"),
    ],
    ids=str,
)
def test_a_teacher_of_other_than_two_languages_is_refused(
    languages: dict[str, list[str]],
    told: str,
    tiny_package: Package,
    source: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = Path(shutil.copytree(tiny_package.folder, tmp_path / "package"))
    edit_json(folder / "manifest.json", **languages)
    assert distill([str(folder), "--source", str(source), "--out", str(tmp_path / "mono")]) == 2
    assert told in capfd.readouterr().err
    assert not list(tmp_path.glob("mono.en"))


def test_a_decoder_that_is_told_its_language_is_told_it(tiny_package: Package, tmp_path: Path) -> None:
    """It was told none, and wrote in any."""
    folder = Path(shutil.copytree(tiny_package.folder, tmp_path / "package"))
    edit_json(folder / "manifest.json", languages={"pt": {"begin_id": 7}})
    with open_package(Package.open(folder), TargetLimits()) as translating:
        assert translating._rules.forced_begin_id == 7


def test_a_teacher_whose_graphs_do_not_run_is_refused(
    tiny_package: Package, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its weights are cut short, as its manifest says."""
    folder = Path(shutil.copytree(tiny_package.folder, tmp_path / "package"))
    weights = folder / "weights.bin"
    os.truncate(weights, weights.stat().st_size // 2)
    manifest = json.loads((folder / "manifest.json").read_text())
    entry = {"sha256": sha256(weights), "size_bytes": weights.stat().st_size}
    edit_json(folder / "manifest.json", files=manifest["files"] | {weights.name: entry})
    assert distill([str(folder), "--source", str(source), "--out", str(tmp_path / "mono")]) == 2
    assert f"error: {folder}: ONNX Runtime loads no model on the CPU" in capfd.readouterr().err.splitlines()[-1]


FROZEN = ["encoder.*", "*_positions", "source_embedding", "output_bias", "cross_kv.*"]
WORD_LEVEL: dict[str, object] = {
    "data": {"max_unknown": 1.0, "max_tokens": 128},
    "vocabulary": None,
    "model": None,
    "training": {"max_steps": 20, "dropout": 0.0},
    "optimizer": {"peak_learning_rate": 5e-3, "warmup_steps": 20},
    "validation": {"every_steps": 1000},
    "checkpoints": {"every_steps": 10, "average": 1},
}


@pytest.mark.parametrize("weights", [{"match": "gram"}, {"match": "kl"}, {"match": "gram", "in_batch": 5.0}])
def test_a_student_comes_to_agree_with_its_teacher(weights: dict[str, object], tmp_path: Path) -> None:
    """The decoder's self-attention is thrown away, and learnt again from the teacher's logits."""
    teacher = load_suppressed(write_checkpoint(tmp_path / "teacher")).transformer
    settings = Distillation.model_validate({"teacher": tmp_path / "teacher", "hidden": 0.3} | weights)
    reset = ("decoder.*.attention.qkv.*", "decoder.*.attention.out.*")
    start = Start(checkpoint=settings.teacher, reset=reset, freeze=tuple(FROZEN))
    student = from_checkpoint(start, 0.0, tmp_path, write=False).model
    assert isinstance(student, Transformer)
    objective = WordLevelDistillation(student, teacher, settings, label_smoothing=0.1)
    ids = torch.randint(2, 200, (6, 10), generator=torch.Generator().manual_seed(1))
    everything = torch.ones(6, 10, dtype=torch.bool)
    batch = Batch(np.arange(6), ids, torch.full((6,), 10), ids.flip(0), ids.flip(1), everything)
    optimizer = torch.optim.AdamW([p for p in student.parameters() if p.requires_grad], 5e-3)
    losses = []
    for _ in range(40):
        loss, _ = objective(batch)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0] / 5
    assert float(WordLevelDistillation(teacher, teacher, settings, 0.1)(batch)[0]) == pytest.approx(0, abs=1e-4)


def test_the_divergence_in_a_batch_is_among_the_tokens_of_its_targets(tmp_path: Path) -> None:
    teacher, student = (
        load_suppressed(write_checkpoint(tmp_path / str(seed), seed=seed)).transformer for seed in (1, 2)
    )
    settings = Distillation.model_validate({"teacher": tmp_path, "match": "kl", "logits": 0.0, "in_batch": 2.0})
    ids, labels = torch.tensor([[5, 6, 7]]), torch.tensor([[9, 11, 9, 4]])
    batch = Batch(np.arange(1), ids, torch.tensor([3]), torch.tensor([[1, 9, 11, 9]]), labels, labels.ne(4))
    student_says, teacher_says = (
        model(ids, batch.source_lengths, batch.inputs)[0, :3, [9, 11]].log_softmax(1) for model in (student, teacher)
    )
    expected = (teacher_says.exp() * (teacher_says - student_says)).sum()
    _, shown = WordLevelDistillation(student, teacher, settings, 0.0)(batch)
    assert expected > 0
    torch.testing.assert_close(shown, 2 * expected)


def test_validation_says_how_far_from_the_teacher_a_student_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A student that is its teacher, and is not trained: the text would not say so."""
    teacher = write_checkpoint(tmp_path / "teacher", max_position_embeddings=128)
    changes = WORD_LEVEL | {
        "start": {"checkpoint": str(teacher), "freeze": FROZEN},
        "distillation": {"teacher": str(teacher), "hidden": 0.3, "notes": True},
        "optimizer": {"peak_learning_rate": 1e-9},
        "training": {"max_steps": 2, "dropout": 0.0},
        "validation": {"sentences": 0},
    }
    assert train([str(write_config(tmp_path, **changes))]) == 0  # type: ignore[arg-type]
    assert "mean of the last 1 checkpoints: loss 0.000" in capfd.readouterr().err


def test_word_level_distillation_trains(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    teacher = write_checkpoint(tmp_path / "teacher", max_position_embeddings=128)
    start = {"checkpoint": str(teacher), "reset": ["decoder.*.attention.*"], "freeze": FROZEN}
    weights = {"teacher": str(teacher), "hidden": 0.3, "cross_entropy": 0.1}
    file = write_config(tmp_path, start=start, distillation=weights, **WORD_LEVEL)  # type: ignore[arg-type]
    assert train([str(file)]) == 0
    before, after = (load_suppressed(folder).model.state_dict() for folder in (teacher, tmp_path / "run" / "model"))
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name].half().float())}
    assert {name for name in changed if not name.endswith("_positions")} == {
        name for name in before if name.startswith("decoder.")
    }


@pytest.mark.parametrize(
    ("freeze", "teacher", "distillation", "message"),
    [
        (
            ["encoder.*"],
            {},
            {},
            'distillation.match = "gram" needs the output table and the output bias of the teacher',
        ),
        (FROZEN, {"decoder_layers": 1}, {"hidden": 0.1}, "1 decoder layers of width 48, the student 2 of width 48"),
        (FROZEN, {"separate": True}, {}, "Both must have the same vocabulary"),
        (["*embedding", "output_bias"], {}, {"notes": True}, "distillation.notes needs the encoder of the teacher"),
    ],
)
def test_a_teacher_that_cannot_teach_is_refused(
    freeze: list[str],
    teacher: dict[str, object],
    distillation: dict[str, object],
    message: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    student = write_checkpoint(tmp_path / "student", max_position_embeddings=128)
    other = write_checkpoint(tmp_path / "teacher", **teacher) if teacher else student  # type: ignore[arg-type]
    changes = WORD_LEVEL | {
        "start": {"checkpoint": str(student), "freeze": freeze},
        "distillation": {"teacher": str(other)} | distillation,
    }
    assert train([str(write_config(tmp_path, **changes))]) == 2  # type: ignore[arg-type]
    assert message in capfd.readouterr().err
