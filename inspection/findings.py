"""What there is to show of a text: the package is run as a server runs it."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.decoder import Decoder
from engine.devices.session import CPU
from engine.errors import NotOffered
from engine.loading.load import Loadable, open_decoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import Hypothesis
from engine.runner import Runner
from engine.targets import TargetRules, language_rules
from inspection.given import look
from inspection.recorded import RecordedDecoder, Step
from inspection.tree import Node, best_path, grow
from models.decoding import Decoding, OutOfRange, check
from models.encoding.classifier import Label
from models.languages.tags import choose
from models.package.declared.graphs import GraphsSpec
from models.package.folder import Package
from models.tokenizers.tokenizer import NOWHERE, Tokenizer

END, NO_TEXT, SPACE = "∎", "·", "␣"
"""What stands for the token that ends a text, for another one without text, and for a space."""


MOST_BEAMS = 64


class InspectionError(Exception):
    """What was asked cannot be shown. The message says why, and what can."""


@dataclass(frozen=True)
class Wanted:
    """What is asked of a package."""

    text: str
    source_language: str = ""
    target_language: str = ""
    beams: int = 4
    alternatives: int = 8
    """Next tokens that are shown of each step."""
    max_new_tokens: int | None = None
    """None: the package's own."""
    length_penalty: float | None = None


class Classified(NamedTuple):
    """What a classifier says."""

    of: str
    """A token, or the text."""
    label: Label


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Of one text. What only a decoder has is empty or None of an encoder alone."""

    package: Package
    wanted: Wanted
    source: Sequence[str]
    """The text of each source token."""
    hidden: NDArray[np.float32]
    """The encoder's last hidden states [tokens, width]."""
    source_attention: NDArray[np.float32] | None
    """Where the source looks in itself [layers, heads, source, source]. None: the package does not tell."""
    classified: Sequence[Classified] = ()
    labels: Sequence[str] = ()
    """Of every target token, by its id."""
    target_attention: NDArray[np.float32] | None = None
    """Where the best hypothesis looks in the source [layers, heads, target, source]; of one stack, in the source and in
    what was fed behind it [layers, heads, target, source + fed - 1]; of a package that tells it step by step, the last
    layer and the mean of its heads. None: the package does not tell."""
    looking_back: NDArray[np.float32] | None = None
    """Where it looks in what was fed before [layers, heads, target, fed]. None: as above, or it is one stack."""
    states: NDArray[np.float32] | None = None
    """Of the step that chose each of its tokens, after the decoder's last layer [target, width]. None: as above."""
    cells: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """The states of a recurrent decoder's cells after those steps [steps, width], by name."""
    fed: Sequence[str] = ()
    """The text of what is fed for the best hypothesis: what begins it, and all of its tokens but the last one."""
    hypotheses: Sequence[Hypothesis] = ()
    """What the search gave, best first."""
    texts: Sequence[str] = ()
    """Of the hypotheses."""
    root: Node | None = None
    """Of the tree of the search."""
    steps: Sequence[Step] = ()

    @property
    def tree(self) -> Node:
        """The root, of a package with a decoder."""
        assert self.root is not None
        return self.root

    @property
    def seen(self) -> list[str]:
        """The text of each token that `target_attention` is about: of one stack, what was fed before too."""
        assert self.target_attention is not None
        return [*self.source, *self.fed[1:]][: self.target_attention.shape[3]]

    @property
    def target(self) -> list[str]:
        """The text of each token of the best hypothesis."""
        return [self.labels[token] for token in self.hypotheses[0].token_ids]


def inspect_search(package: Package, wanted: Wanted) -> Findings:
    """Of a package with a decoder. Raises PackageError, TokenizerError, DeviceError, EngineError, InspectionError."""
    spec, tokenizer, model = package.manifest.graphs, package.tokenizer(), Loadable.of(package)
    wanted = _in_its_languages(package, wanted)
    rules, decoding = _rules(package, model, wanted), _decoding(model, wanted)
    source_ids = tokens_of(tokenizer, wanted, spec)
    rules = rules.after(source_ids)
    decoder = open_decoder(model, CPU)
    at_once = decoder.given_targets.attends or spec.reads_on
    step_by_step = not at_once and bool(spec.cross_query or spec.cross_scores)
    wanted = replace(wanted, alternatives=min(wanted.alternatives, spec.most_candidates))
    recorded = RecordedDecoder(decoder, wanted.alternatives, step_by_step)
    with closing(decoder):
        with Runner(recorded, wanted.beams, 1, Unobserved()) as runner:
            [answer] = decode(runner, rules, [(source_ids, decoding)])
        hidden: NDArray[np.float32] = decoder.encode([source_ids])[0].hidden().copy()
        given = look(decoder.given_targets, source_ids, hidden, rules.prefix_ids, answer.hypotheses[0].token_ids)
        of_source = _of_source(decoder, source_ids)
    root = grow(recorded.steps, len(rules.prefix_ids), answer.hypotheses)
    labels = _target_labels(tokenizer, spec)
    return Findings(
        package=package,
        wanted=wanted,
        source=source_labels(tokenizer, wanted, source_ids[-1] == spec.vocabulary.end_id),
        labels=labels,
        hidden=hidden,
        source_attention=of_source,
        target_attention=given.attention if at_once else _by_steps(root, recorded.steps, len(source_ids)),
        looking_back=given.back,
        states=given.states,
        cells=_cells(root, recorded.steps),
        fed=[labels[token] for token in (*rules.prefix_ids, *answer.hypotheses[0].token_ids[:-1])],
        hypotheses=answer.hypotheses,
        texts=[tokenizer.decode(one.token_ids) for one in answer.hypotheses],
        root=root,
        steps=recorded.steps,
    )


