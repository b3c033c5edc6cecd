"""What the teacher says is computed once, and a student can start from a teacher of another kind."""

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import MarianMTModel

from models.checkpoint import load_checkpoint
from models.positions import position_table
from models.tokenizers.sentencepiece_pair import SentencePiecePair
from models.transformer import Transformer
from tests.checkpoints import flores, write_checkpoint
from tests.models.checkpoint.marian.marian_nmt import PIECES, write_model
from tests.training.experiments import write_config
from training.__main__ import main as train
from training.config import Distillation, Start
from training.data.batches import in_order, make_batch
from training.data.text import Corpus, Sentences
from training.errors import TrainingError
from training.objective.notes import TeacherNotes
from training.objective.objective import WordLevelDistillation, noted_states
from training.start import as_marian, from_checkpoint, load_suppressed

FROZEN = ("encoder.*", "*_positions", "source_embedding", "output_bias")


def random_text(seed: int) -> Sentences:
    """Sentences of 2 to 9 tokens."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 10, 40)
    return Sentences(random.integers(2, 200, lengths.sum()).astype(np.int32), np.cumsum(lengths))


@pytest.fixture
def corpus() -> Corpus:
    return Corpus(random_text(1), random_text(2))


def gradients(objective: WordLevelDistillation, corpus: Corpus, bf16: bool) -> list[dict[str, Tensor]]:
    """Of every batch of an epoch."""
    found = []
    for rows in in_order(corpus, 64):
        objective.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, bf16):
            loss, _ = objective(make_batch(corpus, rows, objective.model.config))
        loss.backward()
        trained = ((name, p.grad) for name, p in objective.model.named_parameters())
        found.append({"loss": loss.detach()} | {name: grad.clone() for name, grad in trained if grad is not None})
    return found


@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("hidden", [0.0, 0.3])
def test_the_second_epoch_learns_the_same_from_the_notes(
    hidden: float, bf16: bool, corpus: Corpus, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "teacher")
    teacher = load_suppressed(folder).transformer
    settings = Distillation.model_validate({"teacher": folder, "hidden": hidden, "notes": True})
    start = Start(checkpoint=folder, reset=("decoder.*.attention.*",), freeze=FROZEN)
    student = from_checkpoint(start, 0.0, tmp_path, write=False).model
    assert isinstance(student, Transformer)
    notes = TeacherNotes(tmp_path, corpus, teacher.config.width, noted_states(teacher, settings))
    objective = WordLevelDistillation(student, teacher, settings, 0.1, notes)
    first = gradients(objective, corpus, bf16)
    teacher.encode = teacher.decode = None  # type: ignore[assignment]  # is not asked again
    rounding = 2e-2 if bf16 else 2e-3
    for then, now in zip(first, gradients(objective, corpus, bf16), strict=True):
        for name, value in then.items():
            torch.testing.assert_close(now[name], value, rtol=2e-2, atol=rounding * float(value.abs().max()) + 1e-6)


def test_validation_text_is_not_in_the_notes(corpus: Corpus, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "teacher")
    teacher = load_suppressed(folder).transformer
    settings = Distillation.model_validate({"teacher": folder, "notes": True})
    student = from_checkpoint(Start(checkpoint=folder, freeze=FROZEN), 0.0, tmp_path, write=False).model
    assert isinstance(student, Transformer)
    notes = TeacherNotes(tmp_path, corpus, teacher.config.width, noted_states(teacher, settings))
    objective = WordLevelDistillation(student, teacher, settings, 0.1, notes).eval()
    rows = np.arange(len(corpus))
    batch = make_batch(corpus, rows, student.config)
    _, error = objective(batch)
    assert not notes.taken(rows[:1])
    width = student.config.width
    memory = torch.ones(len(rows), int(corpus.source.lengths.max()), width)
    notes.take(rows, memory, [torch.ones(len(corpus.target.token_ids), width)])
    assert torch.equal(objective(batch)[1], error)
    assert not torch.equal(objective.train()(batch)[1], error)


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may be larger than 1 MB."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("full_disk")
def test_no_room_for_the_notes(corpus: Corpus, tmp_path: Path) -> None:
    tokens = corpus.source.ends[-1] + 3 * corpus.target.ends[-1]
    with pytest.raises(TrainingError, match=f"no room for {tokens * 2 * 4096 / 1e9:.1f} GB .*notes = false"):
        TeacherNotes(tmp_path, corpus, 4096, 3)
    assert list(tmp_path.iterdir()) == []


def test_a_recurrent_decoder_becomes_one_with_self_attention(tmp_path: Path) -> None:
    shape = load_suppressed(write_checkpoint(tmp_path / "model")).transformer.config
    recurrent = Transformer(shape.model_copy(update={"decoder_cell": "ssru", "norm_epsilon": 1e-6}))
    with torch.no_grad():
        for parameter in recurrent.parameters():
            parameter.add_(torch.rand_like(parameter))
    converted = as_marian(recurrent)
    assert converted.config == shape
    ours, theirs = dict(converted.named_parameters()), dict(recurrent.named_parameters())
    torch.testing.assert_close(ours["source_positions"], position_table(shape))
    for name, parameter in ours.items():
        if not name.endswith("_positions") and ".qkv." not in name and ".attention.out." not in name:
            assert torch.equal(parameter, theirs[name] if name in theirs else recurrence(theirs, name)), name
    attention = {name for name in ours if name.startswith("decoder.") and name not in theirs}
    assert len(attention) == 6 * shape.decoder_layers


def recurrence(parameters: dict[str, torch.nn.Parameter], name: str) -> Tensor:
    """What stood where a decoder's self-attention stands."""
    return parameters[name.replace(".attention.", ".recurrence.")]


