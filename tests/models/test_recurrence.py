"""The recurrent decoder: its equations, its graph, its state in place, and searches against PyTorch without a cache."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
import torch

from engine.cpu.decoder import CpuDecoder
from engine.cuda.decoder import CudaDecoder
from engine.devices.session import CPU
from engine.devices.transfers import HostTransfers
from export.tracing.graphs import histogram
from export.tracing.trace import trace
from export.weights.save import save
from models.layers import Recurrence
from models.package import derived
from models.package.graph_files import GraphFiles
from models.transformer import Transformer
from tests.engine.devices.test_device import BASE, LOAD
from tests.export.tracing.test_trace import BEST_BLOCKS, BEST_INSIDE, EMBEDDING, HEAD, IDS, LOG_PROBS, SINUSOIDS, times
from tests.models.recurrent.in_place import check_bits_in_place
from tests.models.test_transformer import config, random_model
from tests.models.without_cache import PrefixDecoder, search

CONFIG = config(decoder_cell="ssru")
LONGEST = 64
# One layer. Gemm: gate and candidate; query and output of the attention to the source; feed-forward up and down.
LAYER = Counter(
    {"Gemm": 6, "Sigmoid": 1, "Sub": 1, "Mul": 2, "Add": 4, "Relu": 2, "LayerNormalization": 3}
    | {"com.microsoft.GroupQueryAttention": 1, "Unsqueeze": 1, "Squeeze": 1}
)


def test_the_equations() -> None:
    """Number by number, as Kim et al. write them."""
    torch.manual_seed(0)
    cell, sentences, target = Recurrence(CONFIG), 3, 5
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
        x = torch.randn(sentences * target, CONFIG.width)
        found = cell.over_target(x, sentences).view(sentences, target, -1)
        for sentence, rows in enumerate(x.view(sentences, target, -1)):
            state = torch.zeros(CONFIG.width)
            for position, row in enumerate(rows):
                forget = torch.sigmoid(cell.forget.weight @ row + cell.forget.bias)
                state = forget * state + (1 - forget) * (cell.candidate.weight @ row)
                expected = cell.residual.norm(row + torch.relu(state))
                torch.testing.assert_close(found[sentence, position], expected, atol=1e-5, rtol=0)


def test_gradients_reach_every_weight_and_every_position() -> None:
    cell, x = Recurrence(CONFIG), torch.randn(2 * 6, CONFIG.width, requires_grad=True)
    cell.over_target(x, 2).view(2, 6, -1)[:, -1].pow(3).sum().backward()
    gradients = [parameter.grad for parameter in cell.parameters()]
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)
    assert x.grad is not None and (x.grad.view(2, 6, -1).abs().amax(dim=2) > 0).all()


@dataclass
class Exported:
    model: Transformer
    graphs: GraphFiles
    nodes: Counter[str]

    def decoder(self) -> CpuDecoder:
        return CpuDecoder(self.graphs, LONGEST, LONGEST)

    def device(self) -> CudaDecoder:
        return CudaDecoder(self.graphs, LONGEST, LONGEST, CPU)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    model, folder = random_model(CONFIG), tmp_path_factory.mktemp("graphs")
    graphs = trace(model)
    return Exported(model, save(graphs, folder), histogram(graphs.decoder))


def test_the_decoder_has_the_nodes_it_needs_and_no_others(exported: Exported) -> None:
    layers = times(CONFIG.decoder_layers, LAYER)
    assert exported.nodes == layers + EMBEDDING + HEAD + BEST_BLOCKS + BEST_INSIDE + IDS + LOG_PROBS + SINUSOIDS


def test_a_state_is_read_once_and_only_to_compute_what_replaces_it(exported: Exported, tmp_path: Path) -> None:
    """In the graph that ONNX Runtime runs. So it may write in place: the one reader is done when the writer begins."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "graph.onnx")
    ort.InferenceSession(exported.graphs.decoder, options, providers=[CPU.provider])
    nodes = onnx.load(tmp_path / "graph.onnx", load_external_data=False).graph.node
    states = derived.target_tensors(CONFIG, "fp32")
    assert len(states) == CONFIG.decoder_layers
    for tensor in states:
        [reader] = [node for node in nodes if tensor.past in node.input]
        [writer] = [node for node in nodes if tensor.present in node.output]
        assert (reader.op_type, writer.op_type) == ("Mul", "Add")
        assert set(reader.output) & set(writer.input)


@pytest.mark.parametrize("rows", [1, 3, 16])
def test_in_place_a_step_gives_the_same_bits(exported: Exported, rows: int) -> None:
    check_bits_in_place(exported.graphs, rows)


@pytest.mark.parametrize("on_device", [False, True])
def test_searches_find_what_they_find_without_a_cache(exported: Exported, on_device: bool) -> None:
    """Greedy and with beams, whose states are reordered; requests join and leave."""
    expected = search(PrefixDecoder(exported.model), CONFIG)
    found = search(exported.device() if on_device else exported.decoder(), CONFIG)
    assert found.keys() == expected.keys()
    for key, answer in expected.items():
        pairs = zip(found[key].hypotheses, answer.hypotheses, strict=True)
        assert all(ours.token_ids == theirs.token_ids for ours, theirs in pairs), key
    assert len({hypothesis.token_ids for answer in found.values() for hypothesis in answer.hypotheses}) > 8


def test_no_step_is_made_ahead(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have changed the state. As if the device were an asynchronous one."""
    expected = search(exported.decoder(), CONFIG)
    monkeypatch.setattr(HostTransfers, "asynchronous", True)
    device = exported.device()
    assert device.open_cache(rows=4)._step._ahead is None
    found = search(device, CONFIG)
    assert {key: answer.hypotheses[0].token_ids for key, answer in found.items()} == {
        key: answer.hypotheses[0].token_ids for key, answer in expected.items()
    }


def test_a_state_takes_less_memory_than_keys_and_values() -> None:
    recurrent = replace(LOAD, graphs=derived.graphs_spec(BASE.model_copy(update={"decoder_cell": "ssru"}), "fp16"))
    layers, width = BASE.decoder_layers, BASE.width
    assert LOAD.cache_bytes - recurrent.cache_bytes == 64 * 2 * layers * width * (2 * 256 - 1)
    assert LOAD.weight_bytes - recurrent.weight_bytes == 2 * layers * 2 * width * width