def _in_its_languages(package: Package, wanted: Wanted) -> Wanted:
    """The same, by the package's own tags. Raises InspectionError for a language that it does not have."""
    manifest, source, target = package.manifest, wanted.source_language, wanted.target_language
    found = choose(source, manifest.source_languages), choose(target, manifest.target_languages)
    if source and found[0] is None:
        raise InspectionError(f"the source language is {source}; there are {', '.join(manifest.source_languages)}")
    if (target or manifest.languages) and found[1] is None:
        there = ", ".join(manifest.target_languages)
        raise InspectionError(f"the target language is {target or 'not given'}; there are {there}")
    return replace(wanted, source_language=found[0] or "", target_language=found[1] or "")


def _rules(package: Package, model: Loadable, wanted: Wanted) -> TargetRules:
    return language_rules(model.rules, package.manifest.languages).get(wanted.target_language, model.rules)


def _decoding(model: Loadable, wanted: Wanted) -> Decoding:
    """The package's own, but for the search. Raises InspectionError for what no search has."""
    own, spec = model.generation.decoding(), model.graphs.spec
    most = min(own.max_new_tokens, spec.max_positions)
    decoding = replace(
        own,
        num_beams=wanted.beams,
        num_return_sequences=wanted.beams,
        num_beam_groups=1,
        max_new_tokens=wanted.max_new_tokens or most,
        min_new_tokens=min(own.min_new_tokens, wanted.max_new_tokens or most),
        length_penalty=own.length_penalty if wanted.length_penalty is None else wanted.length_penalty,
        coverage_penalty=0.0,
        do_sample=False,
        return_alternatives=False,
        mbr_samples=0,
        with_tokens=True,
    )
    limits = {"max_beams": MOST_BEAMS, "max_samples": MOST_BEAMS, "max_new_tokens": spec.max_positions}
    try:
        check(decoding, limits | {"vocabulary_size": spec.vocabulary.target_size})
    except OutOfRange as error:
        raise InspectionError(str(error)) from error
    return decoding


def _of_source(decoder: Decoder[Any], source_ids: Sequence[int]) -> NDArray[np.float32] | None:
    """Where the source looks in itself. None: the package does not tell."""
    try:
        return decoder.given_targets.source_attention(source_ids)
    except NotOffered:
        return None


def _by_steps(root: Node, steps: Sequence[Step], source: int) -> NDArray[np.float32] | None:
    """The alignment of the best hypothesis, as one layer of one head: what each step said that chose a token."""
    rows = [step.attention[row, :source] for step, row in _choosing(root, steps) if step.attention is not None]
    return np.stack(rows)[None, None] if rows else None


def _cells(root: Node, steps: Sequence[Step]) -> dict[str, NDArray[np.float32]]:
    """What the cells of the best hypothesis kept after each step that chose a token of it."""
    chosen = _choosing(root, steps)
    names = chosen[0][0].states if chosen else ()
    return {name: np.stack([step.states[name][row] for step, row in chosen]) for name in names}


def _choosing(root: Node, steps: Sequence[Step]) -> list[tuple[Step, int]]:
    """The steps that chose the tokens of the best hypothesis, and its row in each; of a forced token there is none."""
    parents = [node.parent for node in best_path(root) if node.parent is not None]
    return [(steps[parent.step], parent.row) for parent in parents if parent.step is not None]


def tokens_of(tokenizer: Tokenizer, wanted: Wanted, spec: GraphsSpec) -> tuple[int, ...]:
    """Those of the text. Raises InspectionError where the model reads nothing of it, or not so many."""
    source_ids = tuple(tokenizer.encode(wanted.text, wanted.target_language, wanted.source_language))
    if not source_ids:
        raise InspectionError("the text has no tokens; give one that the model has something to read of")
    if len(source_ids) > spec.max_positions:
        raise InspectionError(f"the text has {len(source_ids)} tokens; the model takes {spec.max_positions}")
    return source_ids


def source_labels(tokenizer: Tokenizer, wanted: Wanted, ends: bool) -> list[str]:
    """The text of each source token. ends: the last one is that which ends a text."""
    spans = tokenizer.spans(wanted.text, wanted.target_language, wanted.source_language)
    labels = [NO_TEXT if span == NOWHERE else wanted.text[slice(*span)] for span in spans]
    return [*labels[:-1], END] if ends else labels


def _target_labels(tokenizer: Tokenizer, spec: GraphsSpec) -> list[str]:
    texts = [piece.decode("utf-8", "backslashreplace") for piece in tokenizer.pieces()]
    texts += [""] * (spec.vocabulary.target_size - len(texts))
    labels = [text.replace(" ", SPACE) or f"<{token}>" for token, text in enumerate(texts)]
    labels[spec.vocabulary.end_id] = END
    return labels
