"""Plain PyTorch weights without a configuration: a checkpoint.toml names the model's fields and its tensors."""

import difflib
import json
import tomllib
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from models.architectures import AnyConfig
from models.architectures.architecture import Architecture
from models.architectures.build import build
from models.checkpoint.contents import Checkpoint, CheckpointError
from models.checkpoint.files.dense import SCORES_FILE, take_dense
from models.checkpoint.files.pointers import check_fetched
from models.checkpoint.files.reading import TensorFile, invalid, notices
from models.checkpoint.files.renames import Rename, fill
from models.checkpoint.files.weights import check_size, read_weights, weights_sha256
from models.checkpoint.generation import check_defaults
from models.checkpoint.tokenizers.fast import spec_of
from models.config import Frozen, ModelShape
from models.encoding import EncodingDefaults, Pooling
from models.encoding.dense import Dense
from models.package.declared.graphs import FileName
from models.package.manifest import GenerationDefaults
from models.tokenizers.byte_tokenizer import ByteSpec
from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec
from models.tokenizers.spec import TokenizerSpec, open_tokenizer
from models.tokenizers.tokenizer import Tokenizer, TokenizerError
from models.tokenizers.tokenizer_json import load_backend

DESCRIPTION = "checkpoint.toml"
LAYER = "{layer}"
"""Stands in names for each layer of a side, counted from 0."""
POSITIONS = ("source_positions", "target_positions")
"""Tables that some files have with an axis of batches, too."""
SOURCE_SIDE = {
    "target_vocab_size": "source_vocab_size",
    "decoder_heads": "encoder_heads",
    "decoder_ffn": "encoder_ffn",
    "decoder_start_id": "end_id",
}
"""What an encoder alone has in place of its target side."""
PARTS = ("weight", "bias")
"""The tensors of a module, which may be named together."""


class TokenizerFile(Frozen):
    """A tokenizer.json, whose template says what is around a source."""

    kind: Literal["tokenizers"]
    file: FileName = "tokenizer.json"


class DescribedEncoding(Frozen):
    """How vectors are made where a request does not say. See `models.encoding.EncodingDefaults`."""

    poolings: tuple[Pooling, ...] = (Pooling.MEAN,)
    scores: str | None = None
    """Of the pooling "attention": the linear layer that scores a hidden state, of which a bias may be left out."""
    dimensions: int | None = None
    normalize: bool = False
    max_tokens: int | None = None
    prompts: dict[str, str] = Field(default_factory=dict)
    prompt: str | None = None


class Description(Frozen):
    """What checkpoint.toml says. docs/checkpoints.md has an example."""

    weights: FileName
    entry: str | None = None
    """The dictionary of the file that has the tensors, if they lie in one, such as "state_dict"."""
    tokenizer: Annotated[TokenizerFile | SentencePieceSpec | ByteSpec, Field(discriminator="kind")]
    """Of both sides; of other kinds, what a manifest says of them."""
    source_languages: tuple[str, ...] = ()
    target_languages: tuple[str, ...] = ()
    model: AnyConfig
    tensors: dict[str, str | tuple[str, ...]] = Field(default_factory=dict)
    """A parameter of the model, or a module with a weight and a bias -> the tensors that make it up, one below the
    other. "NAME[2/3]" is the second of a tensor's three parts. None: the file has the model's own names."""
    ignored: tuple[str, ...] = ()
    """What names of tensors begin with that nothing is made of."""
    generation: GenerationDefaults = GenerationDefaults()
    encoding: DescribedEncoding = DescribedEncoding()

    @model_validator(mode="before")
    @classmethod
    def _without_targets(cls, content: Any) -> Any:
        """An encoder alone need not say of a decoder that there is none: its target side is its source side."""
        match content:
            case {"model": {"decoder_layers": 0} as model}:
                given = {ours: model[theirs] for ours, theirs in SOURCE_SIDE.items() if theirs in model}
                return content | {"model": {"output_bias": False} | given | model}
        return content


def load(folder: Path) -> Checkpoint:
    """Reads a folder with checkpoint.toml, the weights and the tokenizer that it names. Raises CheckpointError."""
    description = read_description(folder / DESCRIPTION)
    config, weights = description.model, folder / description.weights
    if not config.decoder_layers:
        raise CheckpointError(
            f"{folder / DESCRIPTION}: decoder_layers is 0, an encoder alone, which does not translate"
        )
    tensors = read_weights(weights, description.entry)
    check_size(config, weights)
    tokenizer = tokenizer_spec(folder, description)
    encoding, scores = read_encoding(description, tensors, folder / DESCRIPTION)
    longest = min(description.generation.max_new_tokens, config.max_positions)
    generation = replace(description.generation, max_new_tokens=longest)
    check_defaults(generation, config, folder / DESCRIPTION)
    return Checkpoint(
        name=folder.resolve().name,
        config=config,
        model=load_model(description, tensors, folder / DESCRIPTION).eval(),
        tokenizer=tokenizer,
        generation=generation,
        source_languages=description.source_languages,
        target_languages=description.target_languages,
        files={name: folder / name for name in tokenizer.files} | notices(folder),
        sha256=weights_sha256(weights),
        in_transformers=False,
        encoding=encoding,
        scores=scores,
    )


