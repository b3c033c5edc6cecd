"""An export as its caller sees it: progress, a summary, or why there is no package."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from engine.devices.session import DeviceError
from engine.errors import EngineError
from export.command.arguments import Options
from export.command.progress import Progress
from export.command.summary import summary
from export.inputs import InputError
from export.quantization.texts import CalibrationError
from export.sources import Fetched, SourceError, fetch
from export.steps import export
from export.tracing.variant import VariantError
from export.verification.verify import VerificationError
from models.checkpoint import CheckpointError
from models.checkpoint.files.adapter import whole
from models.package.checked import PackageError
from models.package.seal import SealError
from models.package.shortlist import ShortlistError

BAD_INPUT = (
    InputError,
    CalibrationError,
    CheckpointError,
    SourceError,
    SealError,
    ShortlistError,
    VariantError,
    DeviceError,
    PackageError,
    OSError,
)


def run(options: Options, fetched: Fetched, progress: Progress) -> int:
    """Returns 0, 1 where the graphs differ from the checkpoint or give no numbers, or 2 where the input is bad."""
    # The batches that are compared are small: two threads spend twice the time on them, waiting for each other.
    torch.set_num_threads(1)
    try:
        with whole(fetched.folder, partial(_base_model, progress)) as folder:
            if options.in_place and folder != fetched.folder:
                raise InputError(f"{fetched.folder} has an adapter, whose weights no graph uses as they are: say --out")
            package, manifest, graphs = export(options, replace(fetched, folder=folder), progress)
    except (VerificationError, EngineError) as error:  # the engine that translates for a list, or for 8 bits
        return progress.fail(error, 1)
    except BAD_INPUT as error:
        return progress.fail(error, 2)
    if not options.quiet:
        Console(emoji=False).print(summary(manifest, graphs, progress.seconds))
    print(f"{package} is ready. Serve it: python -m server --package {package}")
    return 0


def _base_model(progress: Progress, name: str) -> Path:
    """What an adapter was trained upon, a model of the Hub. Raises SourceError."""
    with progress.stage("fetch") as tell:
        return fetch(f"hf:{name}", "", tell).folder
