"""Our side: a package on the device, driven through the runner, as the server drives it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from bench.gpu.plan import Plan, Precision
from engine.devices.machine import Machine
from engine.devices.selection import Wanted, select_device
from engine.devices.session import Device
from engine.devices.sizing import Load
from engine.loading.load import Loadable, open_decoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import Hypothesis
from engine.runner import Runner
from engine.targets import TargetRules
from models.decoding import Decoding
from models.package.folder import Package

Tokens = tuple[int, ...]


class Ours:
    """A package, loaded. Its rows have room for `capacity` source tokens and as many target tokens."""

    def __init__(self, plan: Plan, model: str, precision: Precision, capacity: int) -> None:
        self.package = Package.open(plan.package(model, precision))
        manifest = self.package.manifest
        wanted = Wanted(plan.device, plan.device_id, cuda_graphs=plan.cuda_graphs and precision != "fp32")
        self.config, self.generation = manifest.model, manifest.generation
        loadable = Loadable.of(self.package)
        self._rules = loadable.rules
        self.decoder = open_decoder(loadable, choose(wanted, self.package), capacity, capacity)

    @contextmanager
    def engine(self, max_rows: int) -> Iterator["RunningEngine"]:
        """One worker with a running batch of so many rows."""
        with Runner(self.decoder, max_rows, workers=1, observer=Unobserved()) as runner:
            yield RunningEngine(runner, self._rules)


def choose(wanted: Wanted, package: Package) -> Device:
    """The device, as the server chooses it. Raises DeviceError."""
    load = Load(package.manifest.graphs, rows=1, source_tokens=1, target_tokens=1)
    device, _ = select_device(wanted, load, Machine())
    return device


class RunningEngine:
    """Takes sources, gives targets."""

    def __init__(self, runner: Runner, rules: TargetRules) -> None:
        self._runner, self._rules = runner, rules

    def translate(self, sources: Sequence[Tokens], num_beams: int, max_new_tokens: int) -> list[Hypothesis]:
        """The best hypothesis of every source. Raises what the engine failed with."""
        return list(self.stream(sources, num_beams, max_new_tokens, outstanding=len(sources)))

    def stream(
        self, sources: Iterable[Tokens], num_beams: int, max_new_tokens: int, outstanding: int
    ) -> Iterator[Hypothesis]:
        """The same one by one, in their order. With more `outstanding` than rows, each row is filled again at once."""
        asked = ((source, decoding(num_beams, max_new_tokens)) for source in sources)
        for answer in decode(self._runner, self._rules, asked, window=outstanding):
            yield answer.hypotheses[0]

    def targets(self, sources: Sequence[Tokens], num_beams: int, max_new_tokens: int) -> list[Tokens]:
        """The tokens of `translate`."""
        return [hypothesis.token_ids for hypothesis in self.translate(sources, num_beams, max_new_tokens)]


def decoding(num_beams: int, max_new_tokens: int) -> Decoding:
    """What transformers does unless told otherwise."""
    return Decoding(num_beams, 1, max_new_tokens, length_penalty=1.0, early_stopping=False)