def read_description(file: Path) -> Description:
    """Raises CheckpointError."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        # By way of JSON, whose arrays may become tuples where all else has to have its very type.
        return Description.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise invalid(error, file) from error
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, RecursionError) as error:  # a date is no JSON
        raise CheckpointError(f"{file} is not TOML of text, numbers and tables: {error}") from error


def read_encoding(description: Description, tensors: TensorFile, file: Path) -> tuple[EncodingDefaults, Dense | None]:
    """How vectors are made, and what scores a hidden state. Raises CheckpointError."""
    told, spec, scores = description.encoding, None, None
    if told.scores is not None:
        size, bias = (description.model.width, 1), f"{told.scores}.bias" in tensors
        spec, scores = take_dense(tensors, told.scores, size, "identity", SCORES_FILE, bias)
    try:
        encoding = EncodingDefaults(
            poolings=told.poolings,
            scores=spec,
            dimensions=told.dimensions,
            normalize=told.normalize,
            max_tokens=told.max_tokens,
            prompts=told.prompts,
            prompt=told.prompt,
        )
    except ValidationError as error:
        raise invalid(error, file) from error
    if told.max_tokens is not None and told.max_tokens > (most := description.model.max_positions):
        raise CheckpointError(f"{file}: max_tokens is {told.max_tokens}; the model has {most} positions")
    if fault := encoding.fault(description.model.width):
        raise CheckpointError(f"{file}: {fault}")
    return encoding, scores


def tokenizer_spec(folder: Path, description: Description) -> TokenizerSpec:
    """What a package says of it. Raises CheckpointError."""
    spec, config = description.tokenizer, description.model
    check_fetched(*(folder / name for name in ((spec.file,) if isinstance(spec, TokenizerFile) else spec.files)))
    try:
        if not isinstance(spec, TokenizerFile):
            _check_ids(open_tokenizer(folder, spec), config, folder)
            return spec
        backend = load_backend(folder / spec.file)
    except TokenizerError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    largest, size = max(backend.get_vocab().values()), min(config.source_vocab_size, config.target_vocab_size)
    if largest >= size:
        raise CheckpointError(f"{folder / spec.file} has token {largest}; the model has {size} tokens")
    return spec_of(backend).model_copy(update={"file": spec.file})


def _check_ids(tokenizer: Tokenizer, config: ModelShape, folder: Path) -> None:
    """Raises CheckpointError where a text may have a token that the model has no row for."""
    of_bytes = len(tokenizer.pieces()) - 1
    ids = tokenizer.largest_ids if isinstance(tokenizer, SentencePiecePair) else (of_bytes, of_bytes)
    for largest, size in zip(ids, (config.source_vocab_size, config.target_vocab_size), strict=True):
        if largest >= size:
            raise CheckpointError(f"{folder}: the tokenizer has token {largest}; the model has {size} tokens")


def load_model(description: Description, tensors: TensorFile, file: Path) -> Architecture:
    """Builds the model and puts the weights into it. Raises CheckpointError."""
    model = build(description.model)
    parameters = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    renames = []
    as_ours = {name: name for name, trained in parameters.items() if trained}
    for ours, theirs in (description.tensors or as_ours).items():
        if not theirs:
            raise CheckpointError(f"{file}: tensors has nothing that makes up {ours}; name at least one tensor")
        named = list(_renames(ours, (theirs,) if isinstance(theirs, str) else theirs, description.model, parameters))
        if not named:
            close = difflib.get_close_matches(ours, [name.removesuffix(".weight") for name in parameters], n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise CheckpointError(f"{file}: tensors has {ours}, which the model does not{meant}")
        renames += named
    known = {rename.target for rename in renames}
    missing = [name for name, trained in parameters.items() if trained and name not in known]
    if missing:
        raise CheckpointError(f"{file}: tensors has no {missing[0]}, of which the model is made")
    tensors.leave(description.ignored)
    for rename in renames:
        for name in rename.sources:
            tensors.split(name)
            if rename.target in POSITIONS:
                tensors.squeeze(name)
    fill(model, renames, {}, tensors)
    return model


def _renames(ours: str, theirs: Sequence[str], config: ModelShape, parameters: Container[str]) -> Iterator[Rename]:
    """Of one entry of `tensors`, for each layer that it is about."""
    layers = range(config.encoder_layers if ours.startswith("encoder.") else config.decoder_layers)
    if LAYER in ours:
        for layer in layers:
            yield from _of_module(_at(ours, layer), [_at(name, layer) for name in theirs], config, parameters)
    elif any(LAYER in name for name in theirs):  # of all layers together, as `cross_kv` is
        names = [_at(name, layer) for layer in layers for name in theirs]
        yield from _of_module(ours, names, config, parameters)
    else:
        yield from _of_module(ours, theirs, config, parameters)


def _of_module(ours: str, theirs: Sequence[str], config: ModelShape, parameters: Container[str]) -> Iterator[Rename]:
    if ours in parameters:
        yield Rename(ours, tuple(theirs), table_shape(ours, config))
        return
    for part in PARTS:
        if f"{ours}.{part}" in parameters:
            yield Rename(f"{ours}.{part}", tuple(f"{name}.{part}" for name in theirs))


def _at(name: str, layer: int) -> str:
    return name.replace(LAYER, str(layer))


def table_shape(name: str, config: ModelShape) -> tuple[int, ...] | None:
    """Of what has a row for each token, and is padded in the model."""
    match name:
        case "source_embedding":
            return config.source_vocab_size, config.width
        case "target_embedding" | "output_weight":
            return config.target_vocab_size, config.width
        case "output_bias":
            return (config.target_vocab_size,)
    return None
