"""T5 and those built like it, as Hugging Face keeps them: T5 v1.1, Flan-T5, MADLAD and ByT5 are T5s, too.

The references are transformers' models of the same `model_type`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, ValidationError

from models.checkpoint.contents import Checkpoint, CheckpointError, Trained
from models.checkpoint.files.reading import JsonKeys, TensorFile, invalid, notices, parse, read_json
from models.checkpoint.files.relative import put_relative
from models.checkpoint.files.renames import Rename, fill
from models.checkpoint.files.weights import check_size, find_weights, read_weights, weights_sha256
from models.checkpoint.generation import GenerationSettings, generation_file, read_generation
from models.checkpoint.marian import suppress
from models.checkpoint.tokenizers.fast import read_fast_tokenizer, target_codes
from models.config import Activation, ModelConfig, RelativeKind
from models.tokenizers.byte_tokenizer import BYTES, ByteSpec
from models.tokenizers.spec import TokenizerSpec
from models.transformer import Transformer

LONGEST, LONGEST_IN_BYTES = 512, 1024
"""Most tokens of a source, and of a target, as these models were trained: they have no last position of their own."""
ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "swish",
    "swish": "swish",
}
GATED = "gated-"
UNUSED = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)
"""In old files. Nothing is made of it."""
TABLE = "shared.weight"
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""The same table once more. The file of madlad400-3b-mt has it by one of these names alone."""
OUTPUT = "lm_head.weight"
BYTE_TOKENIZER = "ByT5Tokenizer"


class T5LikeConfig(JsonKeys):
    """What config.json says. Where a key has a default, it is Hugging Face's."""

    SAME: ClassVar[Mapping[str, str]] = {
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "head_dim": "d_kv",
    }
    BESIDE = frozenset({"dense_act_fn", "is_gated_act"})
    vocab_size: int = Field(gt=0)
    d_model: int = Field(gt=0)
    d_kv: int = Field(gt=0)
    d_ff: int = Field(gt=0)
    num_layers: int = Field(gt=0)
    num_decoder_layers: int | None = Field(default=None, gt=0)
    """None: as many as the encoder has."""
    num_heads: int = Field(gt=0)
    relative_attention_num_buckets: int = Field(default=32, ge=4)
    relative_attention_max_distance: int = 128
    layer_norm_epsilon: float = Field(default=1e-6, gt=0)
    feed_forward_proj: str
    tie_word_embeddings: bool = True
    """Whether the output is scaled. The weights say whether the output layer is the embedding table."""
    scale_decoder_outputs: bool | None = None
    """The same, as transformers has written it since version 5."""
    pad_token_id: int = Field(default=0, ge=0)
    eos_token_id: int = Field(default=1, ge=0)
    decoder_start_token_id: int | None = None
    # Other choices are models of another kind.
    is_encoder_decoder: Literal[True] = True
    is_decoder: Literal[False] = False
    quantization_config: None = None

    @property
    def decoder_layers(self) -> int:
        """How many there are."""
        return self.num_decoder_layers or self.num_layers

    @property
    def gated(self) -> bool:
        """Whether feed-forward layers are."""
        return self.feed_forward_proj.startswith(GATED)

    @property
    def activation(self) -> str:
        """Its name, in transformers."""
        name = self.feed_forward_proj.removeprefix(GATED)
        return "gelu_new" if self.gated and name == "gelu" else name


@dataclass(frozen=True)
class Family:
    """How the checkpoints of one kind differ."""

    relative: RelativeKind = "shared"
    scaled: bool | None = None
    """What the output layer gets is divided by sqrt(d_model). None: config.json says whether."""
    feed_forward: str = "gated-gelu"
    """Of a config.json that does not say."""
    start: int | None = 0
    """What the decoder is fed first, where a config.json does not say."""

    def scales(self, settings: T5LikeConfig) -> bool:
        """Whether the output is scaled: what transformers 5 does, version 1.1 of T5 by its `tie_word_embeddings`."""
        if self.scaled is not None:
            return self.scaled
        said = settings.scale_decoder_outputs
        return settings.tie_word_embeddings if said is None else said


FAMILIES = {
    "t5": Family(feed_forward="relu", start=None),
    "mt5": Family(scaled=False),
    "umt5": Family("per_layer", scaled=True),
}
"""By the `model_type` of a Hugging Face config.json."""


