"""Translates with the engine that serves: export's graphs, the runner, the search."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import nn

from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.offline import decode
from engine.request import FinishReason
from engine.runner import Runner
from engine.targets import TargetRules, language_rules
from export.tracing.trace import trace
from export.tracing.variant import attention_of
from export.weights.save import save
from export.weights.sinusoids import leave_out_sinusoids
from models.architectures.architecture import Architecture
from models.decoding import Decoding
from models.package.folder import Package
from models.package.manifest import GenerationDefaults
from models.tokenizers.tokenizer import Tokenizer

ROWS = 32
"""Hypotheses that each worker decodes at a time."""


@dataclass(frozen=True)
class TargetLimits:
    """How targets are searched for."""

    num_beams: int = 1
    growth: float = 2.0
    """Most target tokens for each source token: a model that has learnt nothing yet would never end."""
    allowance: int = 10
    """Tokens that every target may have besides."""


@dataclass(frozen=True)
class Translated:
    """A target."""

    text: str
    tokens: int
    complete: bool
    """It ended by itself."""


class Translating:
    """A loaded model that translates. Use `open_package` or `TracedModel.open`."""

    def __init__(
        self, runner: Runner, rules: TargetRules, tokenizer: Tokenizer, max_tokens: int, limits: TargetLimits
    ) -> None:
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        """Of a source, and of a target."""
        self._runner, self._rules, self._limits = runner, rules, limits

    def translate(self, sources: Iterable[Sequence[int]]) -> Iterator[Translated]:
        """The translations of token ids, in their order."""
        asked = ((tuple(source), self._decoding(len(source))) for source in sources)
        for answer in decode(self._runner, self._rules, asked):
            best = answer.hypotheses[0]
            text = self.tokenizer.decode(best.token_ids)
            yield Translated(text, len(best.token_ids), best.finish_reason is FinishReason.END_TOKEN)

    def _decoding(self, source_tokens: int) -> Decoding:
        longest = int(self._limits.growth * source_tokens) + self._limits.allowance
        return Decoding(
            num_beams=self._limits.num_beams,
            num_return_sequences=1,
            max_new_tokens=min(longest, self.max_tokens),
            length_penalty=1.0,
            early_stopping=False,
        )


@contextmanager
def open_translating(
    model: Loadable, tokenizer: Tokenizer, limits: TargetLimits, told: TargetRules | None = None
) -> Iterator[Translating]:
    """Starts a worker on every core. Targets end as the model ends them: no end is forced.

    told: the rules of targets in the language that the decoder is told, if it is told one
    """
    rules = replace(told or model.rules, forced_end_id=None)
    with load(model, CPU, Limits(rows=max(ROWS, limits.num_beams))) as runner:
        yield Translating(runner, rules, tokenizer, model.graphs.spec.max_positions, limits)


class TracedModel:
    """A model under training as graphs. Tracing takes ten seconds; then new weights go into the same graphs."""

    def __init__(self, model: Architecture, tokenizer: Tokenizer) -> None:
        """Traces a copy. `model` may be on any device, and goes on training."""
        self._tokenizer = tokenizer
        traced = deepcopy(model).cpu()
        trained = {name: parameter for name, parameter in traced.named_parameters() if parameter.requires_grad}
        with torch.no_grad():
            for parameter in trained.values():  # of two that are equal now the exporter would make one constant
                parameter.normal_()
        self._trace(traced)
        self._places = [(value, constant, _place(value, traced)) for value, constant in self._constants]
        found = {name for *_, place in self._places if place is not None for name in place.names}
        self._is_whole = found.issuperset(trained)

    @contextmanager
    def open(self, model: Architecture, limits: TargetLimits) -> Iterator[Translating]:
        """The model as it is now."""
        generation = GenerationDefaults(max_new_tokens=model.config.max_positions)
        with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
            if self._is_whole:
                self._fill(model)
            else:  # the exporter has computed with some weights, and what it has made of them is all that is there
                self._trace(deepcopy(model).cpu())
            loadable = Loadable(save(self._graphs, Path(folder)), generation)
            with open_translating(loadable, self._tokenizer, limits) as translating:
                yield translating

    def _trace(self, model: Architecture) -> None:
        self._graphs = trace(model, attention_of(model.config))
        models = (self._graphs.encoder, self._graphs.decoder)
        for traced in models:  # before constants are noted: it brings some, and saving moves all into a file
            leave_out_sinusoids(traced)
        self._constants = [(value, value.const_value) for one in models for value in one.graph.initializers.values()]

    def _fill(self, model: Architecture) -> None:
        """Puts the weights in. Saving has replaced the other constants."""
        parameters = dict(model.named_parameters(remove_duplicate=False))
        for value, constant, place in self._places:
            value.const_value = (
                constant if place is None else ir.tensor(place.numbers(parameters), name=value.name or "")
            )


@dataclass(frozen=True)
class _Place:
    """Where a weight is in a graph."""

    names: Sequence[str]
    """The weight's in the model. It has several where it is tied."""
    turned: bool
    """[inputs, outputs]: the exporter has done that for a product without a bias."""

    def numbers(self, parameters: Mapping[str, nn.Parameter]) -> NDArray[Any]:
        weight = parameters[self.names[0]].detach().cpu()
        numbers: NDArray[Any] = (weight.T.contiguous() if self.turned else weight).numpy()
        return numbers


def _place(value: ir.Value, model: Architecture) -> _Place | None:
    """Of a constant of a traced model; None, if it is no weight. The exporter names most as the model does."""
    weights = dict(model.named_parameters(remove_duplicate=False))
    named = weights.get((value.name or "").removeprefix("model."))
    if named is not None:
        return _Place([name for name, weight in weights.items() if weight is named], turned=False)
    assert value.const_value is not None
    numbers = value.const_value.numpy()
    for name, weight in weights.items():
        if weight.dim() == 2 and numbers.shape == weight.T.shape and (numbers == weight.detach().T.numpy()).all():
            return _Place([name], turned=True)
    return None


def open_package(package: Package, limits: TargetLimits) -> AbstractContextManager[Translating]:
    """An exported model, whose targets are in its first language."""
    model = Loadable.of(package)
    told = language_rules(model.rules, package.manifest.languages)
    return open_translating(model, package.tokenizer(), limits, next(iter(told.values()), None))
