"""What a run begins with: the vocabulary, the model, and which of its parameters are trained."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

import torch
from pydantic import ValidationError
from torch import nn

from models.architectures import AnyConfig
from models.architectures.architecture import Architecture
from models.architectures.build import build
from models.architectures.prefix.config import PrefixConfig
from models.architectures.recurrent.config import RecurrentConfig
from models.checkpoint import Checkpoint, load_checkpoint
from models.checkpoint.files.reading import notices
from models.checkpoint.marian import suppress
from models.checkpoint.marian_writer import NORM_EPSILON, POSITIONS
from models.checkpoint.tokenizers.marian import MarianTokenizerConfig, read_tokenizer_config, tokenizer_spec
from models.config import ModelConfig
from models.package.manifest import first_fault
from models.tokenizers.sentencepiece_pair import SentencePieceSpec, load_vocabulary
from models.transformer import Transformer
from training import config
from training.data.files import new_folder
from training.data.text import TextPair, all_lines
from training.data.vocabulary import END_ID, PADDING, train_vocabulary, write_vocabulary
from training.errors import TrainingError
from training.loop.outputs import Outputs

A = TypeVar("A", bound=Architecture)


@dataclass(frozen=True)
class Beginning:
    """A model before its first update."""

    model: Architecture
    tokenizer: SentencePieceSpec
    folder: Path
    """Where the tokenizer's files are."""


def begin(experiment: config.Experiment, text: Sequence[TextPair] | None) -> Beginning:
    """Makes a new model, or loads one to go on with. Raises TrainingError and CheckpointError.

    text: what a vocabulary is made of, until there is a checkpoint that needs it; None where it was made
    """
    outputs = Outputs(experiment.output)
    if experiment.start is not None:
        return from_checkpoint(experiment.start, experiment.training.dropout, outputs.vocabulary, text is not None)
    assert experiment.vocabulary is not None and experiment.model is not None
    if text is not None and not outputs.all_checkpoints():
        train_vocabulary(outputs.vocabulary, experiment.vocabulary, all_lines(text), experiment.seed)
    vocabulary = load_vocabulary(outputs.vocabulary / "vocab.json")
    tokens = read_tokenizer_config(outputs.vocabulary)
    check_vocabulary(outputs.vocabulary, len(vocabulary) - 1, tokens, experiment.vocabulary)
    shape = new_config(experiment.model, vocabulary)
    spec = tokenizer_spec(outputs.vocabulary, tokens, shape)
    return Beginning(with_dropout(build(shape), experiment.training.dropout), spec, outputs.vocabulary)


def check_vocabulary(folder: Path, pieces: int, tokens: MarianTokenizerConfig, asked: config.Vocabulary) -> None:
    """Raises TrainingError where a run's vocabulary is not the one that the experiment asks for."""
    there = {"size": pieces, "source_language": tokens.source_lang, "target_language": tokens.target_lang}
    for key, value in there.items():
        if getattr(asked, key) != value:
            raise TrainingError(
                f"{folder} was made with vocabulary.{key} = {value}; it is {getattr(asked, key)} now. "
                "Choose another output folder for another vocabulary, or put the experiment back as it was"
            )


def new_config(model: config.Shape, vocabulary: dict[str, int]) -> AnyConfig:
    """The shape of a new model. Raises TrainingError where it is impossible."""
    tokens = {
        "source_vocab_size": len(vocabulary),
        "target_vocab_size": len(vocabulary),
        "pad_id": vocabulary[PADDING],
        "end_id": END_ID,
        "decoder_start_id": vocabulary[PADDING],
    }
    try:
        shape = tokens | model.model_dump() | {"scale_embedding": True}
        if isinstance(model, config.RecurrentShape):
            return RecurrentConfig.model_validate(shape)
        if isinstance(model, config.PrefixShape):
            layers = shape.pop("layers")
            both = {"encoder_layers": layers, "decoder_layers": layers, "decoder_start_id": END_ID}
            return PrefixConfig.model_validate(shape | both)
        return ModelConfig.model_validate(of_both_sides(shape))
    except ValidationError as error:
        raise TrainingError(f"[model]: {first_fault(error)}") from error


