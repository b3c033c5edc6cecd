"""An export as its caller sees it: progress, a summary, or why there is no package."""

import torch
from rich.console import Console

from engine.devices.session import DeviceError
from export.arguments import Options
from export.inputs import InputError
from export.progress import Progress, summary
from export.steps import export
from export.variant import VariantError
from export.verification.verify import VerificationError
from models.checkpoint import CheckpointError
from models.package.folder import PackageError
from models.package.shortlist import ShortlistError

BAD_INPUT = (InputError, CheckpointError, ShortlistError, VariantError, DeviceError, PackageError, OSError)


def run(options: Options) -> int:
    """Returns 0, 1 where the graphs differ from the checkpoint, or 2 where the input is bad."""
    # The batches that are compared are small: two threads spend twice the time on them, waiting for each other.
    torch.set_num_threads(1)
    shown = Console(stderr=True)
    progress = Progress(shown)
    try:
        manifest, graphs = export(options, progress)
    except VerificationError as error:
        return fail(shown, error, 1)
    except BAD_INPUT as error:
        return fail(shown, error, 2)
    if not options.quiet:
        Console().print(summary(manifest, graphs, progress.seconds))
    folder = options.out or options.checkpoint
    print(f"{folder} is ready. Serve it: python -m server --package {folder}")
    return 0


def fail(shown: Console, error: object, status: int) -> int:
    """Says why there is no package. Returns `status`."""
    shown.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    return status
