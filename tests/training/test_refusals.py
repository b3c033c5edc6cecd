"""What cannot be learnt from, or would be left out without a word, is refused by name."""

import re
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from rich.console import Console

from training import command
from training.config import Distillation, Experiment, read_experiment
from training.corpus import check, choose
from training.encoders.config import EncoderExperiment, WordPieces
from training.encoders.run import read
from training.encoders.text import Vocabulary, labelled_words, train_vocabulary
from training.errors import TrainingError
from training.loop.outputs import Outputs
from training.loop.processes import Processes

SENTENCE = "This sentence has five words"
PLACE = "Wesnoth\ta document"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """One of 300 pairs, without Portuguese sentences and without held-out documents."""
    files = {"pairs.en": 300, "pairs.pt": 300, "mono.en": 20, "mono.pt": 0, "held_out.txt": 0}
    for name, lines in files.items():
        (tmp_path / name).write_text(f"{SENTENCE}\n" * lines, encoding="utf-8")
    for name, lines in {"pairs.origins": 300, "mono.en.origins": 20, "mono.pt.origins": 0}.items():
        (tmp_path / name).write_text(f"{PLACE}\n" * lines, encoding="utf-8")
    return tmp_path


def test_a_part_of_the_corpus_is_checked(corpus: Path) -> None:
    assert check.main([str(corpus)]) == 0


