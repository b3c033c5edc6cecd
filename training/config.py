"""The file that describes an experiment. Every key is checked, and an unknown one is refused."""

import json
import tomllib
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, Tag, ValidationError, model_validator

from models.architectures import BY_ARCHITECTURE
from models.architectures.prefix.config import Mask
from models.architectures.recurrent.config import Attends, Cell, FirstState, Score
from models.checkpoint.tokenizers.marian import Language
from models.config import Activation, Frozen
from models.package.manifest import first_fault
from training.errors import TrainingError

MOST_BEAMS = 64
MOST_THREADS = 1024
"""PyTorch crashes with too many."""
MOST_PIECES = 1_000_000
"""What trains a vocabulary makes room for all of them at once, or, with some 2 ** 31, never ends."""


def _named(path: object) -> object:
    if not isinstance(path, str | Path):
        raise ValueError(f"it is {path!r}, and no path; name one in quotes")
    if path == "":
        raise ValueError('it is empty; name a folder, "." for the one you are in, or a file')
    if "\0" in str(path):
        raise ValueError("it has a zero byte, which no path has; leave it out")
    return path


Named = Annotated[Path, BeforeValidator(_named)]
"""A file or folder, told by a path."""
Size = Annotated[int, Field(gt=0, le=1_048_576)]
"""Of a model's layers and tables."""
Layers = Annotated[int, Field(gt=0, le=1024)]
Count = Annotated[int, Field(gt=0, lt=2**31)]
"""Of steps, tokens and what else a run counts."""


class ParallelText(Frozen):
    """Two text files: line n of one is the translation of line n of the other."""

    source: Named
    target: Named


class Data(Frozen):
    """What is learnt from, and what is never learnt from."""

    train: tuple[ParallelText, ...] = Field(min_length=1)
    validation: ParallelText
    max_tokens: int = Field(default=256, gt=1, lt=2**31)
    """Longest source and longest target, the end token included."""
    too_long: Literal["refuse", "drop"] = "refuse"
    """What becomes of a training pair with a longer side. A validation pair is always refused."""
    max_unknown: float = Field(default=0.005, ge=0, le=1)
    """Largest share of a file's tokens that the vocabulary may not know."""


class Vocabulary(Frozen):
    """One SentencePiece vocabulary for both languages, trained on the training text."""

    source_language: Language
    """BCP-47 tag."""
    target_language: Language
    size: int = Field(default=8000, gt=2, le=MOST_PIECES)
    """Pieces, the end and the unknown token included."""
    character_coverage: float = Field(default=1.0, ge=0.98, le=1)
    """Share of the text's characters that get a piece. SentencePiece takes no less than 0.98."""


class TransformerShape(Frozen):
    """A Transformer with the norm after each sub-layer, sinusoidal positions and one table: what Marian has.

    Or, with the same layer at every depth, a universal one, which Marian has not.
    """

    architecture: Literal["transformer"] = "transformer"
    width: Size = 256
    encoder_layers: Layers = 6
    decoder_layers: Layers = 2
    heads: Size = 8
    ffn: Size = 1536
    activation: Activation = "relu"
    shared_layers: bool = False
    depth_signal: bool = False
    halting: bool = False
    max_positions: int = Field(default=512, gt=1)


class RecurrentShape(Frozen):
    """A recurrent encoder-decoder. `models.architectures.recurrent.config` says what its fields mean."""

    architecture: Literal["recurrent"]
    width: Size = 256
    encoder_layers: Layers = 1
    decoder_layers: Layers = 1
    cell: Cell = "gru"
    bidirectional: bool = True
    reverse_source: bool = False
    first_state: FirstState = "projected"
    score: Score = "additive"
    window: Count | None = None
    attends: Attends = "before"
    input_feeding: bool = False
    max_positions: int = Field(default=512, gt=1)


class PrefixShape(Frozen):
    """One stack for source and target. `models.architectures.prefix.config` says what its fields mean."""

    architecture: Literal["prefix"]
    width: Size = 256
    layers: Layers = 6
    heads: Size = 8
    ffn: Size = 1024
    source_mask: Mask = "both"
    activation: Activation = "gelu"
    max_positions: int = Field(default=512, gt=1)


Shape = Annotated[
    Annotated[TransformerShape, Tag("transformer")]
    | Annotated[RecurrentShape, Tag("recurrent")]
    | Annotated[PrefixShape, Tag("prefix")],
    BY_ARCHITECTURE,
]


class Start(Frozen):
    """A checkpoint to begin with, instead of random weights. Patterns are of parameter names, as in `encoder.*`."""

    checkpoint: Named
    reset: tuple[str, ...] = ()
    """Parameters that get random weights instead."""
    freeze: tuple[str, ...] = ()
    """Parameters that keep their values."""


class Batches(Frozen):
    """How much text an update of the weights sees."""

    tokens: Count = 4096
    """Most tokens of either side of a batch, padding included."""
    accumulate: Count = 1
    """Batches of each process whose gradients make one update."""


Beta = Annotated[float, Field(ge=0, lt=1)]


