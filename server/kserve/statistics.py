"""What became of the requests for each model of this protocol since the server started: `ModelStatistics`.

Triton's are of a model's executions. Here every request has steps in common with others, so that a request counts as
one execution, with the times that its own texts took; of several texts the longest, as they are worked on together.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from server.kserve.v2.inference_pb2 import InferStatistics, ModelStatistics, StatisticDuration
from server.telemetry.calls import Call, current_call

PHASES = {
    "queue": ("queue",),
    "compute_input": ("tokenize",),
    "compute_infer": ("encode", "decode"),
    "compute_output": ("detokenize",),
}
"""Ours, of each of theirs."""


class Statistics:
    """Of all models, by name. Used on the event loop only."""

    def __init__(self) -> None:
        self._models: defaultdict[str, ModelStatistics] = defaultdict(ModelStatistics)

    def of(self, name: str, version: str) -> ModelStatistics:
        """A copy. Of a model that nobody has asked, zeros."""
        found = ModelStatistics(name=name, version=version)
        if name in self._models:
            found.MergeFrom(self._models[name])
        return found

    @contextmanager
    def request(self, name: str) -> Iterator[None]:
        """Counts a request, which is the call that the running task answers. One whose caller left counts nowhere."""
        call, model = current_call(), self._models[name]
        try:
            yield
        except Exception:
            _add(model.inference_stats.fail, call.seconds)
            raise
        _add_success(model, call)


def _add_success(model: ModelStatistics, call: Call) -> None:
    model.last_inference = int(time.time() * 1000)
    model.inference_count += len(call.contents)
    model.execution_count += 1
    _add(model.inference_stats.success, call.seconds)
    seconds = call.phase_seconds()
    for name, phases in PHASES.items():
        _add(_of(model.inference_stats, name), sum(seconds[phase] for phase in phases))


def _of(stats: InferStatistics, name: str) -> StatisticDuration:
    found: StatisticDuration = getattr(stats, name)
    return found


def _add(duration: StatisticDuration, seconds: float) -> None:
    duration.count += 1
    duration.ns += round(seconds * 1e9)
