"""A step for GPUs gives what the model gives, wherever the earlier positions of its rows lie."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from export.native.device import step as device_step
from export.native.device.decoder import device_decoder
from export.native.device.step import obstacle, with_device_step
from export.tracing.graphs import Graphs, histogram
from export.tracing.trace import trace
from export.tracing.variant import DTYPES, variant
from export.weights.save import save
from kernels.device_library import device_library
from kernels.library import LibraryError
from models.config import ModelConfig
from models.package import derived, signature
from models.package.declared.graphs import GraphsSpec
from models.package.declared.precision import AttentionKind, Precision
from models.package.manifest import WEIGHTS
from models.transformer import Transformer
from tests.export.native.device_operators import OPERATORS
from tests.models.test_transformer import EVERY, VARIANTS, config, random_model

Arrays = dict[str, NDArray[Any]]
Run = Callable[[Arrays], Arrays]

TOKENS = 1003
"""A vocabulary that is filled up to 1008."""


def large(shape: ModelConfig) -> ModelConfig:
    sizes = {"source_vocab_size": TOKENS, "target_vocab_size": TOKENS, "pad_id": TOKENS - 1}
    return shape.model_copy(update=sizes)


SHAPES = {
    **EVERY,
    "no biases, a norm more": config(bias=False, last_norm=True, scale_scores=False, activation="gelu_tanh"),
    "no norm at the end": config(norm="pre", last_norm=False, positions="none"),
}
MODELS = {name: large(one) for name, one in SHAPES.items() if obstacle(random_model(large(one))) is None}
SOURCE_LENGTHS = (9, 4)
SLOTS = (5, 0, 6), (2, 3)
"""Of each source's beams, which change places at every step."""
JOINS = (0, 2)
"""The step at which each source begins."""
STEPS, CAPACITY, BEST = 9, 12, 5

every_model = pytest.mark.parametrize("shape", MODELS.values(), ids=MODELS)


class Beams:
    """Hypotheses of one source: each step continues some of them, twice or not at all, in slots in disorder."""

    def __init__(self, shape: ModelConfig, source: int, choose: np.random.Generator) -> None:
        self._shape, self._source, self._choose = shape, source, choose
        self.sequences: list[list[int]] = [[] for _ in SLOTS[source]]
        self._written: list[list[int]] = [[] for _ in SLOTS[source]]
        """The slot of each position of a hypothesis."""

    def grow(self, history: NDArray[np.int32]) -> list[tuple[int, int, int]]:
        """One token more of each. Returns token, position and slot, and says in `history` where earlier ones are."""
        position, slots = len(self.sequences[0]), self._choose.permutation(SLOTS[self._source]).tolist()
        parents = self._choose.integers(len(slots), size=len(slots))
        tokens = self._choose.integers(1, self._shape.target_vocab_size - 1, len(slots)).tolist()
        if position == 0:
            tokens = [self._shape.decoder_start_id] * len(slots)
        for slot, parent in zip(slots, parents, strict=True):
            history[slot, :position] = self._written[parent]
        self.sequences = [[*self.sequences[parent], token] for parent, token in zip(parents, tokens, strict=True)]
        self._written = [[*self._written[parent], slot] for parent, slot in zip(parents, slots, strict=True)]
        return [(token, position, slot) for token, slot in zip(tokens, slots, strict=True)]


def memory_of(model: Transformer, sources: list[list[int]], dtype: type) -> Arrays:
    """All cache tensors: sources are in slots 2 and 0, and elsewhere is garbage."""
    cache = derived.step_tensors(model.config, "fp32")
    memory: Arrays = {it.past: np.full(it.shape(7, CAPACITY), 9.0, dtype) for it in cache}
    for slot, source in zip((2, 0), sources, strict=True):
        _, starts = model.encode_source(torch.tensor([source]), torch.tensor([len(source)]))
        for tensor, start in zip([it for it in cache if it.owner == "source"], starts, strict=True):
            memory[tensor.past][slot, :, : len(source)] = start[0].numpy()
    return memory


