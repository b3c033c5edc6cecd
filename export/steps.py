"""The steps of an export: load, trace, save, verify, publish. Where a shortlist is asked for: count, before trace."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

from export.command.arguments import Options
from export.command.progress import Progress
from export.encoders import export_encoder
from export.inputs import (
    adapt,
    check_list_size,
    check_name,
    named_prompts,
    open_device,
    open_shortlist,
    read_quantizing_texts,
    read_samples,
)
from export.languages import advice
from export.manifest import make_manifest, package_files
from export.native.device.step import why_no_device_step, with_device_step
from export.native.graphs import why_standard_only, with_native
from export.quantization.model import native_model
from export.quantization.translations.quantize import quantize_model
from export.shortlist.count import count_shortlist
from export.shortlist.text import read_text
from export.sources import Fetched
from export.tracing.graphs import EncoderGraphs, Graphs
from export.tracing.screened import why_full
from export.tracing.trace import trace
from export.tracing.variant import variant
from export.unread import unread
from export.verification.verify import verify
from export.weights.save import save, save_beside
from export.weights.stored import STORED, StoredWeights
from models.checkpoint import load_checkpoint
from models.checkpoint.encoders import is_encoder
from models.checkpoint.tokenizers.pieces import other_tokens
from models.package.folder import check_target, draft, publish, publish_beside
from models.package.manifest import SHORTLIST, WEIGHTS, Manifest
from models.package.seal import private_key, sign

PACKAGES = Path("artifacts")
"""Where a package goes, under its model's name, unless the command line says where."""


def export(options: Options, fetched: Fetched, progress: Progress) -> tuple[Path, Manifest, Graphs | EncoderGraphs]:
    """Loads, traces, saves, verifies and publishes. Until then nothing is where the package belongs.

    Returns the package's folder and what lies there.
    """
    if is_encoder(fetched.folder):
        return export_encoder(options, fetched, PACKAGES, progress)
    seal = None if options.sign is None else partial(sign, key=private_key(options.sign))
    before = next(iter(named_prompts(options.task).values()), "")
    texts = [before + text for text in read_samples(options.samples, options.verify_samples)]
    quantizing_texts = read_quantizing_texts(options, texts)
    with progress.stage("load"):
        loaded = load_checkpoint(fetched.folder)
        checkpoint = adapt(loaded, fetched, options)
        shortlist = open_shortlist(checkpoint)
        text = read_text(options.shortlist) if options.shortlist is not None and shortlist is None else None
        lists = check_list_size(options, checkpoint)
        name = check_name(checkpoint.name if options.name is None else options.name)
        target = fetched.folder if options.in_place else options.out or PACKAGES / name
        if not options.in_place:
            check_target(target)
        model = variant(checkpoint.model, options.precision, options.attention)
        device = open_device(options, checkpoint)
        stored = StoredWeights(target / STORED) if options.in_place else None
    tokens = other_tokens(fetched.folder, checkpoint.made_files)
    for line in [*advice(loaded, fetched, options), *unread(fetched.folder), *tokens]:
        progress.tell(line)
    if text is not None:
        with progress.stage("count") as tell:
            shortlist, said = count_shortlist(checkpoint, fetched.folder, text, lists, options.attention, tell)
        progress.tell(said)
    quantized = None
    if quantizing_texts is not None:
        with progress.stage("quantize") as tell:
            tokenizer = checkpoint.open_tokenizer(fetched.folder)
            quantized = quantize_model(checkpoint, tokenizer, *quantizing_texts, tell)
            model = quantized.model
    with draft(target if stored is None else target / "package") as folder:
        with progress.stage("trace"):
            full = why_full(checkpoint.config, options.precision, options.attention, shortlist is not None)
            output_layer = options.output_layer if full is None else "full"
            graphs = trace(model, options.attention, shortlist is not None, output_layer, scoring=True)
            missing = why_standard_only(checkpoint.model, options.precision)
            if missing is None:
                recipe = {} if quantized is None else quantized.recipe
                graphs = with_native(graphs, checkpoint.model, recipe, shortlist is not None)
            lacking = why_no_device_step(model, options.precision, options.attention, shortlist is not None)
            if lacking is None:
                graphs = with_device_step(graphs, model)
        if full is not None and options.output_layer == "screened":
            progress.tell(f"full output layer: {full}")
        if missing is not None and lacking is not None:
            progress.tell(f"standard graphs only: {lacking if options.precision == 'fp16' else missing}")
        with progress.stage("save"):
            saved = save(graphs, folder) if stored is None else save_beside(graphs, folder, stored)
            files = replace(saved, shortlist=shortlist)
            if shortlist is not None:
                shortlist.save(folder / SHORTLIST)
            for file_name, file in package_files(checkpoint, stored).items():
                shutil.copyfile(file, folder / file_name)
            checkpoint.make_files(folder)
        with progress.stage("verify") as tell:
            emulated = checkpoint.model if quantized is None else native_model(checkpoint.transformer, quantized.recipe)
            verified = verify(checkpoint, fetched.folder, files, texts, device, tell, emulated)
            if quantized is not None:
                verified = verified.with_quantization(quantized.report)
        with progress.stage("publish"):
            weights = WEIGHTS if stored is None else stored.file.name
            manifest = make_manifest(checkpoint, name, files, verified, weights)
            (publish if stored is None else publish_beside)(folder, manifest, target, seal)
    return target, manifest, graphs
