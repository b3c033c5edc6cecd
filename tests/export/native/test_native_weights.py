"""The weights of native graphs: where those of the standard graphs are, or in the checkpoint's own file."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from safetensors.torch import save_file

from export.native.graphs import native_graphs
from export.tracing.graphs import Graphs
from export.tracing.trace import trace
from export.weights.save import INLINE_BYTES, save
from export.weights.stored import StoredWeights, point
from models.config import ModelConfig
from models.package.manifest import WEIGHTS
from models.transformer import Transformer
from tests.models.test_transformer import VARIANTS, config, random_model

TOKENS = 1003
"""The standard graphs fill up the vocabulary to 1008."""
TIED = VARIANTS["plain"]
MODELS = {
    "tied": TIED,
    "untied, learned positions": VARIANTS["pre-norm, learned positions, untied output"],
    "two vocabularies": VARIANTS["two vocabularies, no output bias"],
    "recurrent": VARIANTS["recurrent"],
}


def model_of(variant: ModelConfig) -> Transformer:
    sizes = {"source_vocab_size": TOKENS, "target_vocab_size": TOKENS, "pad_id": TOKENS - 1}
    return random_model(config(**(variant.model_dump() | sizes)))


@pytest.fixture(scope="module", params=MODELS.values(), ids=list(MODELS))
def graphs(request: pytest.FixtureRequest) -> Graphs:
    model = model_of(request.param)
    return trace(model, scoring=True).with_native(native_graphs(model))


def test_they_are_in_the_file_already(graphs: Graphs, tmp_path: Path) -> None:
    """Nothing is added to what the standard graphs need, and what is read there is what was meant."""
    names = ("native_encoder.onnx", "native_decoder.onnx", "logits.onnx", "target.onnx", "log_probs.onnx")
    meant = {(name, v.name): array(v) for name in names for v in graphs.models[name].graph.initializers.values()}
    for folder, saved in (
        ("both", graphs),
        ("alone", Graphs(graphs.spec, graphs.encoder, graphs.decoder)),
    ):
        (tmp_path / folder).mkdir()
        save(saved, tmp_path / folder)
    assert (tmp_path / "both" / WEIGHTS).read_bytes() == (tmp_path / "alone" / WEIGHTS).read_bytes()
    for name in names:
        found = {value.name: array(value) for value in ir.load(tmp_path / "both" / name).graph.initializers.values()}
        for key in found.keys() & {value for model, value in meant if model == name}:  # sinusoids are computed
            np.testing.assert_array_equal(found[key], meant[name, key])


def array(value: ir.Value) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    assert value.const_value is not None
    return value.const_value.numpy().copy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_beside_a_checkpoint_tables_stay_as_they_are_in_its_file(tmp_path: Path, dtype: torch.dtype) -> None:
    """But for those of bf16, which our operators do not take."""
    model, file = model_of(TIED), tmp_path / "model.safetensors"
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:  # sinusoids are computed
                weight.copy_(weight.to(dtype))
    tables = {"embedding": model.source_embedding[:TOKENS], "bias": model.output_bias[:TOKENS]}
    layers = {name: weight for name, weight in model.named_parameters() if ".weight" in name or ".bias" in name}
    save_file({name: weight.detach().to(dtype) for name, weight in (tables | layers).items()}, file)
    graphs = native_graphs(model)
    for graph, operators in ((graphs.encoder, ["Embed"]), (graphs.decoder, ["Embed", "BestTokens"])):
        point(graph, StoredWeights(file))
        tables_there = [node.inputs[2] for node in graph.graph if node.op_type in operators]
        for table in tables_there:
            assert table is not None
            kept = table.dtype if table.producer() is None else None
            assert kept == {torch.float32: ir.DataType.FLOAT, torch.float16: ir.DataType.FLOAT16}.get(dtype)
        assert len(tables_there) == len(operators)
        constants = [value.const_value for value in graph.graph.initializers.values()]
        large = [tensor for tensor in constants if tensor is not None and tensor.nbytes >= INLINE_BYTES]
        assert all(isinstance(tensor, ir.ExternalTensor) for tensor in large)
