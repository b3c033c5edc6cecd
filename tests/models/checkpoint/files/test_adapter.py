"""LoRA adapters merged into their base: the reference is peft itself."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForSeq2SeqLM, BertModel

from models.checkpoint import CheckpointError, encoders
from models.checkpoint.bart_like import read
from models.checkpoint.files.adapter import whole
from tests.checkpoints import edit_json, write_json
from tests.models.checkpoint.encoders.saved import bert, write
from tests.models.families import BART_LIKE, T5_LIKE, write_family

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

CONFIGS: dict[str, dict[str, Any]] = {
    "of attention": {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "v_proj"]},
    "of all kinds": {
        "r": 4,
        "lora_alpha": 6,
        "target_modules": ["k_proj", "fc1"],
        "alpha_pattern": {"encoder.layers.1.fc1": 20},
        "rank_pattern": {"fc1": 3},
        "bias": "lora_only",
        "modules_to_save": ["self_attn_layer_norm"],
        "use_rslora": True,
    },
}


def nowhere(name: str) -> Path:
    """No Hub is asked."""
    raise AssertionError(name)


def write_adapter(folder: Path, base: Path, **config: Any) -> torch.nn.Module:
    """Saves a random adapter. Returns the model that peft merges it into."""
    torch.manual_seed(4)
    model = peft.get_peft_model(AutoModelForSeq2SeqLM.from_pretrained(base), peft.LoraConfig(**config))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += torch.randn_like(parameter) * 0.1
    model.save_pretrained(folder)
    merged: torch.nn.Module = model.merge_and_unload().eval()
    return merged


@pytest.mark.parametrize("name", CONFIGS)
def test_a_merged_model_is_that_of_peft(tmp_path: Path, name: str) -> None:
    base = write_family(tmp_path / "base", BART_LIKE["blenderbot"])
    expected = write_adapter(tmp_path / "adapter", base, **CONFIGS[name])
    with whole(tmp_path / "adapter", nowhere) as folder:
        model = read(folder).model.eval()
    assert not folder.exists()
    source, target = (torch.randint(3, 150, (2, size)) for size in (11, 7))
    with torch.no_grad():
        logits = expected(input_ids=source, decoder_input_ids=target).logits
        ours, plain = (it(source, torch.full((2,), 11), target) for it in (model, read(base).model))
    torch.testing.assert_close(ours, logits, rtol=1e-3, atol=1e-3)
    assert (plain - logits).abs().max() > 0.1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"base_model_name_or_path": "../models/bart-base"},
            "is '../models/bart-base', which is no folder here and no",
        ),
        ({"base_model_name_or_path": ""}, "is '', which is no folder here and no name of the Hub; write the path"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3', which is not merged here; merge it with peft"),
        ({"use_dora": True}, "use_dora is True, which is not merged here"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
        ({"r": 0}, "r is 0"),
        ({"alpha_pattern": {"fc(1": 8.0}}, "'fc(1' is no regular expression: missing ), unterminated"),
    ],
)
def test_what_is_not_merged_is_refused(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    base = write_family(tmp_path / "base", BART_LIKE["blenderbot"])
    write_adapter(tmp_path / "adapter", base, **CONFIGS["of attention"])
    edit_json(tmp_path / "adapter" / "adapter_config.json", **changes)
    with pytest.raises(CheckpointError) as error, whole(tmp_path / "adapter", nowhere):
        pass
    assert said in str(error.value)


@pytest.mark.filterwarnings("ignore:Input and output embeddings are no longer tied:UserWarning")
def test_a_matrix_that_peft_has_changed_in_one_place_of_several_is_refused(tmp_path: Path) -> None:
    """Its model computes with the base's, and ours would have with the other one."""
    base = write_family(tmp_path / "base", BART_LIKE["blenderbot"])
    write_adapter(tmp_path / "adapter", base, **CONFIGS["of attention"], modules_to_save=["shared"])
    said = r"has a model\.shared\.weight of its own, by modules_to_save: the model has that matrix in several places"
    with pytest.raises(CheckpointError, match=said), whole(tmp_path / "adapter", nowhere):
        pass


def test_a_model_of_sentence_transformers_keeps_its_modules(tmp_path: Path) -> None:
    """They lie in folders, and sentence-transformers saves them with the adapter, too."""
    saved = write(tmp_path / "base", BertModel(bert()))
    saved.sentences(["Transformer", "Pooling", "Dense"], {"pooling_mode": ["cls", "mean"], "embedding_dimension": 36})
    base = SentenceTransformer(str(saved.folder), device="cpu")
    base.add_adapter(peft.LoraConfig(r=3, target_modules=["query"], init_lora_weights=False))
    base.save(str(tmp_path / "adapter"))
    of_peft = tmp_path / "of peft"  # which knows the Transformer alone
    of_peft.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copyfile(tmp_path / "adapter" / name, of_peft / name)
    expected = base.encode("It started to rain.")
    for adapter in (tmp_path / "adapter", of_peft):
        with whole(adapter, nowhere) as folder:
            assert [*encoders.load(folder).encoding.poolings] == ["cls", "mean"]
            found = SentenceTransformer(str(folder), device="cpu").encode("It started to rain.")
        assert abs(found - expected).max() < 1e-5


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    base = write_family(tmp_path / "base", BART_LIKE["blenderbot"])
    write_adapter(tmp_path / "adapter", base, **CONFIGS["of attention"])
    other = write_family(tmp_path / "other", T5_LIKE["t5"])
    edit_json(tmp_path / "adapter" / "adapter_config.json", base_model_name_or_path=str(other))
    for said in (
        r"q_proj.weight \[48, 48\]; the base model has no such tensor: name the model that it was trained upon",
        r"has adapter_config\.json and no adapter",
    ):
        with pytest.raises(CheckpointError, match=said), whole(tmp_path / "adapter", nowhere):
            pass
        (tmp_path / "adapter" / "adapter_model.safetensors").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            (4, 48),
            (48, 3),
            r"lora_A.weight has shape \[4, 48\] and \S+lora_B.weight \[48, 3\]; expected \[ran",
        ),
        ((4, 48, 1), (48, 4, 1), r"has shape \[4, 48, 1\]"),
        ((), (), r"has shape \[\]"),
        ((0, 48), (48, 0), r"has shape \[0, 48\]"),
        ((4, 48), None, r"tensor \S+lora_B.weight is missing"),
        (None, (48, 4), r"tensor \S+lora_A.weight is missing"),
        (None, None, r"has no tensors: the base model would be what it was"),
    ],
)
def test_tensors_that_do_not_go_together_are_refused(
    first: tuple[int, ...] | None, second: tuple[int, ...] | None, said: str, tmp_path: Path
) -> None:
    base = write_family(tmp_path / "base", BART_LIKE["blenderbot"])
    module = "base_model.model.model.encoder.layers.0.self_attn.q_proj"
    shapes = {f"{module}.lora_A.weight": first, f"{module}.lora_B.weight": second}
    write_json(
        tmp_path / "adapter_config.json",
        {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 4, "lora_alpha": 8},
    )
    tensors = {name: torch.ones(shape) for name, shape in shapes.items() if shape is not None}
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=said), whole(tmp_path, nowhere):
        pass
