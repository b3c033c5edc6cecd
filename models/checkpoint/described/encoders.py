"""Encoders alone that a checkpoint.toml describes."""

from pathlib import Path

from models.checkpoint.contents import CheckpointError, EncoderCheckpoint
from models.checkpoint.described.reader import (
    DESCRIPTION,
    Description,
    TokenizerFile,
    load_model,
    read_description,
    read_encoding,
)
from models.checkpoint.files.pointers import check_fetched
from models.checkpoint.files.reading import notices
from models.checkpoint.files.weights import check_size, read_weights, weights_sha256
from models.checkpoint.tokenizers.encoders import encoders_spec
from models.config import ModelConfig
from models.tokenizers.tokenizer import TokenizerError
from models.tokenizers.tokenizer_json import TokenizerJsonSpec, load_backend
from models.transformer import Transformer

OF_TARGETS = "target_languages", "generation"


def is_encoder(folder: Path) -> bool:
    """Whether a folder has one. Raises CheckpointError where its checkpoint.toml cannot be read."""
    file = folder / DESCRIPTION
    return file.exists() and not read_description(file).model.decoder_layers


def load(folder: Path) -> EncoderCheckpoint:
    """Reads a folder with checkpoint.toml, the weights and the tokenizer that it names. Raises CheckpointError."""
    file = folder / DESCRIPTION
    description = read_description(file)
    config, weights = description.model, folder / description.weights
    if not isinstance(config, ModelConfig):
        raise CheckpointError(f"{file}: architecture is {config.architecture!r}; an encoder alone is a transformer")
    if config.decoder_layers:
        raise CheckpointError(f"{file}: decoder_layers is {config.decoder_layers}; an encoder alone has none")
    if of_targets := [key for key in OF_TARGETS if key in description.model_fields_set]:
        raise CheckpointError(f"{file}: {of_targets[0]} is of models that translate; decoder_layers is 0")
    tensors = read_weights(weights, description.entry)
    check_size(config, weights)
    tokenizer = tokenizer_spec(folder, description)
    encoding, scores = read_encoding(description, tensors, file)
    model = load_model(description, tensors, file)
    assert isinstance(model, Transformer)
    return EncoderCheckpoint(
        config=config,
        model=model.eval(),
        tokenizer=tokenizer,
        source_languages=description.source_languages,
        encoding=encoding,
        dense=(),
        scores=scores,
        classifier=None,
        in_transformers=False,
        head_in_transformers=False,
        files={tokenizer.file: folder / tokenizer.file} | notices(folder),
        made_files={},
        folder=folder,
        sha256=weights_sha256(weights),
    )


def tokenizer_spec(folder: Path, description: Description) -> TokenizerJsonSpec:
    """What a package says of it. Raises CheckpointError."""
    told, config, file = description.tokenizer, description.model, folder / DESCRIPTION
    if not isinstance(told, TokenizerFile):
        raise CheckpointError(f"{file}: tokenizer.kind is {told.kind!r}; an encoder alone takes 'tokenizers'")
    check_fetched(folder / told.file)
    try:
        backend = load_backend(folder / told.file)
    except TokenizerError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    spec = encoders_spec(backend, folder / told.file, config.source_vocab_size)
    if (last := spec.affixes.suffix_ids[-1]) != config.end_id:
        raise CheckpointError(f"{file}: end_id is {config.end_id}; {told.file} ends a text with token {last}")
    return spec
