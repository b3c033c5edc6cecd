"""An experiment, from its text to the model that it publishes."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from rich.console import Console

from models.architectures.architecture import Architecture
from models.architectures.prefix.model import Prefix
from models.checkpoint.described.writer import write_described
from models.checkpoint.marian_writer import write_marian
from models.checkpoint.tokenizers.marian import read_tokenizer_config
from models.transformer import Transformer
from training import command
from training.config import Experiment, Run, read_experiment
from training.data.files import new_folder
from training.data.text import Codec, Corpus, TextPair, encode, read_pair
from training.errors import TrainingError
from training.loop import state
from training.loop.outputs import Outputs
from training.loop.processes import Processes, join_processes
from training.loop.progress import Display, TensorBoard
from training.loop.trainer import Trainer
from training.loop.validation import Score, Scorer
from training.objective.notes import TeacherNotes
from training.objective.objective import Objective, Translation, WordLevelDistillation, noted_states
from training.objective.pondering import PonderingTranslation
from training.objective.unified import Unified
from training.start import Beginning, begin, load_suppressed

R = TypeVar("R", bound=Run)


def run(config: Path) -> int:
    """Returns 0, 2 where the input is bad or the disk full, or 130 after Ctrl-C."""
    return run_experiment(config, Experiment, train)


def run_experiment(config: Path, kind: type[R], train: Callable[[R, Processes, Console], None]) -> int:
    """Claims the folder of a run, and trains, in each of its processes. Returns as `run` does."""

    def work(console: Console) -> None:
        experiment = read_experiment(config, kind)
        outputs = Outputs(experiment.output)
        with join_processes(experiment.training) as processes, outputs.claimed(processes):
            train(experiment, processes, console if processes.first else Console(quiet=True))

    return command.run(work, " from the last checkpoint, if there is one")


def train(experiment: Experiment, processes: Processes, console: Console) -> None:
    """Reads the text, trains, and writes the better of the best and the averaged weights."""
    torch.manual_seed(experiment.seed)
    text, validation = [read_pair(files) for files in experiment.data.train], read_pair(experiment.data.validation)
    beginning = begin_together(experiment, text, processes)
    codec = Codec(beginning.folder, beginning.tokenizer)
    check_lengths(experiment.data.max_tokens, beginning.model)
    corpus = encode(text, codec, experiment.data, drop_long=experiment.data.too_long == "drop")
    held_out = encode([validation], codec, experiment.data, drop_long=False)
    model = beginning.model.to(processes.device)
    objective = make_objective(experiment, model, corpus).to(processes.device)
    scorer = Scorer(objective, validation, held_out, codec.source, experiment.validation, experiment.batches.tokens)
    trainer = Trainer(experiment, objective, model, corpus, scorer.score, processes)
    tell_size(console, corpus, held_out, model, trainer.progress.step)
    steps(trainer, console)
    if processes.first:
        finish(trainer, partial(write_model, beginning=beginning), scorer.score, console)


def steps(trainer: Trainer, console: Console) -> None:
    """All that are left."""
    with ExitStack() as stack:
        display = stack.enter_context(Display(console, trainer.progress.step, trainer.experiment.training.max_steps))
        board = None
        if trainer.processes.first:
            board = TensorBoard(trainer.outputs.tensorboard, trainer.progress.step)
            stack.callback(board.close)
        trainer.run(display, board)


def begin_together(experiment: Experiment, text: list[TextPair], processes: Processes) -> Beginning:
    """The first process makes the vocabulary, which the others then find."""
    beginning = begin(experiment, text) if processes.first else None
    processes.broadcast(None)
    return beginning or begin(experiment, None)


def make_objective(experiment: Experiment, model: Architecture, corpus: Corpus) -> Objective:
    """What the experiment minimises. Raises TrainingError."""
    smoothing, distillation = experiment.training.label_smoothing, experiment.distillation
    if distillation is None:
        if isinstance(model, Prefix) and experiment.mixture is not None:
            return Unified(model, smoothing, experiment.mixture)
        if isinstance(model, Transformer) and model.config.halting:
            return PonderingTranslation(model, smoothing, experiment.training.ponder_price)
        return Translation(model, smoothing)
    if not isinstance(model, Transformer):
        raise TrainingError(f"[distillation] matches Transformers; the model is {model.config.architecture!r}")
    teacher = load_suppressed(distillation.teacher).transformer
    notes = None
    if distillation.notes:
        states = noted_states(teacher, distillation)
        notes = TeacherNotes(experiment.output, corpus, teacher.config.width, states)
    return WordLevelDistillation(model, teacher, distillation, smoothing, notes)


def check_lengths(longest: int, model: Architecture) -> None:
    """Every text that may come must fit into the model. Raises TrainingError."""
    limit = model.config.max_positions
    if longest > limit:
        raise TrainingError(f"data.max_tokens is {longest}, but the model has {limit} positions; lower it to that")


def tell_size(console: Console, corpus: Corpus, held_out: Corpus, model: Architecture, step: int) -> None:
    """What is about to happen."""
    parameters = list(model.parameters())
    trained = sum(p.numel() for p in parameters if p.requires_grad) / 1e6
    dropped = f" ({corpus.dropped:,} too long, left out)" if corpus.dropped else ""
    lines = [
        f"training text: {len(corpus):,} pairs{dropped}, {corpus.target.ends[-1]:,} target tokens",
        f"validation text: {len(held_out):,} pairs",
        f"model: {sum(p.numel() for p in parameters) / 1e6:.1f} M parameters, {trained:.1f} M of them trained",
    ]
    for line in [*lines, f"going on from step {step}"] if step else lines:
        console.print(line, highlight=False, soft_wrap=True)


def write_model(folder: Path, model: Architecture, beginning: Beginning) -> None:
    """As a folder that Hugging Face reads too, if there is such a model."""
    if isinstance(model, Transformer) and not (model.config.shared_layers or model.config.depth_signal):
        write_marian(folder, model, beginning.folder)
        return
    tokens = read_tokenizer_config(beginning.folder)
    languages = tokens.source_lang, tokens.target_lang
    write_described(folder, model, beginning.tokenizer, beginning.folder, languages)


def finish(
    trainer: Trainer,
    write: Callable[[Path, Architecture], None],
    score: Callable[[], Score],
    console: Console,
) -> None:
    """Publishes the best candidate. Each is scored as it would be published, rounded to fp16."""
    model, outputs = trainer.model, trainer.outputs
    last = outputs.all_checkpoints()[-trainer.experiment.checkpoints.average :]
    candidates = {f"mean of the last {len(last)} checkpoints": state.average(last)}
    if outputs.best.exists():
        best = state.load(outputs.best)
        candidates[f"best validation, at step {best['step']}"] = best["model"]
    scores: dict[str, Score] = {}
    for name, weights in candidates.items():
        state.fill_model(model, {key: tensor.half().float() for key, tensor in weights.items()}, outputs.folder)
        scores[name] = score()
        console.print(f"{name}: {scores[name]}", highlight=False, soft_wrap=True)
    chosen = max(scores, key=lambda name: scores[name].value)
    state.fill_model(model, candidates[chosen], outputs.folder)
    with new_folder(outputs.model) as draft:
        write(draft, model.cpu())
    console.print(f"{outputs.model} is ready: {chosen}", highlight=False, soft_wrap=True)
    console.print(f"Export it: python -m export {outputs.model} --out PACKAGE", highlight=False, soft_wrap=True)
