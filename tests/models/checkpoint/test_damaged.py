"""Wrong and missing files of every family are refused in a line that names the file. Marian's: test_marian_refusals."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import BertModel, M2M100Config, M2M100ForConditionalGeneration, T5Config, T5ForConditionalGeneration

from models.checkpoint import CheckpointError, encoders, load_checkpoint
from tests.checkpoints import edit_json
from tests.export.test_families_exported import write_tokenizer
from tests.models.checkpoint.encoders.saved import bert, write
from tests.models.families import BART_LIKE, SHAPE, T5_SHAPE, VOCABULARY, Family, write_family
from tests.models.tokenizers.test_python_tokenizers import m2m100
from tests.models.tokenizers.test_tokenizer_json import nllb, t5

SMALL = SHAPE | {"vocab_size": 800, "encoder_layers": 1, "decoder_layers": 1}
M2M100 = Family(lambda: M2M100ForConditionalGeneration(M2M100Config(**SMALL)))
T5 = Family(lambda: T5ForConditionalGeneration(T5Config(**T5_SHAPE | {"vocab_size": 820})))


def write_bart(folder: Path) -> None:
    write_tokenizer(write_family(folder, BART_LIKE["bart"]), VOCABULARY)


def write_t5(folder: Path) -> None:
    t5(write_family(folder, T5))


def write_m2m100(folder: Path) -> None:
    m2m100(write_family(folder, M2M100))


def write_nllb(folder: Path) -> None:
    nllb(write_family(folder, M2M100))


def write_bert(folder: Path) -> None:
    write(folder, BertModel(bert()))


def write_sentences(folder: Path) -> None:
    saved = write(folder, BertModel(bert()))
    saved.sentences(["Transformer", "Pooling"], {"pooling_mode": "mean"}, sentence_bert_config={"max_seq_length": 20})


WRITERS = {
    "bart": write_bart,
    "t5": write_t5,
    "m2m100": write_m2m100,
    "nllb": write_nllb,
    "bert": write_bert,
    "sentence-transformers": write_sentences,
}
WEIGHTS, INDEX, SHARD = "model.safetensors", "model.safetensors.index.json", "model-00001-of-00002.safetensors"
Damage = Callable[[Path], object]


def gone(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def garbage(file: Path) -> None:
    file.write_bytes(bytes(range(256)) * 3)


def a_list(file: Path) -> None:
    file.write_text("[1, 2]")


def deep(file: Path) -> None:
    file.write_text("[" * 100_000)


def pointer(file: Path) -> None:
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n")


def huge_header(file: Path) -> None:
    file.write_bytes(struct.pack("<Q", 1 << 62) + file.read_bytes()[8:])


def no_zip(file: Path) -> None:
    file.rename(file.with_name("pytorch_model.bin"))


def shard_is_missing(file: Path) -> None:
    names = list(load_file(file))
    places = dict.fromkeys(names[:2], "model-00002-of-00002.safetensors") | dict.fromkeys(names[2:], SHARD)
    file.rename(file.with_name(SHARD))
    file.with_name(INDEX).write_text(json.dumps({"weight_map": places}))


def shard_twice(file: Path) -> None:
    shard_is_missing(file)
    shutil.copy(file.with_name(SHARD), file.with_name("model-00002-of-00002.safetensors"))


def index_is_cut(file: Path) -> None:
    shard_twice(file)
    cut(file.with_name(INDEX))


def of_another_width(file: Path) -> None:
    save_file({name: tensor[..., :-1].contiguous() for name, tensor in load_file(file).items()}, file)


TABLE: list[tuple[str, Damage, str]] = [
    ("config.json", gone, "config.json"),
    ("config.json", empty, "config.json is not JSON"),
    ("config.json", cut, "config.json is not JSON"),
    ("config.json", garbage, "config.json is not JSON"),
    ("config.json", a_list, "config.json is not a JSON object"),
    ("config.json", deep, "config.json is not JSON"),
    ("config.json", pointer, "config.json stands for a file that Git LFS has not fetched"),
    (WEIGHTS, gone, "has no weights: expected model.safetensors or pytorch_model.bin"),
    (WEIGHTS, empty, "model.safetensors is not a whole safetensors file"),
    (WEIGHTS, cut, "model.safetensors is not a whole safetensors file"),
    (WEIGHTS, garbage, "model.safetensors is not a whole safetensors file"),
    (WEIGHTS, huge_header, "model.safetensors is not a whole safetensors file"),
    (WEIGHTS, no_zip, "pytorch_model.bin is not a whole PyTorch weights file"),
    (WEIGHTS, shard_is_missing, "model-00002-of-00002.safetensors cannot be read: No such file or directory"),
    (WEIGHTS, shard_twice, "which another shard of model.safetensors.index.json has, too"),
    (WEIGHTS, index_is_cut, "model.safetensors.index.json is not JSON"),
    (WEIGHTS, of_another_width, "has shape"),
]
OF_GENERATION: list[tuple[str, Damage, str]] = [
    ("generation_config.json", damage, f"generation_config.json is not {what}")
    for damage, what in ((empty, "JSON"), (cut, "JSON"), (garbage, "JSON"), (a_list, "a JSON object"))
]
TOKENIZERS: dict[str, tuple[str, ...]] = {
    "bart": ("tokenizer.json",),
    "t5": ("spiece.model",),
    "m2m100": ("sentencepiece.bpe.model", "vocab.json"),
    "nllb": ("tokenizer.json",),
    "bert": ("tokenizer.json",),
    "sentence-transformers": ("tokenizer.json",),
}
OF_SENTENCES: list[tuple[str, Damage, str]] = [
    (file, damage, f"{file} is not ")
    for file in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json")
    for damage in (empty, cut, garbage)
]
OF_TOKENIZERS = [
    (family, file, damage, file)
    for family, files in TOKENIZERS.items()
    for file in files
    for damage in (gone, empty, cut, garbage)
    if (family, damage) != ("nllb", gone)  # whose SentencePiece model is there, too
]
OF_TOKENIZERS += [
    (family, file, pointer, f"{file} stands for a file that Git LFS has not fetched: run `git lfs pull` there")
    for family, files in TOKENIZERS.items()
    for file in files
]
CASES = [
    *((family, *case) for family in WRITERS for case in TABLE),
    *((family, *case) for family in ("bart", "t5", "m2m100", "nllb") for case in OF_GENERATION),
    *(("sentence-transformers", *case) for case in OF_SENTENCES),
    *OF_TOKENIZERS,
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a family, written once."""
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            made[family] = tmp_path_factory.mktemp("whole") / family
            WRITERS[family](made[family])
        return made[family]

    return folder


