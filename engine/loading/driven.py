"""How much memory of the host a model takes that one thread drives: on a CUDA device, or of 16 bits on the CPU.

cache      on the CPU all rows, whose memory does not grow; a device has its own (`engine.devices.sizing`)
work       on the CPU what runs need, twice because ONNX Runtime doubles what it takes, and their numbers and weights as
           fp32, in which it computes where it has no operators of 16 bits; from a device, what searches ask for of
           whole rows, and what CUDA's libraries load when they are first needed
late       graphs that score given targets, and what they are read into
"""

from dataclasses import dataclass

from engine.devices.sizing import FLOAT_BYTES, MOVED_BYTES, RUNTIME_BYTES, Load
from engine.loading.budget import HostLoad
from engine.logits.target_graphs import OUTPUT_TOKENS, PASS_TOKENS
from models.package.declared.precision import NUMBER_BYTES

READ_ROWS = 3
"""Times that whole rows of scores are there: as they come, as fp32, and without the tokens that are not allowed."""


@dataclass(frozen=True, slots=True)
class DrivenLoad(HostLoad):
    """A loaded model with one worker, and the batch it is to decode."""

    on_host: bool = True
    """It runs on the CPU."""

    @property
    def express_rows(self) -> int:
        return 0  # one thread drives the device

    @property
    def cache_bytes(self) -> int:
        return self._load.cache_bytes if self.on_host else 0

    @property
    def growth_bytes(self) -> int:
        return 0

    @property
    def work_bytes(self) -> int:
        read = READ_ROWS * self.rows * self.graphs.vocabulary.target_size * FLOAT_BYTES
        if self.graphs.cross_query is not None:  # the keys of one layer, to tell where a target looks
            read += 2 * self.rows * self.source_tokens * self.graphs.width * FLOAT_BYTES
        if not self.on_host:
            return read + RUNTIME_BYTES
        wider = FLOAT_BYTES // NUMBER_BYTES[self.graphs.precision.activations]
        runs = self._load.work_bytes - RUNTIME_BYTES - 2 * MOVED_BYTES
        return read + 2 * (wider * (runs + self._layer_bytes) + 2 * MOVED_BYTES) + wider * self._load.weight_bytes

    @property
    def late_bytes(self) -> int:
        graphs = self.graphs
        if graphs.scoring is None:
            return 0
        weights = sum(file.weight_bytes for file in graphs.scoring.files)
        if not self.on_host:
            return weights  # on their way to the device
        heads = max((tensor.heads for tensor in graphs.cache), default=0)
        token = graphs.encoder_numbers + heads * (self.source_tokens + self.target_tokens)
        of_pass = max(PASS_TOKENS, self.target_tokens) * token
        return 3 * weights + (of_pass + 2 * OUTPUT_TOKENS * graphs.vocabulary.target_size) * FLOAT_BYTES

    @property
    def _load(self) -> Load:
        return Load(self.graphs, self.rows, self.source_tokens, self.target_tokens)

    @property
    def _layer_bytes(self) -> int:
        """Of the cache of one layer, on its way to a product."""
        layers = max(1, len(self.graphs.cache) // 4)  # keys and values, of the target and of the source
        return self._load.cache_bytes // layers
