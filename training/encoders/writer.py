"""Writes a trained encoder as the BERT folder of Hugging Face that `models.checkpoint.encoders` reads."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor, nn

from models.checkpoint import CheckpointError
from models.checkpoint.files.weights import write_weights
from models.layers import EncoderLayer
from training.encoders.config import Head
from training.encoders.model import Encoder
from training.encoders.text import CLS, MASK, PAD, SEP, UNKNOWN

CLASSES: dict[Head | None, str] = {
    "mlm": "BertForPreTraining",
    "text": "BertForSequenceClassification",
    "tokens": "BertForTokenClassification",
    None: "BertModel",
}
"""Of transformers, by the head."""


def write_encoder(folder: Path, model: Encoder, labels: Sequence[str], vocabulary: Path) -> None:
    """Writes config.json, model.safetensors (fp16) and the tokenizer's files.

    vocabulary: folder with tokenizer.json. Raises CheckpointError where a value is too large for fp16, and OSError.
    """
    tensors = {name: tensor.detach().cpu().half().contiguous() for name, tensor in berts_tensors(model)}
    if broken := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise CheckpointError(f"{broken[0]} has values that are no finite numbers in fp16: the training diverged")
    write_weights(folder / "model.safetensors", tensors)
    write_json(folder / "config.json", _config(model, labels))
    shutil.copyfile(vocabulary / "tokenizer.json", folder / "tokenizer.json")
    special = {"pad_token": PAD, "unk_token": UNKNOWN, "cls_token": CLS, "sep_token": SEP, "mask_token": MASK}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]  # else transformers takes pairs for one text
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}
    write_json(folder / "tokenizer_config.json", tokenizer | special)


def _config(model: Encoder, labels: Sequence[str]) -> dict[str, object]:
    shape, names = model.config, dict(enumerate(labels))
    found: dict[str, object] = {
        "model_type": "bert",
        "architectures": [CLASSES[model.head]],
        "vocab_size": shape.source_vocab_size,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.encoder_layers,
        "num_attention_heads": shape.encoder_heads,
        "intermediate_size": shape.encoder_ffn,
        "hidden_act": "gelu",
        "max_position_embeddings": shape.max_positions,
        "type_vocab_size": len(model.token_types),
        "layer_norm_eps": shape.norm_epsilon,
        "pad_token_id": shape.pad_id,
        "tie_word_embeddings": True,
    }
    return found | ({"id2label": names, "label2id": {name: key for key, name in names.items()}} if labels else {})


def berts_tensors(model: Encoder) -> Iterator[tuple[str, Tensor]]:
    """By BERT's names; writing into them changes the model."""
    size = model.config.source_vocab_size
    yield "bert.embeddings.word_embeddings.weight", model.source_embedding[:size]
    yield "bert.embeddings.position_embeddings.weight", model.source_positions
    yield "bert.embeddings.token_type_embeddings.weight", model.token_types
    yield from _module("bert.embeddings.LayerNorm", model.encoder_embedding_norm)
    for index, layer in enumerate(model.encoder):
        assert isinstance(layer, EncoderLayer)
        name = f"bert.encoder.layer.{index}"
        for part in ("weight", "bias"):
            pieces = getattr(layer.attention.qkv, part).chunk(3)
            names = (f"{name}.attention.self.{it}.{part}" for it in ("query", "key", "value"))
            yield from zip(names, pieces, strict=True)
        yield from _module(f"{name}.attention.output.dense", layer.attention.out)
        yield from _module(f"{name}.attention.output.LayerNorm", layer.attention.residual.norm)
        yield from _module(f"{name}.intermediate.dense", layer.feed_forward.up)
        yield from _module(f"{name}.output.dense", layer.feed_forward.down)
        yield from _module(f"{name}.output.LayerNorm", layer.feed_forward.residual.norm)
    if model.head in ("mlm", "text"):
        yield from _module("bert.pooler.dense", model.pooler)
    if model.head in ("text", "tokens"):
        yield from _module("classifier", model.classifier)
    if model.head != "mlm":
        return
    yield from _module("cls.predictions.transform.dense", model.transform)
    yield from _module("cls.predictions.transform.LayerNorm", model.transform_norm)
    yield "cls.predictions.bias", model.output_bias[:size]
    yield from _module("cls.seq_relationship", model.next_sentence)


def _module(name: str, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return ((f"{name}.{part}", parameter) for part, parameter in module.named_parameters())


def write_json(file: Path, content: object) -> None:
    """As people read it."""
    file.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
