"""Recurrent packages as they are served: PyTorch's tokens in any batch, to the last bit what each is alone."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray

from engine.cpu.decoder import CpuDecoder
from engine.cuda.decoder import CudaDecoder
from engine.decoder import Ask
from engine.devices.session import CPU
from engine.errors import NotOffered
from engine.loading.native_step import open_step
from export.native.graphs import why_standard_only, with_native
from export.tracing.trace import trace
from export.verification.compare_numbers import encoder_error
from export.weights.save import save
from models.architectures.recurrent.config import RecurrentConfig, Score
from models.architectures.recurrent.model import Recurrent
from models.architectures.recurrent.source_attention import Comparison
from models.package import derived
from models.package.graph_files import GraphFiles
from tests.kernels.conftest import library
from tests.models.recurrent.in_place import check_bits_in_place
from tests.models.recurrent.shapes import LUONG, SHAPES, random_model, shape
from tests.models.without_cache import check_searches, search, some_sources

__all__ = ["library"]

LONGEST = 64
SOME = (
    "gru, additive (Bahdanau)",
    "lstm, none, reversed (Sutskever)",
    "gru, none (Cho)",
    "rnn, location, fed, local (Luong)",
)
WIDER = shape(cell="lstm", score="cosine", width=136, decoder_layers=1, **LUONG)
TRACED = {name: SHAPES[name] for name in SOME} | {"lstm, cosine, wider": WIDER}
"""To trace one takes seconds."""
SCORES = {config.score for config in TRACED.values()}


@dataclass
class Exported:
    model: Recurrent
    graphs: GraphFiles


@pytest.fixture(scope="module", params=TRACED.values(), ids=list(TRACED))
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    model = random_model(request.param)
    return Exported(model, save(trace(model), tmp_path_factory.mktemp("graphs")))


def test_encoders_agree_over_padded_sources(exported: Exported) -> None:
    assert encoder_error(exported.model, exported.graphs, CPU) < 1e-5


def test_sources_of_any_lengths_are_encoded_together(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit as each alone."""
    sources = some_sources(exported.model.config)[:5]
    with closing(CpuDecoder(exported.graphs, LONGEST, LONGEST)) as decoder:
        session, sizes = decoder._encoder, list[tuple[int, ...]]()

        class Counted:
            def run(self, names: Sequence[str], feeds: dict[str, NDArray[np.int64]]) -> object:
                sizes.append(feeds["ids"].shape)
                return session.run(names, feeds)

        monkeypatch.setattr(decoder, "_encoder", Counted())
        together = decoder.encode(sources)
        assert sizes == [(5, max(map(len, sources)))]
        for source, encoded in zip(sources, together, strict=True):
            [alone] = decoder.encode([source])
            np.testing.assert_array_equal(encoded.hidden(), alone.hidden())
            for name, start in alone.encoded.items():
                np.testing.assert_array_equal(encoded.encoded[name], start)


def test_searches_find_what_pytorch_finds_and_what_each_finds_alone(exported: Exported) -> None:
    """Greedy and with beams, whose states are reordered; requests join and leave; sources of any length beside."""
    with closing(CpuDecoder(exported.graphs, LONGEST, LONGEST)) as decoder:
        check_searches(decoder, exported.model)


@pytest.mark.parametrize("score", [name for name in get_args(Score) if name not in SCORES])
def test_every_other_score_is_served_alike(score: Score, tmp_path: Path) -> None:
    model = random_model(shape(score=score, decoder_layers=1, **LUONG))
    with closing(CpuDecoder(save(trace(model), tmp_path), LONGEST, LONGEST)) as decoder:
        check_searches(decoder, model)


@pytest.mark.parametrize(
    "config",
    [
        SHAPES["gru, additive (Bahdanau)"],
        SHAPES["gru, concat, fed (Luong)"],
        shape(cell="lstm", score="additive", width=136, decoder_layers=1),
    ],
    ids=["gru, before", "gru, after, fed", "lstm, wider"],
)
@pytest.mark.usefixtures("library")
def test_native_steps_find_and_look_alike(config: RecurrentConfig, tmp_path: Path) -> None:
    """Our own operators in the place of standard ones."""
    model = random_model(config)
    graphs = save(with_native(trace(model), model), tmp_path)
    with closing(open_step(graphs, LONGEST, LONGEST)) as decoder:
        assert decoder.device.kernels
        check_searches(decoder, model)
        check_looks(decoder, model)


