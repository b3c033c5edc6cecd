"""Encoders alone as Hugging Face keeps them: the references are transformers' models of the same `model_type`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, ValidationError

from models.checkpoint import modernbert
from models.checkpoint.classifiers import HeadConfig, take_classifier
from models.checkpoint.contents import CheckpointError, EncoderCheckpoint, EncoderModel, EncoderTokenizer
from models.checkpoint.described import encoders as described
from models.checkpoint.described.reader import DESCRIPTION
from models.checkpoint.files.foreign import check_quantization
from models.checkpoint.files.reading import JsonKeys, TensorFile, check_same, invalid, notices, parse, read_json
from models.checkpoint.files.relative import put_relative
from models.checkpoint.files.renames import Rename, fill, linear
from models.checkpoint.files.weights import check_size, find_weights, read_weights, weights_sha256
from models.checkpoint.sentence_transformers import Sentences, read_sentences, settings_file
from models.checkpoint.tokenizers.encoders import read_encoders_tokenizer
from models.config import Activation, ModelConfig
from models.encoding import EncodingDefaults
from models.transformer import Transformer

ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "silu": "swish", "swish": "swish"}
HEADS = ("pooler.", "cls.", "lm_head.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector.")
"""Tensors that only the training had a use for, or that no vector is made of."""
BUCKETS, FARTHEST = 32, 128
"""Of MPNet's relative positions."""
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""How tensors end that were converted from TensorFlow's, as bert-base-uncased's own were: transformers' new names."""
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


class EncoderConfig(JsonKeys):
    """What config.json says, by BERT's names. Where a key has a default, it is Hugging Face's."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    hidden_act: Literal["relu", "gelu", "silu", "swish"] = "gelu"
    max_position_embeddings: int
    type_vocab_size: int = 2
    layer_norm_eps: float = Field(default=1e-12, gt=0)
    pad_token_id: int
    # Other choices have layers that the Transformer does not.
    relative_attention_num_buckets: Literal[32] = 32
    position_embedding_type: Literal["absolute"] = "absolute"
    is_decoder: Literal[False] = False
    is_encoder_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False


@dataclass(frozen=True)
class Family:
    """How the checkpoints of one kind differ."""

    prefix: str = "bert."
    """Of all tensors, where a head was trained with them."""
    layer: str = "encoder.layer.{}"
    attention: tuple[str, str, str] = ("attention.self.query", "attention.self.key", "attention.self.value")
    attention_out: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    last_norm: str = "output.LayerNorm"
    after_padding: bool = False
    """The first token's position is the row after that of the padding's id."""
    token_types: bool = True
    keys: Mapping[str, str] | None = None
    """BERT's names of the configuration's keys, where the family has others."""
    unknown: frozenset[str] = frozenset()
    """BERT's names that transformers does not know in the family: what they say has no effect."""
    relative: bool = False
    """Tokens have relative positions besides, in BUCKETS that end at FARTHEST, whatever config.json says."""
    defaults: Mapping[str, Any] | None = None
    """Of keys that it may leave out."""


BERT = Family(defaults={"pad_token_id": 0})
ROBERTA = Family(prefix="roberta.", after_padding=True, defaults={"pad_token_id": 1, "layer_norm_eps": 1e-12})
DISTILBERT = Family(
    prefix="distilbert.",
    layer="transformer.layer.{}",
    attention=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    attention_out="attention.out_lin",
    attention_norm="sa_layer_norm",
    up="ffn.lin1",
    down="ffn.lin2",
    last_norm="output_layer_norm",
    token_types=False,
    keys={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
    },
    unknown=frozenset({"intermediate_size", "hidden_act", "layer_norm_eps"}),  # the last is 1e-12 in the code
    defaults={"pad_token_id": 0},
)
MPNET = Family(
    prefix="mpnet.",
    attention=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    attention_out="attention.attn.o",
    attention_norm="attention.LayerNorm",
    after_padding=True,
    token_types=False,
    relative=True,
    defaults={"pad_token_id": 1},
)
FAMILIES = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "distilbert": DISTILBERT,
    "mpnet": MPNET,
}
"""By the `model_type` of a Hugging Face config.json. MiniLM is a BERT."""
MODEL_TYPES = (*FAMILIES, modernbert.MODEL_TYPE)
"""Of all encoders alone."""


