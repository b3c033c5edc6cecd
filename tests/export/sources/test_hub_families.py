"""Repositories of the Hub of other kinds than Marian's: what is fetched of them is enough, and no more than that."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from rich.console import Console
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    T5Config,
    T5ForConditionalGeneration,
)

from export.__main__ import main
from export.command.progress import Progress
from export.command.run import _base_model
from export.sources import fetch
from models.checkpoint import encoders, load_checkpoint
from models.checkpoint.files.adapter import whole
from tests.checkpoints import edit_json
from tests.export.sources.hub_server import COMMIT, Hub, hub
from tests.export.sources.test_hub import point_to
from tests.models.checkpoint.encoders.saved import write
from tests.models.checkpoint.encoders.test_encoder_vocabularies import BERT, vocab_txt
from tests.models.families import BART_LIKE, SHAPE, T5_SHAPE, write_family
from tests.models.tokenizers.test_tokenizer_json import t5, vocab_and_merges

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # of peft
REPOSITORY = "someone/something"
OTHERS = ("onnx/model.onnx", "tf_model.h5", "openvino/openvino_model.bin", "2_Dense/rust_model.ot", "train.txt")
"""Files that export does not read."""

Serve = Callable[[Path], Hub]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Serve]:
    """Makes the Hub have the files of a folder, and some more."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    with hub(REPOSITORY, {}) as served:
        point_to(served.url, monkeypatch)

        def serve(folder: Path) -> Hub:
            files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
            served.files = files | dict.fromkeys(OTHERS, b"others")
            return served

        yield serve


def obtain() -> Path:
    return fetch(f"hf:{REPOSITORY}", "", lambda _: None).folder


def sentences(folder: Path) -> SentenceTransformer:
    """A model of sentence-transformers, as LaBSE is one: with a Dense."""
    plain = write(folder / "plain", BertModel(BertConfig(**BERT))).folder
    transformer = Transformer(str(plain))
    torch.manual_seed(4)
    pooling, dense = Pooling(36, "cls"), Dense(36, 20)
    return SentenceTransformer(modules=[transformer, pooling, dense, Normalize()], device="cpu")


def of_sentences(folder: Path) -> Path:
    """As sentence-transformers saves it today."""
    sentences(folder).save(str(folder / "saved"))
    return folder / "saved"


def of_old_sentences(folder: Path) -> Path:
    """As it was before its second version: the encoder in a folder of its own, weights by torch.save, vocab.txt."""
    saved = of_sentences(folder)
    inner = saved / "0_Transformer"
    inner.mkdir()
    names = ("config.json", "model.safetensors", "sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json")
    for name in names:
        (saved / name).rename(inner / name)
    modules = saved / "modules.json"
    modules.write_text(modules.read_text().replace('"path": ""', '"path": "0_Transformer"', 1))
    dense = saved / "2_Dense"
    torch.save(load_file(dense / "model.safetensors"), dense / "pytorch_model.bin")
    (dense / "model.safetensors").unlink()
    return saved


@pytest.mark.parametrize("write_it", [of_sentences, of_old_sentences])
def test_an_encoder_of_sentence_transformers(write_it: Callable[[Path], Path], tmp_path: Path, serve: Serve) -> None:
    saved = write_it(tmp_path)
    served, expected = serve(saved), encoders.load(saved)
    found = encoders.load(obtain())
    assert served.fetched() == set(served.files) - set(OTHERS)
    assert "README.md" in served.fetched()
    assert (found.encoding, found.tokenizer, found.sha256) == (expected.encoding, expected.tokenizer, expected.sha256)
    assert found.encoding.dense[0].outputs == 20 and (found.dense[0].table == expected.dense[0].table).all()
    assert found.encoding.normalize


def test_one_weights_file_of_a_dense_is_enough(tmp_path: Path, serve: Serve) -> None:
    """sentence-transformers/LaBSE has both."""
    served = serve(of_sentences(tmp_path))
    served.files["2_Dense/pytorch_model.bin"] = served.files["pytorch_model.bin"] = b"PK"
    obtain()
    assert not any(name.endswith("pytorch_model.bin") for name in served.fetched())


def test_an_encoder_with_a_vocabulary_alone(tmp_path: Path, serve: Serve) -> None:
    saved = write(tmp_path / "saved", BertModel(BertConfig(**BERT))).folder
    (saved / "tokenizer.json").unlink()
    vocab_txt(saved, do_lower_case=False)
    served = serve(saved)
    found = encoders.load(obtain())
    assert {"vocab.txt", "tokenizer_config.json"} <= served.fetched()
    assert found.made_files == encoders.load(saved).made_files


