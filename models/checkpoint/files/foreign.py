"""Folders that are no checkpoint of ours: what they are, and the way from there."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.reading import read_json

RESAVE = "transformers before version 5 makes PyTorch's of them: AutoModelForSeq2SeqLM.from_pretrained(FOLDER, {}=True)"
TENSORFLOW = RESAVE.format("from_tf") + ".save_pretrained(NEW)"
FLAX = RESAVE.format("from_flax") + ".save_pretrained(NEW)"
MERGE = (
    "merge it with peft: PeftModel.from_pretrained(MODEL, FOLDER).merge_and_unload().save_pretrained(NEW), then save "
    "the tokenizer there, too"
)
CTRANSLATE2 = "a model of CTranslate2: export the checkpoint that it is made of"
KINDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("adapter_config.json", "adapter_model.*"), f"a PEFT adapter, which is no model alone: {MERGE}"),
    (("*.gguf",), "weights in GGUF, quantized for another engine: export the PyTorch checkpoint that they are made of"),
    (("tf_model*.h5", "saved_model.pb", "*.ckpt.index", "model.ckpt*"), f"TensorFlow's weights only; {TENSORFLOW}"),
    (("*.keras", "*.weights.h5", "*.h5"), "Keras's weights only; save the model as PyTorch's with transformers"),
    (("flax_model*.msgpack", "*.msgpack"), f"Flax's weights only; {FLAX}"),
    (("shared_vocabulary.*", "source_vocabulary.*"), CTRANSLATE2),
    (("manifest.json",), "a package already, it seems: give the checkpoint that it was made of"),
    (("*.onnx", "onnx/*.onnx"), "ONNX graphs only, which lack our cache: export the PyTorch checkpoint behind them"),
    (("dict.*.txt",), "a model of fairseq: convert it to a Hugging Face folder first"),
    (("*.pt", "*.pth"), "bare PyTorch weights: name their fields in a checkpoint.toml (docs/checkpoints.md)"),
)
"""What tells a folder's kind, the first that fits, and what is said of it."""
EXPERTS = "a mixture of experts, of which each token takes other layers"
EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Keys by which a config.json of any family says that there are some."""
SPARSE = "sparse attention, which neither our graphs nor our operators have"
REFUSED: dict[str, str] = {
    "nllb-moe": f"{EXPERTS}; the dense models are m2m_100 (facebook/nllb-200-distilled-600M to nllb-200-3.3B)",
    "switch_transformers": f"{EXPERTS}; the dense models of the kind are t5",
    "bigbird_pegasus": f"{SPARSE}; the dense models of the kind are pegasus",
    "led": f"{SPARSE}; the dense models of the kind are bart",
    "longt5": f"{SPARSE}; the dense models of the kind are t5",
    "prophetnet": "a decoder that predicts several tokens at once",
    "xlm-prophetnet": "a decoder that predicts several tokens at once",
    "whisper": "a model of speech; sources are texts here",
    "speech_to_text": "a model of speech; sources are texts here",
    "vision-encoder-decoder": "a model of images; sources are texts here",
    "encoder-decoder": "two models put together, which has no layers of its own to go by",
}
"""By the `model_type` of a config.json: what the model has that the Transformer has not."""


def say_what_it_is(folder: Path) -> str | None:
    """What a folder without the expected weights is, by its files. None where they say nothing."""
    for patterns, said in KINDS:
        for pattern in patterns:
            if found := sorted(folder.glob(pattern)):
                return f"{folder} has {found[0].relative_to(folder)}: {said}"
    return None


def why_refused(content: Mapping[str, Any]) -> str | None:
    """Why models with this config.json cannot be packages. None, where that is not known of them."""
    family = content.get("model_type")
    if isinstance(family, str) and family in REFUSED:
        return REFUSED[family]
    if family is None and "unk_token" in content:  # its own config.json, which has no place for a kind
        return CTRANSLATE2
    return EXPERTS if any(content.get(key) for key in EXPERT_COUNTS) else None


def check_quantization(folder: Path) -> None:
    """Raises CheckpointError where a folder's weights are quantized for another engine."""
    for file, key in (("config.json", "quantization_config"), ("quantize_config.json", "bits")):
        content = read_json(folder / file) if (folder / file).is_file() else {}
        if content.get(key) is not None:
            found = content[key]
            how = found.get("quant_method", "unknown") if isinstance(found, dict) else f"{found} bits"
            raise CheckpointError(
                f"{folder / file}: {key} says that the weights are quantized ({how}); export the checkpoint that they "
                f"were made of, with --precision int8 if 8 bits are wanted"
            )