def is_encoder(folder: Path) -> bool:
    """Whether a folder has an encoder alone: of a type above, one that sentence-transformers has wrapped up, or bare.

    Raises CheckpointError where it is described, and nobody can read how.
    """
    if described.is_encoder(folder) or (folder / "modules.json").exists():
        return True
    file = folder / "config.json"
    return file.exists() and read_json(file).get("model_type") in MODEL_TYPES


def load(folder: Path) -> EncoderCheckpoint:
    """Reads a folder with config.json, a tokenizer and the weights, one of sentence-transformers, or bare weights.

    Raises CheckpointError.
    """
    if (folder / DESCRIPTION).exists():
        return described.load(folder)
    sentences = read_sentences(folder)
    inner = sentences.folder
    content = read_json(inner / "config.json")
    model_type = content.get("model_type")
    if model_type not in MODEL_TYPES:
        known = ", ".join(MODEL_TYPES)
        raise CheckpointError(f"{inner}/config.json: model_type is {model_type!r}; supported: {known}")
    check_quantization(inner)
    family = FAMILIES.get(model_type)
    found = modernbert.read(inner, content) if family is None else read(inner, content, family)
    if sentences.lower_cases and not found.tokenizer.lower_cases:
        raise CheckpointError(
            f"{settings_file(inner)}: do_lower_case is true; the tokenizer's normalizer leaves capitals"
        )
    classifier = sentences.classifier or found.classifier
    if classifier and (fault := classifier.spec.fault(found.config.width, found.config.max_positions)):
        raise CheckpointError(f"{folder}: {fault}")
    return EncoderCheckpoint(
        config=found.config,
        model=found.model,
        tokenizer=found.tokenizer.spec,
        source_languages=(),
        encoding=_within(sentences, found.config),
        dense=sentences.dense,
        scores=sentences.scores,
        classifier=classifier,
        in_transformers=True,
        head_in_transformers=sentences.classifier is None,
        files=notices(folder),
        made_files={found.tokenizer.spec.file: found.tokenizer.made},
        folder=inner,
        sha256=weights_sha256(found.weights),
    )


def read(folder: Path, content: dict[str, Any], family: Family) -> EncoderModel:
    """A folder of a family, of whose config.json this is the content. Raises CheckpointError."""
    file = folder / "config.json"
    settings = parse(EncoderConfig, _in_berts_words(content, family, file), file)
    tokenizer = read_encoders_tokenizer(folder, settings.vocab_size)
    config = model_config(settings, family, tokenizer, file)
    weights = find_weights(folder)
    tensors = read_weights(weights).without_prefix(family.prefix).with_endings(OLD_NAMES)
    classifier = take_classifier(parse(HeadConfig, content, file), tensors, settings.hidden_size, file)
    model = load_model(weights, tensors, settings, family, config)
    return EncoderModel(config, model, tokenizer, weights, classifier)


def model_config(settings: EncoderConfig, family: Family, tokenizer: EncoderTokenizer, file: Path) -> ModelConfig:
    """What the Transformer is built with."""
    types = settings.type_vocab_size if family.token_types and tokenizer.types else 1
    try:
        return ModelConfig(
            source_vocab_size=settings.vocab_size,
            target_vocab_size=settings.vocab_size,
            width=settings.hidden_size,
            encoder_layers=settings.num_hidden_layers,
            decoder_layers=0,
            encoder_heads=settings.num_attention_heads,
            decoder_heads=settings.num_attention_heads,
            encoder_ffn=settings.intermediate_size,
            decoder_ffn=settings.intermediate_size,
            max_positions=settings.max_position_embeddings - _first_position(settings, family),
            activation=ACTIVATIONS[settings.hidden_act],
            positions="learned",
            sentences=2 if types > 1 else 1,
            relative="shared" if family.relative else "none",
            encoder_embedding_norm="sum",
            norm_epsilon=settings.layer_norm_eps,
            pad_id=settings.pad_token_id,
            end_id=tokenizer.end_id,
            decoder_start_id=tokenizer.end_id,
        )
    except ValidationError as error:
        raise invalid(error, file) from error