def load(folder: Path) -> Checkpoint:
    """Reads what `read` does, and the tokenizer that transformers has for it. Raises CheckpointError."""
    trained = read(folder)
    spec, made_files, largest, languages = read_tokenizer(folder, trained.config.end_id)
    if largest >= trained.config.source_vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer has token {largest}; the model has {trained.config.source_vocab_size} tokens"
        )
    return Checkpoint(
        name=folder.resolve().name,
        config=trained.config,
        model=trained.model,
        tokenizer=spec,
        generation=trained.generation,
        source_languages=languages,
        target_languages=languages,
        files=notices(folder),
        made_files=made_files,
        sha256=weights_sha256(trained.weights),
        in_transformers=True,
        needs_languages=False,
    )


def read_tokenizer(folder: Path, end_id: int) -> tuple[TokenizerSpec, dict[str, str], int, tuple[str, ...]]:
    """Of a folder, with the files that are made of it, its largest id, and the languages that it names (MADLAD)."""
    if has_bytes(folder):
        spec = ByteSpec(end_id=end_id)
        return spec, {}, spec.offset + BYTES - 1, ()
    tokenizer = read_fast_tokenizer(folder)
    codes = target_codes(tokenizer)
    named = {code[-1] for code in codes.values()}
    hidden = tuple(sorted({*tokenizer.spec.hidden_ids} | named))
    made = tokenizer.spec.model_copy(update={"target_codes": codes, "hidden_ids": hidden})
    return made, {made.file: tokenizer.content}, max([tokenizer.largest_id, *named]), tuple(codes)


def read(folder: Path) -> Trained:
    """Reads config.json, generation_config.json if there is one, and the weights. Raises CheckpointError."""
    file = folder / "config.json"
    content = read_json(file)
    family = FAMILIES[content["model_type"]]
    settings = parse(T5LikeConfig, {"feed_forward_proj": family.feed_forward} | content, file)
    check_architecture(content, settings, file)
    choices = read_generation(folder)
    weights = find_weights(folder)
    tensors = read_weights(weights)
    tensors.leave(UNUSED)
    for copy in COPIES:
        tensors.merge(copy, TABLE)
    own_output = tensors.differ(OUTPUT, TABLE)
    longest = LONGEST_IN_BYTES if has_bytes(folder) else LONGEST
    config = model_config(settings, family, start_of(choices, settings, family, file), own_output, longest, file)
    generation = choices.defaults_of(config, generation_file(folder))
    check_size(config, weights)
    model = build(config, settings, tensors)
    if family.scales(settings):
        scale_output(model)
    if choices.renormalize_logits:
        suppress(model, generation.suppressed_ids)
    return Trained(config, model.eval(), generation, weights)


def has_bytes(folder: Path) -> bool:
    """Whether tokens are bytes."""
    files = (folder / name for name in ("tokenizer_config.json", "config.json"))
    said = [read_json(file).get("tokenizer_class") for file in files if file.exists()]
    return next((name for name in said if name is not None), None) == BYTE_TOKENIZER


def check_architecture(content: dict[str, Any], settings: T5LikeConfig, file: Path) -> None:
    """Raises CheckpointError where config.json says what is not computed here."""
    if settings.activation not in ACTIVATIONS:
        raise CheckpointError(
            f"{file}: feed_forward_proj is {settings.feed_forward_proj!r}; supported: {', '.join(ACTIVATIONS)}, each "
            f"with {GATED!r} before it or without"
        )
    exact = settings.relative_attention_num_buckets // 2
    if settings.relative_attention_max_distance <= exact:
        raise CheckpointError(
            f"{file}: relative_attention_max_distance is {settings.relative_attention_max_distance}; with "
            f"{settings.relative_attention_num_buckets} buckets it must be above {exact}"
        )
    for key, follows in (("dense_act_fn", settings.activation), ("is_gated_act", settings.gated)):
        if content.get(key, follows) != follows:
            raise CheckpointError(
                f"{file}: {key} is {content[key]!r}; by feed_forward_proj {settings.feed_forward_proj!r} it is "
                f"{follows!r}"
            )


def start_of(choices: GenerationSettings, settings: T5LikeConfig, family: Family, file: Path) -> int:
    """What the decoder is fed first. Raises CheckpointError where nothing says it."""
    for start in (choices.decoder_start_token_id, settings.decoder_start_token_id, family.start):
        if start is not None:
            return start
    raise CheckpointError(f"{file}: decoder_start_token_id is missing; it is what the decoder is fed first")


