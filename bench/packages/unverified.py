"""Packages by the export's own steps, but for its verification."""

import shutil
from pathlib import Path

import numpy as np
import torch

from export.manifest import make_manifest
from export.native.device.step import obstacle, with_device_step
from export.native.graphs import native_graphs
from export.quantization.calibrate import OUTPUT, linear_layers
from export.quantization.make import has_no_sign
from export.quantization.model import standard_model
from export.quantization.recipe import Activations, QuantizedLinear, Recipe
from export.tracing.trace import trace
from export.tracing.variant import variant
from export.verification.verify import Verified
from export.weights.save import save
from models.checkpoint import load_checkpoint
from models.package.declared.precision import AttentionKind, Precision
from models.package.folder import draft, publish
from models.package.manifest import Certificate
from models.transformer import Transformer

SCALE = 0.05
"""Of activations that nobody calibrated."""


def write_package(
    folder: Path, name: str, target: Path, precision: Precision, attention: AttentionKind, native: bool = False
) -> None:
    """Makes a package at `target` of the checkpoint in `folder`; one in fp16 with a step for GPUs, where it can.

    native: with native graphs beside the standard ones
    """
    unverified = Verified(Certificate(tolerance=0, encoder_error=0, steps=(), agreements=()))
    checkpoint = load_checkpoint(folder)
    recipe = uncalibrated(checkpoint.transformer) if precision == "int8" else {}
    exact = checkpoint.transformer
    model = standard_model(exact, recipe) if recipe else variant(exact, precision, attention)
    torch.set_num_threads(1)  # the examples of a trace are small
    with draft(target) as drafted:
        graphs = trace(model, attention)
        if native:
            graphs = graphs.with_native(native_graphs(exact, recipe, False))
        if (precision, attention) == ("fp16", "fused") and obstacle(model) is None:
            graphs = with_device_step(graphs, model)
        saved = save(graphs, drafted)
        for file_name, file in checkpoint.files.items():
            shutil.copyfile(file, drafted / file_name)
        checkpoint.make_files(drafted)
        publish(drafted, make_manifest(checkpoint, name, saved, unverified), target)


def uncalibrated(model: Transformer) -> Recipe:
    """All layers in 8 bits, by the largest weight of each output: as fast as any other recipe, and not as good."""
    output = model.output_weight[: model.config.target_vocab_size]
    weights = {name: layer.weight for name, layer in linear_layers(model).items()} | {OUTPUT: output}
    recipe = {}
    for name, weight in weights.items():
        numbers = weight.detach().numpy().astype(np.float32)
        scales = np.maximum(np.abs(numbers).max(axis=1), np.finfo(np.float32).tiny) / 127
        quantized = np.rint(numbers / scales[:, None]).clip(-127, 127).astype(np.int8)
        activations = Activations(SCALE, 0 if has_no_sign(model, name) else 128)
        recipe[name] = QuantizedLinear(quantized, scales.astype(np.float32), activations)
    return recipe