def test_what_has_no_native_step_says_why() -> None:
    has = "native ones have additive scores of the whole source, and this has score "
    assert why_standard_only(random_model(SHAPES["gru, none (Cho)"]), "fp32") == has + "'none'"
    assert why_standard_only(random_model(shape(window=3)), "fp32") == has + "'additive' and window 3"


def test_rows_look_where_pytorch_looks(exported: Exported) -> None:
    """The alignment of each step, of sources of several lengths in one batch."""
    with closing(CpuDecoder(exported.graphs, LONGEST, LONGEST)) as decoder:
        check_looks(decoder, exported.model)


def check_looks(decoder: CpuDecoder, model: Recurrent) -> None:
    """Where each step looks is where PyTorch looks, if it looks."""
    config = model.config
    sources, fed = some_sources(config)[:5], [config.decoder_start_id, 7, 9, 11]
    cache = decoder.open_cache(len(sources))
    if config.score == "none":
        cache.join(decoder.encode(sources[:1])[0])
        with pytest.raises(NotOffered):
            cache.begin_step(fed[:1], Ask(attention=True))
        return
    for encoded in decoder.encode(sources):
        cache.join(encoded)
    found = list[NDArray[np.float32]]()
    for token in fed:
        cache.begin_step([token] * len(sources), Ask(best=3, attention=True))
        attention = cache.end_step().attention
        assert attention is not None
        found.append(attention.copy())
    for row, source in enumerate(sources):
        for looked, expected in zip(found, alignment(model, source, fed), strict=True):
            np.testing.assert_allclose(looked[row, : len(source)], expected, atol=1e-5)
            assert not looked[row, len(source) :].any()


@torch.no_grad()
def alignment(model: Recurrent, source: Sequence[int], fed: Sequence[int]) -> list[NDArray[np.float32]]:
    """Where a target's steps look in the source, by what the scores are made of."""
    looked = list[NDArray[np.float32]]()
    lengths = torch.tensor([len(source)])
    _, starts = model.encode_source(torch.tensor([source]), lengths)
    keys, values = starts[-2:]

    def look(comparison: Comparison) -> torch.Tensor:
        scores = (keys[0, 0] @ comparison.query[0]) * model.config.score_scale
        weights = (scores if comparison.bias is None else scores + comparison.bias[0, 0, 0]).softmax(0)
        looked.append(weights.numpy())
        return weights @ values[0]

    states = starts[: len(model.config.states)]
    states = [*states, torch.zeros_like(states[0])] if model.config.input_feeding else states
    for position, token in enumerate(fed):
        attend = model.attending(look, starts, lengths, position)
        _, _, states = model.step(torch.tensor([token]), states, attend)
    return looked


def test_the_decoder_of_devices_starts_and_moves_states_too(exported: Exported) -> None:
    config = exported.model.config
    with closing(CpuDecoder(exported.graphs, LONGEST, LONGEST)) as decoder:
        expected = search(decoder, config)
    with closing(CudaDecoder(exported.graphs, LONGEST, LONGEST, CPU)) as device:
        found = search(device, config)
    assert {key: [one.token_ids for one in answer.hypotheses] for key, answer in found.items()} == {
        key: [one.token_ids for one in answer.hypotheses] for key, answer in expected.items()
    }


def test_whoever_reads_a_state_is_done_before_it_is_written(exported: Exported, tmp_path: Path) -> None:
    """In the graph that ONNX Runtime runs: states are written where they lie."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "graph.onnx")
    ort.InferenceSession(exported.graphs.decoder, options, providers=[CPU.provider])
    nodes = onnx.load(tmp_path / "graph.onnx", load_external_data=False).graph.node
    states = derived.target_tensors(exported.model.config, "fp32")
    assert len(states) >= exported.model.config.decoder_layers
    for state in states:
        [writer] = [node for node in nodes if state.present in node.output]
        before = set(ancestors(nodes, writer.input))
        readers = [node for node in nodes if state.past in node.input and node.op_type != "Shape"]
        assert readers
        assert all(node is writer or set(node.output) & before for node in readers), state.past


def ancestors(nodes: Sequence[onnx.NodeProto], names: Sequence[str]) -> Iterator[str]:
    """The values, and all that they are computed from."""
    makers = {output: node for node in nodes for output in node.output}
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        yield name
        waiting += makers[name].input if name in makers else []


@pytest.mark.parametrize("rows", [1, 16])
def test_in_place_a_step_gives_the_same_bits(exported: Exported, rows: int) -> None:
    check_bits_in_place(exported.graphs, rows)
