"""What is measured, and at what size. Torch-free: the parent process, which only collects, imports nothing else."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.packages.shapes import BASE, Shape

Device = Literal["cpu", "cuda"]
Precision = Literal["fp32", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("fp16", "fp32")
MODELS = ("zoo", "base")
"""models/zoo/en-pt, and one of OPUS-MT's base size with random weights. At toy size, one takes the place of both."""

Findings = dict[str, Any]
"""What a part found, as JSON."""


@dataclass(frozen=True)
class Part:
    """A module `bench.gpu.<room>.<name>` with a function `run(plan)` that yields names and values as it finds them."""

    room: Literal["checks", "measures"]
    name: str
    title: str
    budget_s: float
    """It is ended after that, and what it found is kept."""
    spare: bool = False
    """It gets no time that the parts behind it need."""


PARTS = (
    Part("checks", "packages", "Checkpoints and packages", 150),
    Part("checks", "proof", "Provider proof", 25),
    Part("checks", "parity", "Parity with PyTorch", 75),
    Part("measures", "throughput", "Throughput", 140),
    Part("measures", "latency", "Latency of one sentence", 30),
    Part("measures", "served", "Served over gRPC", 60),
    Part("measures", "roofline", "A decode step and its floor", 30),
    Part("measures", "memory", "Memory", 25),
    Part("checks", "invariance", "Batch invariance", 30),
    Part("measures", "profile", "Profile", 25),
    Part("measures", "nllb", "Throughput at the size of NLLB-600M", 90),
    Part("measures", "training", "Training", 40),
    Part("measures", "compiled", "Throughput of transformers, compiled", 150, spare=True),
    Part("checks", "soak", "Soak with random lengths", 0),
)
"""Most important first. `packages` makes what the others measure. How long the soak may take, the command line says."""
SOAK_STARTS_S = 15.0
"""What the soak needs beside its own time."""


def search_name(num_beams: int) -> str:
    """As people say it."""
    return "greedy" if num_beams == 1 else f"beam {num_beams}"


@dataclass(frozen=True)
class Cell:
    """One line of the throughput table."""

    num_beams: int
    sentences: int

    @property
    def rows(self) -> int:
        return self.num_beams * self.sentences

    @property
    def name(self) -> str:
        return f"{search_name(self.num_beams)}, {self.sentences} sentence{'s' if self.sentences > 1 else ''}"


@dataclass(frozen=True)
class Served:
    """What the server is asked for."""

    callers: int
    """Calls at a time, and rows that it has."""
    processes: int
    """Of callers."""
    texts: int
    closed_s: float
    open_s: float
    """Of each load, and of the engine alone."""


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    base: Shape
    sentences: int
    """Of tests/data/heldout.en-pt.tsv, to compare token by token."""
    sentence_tokens: int
    """Longest target of these, in the zoo's model."""
    steps: int
    """Length of the targets whose log-probabilities are compared."""
    cells: tuple[Cell, ...]
    compiled: tuple[Cell, ...]
    """Those for which transformers is compiled, most important first: it takes up to a minute each."""
    source_tokens: int
    target_tokens: int
    repeats: int
    """Readings of each side."""
    latency_repeats: int
    served: Served
    step_rows: tuple[int, ...]
    copy_bytes: int
    memory_rows: int
    memory_tokens: int
    invariance_sentences: int
    training_tokens: tuple[int, ...]
    """Target tokens of a batch."""
    updates: int
    product_size: int
    """Of square matrices."""
    soak_rows: int


FULL = Sizes(
    base=BASE,
    sentences=507,
    sentence_tokens=128,
    steps=64,
    cells=(Cell(1, 32), Cell(1, 1), Cell(1, 256), Cell(4, 32), Cell(4, 1), Cell(4, 256)),
    compiled=(Cell(1, 32), Cell(1, 1), Cell(1, 256), Cell(4, 32)),
    source_tokens=32,
    target_tokens=32,
    repeats=3,
    latency_repeats=50,
    served=Served(callers=256, processes=8, texts=64, closed_s=8.0, open_s=5.0),
    step_rows=(32, 1, 8, 128, 256),
    copy_bytes=1 << 30,
    memory_rows=64,
    memory_tokens=256,
    invariance_sentences=64,
    training_tokens=(4096, 16384, 65536),
    updates=20,
    product_size=8192,
    soak_rows=64,
)

TOY = Sizes(
    base=Shape(layers=1, width=64, ffn=128, heads=4, vocab=32100),
    sentences=3,
    sentence_tokens=12,
    steps=4,
    cells=(Cell(1, 2), Cell(4, 1)),
    compiled=(Cell(1, 2),),
    source_tokens=5,
    target_tokens=4,
    repeats=1,
    latency_repeats=2,
    served=Served(callers=4, processes=2, texts=3, closed_s=1.0, open_s=0.5),
    step_rows=(2,),
    copy_bytes=1 << 22,
    memory_rows=2,
    memory_tokens=8,
    invariance_sentences=3,
    training_tokens=(20,),
    updates=2,
    product_size=64,
    soak_rows=4,
)


@dataclass(frozen=True)
class Plan:
    """What one run measures."""

    device: Device
    device_id: int
    toy: bool
    work: Path
    """Folder for checkpoints and packages, gone afterwards."""
    soak_s: float
    cuda_graphs: bool = True
    """Whether decoder steps are captured. In fp32, which is only there to compare with, they never are."""
    part_s: float = 0.0
    """Seconds that the part which gets this has."""

    @property
    def sizes(self) -> Sizes:
        return TOY if self.toy else FULL

    @property
    def torch_device(self) -> str:
        """As PyTorch calls it."""
        return f"cuda:{self.device_id}" if self.device == "cuda" else "cpu"

    @property
    def models(self) -> tuple[str, ...]:
        """Models that packages are made of: to trace the zoo's takes too long for a test."""
        return ("base",) if self.toy else MODELS

    @property
    def zoo(self) -> Path:
        """The trained checkpoint of this repository."""
        return Path(__file__).parents[2] / "models" / "zoo" / "en-pt"

    def checkpoint(self, model: str) -> Path:
        """Folder of a Hugging Face checkpoint."""
        return self.zoo if model == "zoo" and not self.toy else self.work / self._made(model)

    def package(self, model: str, precision: Precision) -> Path:
        """Folder of its package, which the part `packages` makes, or the part that alone measures the model."""
        return self.work / f"{self._made(model)}-{precision}"

    def _made(self, model: str) -> str:
        """What stands for a model."""
        return "base" if self.toy and model == "zoo" else model
