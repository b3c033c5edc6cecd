"""Folders that are no checkpoint of ours are refused by what they are."""

import shutil
from pathlib import Path

import pytest
from ctranslate2.specs.model_spec import SequenceToSequenceModelConfig

from models.checkpoint import load_checkpoint
from models.package.folder import Package
from tests.checkpoints import edit_json, write_json
from tests.models.checkpoint.refusal import refusal

FILES = {
    "tf_model.h5": "TensorFlow's weights only; transformers before version 5",
    "saved_model.pb": "TensorFlow's weights only",
    "model.weights.h5": "Keras's weights only",
    "model.keras": "Keras's weights only",
    "flax_model.msgpack": "Flax's weights only; transformers before version 5",
    "model-Q4_K_M.gguf": "GGUF",
    "adapter_config.json": "a PEFT adapter, which is no model alone: merge it with peft",
    "onnx/decoder_model.onnx": "ONNX graphs only",
    "shared_vocabulary.json": "a model of CTranslate2",
    "dict.en.txt": "a model of fairseq",
    "model.pt": "bare PyTorch weights",
}


def put(file: Path) -> None:
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_bytes(b"weights")


@pytest.mark.parametrize(("name", "said"), FILES.items())
@pytest.mark.parametrize("config", [True, False])
def test_weights_of_others(folder: Path, tmp_path: Path, name: str, said: str, config: bool) -> None:
    (folder / "model.safetensors").unlink()
    foreign = folder if config else tmp_path / "other"
    put(foreign / name)
    message = refusal(foreign)
    assert f"has {name}: " in message
    assert said in message


def test_a_package_is_no_checkpoint(tiny_package: Package) -> None:
    assert "has manifest.json: a package already" in refusal(tiny_package.folder)


def test_nor_is_one_with_a_shortlist(tiny_package: Package, tmp_path: Path) -> None:
    """It has two files with a name as Marian's."""
    folder = shutil.copytree(tiny_package.folder, tmp_path / "package")
    for name in ("weights.bin", "shortlist.bin"):
        put(folder / name)
    assert "give the checkpoint that it was made of" in refusal(folder)


@pytest.mark.parametrize("name", FILES)
def test_weights_of_others_beside_ours_do_no_harm(folder: Path, name: str) -> None:
    put(folder / name)
    assert load_checkpoint(folder).name == "tiny"


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("nllb-moe", "mixture of experts"),
        ("switch_transformers", "mixture of experts"),
        ("bigbird_pegasus", "sparse attention"),
        ("led", "sparse attention"),
        ("longt5", "sparse attention"),
        ("prophetnet", "predicts several tokens at once"),
        ("whisper", "a model of speech"),
    ],
)
def test_families_that_do_not_fit(folder: Path, family: str, said: str) -> None:
    edit_json(folder / "config.json", model_type=family)
    message = refusal(folder)
    assert f"config.json: model_type is {family!r}: " in message
    assert said in message
    assert "supported: " in message


@pytest.mark.parametrize(
    ("family", "key"),
    [("mixtral", "num_local_experts"), ("qwen3_moe", "num_experts"), ("deepseek_v3", "n_routed_experts")],
)
def test_experts_of_any_family(folder: Path, family: str, key: str) -> None:
    edit_json(folder / "config.json", model_type=family, **{key: 8})
    message = refusal(folder)
    assert f"model_type is {family!r}: a mixture of experts" in message
    assert "encoders alone: bert, " in message


def test_a_configuration_of_ctranslate2(folder: Path) -> None:
    """Its own, as its converter writes it: of a model on the Hub, nothing else is fetched before it is refused."""
    SequenceToSequenceModelConfig().save_as_json(str(folder / "config.json"))
    message = refusal(folder)
    assert "config.json: model_type is None: a model of CTranslate2: export the checkpoint" in message


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes"])
def test_quantized_checkpoints(folder: Path, method: str) -> None:
    edit_json(folder / "config.json", quantization_config={"quant_method": method, "bits": 4})
    assert f"quantized ({method}); export the checkpoint" in refusal(folder)


def test_a_checkpoint_that_was_quantized_before_configurations_said_so(folder: Path) -> None:
    write_json(folder / "quantize_config.json", {"bits": 4, "group_size": 128})
    assert "quantize_config.json: bits says that the weights are quantized (4 bits)" in refusal(folder)
