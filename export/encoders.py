"""The steps of an export of an encoder alone: load, trace, save, verify, publish."""

import shutil
from functools import partial
from importlib.metadata import version
from pathlib import Path

from export.command.arguments import Options
from export.command.progress import Progress
from export.inputs import InputError, check_name, read_samples
from export.manifest import TOOLS
from export.sources import Fetched
from export.tracing.graphs import EncoderGraphs
from export.tracing.trace import trace_encoders
from export.verification.vectors import verify_vectors
from export.weights.save import save
from models.checkpoint import encoders
from models.package.folder import draft, file_entries, publish
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
    with progress.stage("load"):
        checkpoint = encoders.load(fetched.folder)
        name = check_name(options.name or fetched.name)
        target = options.out or target / name
    with draft(target) as folder:
        with progress.stage("trace"):
            graphs = trace_encoders(checkpoint.model)
        with progress.stage("save"):
            files = save(graphs, folder)
            for file_name, file in checkpoint.files.items():
                shutil.copyfile(file, folder / file_name)
            for spec, dense in zip(checkpoint.encoding.dense, checkpoint.dense, strict=True):
                dense.save(folder, spec.file)
            if checkpoint.classifier is not None:
                checkpoint.classifier.save(folder)
        with progress.stage("verify"):
            certificate = verify_vectors(checkpoint, files, texts)
        with progress.stage("publish"):
            manifest = Manifest(
                name=name,
                model=checkpoint.config,
                tokenizer=checkpoint.tokenizer,
                source_languages=tuple(options.source_language or ()),
                target_languages=(),
                generation=GenerationDefaults(),
                encoding=checkpoint.encoding,
                classifier=None if checkpoint.classifier is None else checkpoint.classifier.spec,
                graphs=files.spec,
                weights=WEIGHTS,
                files=file_entries(folder),
                checkpoint=Origin(name=checkpoint.name, sha256=checkpoint.sha256, pinned=fetched.pinned),
                tools={tool: version(tool) for tool in (*TOOLS, "tokenizers")},
                certificate=certificate,
            )
            publish(folder, manifest, target, seal)
    return target, manifest, graphs


def refuse(options: Options) -> None:
    """Options that an encoder alone has nothing for. Raises InputError."""
    wrong = {
        "--target-language": bool(options.target_language),
        "--task": bool(options.task),
        "--in-place": options.in_place,
        "--shortlist": options.shortlist is not None,
        f"--verify {options.verify}": options.verify != "transformers",
        f"--precision {options.precision}": options.precision != "fp32",
        f"--attention {options.attention}": options.attention != "fused",
        f"--device {options.device}": options.device != "cpu",
    }
    given = [option for option, there in wrong.items() if there]
    if given:
        raise InputError(f"the checkpoint is an encoder alone, for which there is no {given[0]}; leave it out")
