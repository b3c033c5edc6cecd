"""The steps of an export: load, trace, save, verify, publish. Where a shortlist is asked for: count, before trace."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from engine.devices.session import Device
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
from export.quantization.translations.quantize import Quantized, quantize_model
from export.shortlist.count import count_shortlist
from export.shortlist.table import ListSize
from export.shortlist.text import Text, read_text
from export.sources import Fetched
from export.tracing.graphs import EncoderGraphs, Graphs
from export.tracing.screened import why_full
from export.tracing.trace import trace
from export.tracing.variant import variant
from export.unread import unread
from export.verification.verify import verify
from export.weights.save import save, save_beside
from export.weights.stored import STORED, StoredWeights
from models.architectures.architecture import Architecture
from models.checkpoint import Checkpoint, load_checkpoint
from models.checkpoint.encoders import is_encoder
from models.checkpoint.tokenizers.pieces import other_tokens
from models.package.folder import check_target, draft, publish, publish_beside
from models.package.graph_files import GraphFiles
from models.package.manifest import SHORTLIST, WEIGHTS, Manifest
from models.package.seal import private_key, sign
from models.package.shortlist import Shortlist

PACKAGES = Path("artifacts")
"""Where a package goes, under its model's name, unless the command line says where."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What is exported, and where to."""

    checkpoint: Checkpoint
    model: Architecture
    """In the precision and with the attention that are wanted."""
    shortlist: Shortlist | None
    """That came with it."""
    counted: tuple[Text, ListSize] | None
    """What a shortlist is to be counted of, and how long its lists are to be."""
    name: str
    target: Path
    stored: StoredWeights | None
    """The checkpoint's own, beside which the package is to be."""
    device: Device
    """Which the graphs are verified on."""
    told: Sequence[str]
    """What whoever exports it may want to know."""


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
        loaded = _load(options, fetched)
    checkpoint, shortlist, stored = loaded.checkpoint, loaded.shortlist, loaded.stored
    for line in loaded.told:
        progress.tell(line)
    if loaded.counted is not None:
        with progress.stage("count") as tell:
            shortlist, said = count_shortlist(checkpoint, fetched.folder, *loaded.counted, options.attention, tell)
        progress.tell(said)
    quantized = None
    if quantizing_texts is not None:
        with progress.stage("quantize") as tell:
            tokenizer = checkpoint.open_tokenizer(fetched.folder)
            quantized = quantize_model(checkpoint, tokenizer, *quantizing_texts, tell)
    with draft(loaded.target if stored is None else loaded.target / "package") as folder:
        with progress.stage("trace"):
            graphs, lacking = _trace(options, loaded, quantized, shortlist is not None)
        for line in lacking:
            progress.tell(line)
        with progress.stage("save"):
            files = _save(graphs, loaded, shortlist, folder)
        with progress.stage("verify") as tell:
            emulated = checkpoint.model if quantized is None else native_model(checkpoint.transformer, quantized.recipe)
            verified = verify(checkpoint, fetched.folder, files, texts, loaded.device, tell, emulated)
            if quantized is not None:
                verified = verified.with_quantization(quantized.report)
        with progress.stage("publish"):
            weights = WEIGHTS if stored is None else stored.file.name
            manifest = make_manifest(checkpoint, loaded.name, files, verified, weights)
            (publish if stored is None else publish_beside)(folder, manifest, loaded.target, seal)
    return loaded.target, manifest, graphs


def _load(options: Options, fetched: Fetched) -> _Loaded:
    """Whatever is wrong with the options is told here, before anything takes long."""
    found = load_checkpoint(fetched.folder)
    checkpoint = adapt(found, fetched, options)
    shortlist = open_shortlist(checkpoint)
    text = read_text(options.shortlist) if options.shortlist is not None and shortlist is None else None
    size = check_list_size(options, checkpoint)
    name = check_name(checkpoint.name if options.name is None else options.name)
    target = fetched.folder if options.in_place else options.out or PACKAGES / name
    if not options.in_place:
        check_target(target)
    told = [*advice(found, fetched, options), *unread(fetched.folder)]
    return _Loaded(
        checkpoint=checkpoint,
        model=variant(checkpoint.model, options.precision, options.attention),
        shortlist=shortlist,
        counted=None if text is None else (text, size),
        name=name,
        target=target,
        stored=StoredWeights(target / STORED) if options.in_place else None,
        device=open_device(options, checkpoint),
        told=[*told, *other_tokens(fetched.folder, checkpoint.made_files)],
    )


def _trace(
    options: Options, loaded: _Loaded, quantized: Quantized | None, shortlisted: bool
) -> tuple[Graphs, Sequence[str]]:
    """All graphs that the model may have, and why it has no others."""
    original, model = loaded.checkpoint.model, loaded.model if quantized is None else quantized.model
    full = why_full(loaded.checkpoint.config, options.precision, options.attention, shortlisted)
    output_layer = options.output_layer if full is None else "full"
    graphs = trace(model, options.attention, shortlisted, output_layer, scoring=True)
    no_native = why_standard_only(original, options.precision)
    if no_native is None:
        graphs = with_native(graphs, original, {} if quantized is None else quantized.recipe, shortlisted)
    no_step = why_no_device_step(model, options.precision, options.attention, shortlisted)
    if no_step is None:
        graphs = with_device_step(graphs, model)
    lacking = list[str]()
    if full is not None and options.output_layer == "screened":
        lacking.append(f"full output layer: {full}")
    if no_native is not None and no_step is not None:
        lacking.append(f"standard graphs only: {no_step if options.precision == 'fp16' else no_native}")
    return graphs, lacking


def _save(graphs: Graphs, loaded: _Loaded, shortlist: Shortlist | None, folder: Path) -> GraphFiles:
    """Writes all that a package has but the manifest."""
    saved = save(graphs, folder) if loaded.stored is None else save_beside(graphs, folder, loaded.stored)
    if shortlist is not None:
        shortlist.save(folder / SHORTLIST)
    for name, file in package_files(loaded.checkpoint, loaded.stored).items():
        shutil.copyfile(file, folder / name)
    loaded.checkpoint.make_files(folder)
    return replace(saved, shortlist=shortlist)
