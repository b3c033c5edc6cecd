"""Folders of sentence-transformers: an encoder, and in modules.json what becomes of its hidden states.

Of a CrossEncoder, the last Dense gives "scores": a head, which gives labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from models.checkpoint.classifiers import HeadConfig
from models.checkpoint.contents import CheckpointError
from models.checkpoint.files.dense import SCORES_FILE, take_dense
from models.checkpoint.files.reading import JsonKeys, invalid, parse, read_json, read_json_list
from models.checkpoint.files.weights import find_weights, read_weights
from models.encoding import EncodingDefaults, Pooling
from models.encoding.classifier import Classifier, ClassifierSpec
from models.encoding.dense import Dense, DenseActivation, DenseSpec

MODES = {
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_max_tokens": Pooling.MAX,
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_mean_sqrt_len_tokens": Pooling.SUM_SQRT,
    "pooling_mode_weightedmean_tokens": Pooling.WEIGHTED_MEAN,
    "pooling_mode_lasttoken": Pooling.LAST,
}
"""In the order in which sentence-transformers joins their vectors."""
NAMES = {"cls": Pooling.CLS, "max": Pooling.MAX, "mean": Pooling.MEAN, "mean_sqrt_len_tokens": Pooling.SUM_SQRT}
NAMES |= {"weightedmean": Pooling.WEIGHTED_MEAN, "lasttoken": Pooling.LAST}
NAMES |= {own: Pooling(own) for own in ("sum", "concat", "attention")}
"""Of `pooling_mode`, where there are no flags. The last three are of our training, not of sentence-transformers."""
SCORES = "scores"
"""The output of a head."""
SETTINGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Where the Transformer's own settings are: the first of these that there is. Older folders have other than the first.
"""

ACTIVATIONS: dict[str, DenseActivation] = {"Identity": "identity", "Tanh": "tanh", "ReLU": "relu"}


class Module(JsonKeys):
    """A module, in the order in which they run."""

    path: str
    type: str

    @property
    def name(self) -> str:
        """The class alone: the packages that it was in are many."""
        return self.type.rpartition(".")[2]


class DenseSettings(JsonKeys):
    """What the config.json of a Dense module says."""

    in_features: int = Field(gt=0)
    out_features: int = Field(gt=0)
    bias: bool = True
    activation_function: Literal[
        "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh", "torch.nn.modules.activation.ReLU"
    ] = "torch.nn.modules.activation.Tanh"
    module_input_name: Literal["sentence_embedding"] = "sentence_embedding"
    module_output_name: Literal["sentence_embedding", "scores", None] = None
    use_residual: Literal[False] = False

    @property
    def activation(self) -> DenseActivation:
        """As packages call it."""
        return ACTIVATIONS[self.activation_function.rpartition(".")[2]]


class PoolingSettings(JsonKeys):
    """What the config.json of a Pooling with weights of its own says of them."""

    embedding_dimension: int = Field(gt=0)


class TransformerSettings(JsonKeys):
    """What sentence_bert_config.json says, or the file that stands for it: see `settings_file`."""

    max_seq_length: int | None = Field(default=None, gt=1)
    do_lower_case: bool = False
    transformer_task: Literal["feature-extraction", "sequence-classification"] = "feature-extraction"


class TokenizerSettings(JsonKeys):
    """What tokenizer_config.json says of the longest text, where `max_seq_length` is not said."""

    model_max_length: float | None = Field(default=None, gt=1)
    """Some have 1e30 for none at all."""


class ModelSettings(JsonKeys):
    """What config_sentence_transformers.json says."""

    prompts: dict[str, str] = Field(default_factory=dict)
    default_prompt_name: str | None = None
    truncate_dim: int | None = None


@dataclass(frozen=True)
class Sentences:
    """What such a folder says of vectors."""

    folder: Path
    """Of the encoder."""
    encoding: EncodingDefaults
    dense: tuple[Dense, ...] = ()
    """Of the encoding."""
    longest: float = inf
    """Most tokens of a text, where the encoding does not say. The model may have fewer positions."""
    scores: Dense | None = None
    """Of the encoding."""
    classifier: Classifier | None = None
    """Of a CrossEncoder."""
    lower_cases: bool = False
    """Texts become lower case before the tokenizer sees them."""


def read_sentences(folder: Path) -> Sentences:
    """Raises CheckpointError for other modules than a Transformer, Pooling, Dense and Normalize, in this order.

    A folder of an encoder alone has the mean of its hidden states, as in sentence-transformers, and so has a
    CrossEncoder whose one module is a model that labels texts.
    """
    file = folder / "modules.json"
    if not file.exists():
        return Sentences(folder, EncodingDefaults())
    modules = read_modules(folder)
    names = [module.name for module in modules]
    inner = folder / modules[0].path if modules else folder
    settings = _optional(TransformerSettings, settings_file(inner))
    longest = _optional(TokenizerSettings, inner / "tokenizer_config.json").model_max_length or inf
    if names == ["Transformer"] and settings.transformer_task == "sequence-classification":
        encoding = EncodingDefaults(max_tokens=settings.max_seq_length)
        return Sentences(inner, encoding, longest=longest, lower_cases=settings.do_lower_case)
    normalize = names[-1:] == ["Normalize"]
    between = modules[2 : len(modules) - normalize]
    if names[:2] != ["Transformer", "Pooling"] or any(module.name != "Dense" for module in between):
        raise CheckpointError(
            f"{file}: the modules are {', '.join(names) or 'none'}; expected Transformer, Pooling and perhaps Dense "
            "and Normalize"
        )
    pooling = folder / modules[1].path / "config.json"
    model = read_model_settings(folder)
    prompts = {name: prompt for name, prompt in model.prompts.items() if prompt}
    poolings = read_poolings(read_json(pooling), pooling)
    scores = read_scores(pooling.parent) if Pooling.ATTENTION in poolings else None
    layers = [read_dense(folder / module.path, f"dense.{index}.npy") for index, module in enumerate(between)]
    classifier, heads = None, [is_head(folder / module.path) for module in between]
    if any(heads[:-1]):
        raise CheckpointError(f"{file}: a Dense before the last one gives scores; expected the last one alone")
    if any(heads):
        classifier = read_head(inner, pooling.parent, poolings, layers, scores)
        poolings, layers = EncodingDefaults().poolings, []
    try:
        encoding = EncodingDefaults(
            poolings=poolings,
            dimensions=model.truncate_dim,
            dense=tuple(spec for spec, _ in layers),
            scores=scores and scores[0],
            normalize=normalize,
            prompts=prompts,
            prompt=model.default_prompt_name if model.default_prompt_name in prompts else None,
            max_tokens=settings.max_seq_length,
        )
    except ValidationError as error:
        raise invalid(error, folder) from error
    dense = tuple(dense for _, dense in layers)
    return Sentences(inner, encoding, dense, longest, scores and scores[1], classifier, settings.do_lower_case)


