"""What is loaded beside others that serve, whom it keeps from little."""

import os
import sys
import threading
import time
from pathlib import Path

import onnxruntime as ort
import pytest

from engine.devices.session import CPU, Device, open_session
from engine.loading import load as loading
from engine.loading.load import Limits, Plan, load_all
from engine.niceness import AT_ONCE, BESIDE, Pace
from engine.observer import Unobserved
from engine.runner import Runner
from engine.supervision.policy import UNSUPERVISED
from models.package.declared.graphs import Probe
from models.package.graph_files import Graph
from tests.engine.native.graphs import POST, Exported, export_random

LIMITS = Limits(4, 1, 60, 40)
WORK_S = 0.004


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export_random(tmp_path_factory.mktemp("graphs"), POST)


def loaded(exported: Exported, pace: Pace = AT_ONCE, costs_as: Runner | None = None) -> Runner:
    plan = Plan(exported.loadable(), LIMITS, Unobserved(), pace, costs_as)
    [runner] = load_all([plan], CPU, None, "required", UNSUPERVISED)
    return runner


def test_a_piece_of_work_is_followed_by_its_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = list[float]()
    monkeypatch.setattr("engine.niceness.time.sleep", rests.append)
    began_s = time.thread_time()
    with Pace(share=0.1).piece():
        while time.thread_time() < began_s + WORK_S:
            pass
    took_s = time.thread_time() - began_s
    assert 9 * WORK_S * 0.9 < rests[0] <= 9 * took_s
    with Pace().piece():
        pass
    assert rests[1] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no niceness of their own")
@pytest.mark.parametrize("beside", [False, True])
def test_what_needs_no_interpreter_is_done_by_nicer_threads_beside_others(
    beside: bool, exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set[int]()

    def heard(graph: Graph, device: Device, library: Path) -> ort.InferenceSession:
        found.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return open_session(graph, device, library=library)

    monkeypatch.setattr("engine.devices.session.open_session", heard)
    loaded(exported, BESIDE if beside else AT_ONCE)
    own = os.getpriority(os.PRIO_PROCESS, os.getpid())
    assert found == {own + BESIDE.nice if beside else own}


def test_probes_and_the_look_at_packing_rest_beside_others(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    rests = list[float]()
    monkeypatch.setattr("engine.niceness.time.sleep", rests.append)
    loaded(exported)
    assert not any(rests)
    rests.clear()
    loaded(exported, BESIDE)
    assert len(rests) == 1 + 4  # sources together, and each alone; random weights have no probes
    assert all(rests)


def test_steps_that_are_as_much_work_are_not_measured_again(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, measured = loaded(exported), list[Runner]()
    monkeypatch.setattr(loading, "measure", lambda runner, *_: measured.append(runner))
    same, other = loaded(exported, costs_as=former), loaded(exported)
    assert measured == [other]
    assert same.spent_s(20, 4) == former.spent_s(20, 4) > 0


def test_other_weights_and_answers_are_as_much_work_and_other_shapes_are_not(exported: Exported) -> None:
    spec = exported.files.spec
    assert spec.computes_as(
        spec.model_copy(update={"probes": (Probe(source_ids=(5, 0), token_ids=(7, 0), score=-1.0),)})
    )
    assert not spec.computes_as(spec.model_copy(update={"width": 2 * spec.width}))