@torch.no_grad()
def largest_error(model: Transformer, run: Run, dtype: type) -> float:
    """Of logits, as the teacher-forced pass has them."""
    shape, choose = model.config, np.random.default_rng(1)
    sources = [choose.integers(1, shape.source_vocab_size - 1, length).tolist() for length in SOURCE_LENGTHS]
    memory, history = memory_of(model, sources, dtype), np.zeros((7, CAPACITY), np.int32)
    beams, errors = [Beams(shape, source, choose) for source in range(len(sources))], []
    for step in range(STEPS):
        live = [source for source, joins in enumerate(JOINS) if joins <= step]
        rows = [(source, *row) for source in live for row in beams[source].grow(history)]
        order = choose.permutation(len(rows))
        of_source, ids, positions, slots = (np.array(given)[order] for given in zip(*rows, strict=True))
        inputs = {"ids": ids, "ranks": np.arange(BEST), "history": history}
        inputs |= {"positions": positions.astype(np.int32), "slots": slots.astype(np.int32)}
        inputs |= {"source_slots": np.array((2, 0), np.int32)[of_source]}
        inputs |= {"source_last": np.array(SOURCE_LENGTHS, np.int32)[of_source] - 1}
        found = run(inputs | memory)
        memory |= {name: found[f"present_{name}"] for name in memory if f"present_{name}" in found}
        expected = np.stack(
            [last_logits(model, sources[source], sequence) for source in live for sequence in beams[source].sequences]
        )[order]
        logits = found[signature.LOGITS].astype(np.float32)
        errors.append(np.abs(logits[:, : shape.target_vocab_size] - expected).max())
        assert logits[:, shape.target_vocab_size :].max(initial=-1e4) < -9e3
        chosen = np.take_along_axis(expected, found["candidates"], 1)
        errors.append(np.abs(chosen + np.sort(-expected)[:, :BEST]).max())
        normaliser = np.log(np.exp(expected).sum(1, keepdims=True))
        errors.append(np.abs(found["log_probs"] - chosen + normaliser).max())
    return float(np.max(errors))


def last_logits(model: Transformer, source: list[int], target: list[int]) -> NDArray[np.float32]:
    """By the teacher-forced pass: [vocabulary]."""
    logits = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([target]))
    found: NDArray[np.float32] = logits[0, -1].numpy()
    return found


def by_numpy(decoder: ir.Model) -> Run:
    session = ReferenceEvaluator(ir.to_proto(decoder), new_ops=OPERATORS)
    return lambda inputs: dict(zip(session.output_names, session.run(None, inputs), strict=True))


def by_onnxruntime(decoder: ir.Model, file: Path) -> Run:
    """What is cached is written in place."""
    ir.save(decoder, file)
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(device_library()))
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    outputs = [it.name for it in session.get_outputs()]

    def run(inputs: Arrays) -> Arrays:
        binding = session.io_binding()
        for name, array in inputs.items():
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for name in outputs:
            binding.bind_output(name)
            if (past := name.removeprefix("present_")) in inputs:
                array = inputs[past]
                binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        session.run_with_iobinding(binding)
        return dict(zip(outputs, binding.copy_outputs_to_cpu(), strict=True))

    return run


def decoder_of(model: Transformer, precision: Precision) -> ir.Model:
    return device_decoder(model.to(DTYPES[precision]), derived.step_tensors(model.config, precision))


@every_model
def test_fp32_gives_the_logits_of_the_model(shape: ModelConfig) -> None:
    run = by_numpy(decoder_of(random_model(shape), "fp32"))
    assert largest_error(random_model(shape), run, np.float32) < 1e-4


@every_model
def test_fp16_is_as_near_as_fp16_is(shape: ModelConfig) -> None:
    run = by_numpy(decoder_of(random_model(shape), "fp16"))
    assert largest_error(random_model(shape), run, np.float16) < 0.05


@every_model
def test_the_library_computes_the_same(shape: ModelConfig, tmp_path: Path) -> None:
    try:
        device_library()
    except LibraryError as error:
        pytest.skip(str(error))
    run = by_onnxruntime(decoder_of(random_model(shape), "fp16"), tmp_path / "device.onnx")
    assert largest_error(random_model(shape), run, np.float16) < 0.05


