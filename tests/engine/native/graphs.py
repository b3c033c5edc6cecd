"""Models with random weights, and their standard and native graphs."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from engine.cpu.decoder import CpuDecoder
from engine.loading.load import Loadable
from engine.native.decoder import NativeDecoder
from export.native.graphs import native_graphs
from export.quantization.model import standard_model
from export.weights.save import save
from kernels.library import Library
from models.config import ModelConfig
from models.package.declared.graphs import Probe
from models.package.derived import vocabulary
from models.package.graph_files import GraphFiles
from models.package.manifest import GenerationDefaults
from models.package.shortlist import Shortlist
from models.transformer import Transformer
from tests.engine.traced import shared_model, traced
from tests.export.native.recipes import recipe_of
from tests.models.test_transformer import T5, config
from tests.shortlists import random_lists, write

LONGEST = 130
"""Positions of a row. The memory for so many is four times that for less than 32, so that it shrinks again."""
POST = config(max_positions=LONGEST)
PRE = config(
    norm="pre",
    activation="swish",
    positions="learned",
    share_embeddings=False,
    tie_output=False,
    decoder_layers=1,
    max_positions=LONGEST,
)
RECURRENT = config(decoder_cell="ssru", max_positions=LONGEST)
RELATIVE = config(**T5, max_positions=LONGEST)
"""As T5: norms are RMS norms, too."""
GATED = config(**T5 | {"relative": "per_layer", "gated": True, "activation": "gelu_tanh"}, max_positions=LONGEST)
"""As UMT5; but for its tables, as T5 1.1."""


@dataclass(frozen=True)
class Exported:
    """A model, and its graphs in a folder."""

    model: Transformer
    files: GraphFiles

    @property
    def standard(self) -> CpuDecoder:
        return CpuDecoder(self.files, LONGEST, LONGEST)

    def native(self, library: Library) -> NativeDecoder:
        assert self.files.spec.native is not None
        return NativeDecoder(self.files, self.files.spec.native, library, LONGEST, LONGEST)

    def loadable(self, *probes: Probe) -> Loadable:
        """With these known answers."""
        files = replace(self.files, spec=self.files.spec.model_copy(update={"probes": probes}))
        return Loadable(files, GenerationDefaults())


def export(folder: Path, model: Transformer, quantized: bool = False, shortlist: bool = False) -> Exported:
    """Writes both kinds of graphs of a model."""
    native = native_graphs(model, recipe_of(model) if quantized else {}, shortlist)
    files = save(traced(model, shortlist).with_native(native), folder)
    if shortlist:
        size = model.config.target_vocab_size
        lists = write(folder / "lex.bin", random_lists(model.config.source_vocab_size, size))
        files = replace(files, shortlist=Shortlist.load(lists, vocabulary(model.config)))
    return Exported(model, files)


def export_standard(folder: Path, model: Transformer) -> Exported:
    """Writes the standard graphs of a model in 8 bits."""
    return Exported(model, save(traced(_standard(model)), folder))


@cache
def _standard(model: Transformer) -> Transformer:
    return standard_model(model, recipe_of(model))


def export_narrow(folder: Path, shape: ModelConfig) -> Exported:
    """Of random weights, in 8 bits whose static ranges most hidden states exceed: about 1 of them has 0.64."""
    model = shared_model(shape)
    recipe = {
        name: replace(layer, activations=replace(layer.activations, scale=0.005))
        for name, layer in recipe_of(model, per_row=False).items()
    }
    return Exported(model, save(traced(model).with_native(native_graphs(model, recipe)), folder))


def export_random(folder: Path, shape: ModelConfig, quantized: bool = False, shortlist: bool = False) -> Exported:
    """Of random weights."""
    return export(folder, shared_model(shape), quantized, shortlist)
