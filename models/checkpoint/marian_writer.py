"""Writes a Transformer as the Hugging Face Marian folder that `models.checkpoint.marian` reads."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.reading import notices
from models.checkpoint.files.renames import Rename
from models.checkpoint.marian import MarianConfig, renames
from models.config import ModelConfig
from models.positions import position_table
from models.transformer import Transformer

NORM_EPSILON = 1e-5
ONLY: dict[str, object] = {
    "norm": "post",
    "norm_kind": "layer",
    "gated": False,
    "bias": True,
    "head_dim": None,
    "scale_scores": True,
    "relative": "none",
    "encoder_embedding_norm": "none",
    "decoder_embedding_norm": "none",
    "positions": "sinusoidal",
    "norm_epsilon": NORM_EPSILON,
    "decoder_cell": "attention",
    "shared_layers": False,
    "depth_signal": False,
}
"""What a MarianMTModel is, whatever its config.json says."""
TOKENIZER_FILES = ("source.spm", "target.spm", "vocab.json", "target_vocab.json", "tokenizer_config.json")
POSITIONS = ("source_positions", "target_positions")


def write_marian(folder: Path, model: Transformer, tokenizer: Path) -> None:
    """Writes config.json, generation_config.json, model.safetensors (fp16), the tokenizer's files and the licences.

    tokenizer: folder with the tokenizer's files, and the licences and notices of the weights, if there are any
    Raises CheckpointError where a MarianMTModel cannot be such a model, and OSError.
    """
    marian = marian_config(model.config)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(save(tensors(model, marian), {"format": "pt"}))
    special: dict[str, object] = {
        "bos_token_id": model.config.end_id,
        "eos_token_id": model.config.end_id,
        "pad_token_id": model.config.pad_id,
        "decoder_start_token_id": model.config.decoder_start_id,
        "forced_eos_token_id": model.config.end_id,
    }
    heading = {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "dtype": "float16",
        "is_encoder_decoder": True,
    }
    _write_json(folder / "config.json", heading | marian.model_dump() | special)
    _write_json(folder / "generation_config.json", special)
    for name in (*TOKENIZER_FILES, *notices(tokenizer)):
        if (tokenizer / name).exists():
            shutil.copyfile(tokenizer / name, folder / name)


def marian_config(config: ModelConfig) -> MarianConfig:
    """What config.json says of a model. Raises CheckpointError where it cannot say it."""
    for name, expected in ONLY.items():
        if getattr(config, name) != expected:
            raise CheckpointError(
                f"{name} is {getattr(config, name)!r}; a Hugging Face Marian model always has {expected!r}"
            )
    if config.activation == "gelu_tanh":
        raise CheckpointError("activation is 'gelu_tanh'; a Hugging Face Marian model is written with another")
    return MarianConfig(
        vocab_size=config.source_vocab_size,
        decoder_vocab_size=config.target_vocab_size,
        d_model=config.width,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        encoder_attention_heads=config.encoder_heads,
        decoder_attention_heads=config.decoder_heads,
        encoder_ffn_dim=config.encoder_ffn,
        decoder_ffn_dim=config.decoder_ffn,
        max_position_embeddings=config.max_positions,
        activation_function=config.activation,
        scale_embedding=config.scale_embedding,
        share_encoder_decoder_embeddings=config.share_embeddings,
        tie_word_embeddings=config.tie_output,
        pad_token_id=config.pad_id,
        eos_token_id=config.end_id,
        decoder_start_token_id=config.decoder_start_id,
    )


@torch.no_grad()
def tensors(model: Transformer, marian: MarianConfig) -> dict[str, Tensor]:
    """The tensors of a MarianMTModel, in fp16. Raises CheckpointError where a value is too large for that."""
    parameters = dict(model.named_parameters())
    found: dict[str, Tensor] = {}
    for rename in renames(marian):
        if not _is_fixed_table(rename, model):
            found |= _split(rename, parameters[rename.target])
    halves = {name: tensor.cpu().half().contiguous() for name, tensor in found.items()}
    for name, tensor in halves.items():
        if not tensor.isfinite().all():
            raise CheckpointError(f"{name} has values that are no finite numbers in fp16: the training diverged")
    return halves


def _split(rename: Rename, parameter: Tensor) -> dict[str, Tensor]:
    """The tensors that make a parameter up, without the rows that pad its vocabulary."""
    if rename.shape is None:
        return dict(zip(rename.sources, parameter.chunk(len(rename.sources)), strict=True))
    (name,) = rename.sources
    rows = rename.shape[0] if parameter.dim() > 1 else rename.shape[-1]
    return {name: parameter[:rows].reshape(rename.shape)}


def _is_fixed_table(rename: Rename, model: Transformer) -> bool:
    """Position embeddings as Hugging Face makes them by itself."""
    if rename.target not in POSITIONS:
        return False
    table = position_table(model.config)
    return torch.equal(model.get_parameter(rename.target).cpu(), table)


def _write_json(file: Path, content: dict[str, object]) -> None:
    file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
