"""Makes a package of a checkpoint: python -m export CHECKPOINT --out PACKAGE."""

import argparse
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import torch
from rich.console import Console

from engine.devices.machine import Machine
from engine.devices.selection import Needs, Wanted, select_device
from engine.devices.session import Device, DeviceError
from engine.devices.sizing import Load
from export.progress import Progress, summary
from export.save import save
from export.trace import Graphs, trace
from export.variant import VariantError, variant
from export.verification.compare_tokens import ENGINE_ROWS
from export.verification.verify import VerificationError, most_tokens, verify
from models.checkpoint import Checkpoint, CheckpointError, load_checkpoint
from models.languages import WELL_FORMED
from models.package.folder import PackageError, draft, file_entries, publish
from models.package.manifest import NAME_PATTERN, OUTPUT, SHORTLIST, Certificate, Manifest, Source
from models.package.precision import AttentionKind, Precision
from models.package.shortlist import Shortlist, ShortlistError, verify_checksum

SAMPLES = Path(__file__).parent / "verification" / "samples.en.txt"
TOOLS = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "transformers", "sentencepiece")


class InputError(Exception):
    """An option that cannot be used."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 where the graphs differ from the checkpoint, 2 where the input is bad, or 130 after Ctrl-C."""
    options = parse(arguments)
    shown = Console(stderr=True)
    try:
        progress = Progress(shown)
        manifest, graphs = export(options, progress)
    except VerificationError as error:
        return fail(shown, error, 1)
    except (InputError, CheckpointError, ShortlistError, VariantError, DeviceError, PackageError, OSError) as error:
        return fail(shown, error, 2)
    except KeyboardInterrupt:
        return fail(shown, "interrupted", 130)
    Console().print(summary(manifest, graphs, progress.seconds))
    print(f"{options.out} is ready. Serve it: python -m server --package {options.out}")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser("python -m export", description="Make a verified ONNX package of a checkpoint.")
    parser.add_argument("checkpoint", type=Path, help="folder of the checkpoint (see docs/checkpoints.md)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the package; a package there is replaced")
    parser.add_argument("--name", help="what requests call the model (default: the name of the checkpoint folder)")
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-language",
            action="append",
            metavar="TAG",
            help=f"language of the {side}, as BCP 47 writes it; may be repeated (default: what the checkpoint says)",
        )
    parser.add_argument(
        "--keep-typography",
        action="store_true",
        help="leave quotes and dashes that the vocabulary lacks as they are (default: replace them by ASCII)",
    )
    parser.add_argument(
        "--no-shortlist", action="store_true", help="choose from the whole vocabulary, not from the lexical shortlist"
    )
    parser.add_argument(
        "--precision", choices=get_args(Precision), default="fp32", help="of weights and activations (default: fp32)"
    )
    parser.add_argument(
        "--attention",
        choices=get_args(AttentionKind),
        default="fused",
        help="fused: ONNX Runtime's kernels; plain: standard operators, for fp32 on CUDA (default: fused)",
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="what runs the graphs to verify them (default: cpu)"
    )
    parser.add_argument(
        "--verify-samples", type=int, default=32, metavar="N", help="sentences to compare token by token (default: 32)"
    )
    parser.add_argument(
        "--samples", type=Path, default=SAMPLES, metavar="FILE", help="sentences, one per line (default: English ones)"
    )
    return parser.parse_args(arguments)


def export(options: argparse.Namespace, progress: Progress) -> tuple[Manifest, Graphs]:
    """Loads, traces, saves, verifies and publishes. Until then nothing is where the package belongs."""
    texts = read_samples(options.samples, options.verify_samples)
    with progress.stage("load"):
        checkpoint = adapt(load_checkpoint(options.checkpoint), options)
        check_shortlist(checkpoint)
        name = check_name(options.name or checkpoint.name)
        model = variant(checkpoint.model, options.precision, options.attention)
        device = open_device(options, checkpoint)
    with draft(options.out) as folder:
        with progress.stage("trace"):
            graphs = trace(model, options.attention, checkpoint.shortlist is not None)
        with progress.stage("save"):
            save(graphs, folder)
            for file_name, file in package_files(checkpoint).items():
                shutil.copyfile(file, folder / file_name)
        with progress.stage("verify") as tell:
            certificate = verify(checkpoint, options.checkpoint, folder, texts, options.precision, device, tell)
        with progress.stage("publish"):
            manifest = describe(checkpoint, name, folder, options.precision, options.attention, certificate)
            publish(folder, manifest, options.out)
    return manifest, graphs