def test_pairs_that_leave_none_to_train_with_are_refused(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert choose.main([str(corpus), str(corpus / "out"), "--teacher", "5", "--student", "5"]) == 2
    assert "has 300 pairs of sentences; more than 300 are needed" in capsys.readouterr().err
    assert not (corpus / "out").exists()


def test_numbers_of_sentences_below_one_are_refused(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        choose.main([str(corpus), str(corpus / "out"), "--teacher", "-5", "--student", "5"])
    assert "--teacher is -5 and --student 5; give 1 or more of each" in capsys.readouterr().err


def test_a_distillation_that_learns_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="are all 0: set one above 0"):
        Distillation(teacher=Path("teacher"), logits=0)


@pytest.mark.parametrize(
    ("objective", "section", "key"),
    [
        ("mlm", {"validation": {"sentences": 50}}, "validation.sentences"),
        ("mlm", {"training": {"max_steps": 1, "scheduled_sampling": 0.5}}, "training.scheduled_sampling"),
        ("mlm", {"training": {"max_steps": 1, "label_smoothing": 0.1}}, "training.label_smoothing"),
        ("text", {"masking": {"words": 0.3}}, "masking"),
    ],
)
def test_keys_that_an_encoder_has_no_use_for_are_refused(objective: str, section: dict[str, object], key: str) -> None:
    run = {
        "output": "out",
        "start": "bert",
        "objective": objective,
        "data": {"train": ["a"], "validation": "b"},
        "training": {"max_steps": 1},
    }
    with pytest.raises(ValidationError, match=f"has no {key}"):
        EncoderExperiment.model_validate(run | section)


def test_a_price_of_depths_that_no_token_pays_is_refused() -> None:
    pair = {"source": "a", "target": "b"}
    run = {
        "output": "out",
        "data": {"train": [pair], "validation": pair},
        "vocabulary": {"source_language": "en", "target_language": "pt"},
        "model": {"shared_layers": True},
        "training": {"max_steps": 1, "ponder_price": 0.02},
    }
    with pytest.raises(ValidationError, match=r"training\.ponder_price is the price of depths where tokens halt: set"):
        Experiment.model_validate(run)
    Experiment.model_validate(run | {"model": {"shared_layers": True, "halting": True}})


def test_a_vocabulary_that_cannot_be_so_small_is_refused(tmp_path: Path) -> None:
    """Of six characters, four of which words go on with, and five special tokens."""
    with pytest.raises(
        TrainingError, match=r"a vocabulary of 12 pieces cannot .* alone are 15\. Raise vocabulary\.size"
    ):
        train_vocabulary(tmp_path / "vocabulary", WordPieces(size=12), ["abc abc", "def"])
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_name_does_not_write_where_one_stands(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text('output = ""\n', encoding="utf-8")
    with pytest.raises(TrainingError, match="output: it is empty; name a folder"):
        read_experiment(file, Experiment)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("output = [1]", "output: it is [1], and no path; name one in quotes"),
        ('output = "a\\u0000b"', "output: it has a zero byte, which no path has"),
        ('output = "x"\nseed = true', "seed: Input should be a valid integer; it is True"),
        ('output = "x"\nseed = "1"', "seed: Input should be a valid integer; it is '1'"),
        ('output = "x"\nseed = -1', "seed: Input should be greater than or equal to 0; it is -1"),
        ('output = "x"\ndata.max_tokens = 1', "data.max_tokens: Input should be greater than 1; it is 1"),
        ('output = "x"\nmodel.architecture = "y"', "model: architecture is none of transformer, recurrent, prefix"),
        ('output = "x"\nmodel.width = 10000000', "model.width: Input should be less than or equal to 1048576; it is 1"),
        ('output = "x"\nmodel.encoder_layers = 2000', "model.encoder_layers: Input should be less than or equal to 10"),
        ('output = "x"\nbatches.tokens = 2147483648', "batches.tokens: Input should be less than 2147483648"),
    ],
)
def test_what_is_wrong_is_told_as_it_stands_in_the_file(line: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    pair = '{ source = "a", target = "b" }'
    needed = f"training.max_steps = 1\ndata.train = [{pair}]\ndata.validation = {pair}\n"
    file.write_text(f"{line}\n{needed}", encoding="utf-8")
    with pytest.raises(TrainingError, match=re.escape(told)):
        read_experiment(file, Experiment)


@pytest.mark.parametrize("output", ["file", "file/run", "loop"])
def test_an_output_that_can_be_no_folder_is_refused(output: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with (
        pytest.raises(TrainingError, match=rf"{output} cannot be a folder \(.+\); choose another output folder"),
        Outputs(tmp_path / output).claimed(Processes(torch.device("cpu"))),
    ):
        pass


def test_a_name_with_colons_is_told_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert choose.main(["nowhere/:x:", "out"]) == 2
    assert capsys.readouterr().err.startswith("error: nowhere/:x:/mono.en cannot be read")


@pytest.mark.parametrize("line", ["word\tNN\tO", "word", "word\t", "\tO", "word\t\tO"])
def test_words_with_other_than_two_columns_are_refused(line: str, tmp_path: Path) -> None:
    file = tmp_path / "words.conll"
    file.write_text(f"A\tO\n{line}\n", encoding="utf-8")
    with pytest.raises(TrainingError, match=r"words\.conll, line 2 is .*; expected a word, a tab and a label"):
        list(labelled_words(file))


def test_columns_the_wrong_way_round_are_told_in_a_line(tmp_path: Path) -> None:
    for name in ("train", "valid"):
        lines = (f"{SENTENCE} and number {number} of {name}\tlabel\n" for number in range(100))
        (tmp_path / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    train_vocabulary(tmp_path / "vocabulary", WordPieces(size=60), [SENTENCE, "label"])
    experiment = EncoderExperiment.model_validate(
        {
            "output": tmp_path,
            "objective": "text",
            "start": "bert",
            "data": {"train": [tmp_path / "train.tsv"], "validation": tmp_path / "valid.tsv"},
            "training": {"max_steps": 1},
        }
    )
    told = rf"has the label '{SENTENCE} and number 0 of valid'; the training text has 100: {SENTENCE} and"
    with pytest.raises(TrainingError, match=told) as refused:
        read(experiment, Vocabulary.load(tmp_path / "vocabulary"))
    assert len(str(refused.value)) < 500 + len(str(tmp_path))


@pytest.mark.parametrize(
    "said",
    [
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 40 bytes. Error code 12 (Cannot allocate memory)",
        "CUDA out of memory. Tried to allocate 40 bytes. GPU 0 has a total capacity of 8.00 GiB",
    ],
)
def test_what_no_memory_is_left_for_is_told(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    def work(_: Console) -> None:
        raise RuntimeError(said)

    assert command.run(work) == 2
    assert capsys.readouterr().err.startswith("error: there is not enough memory: 40 bytes more were needed. Lower ")


def test_no_other_error_is_taken_for_that() -> None:
    def work(_: Console) -> None:
        raise RuntimeError("of a program")

    with pytest.raises(RuntimeError, match="of a program"):
        command.run(work)
