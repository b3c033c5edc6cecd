"""The training of an encoder, from its text to the model that it publishes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import shorten

import torch
from pydantic import ValidationError
from rich.console import Console

from models.architectures.architecture import Architecture
from models.checkpoint.encoders import load
from models.checkpoint.files.weights import find_weights, read_weights
from models.config import ModelConfig
from models.package.manifest import first_fault
from training.data.batches import Rows, in_order, make_batch
from training.data.text import Corpus, read_lines
from training.encoders import text
from training.encoders.config import EncoderExperiment, EncoderShape
from training.encoders.model import Encoder
from training.encoders.objective import Labels, Pretraining
from training.encoders.text import Vocabulary
from training.encoders.writer import berts_tensors, write_encoder
from training.errors import TrainingError
from training.loop.outputs import Outputs
from training.loop.processes import Processes
from training.loop.trainer import Trainer
from training.loop.validation import Score
from training.run import check_lengths, finish, run_experiment, steps, tell_size
from training.start import with_dropout

HEADS = ("token_types", "pooler", "classifier", "transform", "next_sentence")
"""Parameters that the model of a package lacks."""
PRETRAINED = ("pooler.", "cls.")
"""Tensors of a BERT that it has no use for."""
MOST_LISTED = 200
"""Characters of a list of labels in a message: with the columns the wrong way round each text is one."""


@dataclass(frozen=True)
class Accuracy(Score):
    """Of one validation of labels."""

    share: float = 0.0
    """Labels that are right, 0 to 1."""

    @property
    def value(self) -> float:
        return self.share

    @property
    def values(self) -> dict[str, float]:
        return {"loss": self.loss, "accuracy": self.share}

    def __str__(self) -> str:
        return f"loss {self.loss:.3f}, {self.share:.1%} of the labels"


@dataclass(frozen=True)
class Texts:
    """What is learnt from, and what is never learnt from."""

    training: Corpus
    held_out: Corpus
    labels: tuple[str, ...]
    """Of what has some, in alphabetical order."""


def run(config: Path) -> int:
    """Returns 0, 2 where the input is bad or the disk full, or 130 after Ctrl-C."""
    return run_experiment(config, EncoderExperiment, train)


def train(experiment: EncoderExperiment, processes: Processes, console: Console) -> None:
    """Reads the text, trains, and writes the better of the best and the averaged weights."""
    torch.manual_seed(experiment.seed)
    outputs = Outputs(experiment.output)
    folder = experiment.start or outputs.vocabulary
    if processes.first and experiment.vocabulary is not None and not outputs.all_checkpoints():
        text.train_vocabulary(folder, experiment.vocabulary, lines(experiment))
    processes.broadcast(None)
    vocabulary = Vocabulary.load(folder)
    if experiment.vocabulary is not None:
        text.check_vocabulary(folder, vocabulary, experiment.vocabulary)
    texts = read(experiment, vocabulary)
    model = with_dropout(begin(experiment, vocabulary, len(texts.labels)), experiment.training.dropout)
    check_lengths(experiment.data.max_tokens, model)
    model.to(processes.device)
    objective: Pretraining | Labels
    if experiment.objective == "mlm":
        objective = Pretraining(model, vocabulary, experiment.masking, texts.training)
    else:
        objective = Labels(model, experiment.training.label_smoothing)
    objective.to(processes.device)
    score = partial(scored, objective, texts.held_out, list(in_order(texts.held_out, experiment.batches.tokens)))
    trainer = Trainer(experiment, objective, model, texts.training, score, processes)
    tell_size(console, texts.training, texts.held_out, model, trainer.progress.step)
    steps(trainer, console)

    def write(draft: Path, trained: Architecture) -> None:
        assert isinstance(trained, Encoder)
        write_encoder(draft, trained, texts.labels, folder)

    if processes.first:
        finish(trainer, write, score, console)


def lines(experiment: EncoderExperiment) -> Iterator[str]:
    """What a vocabulary is trained on."""
    for file in experiment.data.train:
        for line in read_lines(file):
            match experiment.objective:
                case "mlm":
                    yield line
                case "text":
                    yield line.partition("\t")[2]
                case "tokens":
                    yield line.partition("\t")[0]


def read(experiment: EncoderExperiment, vocabulary: Vocabulary) -> Texts:
    """All text, as token ids. Raises TrainingError."""
    data, most = experiment.data, experiment.data.max_tokens
    if experiment.objective == "mlm":
        pairs = [pair for file in data.train for pair in text.sentence_pairs(file, vocabulary, most)]
        held_out = text.sentence_pairs(data.validation, vocabulary, most)
        return Texts(text.corpus(pairs, str(data.train[0])), text.corpus(held_out, str(data.validation)), ())
    if experiment.objective == "text":
        of_files = {file: [[pair] for pair in text.labelled_texts(file)] for file in (*data.train, data.validation)}
    else:
        of_files = {
            file: [[(label, word) for word, label in sentence] for sentence in text.labelled_words(file)]
            for file in (*data.train, data.validation)
        }
    labels = sorted({label for file in data.train for sentence in of_files[file] for label, _ in sentence})
    if len(labels) < 2:
        raise TrainingError(f"all of {data.train[0]} has the label {labels[0]!r}; at least two are to be told apart")
    ids = {label: number for number, label in enumerate(labels)}

    def encoded(file: Path) -> Iterator[text.Encoded]:
        for number, sentence in enumerate(of_files[file], 1):
            if unknown := [label for label, _ in sentence if label not in ids]:
                known = shorten(", ".join(labels), MOST_LISTED, placeholder=" ...")
                raise TrainingError(
                    f"{file} has the label {unknown[0][:80]!r}; the training text has {len(labels)}: {known}"
                )
            if experiment.objective == "text":
                [(label, content)] = sentence
                found = text.encode_text(content, ids[label], vocabulary)
            else:
                found = text.encode_words([(word, ids[label]) for label, word in sentence], vocabulary)
            if len(found[0]) > most:
                raise TrainingError(
                    f"{file}, text {number} has {len(found[0])} tokens; data.max_tokens is {most}: raise it, or divide "
                    "the text"
                )
            yield found

    training = text.corpus((one for file in data.train for one in encoded(file)), str(data.train[0]))
    return Texts(training, text.corpus(encoded(data.validation), str(data.validation)), tuple(labels))


@torch.no_grad()
def begin(experiment: EncoderExperiment, vocabulary: Vocabulary, labels: int) -> Encoder:
    """A new encoder, or a trained one; its head is new, but for what the checkpoint has of "mlm".

    Raises TrainingError and CheckpointError.
    """
    if experiment.start is None:
        assert experiment.model is not None
        return Encoder(new_config(experiment.model, vocabulary), experiment.objective, labels)
    checkpoint = load(experiment.start)
    model = Encoder(checkpoint.config.model_copy(update={"sentences": 1}), experiment.objective, labels)
    state = checkpoint.model.state_dict()
    # The type of a sentence is in its positions: see models.checkpoint.encoders.
    first, *second = state["source_positions"].split(checkpoint.config.max_positions)
    missing, _ = model.load_state_dict(state | {"source_positions": first}, strict=False)
    if second:
        model.token_types[1] = second[0][0] - first[0]
    assert all(name.startswith(HEADS) for name in missing), missing
    if experiment.objective == "mlm":
        read_heads(model, experiment.start)
    return model


@torch.no_grad()
def read_heads(model: Encoder, folder: Path) -> None:
    """What only pre-training needs, as far as a checkpoint has it. Raises CheckpointError."""
    tensors = read_weights(find_weights(folder)).without_prefix("bert.")
    for name, tensor in berts_tensors(model):
        name = name.removeprefix("bert.")
        if name.startswith(PRETRAINED) and name in tensors:
            tensor.copy_(tensors.take(name, tuple(tensor.shape)))


def new_config(shape: EncoderShape, vocabulary: Vocabulary) -> ModelConfig:
    """The shape of a new encoder. Raises TrainingError where it is impossible."""
    try:
        return ModelConfig(
            source_vocab_size=vocabulary.size,
            target_vocab_size=vocabulary.size,
            width=shape.width,
            encoder_layers=shape.layers,
            decoder_layers=0,
            encoder_heads=shape.heads,
            decoder_heads=shape.heads,
            encoder_ffn=shape.ffn,
            decoder_ffn=shape.ffn,
            max_positions=shape.max_positions,
            activation="gelu",
            positions="learned",
            encoder_embedding_norm="sum",
            norm_epsilon=1e-12,
            pad_id=vocabulary.pad_id,
            end_id=vocabulary.sep_id,
            decoder_start_id=vocabulary.cls_id,
        )
    except ValidationError as error:
        raise TrainingError(f"[model]: {first_fault(error)}") from error


@torch.no_grad()
def scored(objective: Pretraining | Labels, corpus: Corpus, batches: Iterable[Rows]) -> Score:
    """The loss over held-out text, and of labels how many are right."""
    model, total, right, counted = objective.model, 0.0, 0, 0
    objective.eval()
    for rows in batches:
        batch = make_batch(corpus, rows, model.config).to(model.source_embedding.device)
        total += float(objective(batch)[1])
        if isinstance(objective, Labels):
            found = objective.right(batch)
            right, counted = right + found[0], counted + found[1]
    objective.train()
    loss = total / int(corpus.target.lengths.sum())
    return Accuracy(loss, None, right / counted) if counted else Score(loss, None)
