"""Whole requests over native graphs: the tokens of the standard ones, whatever happens beside them."""

import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch

from engine.batch.running_batch import RunningBatch
from engine.decoder import Ask, Decoder
from engine.devices.session import CPU
from engine.errors import NotFinite, NotOffered
from engine.loading.load import Kernels, Limits, Loadable, load
from engine.native.named import NamedTokens
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import Event, Failed, Finished, Hypothesis, Translate
from kernels.library import Library
from models.config import ModelConfig
from models.decoding import Decoding
from models.package.declared.graphs import GraphFile, Logits
from models.transformer import Transformer
from tests.engine.logits import test_whole_rows
from tests.engine.native.graphs import (
    LONGEST,
    POST,
    PRE,
    RECURRENT,
    Exported,
    export,
    export_narrow,
    export_random,
    export_standard,
)
from tests.fakes import WAIT_S
from tests.models.test_transformer import random_model

pytestmark = pytest.mark.timeout(300)

ROWS = 12
SHAPES = {"post-norm": POST, "pre-norm": PRE, "recurrent": RECURRENT}
GREEDY, BEAMS = Decoding(max_new_tokens=30), Decoding(num_beams=4, num_return_sequences=4, max_new_tokens=30)
SCORE_ATOL = 4e-3
"""Of a mean log-probability: the sum of each row is estimated."""

Tokens = tuple[int, ...]
Answer = tuple[Hypothesis, ...]


def random_sources(shape: ModelConfig, count: int) -> list[Tokens]:
    chance = random.Random(count)
    lengths = [chance.randint(1, 40) for _ in range(count)]
    return [tuple(chance.choices(range(3, shape.source_vocab_size - 3), k=length)) for length in lengths]


def answers(
    model: Loadable, sources: Sequence[Tokens], decoding: Decoding, kernels: Kernels, workers: int
) -> list[Answer]:
    with load(model, CPU, Limits(ROWS, workers, LONGEST, 40), kernels=kernels) as runner:
        found = decode(runner, model.rules, [(source, decoding) for source in sources])
        return [answer.hypotheses for answer in found]


@pytest.fixture(scope="module", params=SHAPES)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export_random(tmp_path_factory.mktemp("graphs"), SHAPES[request.param])


@pytest.mark.parametrize("decoding", [GREEDY, BEAMS], ids=["greedy", "beams"])
def test_hypotheses_are_those_of_the_standard_graphs(exported: Exported, library: Library, decoding: Decoding) -> None:
    sources, model = random_sources(exported.model.config, 20), exported.loadable()
    expected = answers(model, sources, decoding, "off", workers=1)
    found = answers(model, sources, decoding, "required", workers=2)
    for ours, theirs in zip(found, expected, strict=True):
        if decoding is GREEDY:  # beams of random weights are nearly equal, and their sums are estimated
            assert [one.token_ids for one in ours] == [one.token_ids for one in theirs]
        np.testing.assert_allclose([one.score for one in ours], [one.score for one in theirs], atol=SCORE_ATOL)


class Guests:
    """A running batch, and requests that come and go."""

    def __init__(self, decoder: Decoder[Any], model: Loadable, rows: int = ROWS) -> None:
        self.rules = model.rules
        self.batch = RunningBatch(decoder, rows, Unobserved(), worker=0)

    def admit(self, sources: Sequence[Tokens], decoding: Decoding = GREEDY) -> list[tuple[Translate, list[Event]]]:
        told: list[list[Event]] = [[] for _ in sources]
        requests = [
            Translate(source, events.append, decoding=decoding, rules=self.rules)
            for source, events in zip(sources, told, strict=True)
        ]
        self.batch.admit(requests)
        return list(zip(requests, told, strict=True))

    def finish(self) -> None:
        while not self.batch.idle:
            self.batch.step()
        self.batch.answers.deliver()


def hypotheses(events: Sequence[Event]) -> Answer:
    [event] = events
    assert isinstance(event, Finished), event
    return event.hypotheses


@pytest.mark.parametrize("quantized", [False, True])
def test_who_joins_and_leaves_changes_no_bit(library: Library, tmp_path: Path, quantized: bool) -> None:
    check_answers_alone_and_together(export_random(tmp_path, POST, quantized), library)