def read_model_settings(folder: Path) -> ModelSettings:
    """Those of the whole. Raises CheckpointError."""
    file = folder / "config_sentence_transformers.json"
    model = _optional(ModelSettings, file)
    name = model.default_prompt_name
    if name is not None and name not in model.prompts:
        known = ", ".join(model.prompts) or "none"
        raise CheckpointError(f"{file}: default_prompt_name is {name!r}; the prompts are {known}")
    return model


def settings_file(folder: Path) -> Path:
    """Of a Transformer's folder. It need not be there."""
    return next((folder / name for name in SETTINGS if (folder / name).exists()), folder / SETTINGS[0])


def read_modules(folder: Path) -> list[Module]:
    """What modules.json names. Raises CheckpointError."""
    file = folder / "modules.json"
    return [parse(Module, content, file) for content in read_json_list(file)]


def is_head(folder: Path) -> bool:
    """Whether a Dense module gives scores."""
    return parse(DenseSettings, read_json(folder / "config.json"), folder / "config.json").module_output_name == SCORES


def read_head(
    encoder: Path,
    pooling: Path,
    poolings: tuple[Pooling, ...],
    layers: Sequence[tuple[DenseSpec, Dense]],
    scores: tuple[DenseSpec, Dense] | None,
) -> Classifier:
    """Poolings and layers up to the scores of labels, which the encoder's config.json names. Raises CheckpointError."""
    names = parse(HeadConfig, read_json(encoder / "config.json"), encoder / "config.json").labels
    last, _ = layers[-1]
    try:
        spec = ClassifierSpec(
            of="text",
            poolings=poolings,
            scores=scores and scores[0],
            dense=tuple(spec for spec, _ in layers),
            labels=tuple(names.get(str(number), f"LABEL_{number}") for number in range(last.outputs)),
            independent=last.outputs == 1,  # as sentence-transformers has it
        )
    except ValidationError as error:
        raise invalid(error, pooling) from error
    return Classifier(spec, tuple(dense for _, dense in (*layers, *([scores] if scores else []))))


def read_scores(folder: Path) -> tuple[DenseSpec, Dense]:
    """What scores a hidden state, of a Pooling with "attention". Raises CheckpointError."""
    width = parse(PoolingSettings, read_json(folder / "config.json"), folder / "config.json").embedding_dimension
    tensors = read_weights(find_weights(folder))
    found = take_dense(tensors, "linear", (width, 1), "identity", SCORES_FILE, "linear.bias" in tensors)
    if tensors.left:
        raise CheckpointError(f"{tensors.file}: a Pooling with attention has no tensor {tensors.left[0]}")
    return found


def read_dense(folder: Path, name: str) -> tuple[DenseSpec, Dense]:
    """A Dense module, and what a package says of it by this file name. Raises CheckpointError."""
    settings = parse(DenseSettings, read_json(folder / "config.json"), folder / "config.json")
    tensors = read_weights(find_weights(folder))
    size = settings.in_features, settings.out_features
    found = take_dense(tensors, "linear", size, settings.activation, name, settings.bias)
    if tensors.left:
        raise CheckpointError(f"{tensors.file}: a Dense module has no tensor {tensors.left[0]}")
    return found


def read_poolings(content: dict[str, Any], file: Path) -> tuple[Pooling, ...]:
    """Those that `pooling_mode` names, or else those whose flags are on. Raises CheckpointError."""
    if content.get("include_prompt", True) is not True:
        raise CheckpointError(f"{file}: include_prompt is {content['include_prompt']!r}; expected true")
    unknown = [key for key, on in content.items() if key.startswith("pooling_mode_") and on and key not in MODES]
    if unknown:
        raise CheckpointError(f"{file}: {unknown[0]} is true; supported: {', '.join(MODES)}")
    mode = content.get("pooling_mode")
    named = mode if isinstance(mode, list) else [] if mode is None else [mode]
    if any(not isinstance(name, str) or name not in NAMES for name in named):
        raise CheckpointError(f"{file}: pooling_mode is {mode!r}; supported: {', '.join(NAMES)}")
    on = tuple(NAMES[name] for name in named) or tuple(pooling for key, pooling in MODES.items() if content.get(key))
    if not on:
        raise CheckpointError(f"{file}: no pooling of {', '.join(MODES)} is on; pooling_mode is {mode!r}")
    return on


S = TypeVar("S", bound=JsonKeys)


def _optional(settings: type[S], file: Path) -> S:
    return parse(settings, read_json(file) if file.exists() else {}, file)
