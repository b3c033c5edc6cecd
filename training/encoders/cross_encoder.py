"""Writes an encoder with a pooling and an MLP behind it as the CrossEncoder folder of sentence-transformers.

`models.checkpoint.sentence_transformers` reads it, poolings included that sentence-transformers has not.
"""

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from models.checkpoint.files.weights import write_weights
from training.encoders.model import Encoder
from training.encoders.writer import write_encoder, write_json

KINDS = "base.modules.Transformer", "sentence_transformer.modules.Pooling"


def write_cross_encoder(
    folder: Path,
    model: Encoder,
    labels: Sequence[str],
    vocabulary: Path,
    pooling: str,
    mlp: Sequence[nn.Linear],
    scores: nn.Linear | None = None,
) -> None:
    """Writes all of its files. Raises as `write_encoder`.

    vocabulary: folder with tokenizer.json. pooling: a `pooling_mode`
    mlp: with a ReLU between each two, and the labels' logits behind the last
    scores: of the pooling "attention", what scores a hidden state
    """
    write_encoder(folder, model, labels, vocabulary)
    kinds = [*KINDS, *["base.modules.Dense"] * len(mlp)]
    names = [f"{index}_{kind.rpartition('.')[2]}" if index else "" for index, kind in enumerate(kinds)]
    modules = [
        {"idx": index, "name": str(index), "path": name, "type": f"sentence_transformers.{kind}"}
        for index, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": model.config.max_positions})
    settings: dict[str, object] = {"embedding_dimension": model.config.width, "pooling_mode": pooling}
    _write_module(folder / names[1], settings, scores)
    for name, layer in zip(names[2:], mlp, strict=True):
        last = layer is mlp[-1]
        activation = "linear.Identity" if last else "activation.ReLU"
        settings = {"in_features": layer.in_features, "out_features": layer.out_features, "bias": True}
        settings["activation_function"] = f"torch.nn.modules.{activation}"
        _write_module(folder / name, settings | ({"module_output_name": "scores"} if last else {}), layer)


def _write_module(folder: Path, settings: object, linear: nn.Linear | None) -> None:
    folder.mkdir()
    write_json(folder / "config.json", settings)
    if linear is not None:
        tensors = {f"linear.{name}": tensor.contiguous() for name, tensor in linear.state_dict().items()}
        write_weights(folder / "model.safetensors", tensors)