def test_nor_do_numbers_beyond_their_static_range_and_they_are_counted(library: Library, tmp_path: Path) -> None:
    before = library.counters().saturated
    check_answers_alone_and_together(export_narrow(tmp_path, POST), library)
    assert library.counters().saturated > before + 1000


def check_answers_alone_and_together(exported: Exported, library: Library) -> None:
    """Callers come and go by chance; some of them leave before their answer."""
    sources, decoder = random_sources(POST, 30), exported.native(library)
    alone = []
    for source in sources:
        guests = Guests(decoder, exported.loadable())
        [(_, events)] = guests.admit([source])
        guests.finish()
        alone.append(hypotheses(events))
    guests, chance, waiting = Guests(decoder, exported.loadable()), random.Random(3), list(enumerate(sources))
    inside: list[tuple[int, Translate]] = []
    answered: dict[int, list[Event]] = {}
    while waiting or not guests.batch.idle:
        joining = waiting[: min(guests.batch.free_rows, chance.randint(0, 4))]
        waiting = waiting[len(joining) :]
        for (index, _), (request, events) in zip(joining, guests.admit([one for _, one in joining]), strict=True):
            inside.append((index, request))
            answered[index] = events
        if inside and chance.random() < 0.1:
            index, request = inside.pop(chance.randrange(len(inside)))
            if not answered[index]:
                request.cancel()
                del answered[index]
        guests.batch.step()
    guests.batch.answers.deliver()
    assert 15 < len(answered) < len(sources)
    for index, events in answered.items():
        assert hypotheses(events) == alone[index]


@cache
def broken_model(token: int) -> Transformer:
    """No number of this source token is one."""
    model = random_model(PRE)
    with torch.no_grad():
        model.source_embedding[token] = torch.nan
    return model


@pytest.mark.parametrize("decoding", [GREEDY, BEAMS], ids=["greedy", "beams"])
@pytest.mark.parametrize("graphs", ["standard", "standard, 8 bits", "native", "native, 8 bits"])
def test_numbers_that_are_not_finite_fail_their_request_alone(
    library: Library, tmp_path: Path, graphs: str, decoding: Decoding
) -> None:
    if graphs == "standard, 8 bits":
        exported = export_standard(tmp_path, broken_model(9))
    else:
        exported = export(tmp_path, broken_model(9), quantized=graphs == "native, 8 bits")
    decoder: Decoder[Any] = exported.native(library) if graphs.startswith("native") else exported.standard
    sources: list[Tokens] = [(3, 1, 4, 1), (5, 9, 2), (6, 5, 3, 5, 8)]
    expected = []
    for source in (sources[0], sources[2]):
        guests = Guests(decoder, exported.loadable())
        [(_, events)] = guests.admit([source], decoding)
        guests.finish()
        expected.append(hypotheses(events))
    guests = Guests(decoder, exported.loadable())
    for _ in range(2):  # the second time in slots that held what is not finite
        told = [events for _, events in guests.admit(sources, decoding)]
        guests.finish()
        [failed] = told[1]
        assert isinstance(failed, Failed) and isinstance(failed.error, NotFinite)
        assert [hypotheses(told[0]), hypotheses(told[2])] == expected


def with_logits(exported: Exported, folder: Path) -> Exported:
    """Its package, with a graph for whole rows: standard operators over the model's own weights."""
    model, size = exported.model, exported.model.config.target_vocab_size
    weight, bias = (part.detach()[:size].numpy() for part in (model.output_weight, model.output_bias))
    hidden = ir.val("hidden", ir.DataType.FLOAT, ["rows", model.config.width])
    constants = [ir.Value(name=name, const_value=ir.tensor(array)) for name, array in (("w", weight), ("b", bias))]
    node = ir.node("Gemm", [hidden, *constants], {"transB": 1})
    node.outputs[0].name = "logits"
    node.outputs[0].shape, node.outputs[0].type = ir.Shape(["rows", size]), ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        [hidden], node.outputs, nodes=[node], initializers=constants, opset_imports={"": 21}, name="logits"
    )
    ir.save(ir.Model(graph, ir_version=10), folder / "logits.onnx")
    logits = Logits(name="logits", graph=GraphFile(file="logits.onnx", weight_bytes=0), size=size)
    spec = exported.files.spec.model_copy(update={"logits": logits})
    return Exported(model, replace(exported.files, spec=spec))