@every_model
def test_what_is_declared_is_what_the_graph_is(shape: ModelConfig) -> None:
    decoder, cache = decoder_of(random_model(shape), "fp16"), derived.step_tensors(shape, "fp16")
    assert [it.name for it in decoder.graph.inputs] == [*signature.DEVICE_DECODER_INPUTS, *(it.past for it in cache)]
    present = [it.present for it in cache if it.owner == "hypothesis"]
    outputs = [*signature.DECODER_OUTPUTS, *present, signature.LOGITS, signature.CROSS_QUERY]
    assert [it.name for it in decoder.graph.outputs] == outputs
    told = [tensor for tensor in cache if tensor.owner == "source"]
    assert [(it.present, it.start, it.last) for it in told] == [(it.past, it.past, None) for it in told]
    small = {"ids": ir.DataType.INT64, "ranks": ir.DataType.INT64, "candidates": ir.DataType.INT64}
    small |= dict.fromkeys(["positions", "slots", "source_slots", "source_last", "history"], ir.DataType.INT32)
    small["log_probs"] = ir.DataType.FLOAT
    for value in [*decoder.graph.inputs, *decoder.graph.outputs]:
        assert value.dtype == small.get(value.name or "", ir.DataType.FLOAT16)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_layer_has_no_more_nodes_than_it_needs(norm: str) -> None:
    layers = 3
    model = random_model(large(config(norm=norm, decoder_layers=layers)))
    counts = histogram(decoder_of(model, "fp16"))
    of_layer = {"dragoman.RowLinear": 6, "dragoman.HistoryAttention": 1, "dragoman.SlotAttention": 1}
    beside = {"dragoman.EmbedTokens": 1, "LayerNormalization": 1, "Gemm": 1, "dragoman.BestLogits": 1}
    assert counts == {name: layers * of_layer.get(name, 0) + beside.get(name, 0) for name in of_layer | beside}


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (config(), "padded vocabulary is 132; steps for GPUs have multiples of 8"),
        (VARIANTS["recurrent"], "decoder_cell is 'ssru'; steps for GPUs have 'attention'"),
        (config(gated=True), "gated is True; steps for GPUs have False"),
        (config(relative="shared"), "relative is 'shared'"),
        (config(norm_kind="rms"), "norm_kind is 'rms'"),
        (config(shared_layers=True), "shared_layers is True"),
        (config(decoder_heads=12), "the decoder's heads have 4 numbers (width 48, 12 heads)"),
    ],
)
def test_what_it_cannot_do_is_named(shape: ModelConfig, says: str) -> None:
    assert (obstacle(random_model(shape)) or "").startswith(says)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("fp32", "fused", False), "steps for GPUs are of fp16 packages with fused attention, and this is fp32, fused"),
        (("fp16", "plain", False), "steps for GPUs are of fp16 packages with fused attention, and this is fp16, plain"),
        (("fp16", "fused", True), "steps for GPUs choose from the whole vocabulary, and this package has a shortlist"),
        (
            ("fp16", "fused", False),
            "the operators for GPUs are not built (nowhere is missing): make -C kernels device",
        ),
    ],
)
def test_what_a_package_needs(
    given: tuple[Precision, AttentionKind, bool], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_step, "device_library", partial(device_library, Path("nowhere")))
    assert device_step.why_no_device_step(random_model(MODELS["plain"]), *given) == says


def test_its_weights_are_in_the_file_already(tmp_path: Path) -> None:
    """And a manifest has it, or not."""
    for name in ("plain", "pre-norm, learned positions, untied output"):
        model = variant(random_model(MODELS[name]), "fp16", "fused")
        standard = trace(model)
        graphs: dict[str, Graphs] = {"with": with_device_step(standard, model), "without": standard}
        for folder, saved in graphs.items():
            (tmp_path / name / folder).mkdir(parents=True)
            save(saved, tmp_path / name / folder)
        found = {folder: (tmp_path / name / folder / WEIGHTS).read_bytes() for folder in graphs}
        assert found["with"] == found["without"]
        spec = graphs["with"].spec
        assert GraphsSpec.model_validate_json(spec.model_dump_json()) == spec
        assert signature.DEVICE_DECODER in {file.file for file in spec.files} - {it.file for it in standard.spec.files}
