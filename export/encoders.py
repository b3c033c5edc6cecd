"""The steps of an export of an encoder alone: load, trace, save, verify, publish."""

import shutil
from functools import partial
from importlib.metadata import version
from pathlib import Path

from export.command.arguments import Options
from export.command.progress import Progress
from export.inputs import InputError, check_languages, check_name, read_quantizing_texts, read_samples
from export.manifest import TOOLS
from export.native.graphs import native_encoder_graphs, why_standard_only
from export.quantization.encoders.encoder import QuantizedEncoder, quantize_encoder, round_encoder
from export.quantization.texts import Calibration, Samples, check_likeness
from export.sources import Fetched
from export.tell import Tell
from export.tracing.graphs import EncoderGraphs
from export.tracing.trace import trace_encoders
from export.unread import unread
from export.verification.vectors import verify_vectors
from export.verification.verify import most_tokens
from export.weights.save import save
from models.checkpoint import encoders
from models.checkpoint.contents import EncoderCheckpoint, write_made
from models.checkpoint.tokenizers.pieces import other_tokens
from models.package.folder import check_target, draft, file_entries, publish
from models.package.graph_files import GraphFiles
from models.package.manifest import WEIGHTS, GenerationDefaults, Manifest, Origin
from models.package.seal import private_key, sign


def export_encoder(
    options: Options, fetched: Fetched, target: Path, progress: Progress
) -> tuple[Path, Manifest, EncoderGraphs]:
    """Loads, traces, saves, verifies and publishes. Until then nothing is where the package belongs.

    target: the folder where packages go. Returns the package's folder and what lies there. Raises InputError for an
    option that only translation has.
    """
    refuse(options)
    seal = None if options.sign is None else partial(sign, key=private_key(options.sign))
    texts = read_samples(options.samples, options.verify_samples)
    quantizing_texts = read_quantizing_texts(options, texts)
    with progress.stage("load"):
        checkpoint = encoders.load(fetched.folder)
        name = check_name(fetched.name if options.name is None else options.name)
        languages = options.source_language or checkpoint.source_languages  # it may have none
        source_languages = check_languages("source", languages) if languages else ()
        target = options.out or target / name
        check_target(target)
    for line in [*unread(checkpoint.folder), *other_tokens(checkpoint.folder, checkpoint.made_files)]:
        progress.tell(line)
    quantized = None
    if quantizing_texts is not None:
        with progress.stage("quantize") as tell:
            quantized = _quantize(checkpoint, *quantizing_texts, tell)
    elif options.precision == "int16":
        quantized = round_encoder(checkpoint.model)
    with draft(target) as folder:
        with progress.stage("trace"):
            graphs, missing = _trace(options, checkpoint, quantized)
        if missing is not None:
            progress.tell(f"standard graphs only: {missing}")
        with progress.stage("save"):
            files = _save(graphs, checkpoint, folder)
        with progress.stage("verify"):
            verified = verify_vectors(checkpoint, files, texts, quantized)
            certificate = verified.certificate
            if quantized is not None and quantized.report is not None:
                certificate = certificate.model_copy(update={"vector_quantization": quantized.report})
        with progress.stage("publish"):
            manifest = Manifest(
                name=name,
                model=checkpoint.config,
                tokenizer=checkpoint.tokenizer,
                source_languages=source_languages,
                target_languages=(),
                generation=GenerationDefaults(),
                encoding=checkpoint.encoding,
                classifier=None if checkpoint.classifier is None else checkpoint.classifier.spec,
                graphs=files.spec.model_copy(update={"vector_probes": verified.probes}),
                weights=WEIGHTS,
                files=file_entries(folder),
                checkpoint=Origin(name=fetched.name, sha256=checkpoint.sha256, pinned=fetched.pinned),
                tools={tool: version(tool) for tool in (*TOOLS, "tokenizers")},
                certificate=certificate,
                native_certificate=verified.native,
            )
            publish(folder, manifest, target, seal)
    return target, manifest, graphs


def _trace(
    options: Options, checkpoint: EncoderCheckpoint, quantized: QuantizedEncoder | None
) -> tuple[EncoderGraphs, str | None]:
    """All graphs that the encoder may have, and why it has none of our own operators, if it has none."""
    graphs = trace_encoders(checkpoint.model if quantized is None else quantized.model)
    missing = why_standard_only(checkpoint.model, options.precision)
    if missing is None:
        graphs = native_encoder_graphs(graphs, checkpoint.model, {} if quantized is None else quantized.recipe)
    return graphs, missing


def _save(graphs: EncoderGraphs, checkpoint: EncoderCheckpoint, folder: Path) -> GraphFiles:
    """Writes all that a package has but the manifest."""
    files = save(graphs, folder)
    for name, file in checkpoint.files.items():
        shutil.copyfile(file, folder / name)
    write_made(folder, checkpoint.made_files)
    checkpoint.save_layers(folder)
    if checkpoint.classifier is not None:
        checkpoint.classifier.save(folder)
    return files


def _quantize(
    checkpoint: EncoderCheckpoint, calibration: Calibration, samples: Samples, tell: Tell
) -> QuantizedEncoder:
    """Raises InputError where no text is short enough, and CalibrationError where they are of different languages."""
    tokenizer, own = checkpoint.open_tokenizer(), checkpoint.encoding
    most = own.max_tokens or most_tokens(checkpoint.config.max_positions)
    sources, measured = (
        [ids for text in texts if len(ids := tokenizer.encode(text)) <= most]
        for texts in (calibration.texts, samples.texts)
    )
    if not (sources and measured):
        raise InputError(f"no sentence to calibrate or to measure on has at most {most} tokens; give shorter ones")
    check_likeness(sources, measured)
    return quantize_encoder(checkpoint.model, checkpoint.vectors, calibration, sources, measured, tell)


def refuse(options: Options) -> None:
    """Options that an encoder alone has nothing for. Raises InputError."""
    wrong = {
        "--target-language": bool(options.target_language),
        "--task": bool(options.task),
        "--in-place": options.in_place,
        "--shortlist": options.shortlist is not None,
        f"--verify {options.verify}": options.verify != "transformers",
        "--references": options.references is not None,
        f"--precision {options.precision}": options.precision not in ("fp32", "int16", "int8"),
        f"--attention {options.attention}": options.attention != "fused",
        f"--device {options.device}": options.device != "cpu",
    }
    given = [option for option, there in wrong.items() if there]
    if given:
        raise InputError(f"the checkpoint is an encoder alone, for which there is no {given[0]}; leave it out")