def test_whole_rows_and_attention_are_pytorchs(library: Library, tmp_path: Path) -> None:
    hold_to_pytorch(with_logits(export_random(tmp_path, test_whole_rows.SHAPES["attention"]), tmp_path), library)


def test_so_they_are_with_a_shortlist(library: Library, shortlisted: Exported) -> None:
    hold_to_pytorch(with_logits(shortlisted, shortlisted.files.folder), library)


def spoil(file: Path, what: str) -> None:
    """A graph of logits: it gives fewer columns than there are tokens, or fails for every row; or it is gone."""
    if what == "gone":
        file.unlink()
        return
    model = ir.load(file)
    [gemm], [logits] = list(model.graph), model.graph.outputs
    assert logits.shape is not None
    gemm.outputs[0].name = "all"
    places = {"few columns": np.arange(5), "no such columns": np.array([logits.shape[1]])}[what]
    model.graph.register_initializer(ir.Value(name="places", const_value=ir.tensor(places)))
    node = ir.node("Gather", [gemm.outputs[0], model.graph.initializers["places"]], {"axis": 1})
    node.outputs[0].name, node.outputs[0].type = "logits", logits.type
    node.outputs[0].shape = ir.Shape(["rows", "columns"])
    model.graph.append(node)
    model.graph.outputs[0] = node.outputs[0]
    ir.save(model, file)


@pytest.mark.parametrize("what", ["gone", "few columns", "no such columns"])
def test_what_a_graph_cannot_give_is_refused_and_the_others_step_on(
    library: Library, tmp_path: Path, what: str
) -> None:
    """It is loaded when it is first needed."""
    exported = with_logits(export_random(tmp_path, POST), tmp_path)
    sources, model = random_sources(POST, 6), exported.loadable()
    spoil(tmp_path / "logits.onnx", what)
    options: list[dict[str, Any]] = [
        {"repetition_penalty": 1.5},
        {"do_sample": True, "num_return_sequences": 2},
        {"must_include": ((5, 6),), "num_beams": 2},
        {"top_k": 3},
    ]
    more = [replace(GREEDY, **changes) for changes in options]
    with load(model, CPU, Limits(ROWS, 1, LONGEST, 40)) as runner:
        alone = [answer.hypotheses for answer in decode(runner, model.rules, [(one, GREEDY) for one in sources])]
        wanted = [(source, GREEDY) for source in sources] + list(zip(sources, more, strict=False))
        asked = [Future[Event]() for _ in wanted]
        for (source, decoding), answer in zip(wanted, asked, strict=True):
            runner.submit(Translate(source, answer.set_result, decoding=decoding, rules=model.rules))
        told = [answer.result(WAIT_S) for answer in asked]
    beside, refused, plain = told[: len(sources)], told[len(sources) : -1], told[-1]
    assert [one.hypotheses for one in beside if isinstance(one, Finished)] == alone
    assert all(isinstance(one, Failed) and isinstance(one.error, NotOffered) for one in refused)
    assert isinstance(plain, Finished), "top_k alone draws nothing"


def test_a_graph_of_named_tokens_that_fails_is_not_used(exported: Exported, library: Library) -> None:
    """Whole rows say the same."""
    native = exported.files.spec.native
    assert native is not None and NamedTokens(exported.files, native, library).offered()
    other = native.model_copy(update={"named": exported.files.spec.encoder})
    assert not NamedTokens(exported.files, other, library).offered()


def hold_to_pytorch(exported: Exported, library: Library) -> None:
    model = test_whole_rows.Model(exported.model, exported.files)
    test_whole_rows.hold_to_pytorch(model, exported.native(library), SCORE_ATOL)


def test_what_the_package_does_not_give_is_not_offered(exported: Exported, library: Library) -> None:
    less = exported.files.spec.model_copy(update={"logits": None})
    decoder = replace(exported, files=replace(exported.files, spec=less)).native(library)
    cache = decoder.open_cache(1)
    cache.join(*decoder.encode([(3, 4)]))
    with pytest.raises(NotOffered, match="log-probabilities of other tokens"):
        cache.begin_step([1], Ask(normaliser=True))
    cache.begin_step([1], Ask(attention=True))
    attention = cache.end_step().attention
    assert attention is not None
    np.testing.assert_allclose(attention.sum(1), 1, atol=1e-5)
