"""GPT-2 as Hugging Face keeps it: one stack that goes on with a text (`models.architectures.prefix`).

The reference is `GPT2LMHeadModel` of transformers. Its linear layers (`Conv1D`) lie in the file as transposes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, ValidationError

from models.architectures.prefix.config import PrefixConfig
from models.architectures.prefix.model import Prefix
from models.checkpoint.contents import Checkpoint, CheckpointError
from models.checkpoint.files.reading import JsonKeys, invalid, notices, parse, read_json
from models.checkpoint.files.renames import Rename, fill, linear
from models.checkpoint.files.weights import check_size, find_weights, read_weights, weights_sha256
from models.checkpoint.generation import generation_file, read_generation
from models.checkpoint.tokenizers.found import read_tokenizer
from models.config import Activation

ACTIVATIONS: dict[str, Activation] = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "swish",
}


class Gpt2Config(JsonKeys):
    """What config.json says."""

    SAME: ClassVar[Mapping[str, str]] = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    }
    n_embd: int = Field(gt=0)
    n_layer: int = Field(gt=0)
    n_head: int = Field(gt=0)
    n_positions: int = Field(gt=3)
    n_inner: int | None = None
    vocab_size: int = Field(gt=0)
    eos_token_id: int = Field(ge=0)
    activation_function: Literal["gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "silu"] = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    tie_word_embeddings: Literal[True] = True
    # Other choices are models of another kind.
    scale_attn_weights: Literal[True] = True
    scale_attn_by_inverse_layer_idx: Literal[False] = False
    add_cross_attention: Literal[False] = False
    is_encoder_decoder: Literal[False] = False
    quantization_config: None = None


def load(folder: Path) -> Checkpoint:
    """Reads a folder that transformers has written. Raises CheckpointError."""
    file = folder / "config.json"
    settings = parse(Gpt2Config, read_json(file), file)
    config, weights = shape(settings, file), find_weights(folder)
    tokenizer = read_tokenizer(folder)
    if tokenizer.largest_source_id >= config.source_vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer has token {tokenizer.largest_source_id}; the model has {config.source_vocab_size}"
        )
    return Checkpoint(
        name=folder.resolve().name,
        config=config,
        model=load_model(weights, config),
        tokenizer=tokenizer.spec,
        generation=read_generation(folder).defaults_of(config, generation_file(folder)),
        source_languages=(),
        target_languages=(),
        files=tokenizer.files | notices(folder),
        sha256=weights_sha256(weights),
        in_transformers=False,  # not as what translates, which is what export asks it for
        needs_languages=False,
        made_files=tokenizer.made_files,
    )


def shape(settings: Gpt2Config, file: Path) -> PrefixConfig:
    """Half of the positions are for a source, half for what comes after it. Raises CheckpointError."""
    try:
        return PrefixConfig(
            architecture="prefix",
            source_vocab_size=settings.vocab_size,
            target_vocab_size=settings.vocab_size,
            width=settings.n_embd,
            encoder_layers=settings.n_layer,
            decoder_layers=settings.n_layer,
            heads=settings.n_head,
            ffn=settings.n_inner or 4 * settings.n_embd,
            source_mask="causal",
            norm="pre",
            activation=ACTIVATIONS[settings.activation_function],
            positions="learned",
            norm_epsilon=settings.layer_norm_epsilon,
            max_positions=settings.n_positions // 2,
            output_bias=False,
            pad_id=settings.eos_token_id,
            end_id=settings.eos_token_id,
            decoder_start_id=settings.eos_token_id,
        )
    except ValidationError as error:
        raise invalid(error, file) from error


def load_model(weights: Path, config: PrefixConfig) -> Prefix:
    """Builds the model and puts the weights into it. Raises CheckpointError."""
    tensors = read_weights(weights).without_prefix("transformer.")
    tensors.leave(tuple(f"h.{layer}.attn.{name}" for layer in range(config.decoder_layers) for name in BUFFERS))
    check_size(config, weights)
    model = Prefix(config)
    fill(model, renames(config), {"lm_head.weight": "wte.weight"}, tensors)
    return model.eval()


BUFFERS = ("bias", "masked_bias")
"""Of a layer's attention in old files: the mask."""


def renames(config: PrefixConfig) -> list[Rename]:
    """Where each tensor belongs."""
    table = (config.source_vocab_size, config.width)
    return [
        Rename("source_embedding", ("wte.weight",), table),
        Rename("positions", ("wpe.weight",)),
        *linear("decoder_norm", "ln_f"),
        *(rename for layer in range(config.decoder_layers) for rename in _layer(layer)),
    ]


def _layer(layer: int) -> list[Rename]:
    ours, theirs = f"layers.{layer}", f"h.{layer}"
    return [
        *linear(f"{ours}.attention.residual.norm", f"{theirs}.ln_1"),
        *_transposed(f"{ours}.attention.qkv", f"{theirs}.attn.c_attn"),
        *_transposed(f"{ours}.attention.out", f"{theirs}.attn.c_proj"),
        *linear(f"{ours}.feed_forward.residual.norm", f"{theirs}.ln_2"),
        *_transposed(f"{ours}.feed_forward.up", f"{theirs}.mlp.c_fc"),
        *_transposed(f"{ours}.feed_forward.down", f"{theirs}.mlp.c_proj"),
    ]


def _transposed(ours: str, theirs: str) -> list[Rename]:
    """The renames of a `Conv1D`."""
    return [
        Rename(f"{ours}.weight", (f"{theirs}.weight",), transposed=True),
        Rename(f"{ours}.bias", (f"{theirs}.bias",)),
    ]
