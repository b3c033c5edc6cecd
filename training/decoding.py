"""Translates with the engine that serves: export's graphs, the scheduler, the search."""

import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir
from prometheus_client import CollectorRegistry

from engine.cpu.decoder import CpuDecoder, CpuSource
from engine.request import Event, Failed, Finished, FinishReason, Translate
from engine.runner import Runner
from engine.search import EndRules
from export.save import save
from export.trace import trace
from models.config import ModelConfig
from models.decoding import Decoding
from models.package.folder import Package
from models.package.manifest import DECODER, ENCODER, GenerationDefaults
from models.package.shortlist import ShortlistedOutput
from models.tokenizers.sentencepiece_pair import Tokenizer
from models.transformer import Transformer
from server.telemetry.metrics import Metrics

ROWS = 32
"""Hypotheses that each worker decodes at a time."""
WINDOW = 1024
"""Sentences that wait in the engine's queue, so that no row is ever idle."""


@dataclass(frozen=True)
class Limits:
    """How targets are searched for."""

    num_beams: int = 1
    growth: float = 2.0
    """Most target tokens for each source token: a model that has learnt nothing yet would never end."""
    allowance: int = 10
    """Tokens that every target may have besides."""


@dataclass(frozen=True)
class Translated:
    """A target."""

    text: str
    tokens: int
    complete: bool
    """It ended by itself."""


class Engine:
    """A loaded model and its worker threads. Use `open_engine`."""

    def __init__(self, scheduler: Runner[CpuSource], tokenizer: Tokenizer, config: ModelConfig, limits: Limits) -> None:
        self.tokenizer = tokenizer
        self.config = config
        self._scheduler, self._limits = scheduler, limits

    def translate(self, sources: Iterable[Sequence[int]]) -> Iterator[Translated]:
        """The translations of token ids, in their order."""
        waiting: deque[Future[Event]] = deque()
        for source in sources:
            waiting.append(self._submit(tuple(source)))
            if len(waiting) == WINDOW:
                yield self._translated(waiting.popleft().result())
        while waiting:
            yield self._translated(waiting.popleft().result())

    def _submit(self, source: tuple[int, ...]) -> Future[Event]:
        answer: Future[Event] = Future()
        longest = int(self._limits.growth * len(source)) + self._limits.allowance
        decoding = Decoding(
            num_beams=self._limits.num_beams,
            num_return_sequences=1,
            max_new_tokens=min(longest, self.config.max_positions),
            length_penalty=1.0,
            early_stopping=False,
        )
        self._scheduler.submit(Translate(source, answer.set_result, decoding=decoding))
        return answer

    def _translated(self, event: Event) -> Translated:
        if isinstance(event, Failed):
            raise event.error
        assert isinstance(event, Finished)
        best = event.hypotheses[0]
        text = self.tokenizer.decode(best.token_ids)
        return Translated(text, len(best.token_ids), best.finish_reason is FinishReason.END_TOKEN)


@contextmanager
def open_engine(
    graphs: Path,
    config: ModelConfig,
    tokenizer: Tokenizer,
    generation: GenerationDefaults,
    limits: Limits,
    choice: ShortlistedOutput | None = None,
) -> Iterator[Engine]:
    """Starts a worker on every core."""
    most = config.max_positions
    decoder = CpuDecoder(graphs / ENCODER, graphs / DECODER, config, most, most, choice)
    rules = EndRules(config.end_id, None, generation.suppressed_ids)
    workers, metrics = os.cpu_count() or 1, Metrics(CollectorRegistry())
    rows = max(ROWS, limits.num_beams)
    with Runner(
        decoder, rules, config.decoder_start_id, workers, rows, metrics, on_crash=lambda error: None
    ) as scheduler:
        yield Engine(scheduler, tokenizer, config, limits)


class TracedModel:
    """A model under training as graphs. Tracing takes ten seconds; then new weights go into the same graphs."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer) -> None:
        """Traces a copy. `model` may be on any device, and goes on training."""
        self._tokenizer = tokenizer
        self._graphs = trace(deepcopy(model).cpu())
        graphs = (self._graphs.encoder.graph, self._graphs.decoder.graph)
        self._constants = [(value, value.const_value) for graph in graphs for value in graph.initializers.values()]

    @contextmanager
    def open(self, model: Transformer, limits: Limits) -> Iterator[Engine]:
        """The engine of the model as it is now."""
        generation = GenerationDefaults(max_new_tokens=model.config.max_positions)
        with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
            self._fill(model)
            save(self._graphs, Path(folder))
            with open_engine(Path(folder), model.config, self._tokenizer, generation, limits) as engine:
                yield engine

    def _fill(self, model: Transformer) -> None:
        """Puts the weights in; the exporter names them as the model does. Saving has replaced the other constants."""
        parameters = dict(model.named_parameters(remove_duplicate=False))
        for value, constant in self._constants:
            name = value.name or ""
            parameter = parameters.get(name.removeprefix("model."))
            value.const_value = (
                constant if parameter is None else ir.tensor(parameter.detach().cpu().numpy(), name=name)
            )


@contextmanager
def open_package(package: Package, limits: Limits) -> Iterator[Engine]:
    """The engine of an exported model."""
    manifest = package.manifest
    tokenizer, choice = package.tokenizer(), package.choice()
    with open_engine(package.folder, manifest.model, tokenizer, manifest.generation, limits, choice) as engine:
        yield engine
