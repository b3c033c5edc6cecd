"""Our side: a package on the device, driven through the scheduler, as the server drives it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from prometheus_client import CollectorRegistry

from bench.gpu.plan import Plan, Precision
from engine.cuda.decoder import CudaDecoder
from engine.cuda.encoder import CudaSource
from engine.devices.machine import Machine
from engine.devices.selection import Needs, Wanted, select_device
from engine.devices.session import Device
from engine.devices.sizing import Load
from engine.request import Event, Failed, Finished, Hypothesis, Translate
from engine.runner import Runner
from engine.search import EndRules
from models.decoding import Decoding
from models.package.folder import Package
from server.telemetry.metrics import Metrics

Tokens = tuple[int, ...]


class Ours:
    """A package, loaded. Its rows have room for `capacity` source tokens and as many target tokens."""

    def __init__(self, plan: Plan, model: str, precision: Precision, capacity: int) -> None:
        self.package = Package.open(plan.package(model, precision))
        manifest = self.package.manifest
        wanted = Wanted(plan.device, plan.device_id, cuda_graphs=plan.cuda_graphs and precision != "fp32")
        self.config, self.generation = manifest.model, manifest.generation
        self.decoder = CudaDecoder(
            self.package.encoder_graph,
            self.package.decoder_graph,
            self.config,
            capacity,
            capacity,
            manifest.precision,
            choose(wanted, self.package),
            self.package.choice(),
        )

    @contextmanager
    def engine(self, max_rows: int) -> Iterator["RunningEngine"]:
        """One worker with a running batch of so many rows."""
        rules = EndRules(self.config.end_id, self.generation.forced_end_id, self.generation.suppressed_ids)
        start_id, metrics = self.config.decoder_start_id, Metrics(CollectorRegistry())
        with Runner(self.decoder, rules, start_id, 1, max_rows, metrics, lambda error: None) as scheduler:
            yield RunningEngine(scheduler)


def choose(wanted: Wanted, package: Package) -> Device:
    """The device, as the server chooses it. Raises DeviceError."""
    manifest = package.manifest
    load = Load(manifest.model, manifest.precision, rows=1, source_tokens=1, target_tokens=1)
    device, _ = select_device(wanted, Needs(manifest.precision, manifest.attention, load), Machine())
    return device


class RunningEngine:
    """Takes sources, gives targets."""

    def __init__(self, scheduler: Runner[CudaSource]) -> None:
        self._scheduler = scheduler

    def translate(self, sources: Sequence[Tokens], num_beams: int, max_new_tokens: int) -> list[Hypothesis]:
        """The best hypothesis of every source. Raises what the engine failed with."""
        answers: list[Event | None] = [None] * len(sources)
        answered = threading.Semaphore(0)

        def keep(index: int, event: Event) -> None:
            answers[index] = event
            answered.release()

        for index, source in enumerate(sources):
            self._scheduler.submit(
                Translate(source, partial(keep, index), decoding=decoding(num_beams, max_new_tokens))
            )
        for _ in sources:
            answered.acquire()
        return [_best(answer) for answer in answers]

    def targets(self, sources: Sequence[Tokens], num_beams: int, max_new_tokens: int) -> list[Tokens]:
        """The tokens of `translate`."""
        return [hypothesis.token_ids for hypothesis in self.translate(sources, num_beams, max_new_tokens)]


def decoding(num_beams: int, max_new_tokens: int) -> Decoding:
    """What transformers does unless told otherwise."""
    return Decoding(num_beams, 1, max_new_tokens, length_penalty=1.0, early_stopping=False)


def _best(event: Event | None) -> Hypothesis:
    if isinstance(event, Failed):
        raise event.error
    assert isinstance(event, Finished)
    return event.hypotheses[0]
