"""engine.loading.load: which graphs run on the CPU, and why."""

import logging
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import onnx
import pytest

from engine.cpu.decoder import CpuDecoder
from engine.devices.session import CPU, Device, DeviceError
from engine.devices.sizing import Load
from engine.errors import KernelsRefused
from engine.loading.budget import HostMemory
from engine.loading.load import Kernels, Limits, Loadable, Plan, check_room, load, open_decoder, takes_threads
from engine.loading.probes import FIRST_TOKENS, SCORE_TOLERANCE, check_probes
from engine.native.decoder import NativeDecoder
from engine.observer import Unobserved
from engine.offline import decode
from kernels.library import Counters, Library, LibraryError
from models.decoding import Decoding
from models.package.declared.graphs import Probe
from models.package.declared.numbers import Precisions
from tests.engine.native.graphs import POST, Exported, export_random
from tests.kernels.conftest import library

__all__ = ["library"]

SOURCES = [(5, 3, 17, 2, 0), (9, 0), tuple(range(20, 60))]
LONGEST = 40
MUCH = 1 << 40
"""Of memory: more than a process has that has run other tests."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export_random(tmp_path_factory.mktemp("graphs"), POST)


@pytest.fixture(scope="module")
def probes(exported: Exported) -> tuple[Probe, ...]:
    """What greedy search finds in the standard graphs, as far as it ends."""
    model, decoding = exported.loadable(), Decoding(max_new_tokens=LONGEST, length_penalty=0.0)
    with load(model, CPU, Limits(4, 1, 60, LONGEST), kernels="off") as runner:
        answers = list(decode(runner, model.rules, [(source, decoding) for source in SOURCES]))
    best = [answer.hypotheses[0] for answer in answers]
    return tuple(
        Probe(source_ids=source, token_ids=found.token_ids, score=found.score)
        for source, found in zip(SOURCES, best, strict=True)
    )


def opened(model: Loadable, kernels: Kernels = "auto") -> type[object]:
    decoder = open_decoder(model, CPU, 60, LONGEST + 1, kernels)
    return type(decoder)


def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Library:
        raise LibraryError("the kernels are not built: make kernels")

    monkeypatch.setattr("engine.native.library.open_library", refuse)


def said(caplog: pytest.LogCaptureFixture) -> Sequence[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "engine.loading.load"]


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "engine.loading.load")


def test_native_graphs_run_where_the_library_does_and_they_know_the_answers(
    exported: Exported, probes: tuple[Probe, ...], library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    for kernels in ("auto", "required"):
        caplog.clear()
        assert opened(exported.loadable(*probes), kernels) is NativeDecoder
        assert [message for _, message in said(caplog)] == [f"native kernels: {library.isa}"]


def test_a_processor_without_their_instructions_is_warned_of(
    exported: Exported, library: Library, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Library, "isa", "portable")
    assert opened(exported.loadable()) is NativeDecoder
    [(level, message)] = said(caplog)
    assert level == logging.WARNING and message.startswith("native kernels: portable, which are slow")


def test_standard_graphs_run_where_kernels_are_off(exported: Exported, caplog: pytest.LogCaptureFixture) -> None:
    assert opened(exported.loadable(), "off") is CpuDecoder
    assert said(caplog) == [(logging.INFO, "standard graphs: kernels are off")]


def test_standard_graphs_run_where_there_is_no_library(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_library(monkeypatch)
    assert opened(exported.loadable()) is CpuDecoder
    assert said(caplog) == [(logging.WARNING, "standard graphs: the kernels are not built: make kernels")]
    with pytest.raises(DeviceError, match="kernels are required: the kernels are not built: make kernels"):
        opened(exported.loadable(), "required")


def test_a_package_without_native_graphs_runs_as_it_is(exported: Exported, caplog: pytest.LogCaptureFixture) -> None:
    spec = exported.files.spec.model_copy(update={"native": None})
    model = Loadable(type(exported.files)(exported.files.folder, spec), exported.loadable().generation)
    assert opened(model) is CpuDecoder
    assert [level for level, _ in said(caplog)] == [logging.INFO]
    with pytest.raises(DeviceError, match="the package has no graphs of them; export the checkpoint again"):
        opened(model, "required")


def test_operators_of_another_version_are_refused(exported: Exported, library: Library) -> None:
    native = exported.files.spec.native
    assert native is not None
    spec = exported.files.spec.model_copy(update={"native": native.model_copy(update={"operators": 7})})
    files = type(exported.files)(exported.files.folder, spec)
    with pytest.raises(KernelsRefused, match="wants operators of version 7, and the library has 2"):
        NativeDecoder.open(files, 60, 60)


def test_operators_of_an_earlier_version_are_taken(exported: Exported, library: Library) -> None:
    native = exported.files.spec.native
    assert native is not None
    spec = exported.files.spec.model_copy(update={"native": native.model_copy(update={"operators": 1})})
    with closing(NativeDecoder.open(type(exported.files)(exported.files.folder, spec), 60, 60)) as decoder:
        assert decoder.device.kernels == library.isa


def test_graphs_that_do_not_load_are_refused(exported: Exported, library: Library, tmp_path: Path) -> None:
    files = type(exported.files)(tmp_path, exported.files.spec)
    with pytest.raises(KernelsRefused, match="the native graphs do not load"):
        NativeDecoder.open(files, 60, 60)


def test_graphs_that_fail_with_anything_are_refused(
    exported: Exported, probes: tuple[Probe, ...], library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    native = exported.files.spec.native
    assert native is not None
    cache = tuple(tensor.model_copy(update={"owner": "hypothesis"}) for tensor in native.cache)
    changes = {"native": native.model_copy(update={"cache": cache}), "probes": probes}
    files = type(exported.files)(exported.files.folder, exported.files.spec.model_copy(update=changes))
    model = Loadable(files, exported.loadable().generation)
    assert opened(model) is CpuDecoder
    assert "standard graphs: the native graphs do not run (RuntimeError: " in caplog.text
    with pytest.raises(DeviceError, match="kernels are required: the native graphs do not run"):
        opened(model, "required")


def test_graphs_of_another_width_than_is_declared_are_refused(exported: Exported, library: Library) -> None:
    files = type(exported.files)(exported.files.folder, exported.files.spec.model_copy(update={"width": 40}))
    with pytest.raises(KernelsRefused, match=r"hidden of a graph is \['tokens', 48\], and the manifest says .* 40\]"):
        NativeDecoder.open(files, 60, 60)


@pytest.mark.parametrize("name", ["hidden", "cross_query", "normaliser"])
def test_what_a_native_decoder_is_seldom_asked_for_must_be_fp32(
    exported: Exported, library: Library, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "graphs"
    shutil.copytree(exported.files.folder, folder)
    model = onnx.load(folder / "native_decoder.onnx", load_external_data=False)
    for node in model.graph.node:
        node.input[:] = [f"{name}_fp32" if one == name else one for one in node.input]
        node.output[:] = [f"{name}_fp32" if one == name else one for one in node.output]
    model.graph.node.append(onnx.helper.make_node("Cast", [f"{name}_fp32"], [name], to=onnx.TensorProto.DOUBLE))
    [output] = (one for one in model.graph.output if one.name == name)
    output.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    (folder / "native_decoder.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(KernelsRefused, match=rf"{name} of a graph is tensor\(double\), and must be tensor\(float\)"):
        NativeDecoder.open(replace(exported.files, folder=folder), 60, 60)


def test_standard_graphs_that_begin_no_probe_as_they_must_are_refused(
    exported: Exported, probes: tuple[Probe, ...]
) -> None:
    """One of them is enough: processors round otherwise."""
    place = FIRST_TOKENS - 1
    ids = [list(probe.token_ids) for probe in probes]
    for each in ids:
        each[place] = (each[place] + 1) % 130
    wrong = [probe.model_copy(update={"token_ids": tuple(each)}) for probe, each in zip(probes, ids, strict=True)]
    modes: tuple[Kernels, ...] = ("off", "auto")
    for kernels in modes:
        with pytest.raises(DeviceError, match=r"the standard graphs answer no probe .*: probe 0 has the tokens \["):
            opened(exported.loadable(*wrong), kernels)
        assert opened(exported.loadable(*wrong[:-1], probes[-1]), kernels) is CpuDecoder
        later = [probe.model_copy(update={"token_ids": (*probe.token_ids[:-1], 131)}) for probe in probes]
        assert opened(exported.loadable(*later), kernels) is CpuDecoder


def test_another_score_than_the_probes_is_refused(
    exported: Exported, probes: tuple[Probe, ...], library: Library
) -> None:
    decoder, rules = exported.native(library), exported.loadable().rules
    [first, *_] = probes
    most = SCORE_TOLERANCE * len(first.token_ids)
    check_probes(decoder, rules, [first.model_copy(update={"score": first.score + most / 2})])
    for score in (first.score + 2 * most, first.score - 2 * most, float("nan")):
        with pytest.raises(KernelsRefused, match="probe 0 has the score"):
            check_probes(decoder, rules, [first.model_copy(update={"score": score})])
    check_probes(decoder, rules, [])


class Listener(Unobserved):
    """Keeps what reads the counts of operators."""

    read = staticmethod(lambda: Counters(0, 0, 0))

    def kernels(self, counters: object) -> None:
        self.read = counters  # type: ignore[assignment]


def test_observers_of_two_models_are_told_that_their_operators_count_as_one(
    exported: Exported, library: Library
) -> None:
    first, second, model = Listener(), Listener(), exported.loadable()
    with load(model, CPU, Limits(4, 1, 60, 20), first), load(model, CPU, Limits(4, 1, 60, 20), second):
        assert first.read == second.read


def test_an_observer_is_told_what_operators_count(exported: Exported, library: Library) -> None:
    listener, model = Listener(), exported.loadable()
    with load(model, CPU, Limits(4, 1, 60, 20), listener) as runner:
        before = listener.read().rows
        [answer] = decode(runner, model.rules, [(SOURCES[0], Decoding(max_new_tokens=7))])
        assert runner.device.kernels == library.isa
    assert listener.read().rows - before >= len(answer.hypotheses[0].token_ids)


def test_8_bits_take_threads_and_16_do_not() -> None:
    assert takes_threads(Precisions(weights="int8", activations="fp32", cache="int8"), CPU)
    assert takes_threads(Precisions(weights="int8", activations="fp32", cache="fp32"), CPU)
    assert not takes_threads(Precisions.of_all("fp16"), CPU)


def test_kernels_are_not_required_of_what_has_none(exported: Exported) -> None:
    spec = exported.files.spec.model_copy(update={"precision": Precisions.of_all("fp16")})
    model = Loadable(type(exported.files)(exported.files.folder, spec), exported.loadable().generation)
    with pytest.raises(DeviceError, match="kernels are required; a package of precision fp16 has none"):
        opened(model, "required")


def test_beside_models_on_a_device_there_is_room_for_what_fits_with_all_that_they_may_come_to_take(
    exported: Exported,
) -> None:
    plan = Plan(exported.loadable(), Limits(64, 1, 60, LONGEST), Unobserved())
    needed, others = Load(plan.model.graphs.spec, 64, 60, LONGEST).total_bytes, 3 << 30
    device = Device("cuda", 1, "Some GPU", memory_limit_bytes=needed + others)
    check_room(plan, device, others, None, "auto")
    with pytest.raises(DeviceError, match=r"other models 3\.00\); device 1 \(Some GPU\) has all of them.*6\d rows"):
        check_room(plan, device, others + 1, None, "auto")


def test_a_package_of_16_bits_has_a_budget_too(exported: Exported) -> None:
    spec = exported.files.spec.model_copy(update={"precision": Precisions.of_all("fp16")})
    model = Loadable(type(exported.files)(exported.files.folder, spec), exported.loadable().generation)
    told = Mock(Unobserved())
    with load(model, CPU, Limits(4, 1, 60, LONGEST, HostMemory(MUCH)), told) as runner:
        [(budget, limit)] = [call.args for call in told.memory.call_args_list]
    assert limit == MUCH and 0 < runner.memory_bytes < budget < limit
    with pytest.raises(DeviceError, match=r"1 workers of 4 rows of 60 .* 1 MB may be used \(--memory-mb\)"):
        load(model, CPU, Limits(4, 1, 60, LONGEST, HostMemory(1_000_000)))
    plan = Plan(model, Limits(4, 1, 60, LONGEST), Unobserved())
    check_room(plan, CPU, 0, HostMemory(MUCH), "auto")
    with pytest.raises(DeviceError, match="--memory-mb"):
        check_room(plan, CPU, MUCH, HostMemory(MUCH), "auto")