class Optimizer(Frozen):
    """The learning rate rises linearly, then falls with the inverse square root of the step."""

    kind: Literal["adamw", "muon"] = "adamw"
    """"muon": orthogonalised momentum for the layers' matrices, AdamW for all else."""
    peak_learning_rate: float = Field(default=1e-3, gt=0)
    warmup_steps: Count = 4000
    cooldown_steps: int = Field(default=0, ge=0, lt=2**31)
    """Last steps, over which the learning rate falls linearly to nothing."""
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    epsilon: float = Field(default=1e-9, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    clip_norm: float = Field(default=1.0, gt=0)
    """Largest norm of the gradient."""


class Training(Frozen):
    """What is minimised, for how long, and on what."""

    max_steps: Count
    """Updates of the weights."""
    processor_seconds: float | None = Field(default=None, gt=0)
    """Processor time of all processes after which training stops before `max_steps`, validations included."""
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    scheduled_sampling: float = Field(default=0.0, ge=0, le=1)
    """How often a recurrent decoder is fed a token of its own at the end; it rises linearly from never."""
    ponder_price: float = Field(default=0.01, ge=0)
    """What a depth costs beside a token's cross-entropy, where tokens halt (`halting`)."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """Of matrix products. "auto": bf16 where the device multiplies it natively."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = Field(default=None, gt=0, le=MOST_THREADS)
    """CPU threads. A run is repeatable to the bit with the same number."""


class Mixture(Frozen):
    """What one stack learns beside translation, with other masks (Dong et al. 2019): weights of the losses."""

    causal: float = Field(default=0.0, ge=0)
    """Of a language model of the targets."""
    cloze: float = Field(default=0.0, ge=0)
    """Of a cloze test on the sources."""
    hidden: float = Field(default=0.15, gt=0, lt=1)
    """Share of a source's tokens that it hides."""


class Validation(Frozen):
    """When the validation text is translated, and when training stops because it does not get better."""

    every_steps: Count = 1000
    sentences: int = Field(default=500, ge=0, lt=2**31)
    """The first of the validation text are translated for BLEU; 0: only the loss counts."""
    num_beams: int = Field(default=1, gt=0, le=MOST_BEAMS)
    patience: Count | None = None
    """Validations without a new best after which training stops."""
    enough: float | None = Field(default=None, gt=0, le=100)
    """BLEU of a validation after which training stops."""

    @model_validator(mode="after")
    def _translates(self) -> "Validation":
        if self.enough is not None and not self.sentences:
            raise ValueError("validation.enough is a BLEU, and validation.sentences is 0: have some translated")
        return self


class Checkpoints(Frozen):
    """What a run that was killed goes on from."""

    every_steps: Count = 500
    average: Count = 5
    """The last ones, which are kept, and whose mean is a candidate for the final model."""


class Distillation(Frozen):
    """A teacher whose logits are matched. The loss is the weighted sum of its parts, each a mean over target tokens."""

    teacher: Named
    """A checkpoint with the same vocabulary."""
    match: Literal["gram", "kl"] = "gram"
    """"gram": squared error of all logits, without computing them; needs the teacher's output table, frozen.
    "kl": Kullback-Leibler divergence of the next-token distributions."""
    logits: float = Field(default=1.0, ge=0)
    """Weight of the matched logits."""
    in_batch: float = Field(default=0.0, ge=0)
    """Weight of the divergence of the next-token distributions among the tokens that the batch's targets have."""
    hidden: float = Field(default=0.0, ge=0)
    """Weight of the squared error of the hidden states after each self-attention."""
    cross_entropy: float = Field(default=0.0, ge=0)
    """Weight of the target text itself."""
    notes: bool = False
    """Keep on disk what the teacher says in the first epoch, for the others. The encoder has to be frozen."""

    @model_validator(mode="after")
    def _learns(self) -> "Distillation":
        if not (self.logits or self.in_batch or self.hidden or self.cross_entropy):
            raise ValueError("logits, in_batch, hidden and cross_entropy are all 0: set one above 0")
        return self


class Run(Frozen):
    """What is the same whatever is learnt."""

    output: Named
    """Folder of everything that the run writes."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    batches: Batches = Batches()
    optimizer: Optimizer = Optimizer()
    training: Training
    validation: Validation = Validation()
    checkpoints: Checkpoints = Checkpoints()


class Experiment(Run):
    """All of it."""

    data: Data
    vocabulary: Vocabulary | None = None
    model: Shape | None = None
    start: Start | None = None
    mixture: Mixture | None = None
    distillation: Distillation | None = None

    @model_validator(mode="after")
    def _one_beginning(self) -> "Experiment":
        scratch, start = (self.vocabulary is not None, self.model is not None), self.start is not None
        if scratch != (not start, not start):
            raise ValueError("give either both [vocabulary] and [model], or [start]")
        if self.training.scheduled_sampling and not isinstance(self.model, RecurrentShape):
            raise ValueError('training.scheduled_sampling is for models of the architecture "recurrent"')
        halting = isinstance(self.model, TransformerShape) and self.model.halting
        if "ponder_price" in self.training.model_fields_set and not halting:
            raise ValueError("training.ponder_price is the price of depths where tokens halt: set model.halting too")
        if self.mixture is not None and not isinstance(self.model, PrefixShape):
            raise ValueError('[mixture] is for models of the architecture "prefix"')
        return self


R = TypeVar("R", bound=Run)


def read_experiment(file: Path, kind: type[R]) -> R:
    """Reads a TOML file. Raises TrainingError."""
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
        # As JSON, in which pydantic, being strict, takes lists for tuples and text for paths, and nothing for another.
        return kind.model_validate_json(json.dumps(told, default=str), strict=True)
    except OSError as error:
        raise TrainingError(f"{file} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise TrainingError(f"{file}: {first_fault(error)}. docs/training.md has every key") from error
    except (ValueError, RecursionError) as error:
        raise TrainingError(f"{file} is not TOML: {error}") from error