def load(folder: Path) -> object:
    return encoders.load(folder) if encoders.is_encoder(folder) else load_checkpoint(folder)


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as refused:
        load(folder)
    return str(refused.value)


@pytest.mark.parametrize("family", WRITERS)
def test_a_whole_folder_is_read(family: str, whole: Callable[[str], Path]) -> None:
    load(whole(family))


@pytest.mark.parametrize(
    ("family", "file", "damage", "said"),
    CASES,
    ids=[f"{family}, {file}, {how.__name__}" for family, file, how, _ in CASES],
)
def test_a_damaged_file_is_named_in_one_line(
    family: str, file: str, damage: Damage, said: str, whole: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(whole(family), tmp_path / family))
    damage(folder / file)
    told = refusal(folder)
    assert said in told and "\n" not in told and len(told) < 400, told


@pytest.mark.parametrize("family", WRITERS)
def test_a_tokenizer_that_does_not_fit_the_weights(family: str, whole: Callable[[str], Path], tmp_path: Path) -> None:
    """The model has fewer tokens than the tokenizer."""
    folder = Path(shutil.copytree(whole(family), tmp_path / family))
    tensors, size = load_file(folder / WEIGHTS), json.loads((folder / "config.json").read_text())["vocab_size"]
    fewer = size - 130
    smaller = {
        name: tensor[:fewer].contiguous() if tensor.shape[0] == size else tensor for name, tensor in tensors.items()
    }
    smaller |= {name: tensor[:, :fewer].contiguous() for name, tensor in tensors.items() if tensor.shape[-1] == size}
    save_file(smaller, folder / WEIGHTS)
    edit_json(folder / "config.json", vocab_size=fewer)
    told = refusal(folder)
    assert f"the model has {fewer} tokens" in told and "token " in told and "\n" not in told