def model_config(
    settings: T5LikeConfig, family: Family, start: int, own_output: bool, longest: int, file: Path
) -> ModelConfig:
    """What the Transformer is built with."""
    try:
        return ModelConfig(
            source_vocab_size=settings.vocab_size,
            target_vocab_size=settings.vocab_size,
            width=settings.d_model,
            encoder_layers=settings.num_layers,
            decoder_layers=settings.decoder_layers,
            encoder_heads=settings.num_heads,
            decoder_heads=settings.num_heads,
            encoder_ffn=settings.d_ff,
            decoder_ffn=settings.d_ff,
            max_positions=longest,
            norm="pre",
            norm_kind="rms",
            activation=ACTIVATIONS[settings.activation],
            gated=settings.gated,
            bias=False,
            head_dim=settings.d_kv,
            scale_scores=False,
            positions="none",
            relative=family.relative,
            tie_output=not own_output,
            output_bias=False,
            norm_epsilon=settings.layer_norm_epsilon,
            pad_id=settings.pad_token_id,
            end_id=settings.eos_token_id,
            decoder_start_id=start,
        )
    except ValidationError as error:
        raise invalid(error, file) from error


def build(config: ModelConfig, settings: T5LikeConfig, tensors: TensorFile) -> Transformer:
    """The Transformer with the weights. Raises CheckpointError."""
    model = Transformer(config)
    for side, bias in (("encoder", model.source_relative), ("decoder", model.target_relative)):
        names = [
            f"{side}.block.{layer}.layer.0.SelfAttention.relative_attention_bias.weight"
            for layer in range(len(bias.tables))
        ]
        put_relative(
            bias, names, settings.relative_attention_num_buckets, settings.relative_attention_max_distance, tensors
        )
    fill(model, renames(config), {OUTPUT: TABLE} if config.tie_output else {}, tensors)
    return model


@torch.no_grad()
def scale_output(model: Transformer) -> None:
    """Divides what the output layer gets by sqrt(width): in the last norm, which nothing else uses."""
    model.decoder_norm.weight *= model.config.width**-0.5


def renames(config: ModelConfig) -> list[Rename]:
    """Where each tensor belongs, but for relative positions."""
    table = (config.source_vocab_size, config.width)
    output = [] if config.tie_output else [Rename("output_weight", (OUTPUT,), table)]
    sides = (("encoder", config.encoder_layers), ("decoder", config.decoder_layers))
    return [
        Rename("source_embedding", (TABLE,), table),
        *output,
        *(_weight(f"{side}_norm", f"{side}.final_layer_norm") for side, _ in sides),
        *(rename for side, layers in sides for layer in range(layers) for rename in _layer(config, side, layer)),
        _weight(
            "cross_kv",
            *(
                f"decoder.block.{layer}.layer.1.EncDecAttention.{part}"
                for layer in range(config.decoder_layers)
                for part in "kv"
            ),
        ),
    ]


def _layer(config: ModelConfig, side: str, index: int) -> list[Rename]:
    ours, theirs = f"{side}.{index}", f"{side}.block.{index}.layer"
    last = f"{theirs}.{1 if side == 'encoder' else 2}"
    cross = [
        _weight(f"{ours}.cross.query", f"{theirs}.1.EncDecAttention.q"),
        _weight(f"{ours}.cross.out", f"{theirs}.1.EncDecAttention.o"),
        _weight(f"{ours}.cross.residual.norm", f"{theirs}.1.layer_norm"),
    ]
    return [
        _weight(f"{ours}.attention.qkv", *(f"{theirs}.0.SelfAttention.{part}" for part in "qkv")),
        _weight(f"{ours}.attention.out", f"{theirs}.0.SelfAttention.o"),
        _weight(f"{ours}.attention.residual.norm", f"{theirs}.0.layer_norm"),
        *(cross if side == "decoder" else []),
        _weight(
            f"{ours}.feed_forward.up",
            *(f"{last}.DenseReluDense.{part}" for part in (("wi_0", "wi_1") if config.gated else ("wi",))),
        ),
        _weight(f"{ours}.feed_forward.down", f"{last}.DenseReluDense.wo"),
        _weight(f"{ours}.feed_forward.residual.norm", f"{last}.layer_norm"),
    ]


def _weight(target: str, *sources: str) -> Rename:
    """Of a module without a bias."""
    return Rename(f"{target}.weight", tuple(f"{name}.weight" for name in sources))
