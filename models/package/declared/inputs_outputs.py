"""What engines feed the graphs of a package and take of them, where no run may have shown yet that they fit.

Those that answer a package's probes when it is opened show the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from models.package import signature
from models.package.declared.attention import SelfAttention, TargetAttention
from models.package.declared.elements import FLOAT, INT32, INT64, NAMES, OF_NUMBERS
from models.package.declared.graphs import GraphFile, GraphsSpec, Logits, Scoring


@dataclass(frozen=True, slots=True)
class Columns:
    """Of an axis: any number of them for each of so many heads."""

    heads: int

    def __str__(self) -> str:
        return f"{self.heads} * n"


Axes = tuple[int | str | Columns, ...]
"""A word stands for any number."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output."""

    element: int
    """Its type, by the numbers of `elements`. 0: the graph does not say."""
    axes: Axes | None
    """None: the graph does not say."""

    def __str__(self) -> str:
        axes = "of any shape" if self.axes is None else f"[{', '.join(map(str, self.axes))}]"
        return f"{NAMES.get(self.element, f'elements of type {self.element}')} {axes}"

    def fits(self, other: "Tensor") -> bool:
        """As far as both say what they are."""
        if self.axes is not None and other.axes is not None and not alike(self.axes, other.axes):
            return False
        return 0 in (self.element, other.element) or self.element == other.element


def alike(found: Axes, declared: Axes) -> bool:
    """Whether they may be the same."""
    pairs = zip(found, declared, strict=False)
    return len(found) == len(declared) and all(_same(*pair) for pair in pairs)


def _same(found: int | str | Columns, declared: int | str | Columns) -> bool:
    if isinstance(found, int) and isinstance(declared, Columns):
        return found % declared.heads == 0
    return found == declared or isinstance(found, str) or isinstance(declared, str)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Of a graph."""

    graph: GraphFile
    gives: Mapping[str, Tensor]
    """It may give more."""
    takes: Mapping[str, Tensor] | None = None
    """All that it takes. None: probes show it."""


def wanted(spec: GraphsSpec) -> Iterator[Wanted]:
    """Of the graphs of a package, but of the native ones only of those that no probe asks."""
    yield _encoder(spec)
    if spec.decoder is not None:
        yield Wanted(spec.decoder, _of_decoder(spec))
    if spec.logits is not None and spec.logits.graph is not None:
        yield _logits(spec.logits, spec.logits.graph, spec)
    if spec.native is not None and spec.native.named is not None:
        takes = {signature.HIDDEN: _fp32("rows", spec.width), signature.NAMED_TOKENS: Tensor(INT64, ("rows", "named"))}
        yield Wanted(spec.native.named, {signature.LOGITS: _fp32("rows", "named")}, takes)
    if spec.scoring is not None:
        yield from _scoring(spec.scoring, spec.width)
    if spec.source_attention is not None:
        gives = {signature.ATTENTION: _fp32("sentences", "layers", "heads", "tokens", "tokens")}
        if spec.reads_on:
            gives[signature.STATES] = _fp32("sentences", "tokens", spec.width)
        yield Wanted(spec.source_attention, gives, _SOURCES)


_SOURCES = dict(zip(signature.ENCODER_INPUTS, (Tensor(INT64, ("s", "tokens")), Tensor(INT32, ("s",))), strict=True))


def _fp32(*axes: int | str | Columns) -> Tensor:
    return Tensor(FLOAT, axes)


def _encoder(spec: GraphsSpec) -> Wanted:
    hidden = Tensor(OF_NUMBERS[spec.precision.activations], ("sentences", "source", spec.width))
    return Wanted(spec.encoder, {spec.hidden: hidden} | _looks_within(spec.encoder_attention), _SOURCES)


def _of_decoder(spec: GraphsSpec) -> dict[str, Tensor]:
    number = OF_NUMBERS[spec.precision.activations]
    best = Tensor(INT64, ("rows", "k")), Tensor(FLOAT, ("rows", "k"))
    gives = dict(zip(signature.DECODER_OUTPUTS, best, strict=True))
    if spec.cross_query is not None:
        gives[spec.cross_query.name] = Tensor(number, ("rows", spec.query_numbers))
    elif spec.cross_scores is not None:
        gives[spec.cross_scores] = Tensor(number, ("rows", "source"))
    if spec.logits is not None and spec.output_layer == "full":
        gives[spec.logits.name] = Tensor(number, ("rows", spec.logits.size))
    return gives


def _logits(logits: Logits, graph: GraphFile, spec: GraphsSpec) -> Wanted:
    takes = {signature.HIDDEN: _fp32("rows", spec.width)}
    gives = {logits.name: _fp32("rows", "vocabulary")}
    if spec.output_layer == "screened":
        takes[signature.LOGITS_INPUTS[1]] = Tensor(INT64, ("k",))
        best = Tensor(INT64, ("rows", "k")), _fp32("rows", "k"), _fp32("rows", 1)
        gives |= dict(zip(signature.LOGITS_OUTPUTS[:3], best, strict=True))
    return Wanted(graph, gives, takes)


def _scoring(scoring: Scoring, width: int) -> Iterator[Wanted]:
    of_targets = (
        _fp32("sources", "source", width),
        Tensor(INT32, ("sources",)),
        Tensor(INT64, ("targets",)),
        Tensor(INT64, ("targets", "target")),
    )
    states = {signature.STATES: _fp32("targets", "target", width)}
    takes = dict(zip(signature.TARGET_INPUTS, of_targets, strict=True))
    yield Wanted(scoring.target, states | _looks(scoring.attention), takes)
    of_tokens = _fp32("tokens", width), Tensor(INT64, ("tokens",))
    takes = dict(zip(signature.LOG_PROBS_INPUTS, of_tokens, strict=True))
    yield Wanted(scoring.log_probs, {signature.LOG_PROBS: _fp32("tokens")}, takes)


def _looks(told: TargetAttention | None) -> dict[str, Tensor]:
    if told is None:
        return {}
    keys = dict.fromkeys(told.keys, _fp32("sources", told.heads, "source", "head_dim"))
    return (
        dict.fromkeys(told.queries, _fp32("targets", "target", Columns(told.heads))) | keys | _looks_within(told.within)
    )


def _looks_within(told: SelfAttention | None) -> dict[str, Tensor]:
    if told is None:
        return {}
    pairs = dict.fromkeys(chain.from_iterable(told.layers), _fp32("texts", "tokens", Columns(told.heads)))
    return pairs | dict.fromkeys(told.biases, _fp32(1, told.heads, "tokens", "tokens"))