def test_a_model_that_is_marian_stays_as_it_is(tmp_path: Path) -> None:
    model = load_suppressed(write_checkpoint(tmp_path / "model")).transformer
    assert as_marian(model) is model


def test_a_model_of_firefox_is_trained_on_and_becomes_one_of_transformers(tmp_path: Path) -> None:
    teacher = write_model(tmp_path / "firefox")
    (teacher / "LICENSE").write_text("theirs", encoding="utf-8")
    changes: dict[str, dict[str, object] | None] = {
        "data": {"max_unknown": 1.0, "max_tokens": 128},
        "vocabulary": None,
        "model": None,
        "start": {"checkpoint": str(teacher), "freeze": list(FROZEN)},
        "training": {"max_steps": 4, "dropout": 0.0},
        "distillation": {"teacher": str(teacher), "hidden": 0.3, "notes": True},
    }
    assert train([str(write_config(tmp_path, **changes))]) == 0
    folder = tmp_path / "run" / "model"
    assert (folder / "LICENSE").read_text(encoding="utf-8") == "theirs"
    ours, theirs = MarianMTModel.from_pretrained(folder), load_checkpoint(teacher)
    assert theirs.transformer.config.decoder_cell == "ssru"
    torch.testing.assert_close(
        ours.model.shared.weight[:-1].float(), theirs.model.source_embedding[:PIECES].half().float()
    )
    tokenizers = (
        SentencePiecePair.load(folder, load_checkpoint(folder).sentencepiece),
        SentencePiecePair.load(teacher, theirs.sentencepiece),
    )
    for text in flores()[0]:
        assert tokenizers[0].encode(text) == tokenizers[1].encode(text)


def test_languages_that_nobody_says_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    teacher = write_model(tmp_path / "unnamed", form="npz")
    changes = {"vocabulary": None, "model": None, "start": {"checkpoint": str(teacher)}}
    assert train([str(write_config(tmp_path, **changes))]) == 2
    assert "does not say which languages it is for" in capfd.readouterr().err