def of_both_sides(shape: dict[str, object]) -> dict[str, object]:
    """What encoder and decoder of a Transformer have alike, said of each."""
    alike = {name: shape.pop(name) for name in ("heads", "ffn")}
    return shape | {f"{side}_{name}": value for name, value in alike.items() for side in ("encoder", "decoder")}


def with_dropout(model: A, probability: float) -> A:
    """Drops embeddings and the outputs of sub-layers while training (Vaswani et al. 2017, 5.4)."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
    return model


def from_checkpoint(start: config.Start, dropout: float, folder: Path, write: bool) -> Beginning:
    """Loads a checkpoint, resets and freezes what is to be. Raises TrainingError and CheckpointError.

    folder: gets the tokenizer where the checkpoint has none that a Marian folder can hold. write: it does not yet
    """
    checkpoint = load_suppressed(start.checkpoint)
    model = as_marian(checkpoint.transformer)
    fresh = dict(Transformer(model.config).named_parameters())
    with torch.no_grad():
        for name in matching(model, start.reset, "start.reset"):
            model.get_parameter(name).copy_(fresh[name])
    for name in matching(model, start.freeze, "start.freeze"):
        model.get_parameter(name).requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise TrainingError("start.freeze leaves nothing to train")
    with_dropout(model, dropout)
    if checkpoint.sentencepiece.vocabulary is not None:
        return Beginning(model, checkpoint.sentencepiece, start.checkpoint)
    if write:
        copy_tokenizer(checkpoint, start.checkpoint, folder)
    return Beginning(model, tokenizer_spec(folder, read_tokenizer_config(folder), model.config), folder)


def copy_tokenizer(checkpoint: Checkpoint, source: Path, folder: Path) -> None:
    """Writes a tokenizer whose ids are SentencePiece's as Marian's files, with the notices of the weights.

    Raises TrainingError where a Marian folder cannot be that.
    """
    spec = checkpoint.sentencepiece
    if spec.source_model != spec.target_model:
        raise TrainingError(f"{source} has a vocabulary for each side; training supports one for both")
    if not checkpoint.source_languages or not checkpoint.target_languages:
        raise TrainingError(
            f"{source} does not say which languages it is for; name its model as Firefox does, model.enpt.intgemm.bin"
        )
    with new_folder(folder) as draft:
        model = (source / spec.source_model).read_bytes()
        write_vocabulary(draft, model, checkpoint.source_languages[0], checkpoint.target_languages[0])
        for name, file in notices(source).items():
            shutil.copyfile(file, draft / name)


@torch.no_grad()
def as_marian(model: Transformer) -> Transformer:
    """What a Hugging Face Marian folder, which is what training writes, can hold of a model.

    A recurrence becomes self-attention with random weights, behind the norm it had; positions become Hugging Face's.
    """
    config = model.config.model_copy(update={"decoder_cell": "attention", "norm_epsilon": NORM_EPSILON})
    if config == model.config:
        return model
    converted = Transformer(config)
    known = {name.replace(".recurrence.", ".attention."): value for name, value in model.named_parameters()}
    for name, parameter in converted.named_parameters():
        if name in known and name not in POSITIONS:
            parameter.copy_(known[name])
    return converted


def load_suppressed(folder: Path) -> Checkpoint:
    """Loads a checkpoint; tokens that it must not produce get no probability, in training as in the finished model."""
    checkpoint = load_checkpoint(folder)
    suppress(checkpoint.transformer, checkpoint.generation.suppressed_ids)
    return checkpoint


def matching(model: Transformer, patterns: Sequence[str], key: str) -> list[str]:
    """The parameters that patterns name. Raises TrainingError for a pattern that names none."""
    names = [name for name, _ in model.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            there = dict.fromkeys(
                ".".join("*" if part.isdecimal() else part for part in name.split(".")) for name in names
            )
            raise TrainingError(f"{key}: no parameter matches {pattern!r}; there are {', '.join(there)}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