@torch.no_grad()
def load_model(
    weights: Path, tensors: TensorFile, settings: EncoderConfig, family: Family, config: ModelConfig
) -> Transformer:
    """Builds the Transformer and puts the weights into it."""
    tensors.leave(HEADS + BUFFERS)
    check_size(config, weights)
    model = Transformer(config)
    width = settings.hidden_size
    shape = settings.max_position_embeddings, width
    positions = tensors.take("embeddings.position_embeddings.weight", shape)[_first_position(settings, family) :]
    if family.token_types:
        types = tensors.take("embeddings.token_type_embeddings.weight", (settings.type_vocab_size, width))
        positions = torch.cat([positions + of_type for of_type in types[: config.sentences]])
    model.source_positions[:] = positions
    if family.relative:
        put_relative(model.source_relative, ["encoder.relative_attention_bias.weight"], BUCKETS, FARTHEST, tensors)
    renames = [
        Rename("source_embedding", ("embeddings.word_embeddings.weight",), (settings.vocab_size, width)),
        *linear("encoder_embedding_norm", "embeddings.LayerNorm"),
        *(rename for index in range(config.encoder_layers) for rename in _layer(family, index)),
    ]
    fill(model, renames, {}, tensors)
    return model.eval()


def _layer(family: Family, index: int) -> list[Rename]:
    ours, theirs = f"encoder.{index}", family.layer.format(index)
    return [
        *linear(f"{ours}.attention.qkv", *(f"{theirs}.{part}" for part in family.attention)),
        *linear(f"{ours}.attention.out", f"{theirs}.{family.attention_out}"),
        *linear(f"{ours}.attention.residual.norm", f"{theirs}.{family.attention_norm}"),
        *linear(f"{ours}.feed_forward.up", f"{theirs}.{family.up}"),
        *linear(f"{ours}.feed_forward.down", f"{theirs}.{family.down}"),
        *linear(f"{ours}.feed_forward.residual.norm", f"{theirs}.{family.last_norm}"),
    ]


def _in_berts_words(content: dict[str, Any], family: Family, file: Path) -> dict[str, Any]:
    """config.json with BERT's names of its keys. Raises CheckpointError where it has both, and they differ."""
    known = {key: value for key, value in content.items() if key not in family.unknown}
    check_same(family.keys or {}, known, file)
    renamed = {ours: known[theirs] for ours, theirs in (family.keys or {}).items() if theirs in known}
    return {**(family.defaults or {}), **known, **renamed}


def _first_position(settings: EncoderConfig, family: Family) -> int:
    """Row of the position table that belongs to the first token."""
    return settings.pad_token_id + 1 if family.after_padding else 0


def _within(sentences: Sentences, config: ModelConfig) -> EncodingDefaults:
    """Raises CheckpointError where a text may have more tokens than there are positions, or a Dense does not fit."""
    most = sentences.encoding.max_tokens
    if most is not None and most > config.max_positions and config.rotary is None:
        raise CheckpointError(
            f"{sentences.folder}: max_seq_length is {most}; the model has {config.max_positions} positions"
        )
    encoding = sentences.encoding
    if most is None and sentences.longest < config.max_positions:
        most = int(sentences.longest)
        encoding = encoding.model_copy(update={"max_tokens": most})
    if config.rotary is not None:  # which has no last position but that of the package
        encoding = encoding.model_copy(update={"max_tokens": min(most or config.max_positions, config.max_positions)})
    pooled = len(encoding.poolings) * config.width
    if encoding.dense and encoding.dense[0].inputs != pooled:
        raise CheckpointError(
            f"{sentences.folder}: in_features of Dense is {encoding.dense[0].inputs}; the poolings give {pooled} values"
        )
    if fault := encoding.fault(config.width):
        raise CheckpointError(f"{sentences.folder}: {fault}")
    return encoding