def of_bart(folder: Path) -> Path:
    """With vocab.json and merges.txt."""
    saved = folder / "saved"
    BartForConditionalGeneration(BartConfig(**SHAPE | {"vocab_size": 700})).save_pretrained(saved)
    vocab_and_merges(saved)
    return saved


def of_t5(folder: Path) -> Path:
    """With spiece.model."""
    saved = folder / "saved"
    T5ForConditionalGeneration(T5Config(**T5_SHAPE | {"vocab_size": 900})).save_pretrained(saved)
    t5(saved)
    (saved / "page.txt").unlink()
    return saved


@pytest.mark.parametrize("write_it", [of_bart, of_t5])
def test_translation_models(write_it: Callable[[Path], Path], tmp_path: Path, serve: Serve) -> None:
    saved = write_it(tmp_path)
    served = serve(saved)
    found, expected = load_checkpoint(obtain()), load_checkpoint(saved)
    assert served.fetched() == {file for file in served.files if file not in (*OTHERS, "pieces.vocab")}
    assert (found.tokenizer, found.made_files) == (expected.tokenizer, expected.made_files)
    assert (found.config, found.sha256) == (expected.config, expected.sha256)


def lora(folder: Path, base: Path, **changes: object) -> torch.nn.Module:
    """Saves an adapter of a model. Returns the model that peft merges it into."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(6)
    model = peft.get_peft_model(
        AutoModelForSeq2SeqLM.from_pretrained(base), peft.LoraConfig(r=3, target_modules=["fc1"])
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_()
    model.save_pretrained(folder)
    edit_json(folder / "adapter_config.json", **changes)
    merged: torch.nn.Module = model.merge_and_unload()
    return merged


def same(folder: Path, expected: torch.nn.Module) -> bool:
    found = load_file(folder / "model.safetensors")
    return all(torch.allclose(found[name], tensor) for name, tensor in expected.state_dict().items() if name in found)


def test_the_base_of_an_adapter_is_a_model_of_the_hub(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, adapter = write_family(tmp_path / "base", BART_LIKE["bart"]), tmp_path / "adapter"
    expected, served = lora(adapter, base, base_model_name_or_path=REPOSITORY, revision=COMMIT), serve(base)
    base_model = partial(_base_model, Progress(Console(stderr=True)))
    for _ in ("from the Hub", "from the cache"):
        with whole(adapter, base_model) as folder:
            assert same(folder, expected) and not same(base, expected)
        assert "model.safetensors" in served.fetched()
        point_to("http://127.0.0.1:9", monkeypatch)


def test_what_the_hub_says_of_an_adapters_base_is_told(
    tmp_path: Path, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write_family(tmp_path / "base", BART_LIKE["bart"])
    lora(tmp_path / "adapter", base, base_model_name_or_path="nobody/nothing")
    serve(base)
    assert main([str(tmp_path / "adapter"), "--out", str(tmp_path / "out")]) == 2
    assert "error: hf:nobody/nothing: " in (told := capsys.readouterr().err) and "has no such model" in told


def test_an_adapter_of_the_hub(tmp_path: Path, serve: Serve) -> None:
    base, adapter = write_family(tmp_path / "base", BART_LIKE["bart"]), tmp_path / "adapter"
    expected = lora(adapter, base, base_model_name_or_path=str(base))
    served = serve(adapter)
    with whole(obtain(), lambda name: pytest.fail(f"{name} is here")) as folder:
        assert same(folder, expected)
    assert {"adapter_config.json", "adapter_model.safetensors"} <= served.fetched()


def test_an_adapter_of_a_sentence_encoder_on_the_hub(tmp_path: Path, serve: Serve) -> None:
    peft = pytest.importorskip("peft")
    base = of_sentences(tmp_path)
    model = SentenceTransformer(str(base), device="cpu")
    model.add_adapter(peft.LoraConfig(r=3, target_modules=["query"], init_lora_weights=False))
    model.save(str(tmp_path / "adapter"))
    edit_json(tmp_path / "adapter" / "adapter_config.json", base_model_name_or_path=str(base))
    served = serve(tmp_path / "adapter")
    obtained = obtain()
    assert served.fetched() == set(served.files) - set(OTHERS)
    with whole(obtained, lambda name: pytest.fail(f"{name} is here")) as folder:
        found = encoders.load(folder)
    assert found.encoding == encoders.load(base).encoding