def adapt(checkpoint: Checkpoint, options: argparse.Namespace) -> Checkpoint:
    """The checkpoint, as the options want it. Raises InputError."""
    tokenizer = checkpoint.tokenizer
    return replace(
        checkpoint,
        source_languages=check_languages("source", options.source_language or checkpoint.source_languages),
        target_languages=check_languages("target", options.target_language or checkpoint.target_languages),
        tokenizer=tokenizer.model_copy(update={"normalization": {}}) if options.keep_typography else tokenizer,
        shortlist=None if options.no_shortlist else checkpoint.shortlist,
    )


def check_languages(side: str, tags: Sequence[str]) -> tuple[str, ...]:
    """At least one, each a well-formed tag."""
    if not tags:
        raise InputError(
            f"the checkpoint does not say its {side} language: name it with --{side}-language, like en or pt-BR"
        )
    for tag in tags:
        if not WELL_FORMED.fullmatch(tag):
            raise InputError(f"--{side}-language is {tag!r}, which is no language tag; expected one like en or pt-BR")
    return tuple(tags)


def check_shortlist(checkpoint: Checkpoint) -> None:
    """Raises ShortlistError where the shortlist is damaged, or another model's."""
    if checkpoint.shortlist is not None:
        verify_checksum(checkpoint.shortlist)
        Shortlist.load(checkpoint.shortlist, checkpoint.config)


def package_files(checkpoint: Checkpoint) -> dict[str, Path]:
    """What is copied into the package, by its name there."""
    return checkpoint.files | ({} if checkpoint.shortlist is None else {SHORTLIST: checkpoint.shortlist})


def open_device(options: argparse.Namespace, checkpoint: Checkpoint) -> Device:
    """What runs the graphs to verify them. Raises InputError or DeviceError."""
    if options.precision == "bf16" and options.device == "cpu":
        raise InputError(
            "ONNX Runtime's CPU provider does not run bf16, so nothing could verify the graphs here: export on a CUDA "
            "machine with --device cuda, or with --precision fp16"
        )
    tokens = most_tokens(checkpoint.config)
    shortlist = checkpoint.shortlist is not None
    load = Load(checkpoint.config, options.precision, ENGINE_ROWS, tokens, tokens, shortlist)
    needs = Needs(options.precision, options.attention, load)
    device, _ = select_device(Wanted(options.device), needs, Machine())
    return device


def describe(
    checkpoint: Checkpoint,
    name: str,
    folder: Path,
    precision: Precision,
    attention: AttentionKind,
    certificate: Certificate,
) -> Manifest:
    """The manifest of what lies in `folder`."""
    return Manifest(
        name=name,
        model=checkpoint.config,
        tokenizer=checkpoint.tokenizer,
        source_languages=checkpoint.source_languages,
        target_languages=checkpoint.target_languages,
        generation=checkpoint.generation,
        output_graph=None if checkpoint.shortlist is None else OUTPUT,
        shortlist=None if checkpoint.shortlist is None else SHORTLIST,
        precision=precision,
        attention=attention,
        files=file_entries(folder),
        checkpoint=Source(name=checkpoint.name, sha256=checkpoint.sha256),
        tools={tool: version(tool) for tool in TOOLS},
        certificate=certificate,
    )


def read_samples(file: Path, count: int) -> list[str]:
    """The first `count` sentences of a file."""
    try:
        texts = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8: {error}") from error
    if not 0 < count <= len(texts):
        raise InputError(f"--verify-samples is {count}; {file} has {len(texts)} sentences, and at least 1 is needed")
    return texts[:count]


def check_name(name: str) -> str:
    """A name that fits into requests and file names."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise InputError(f"{name!r} cannot be the model's name; give one of letters, digits, '.', '_', '-' with --name")
    return name


def fail(shown: Console, error: object, status: int) -> int:
    """Says why there is no package. Returns `status`."""
    shown.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    return status


if __name__ == "__main__":
    # The batches that are compared are small: two threads spend twice the time on them, waiting for each other.
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it too leaves nothing behind
    sys.exit(main())
