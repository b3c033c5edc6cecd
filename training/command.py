"""How the commands of training end: with which exit code, and what is said."""

import re
from collections.abc import Callable

from rich.console import Console

from engine.devices.session import DeviceError
from engine.errors import EngineError
from export.command.termination import termination_interrupts
from models.checkpoint import CheckpointError
from models.disk import told
from models.package.checked import PackageError
from models.tokenizers.tokenizer import TokenizerError
from training.errors import TrainingError

NO_MEMORY = re.compile(r"(?:out of|allocate) memory.*?tried to allocate ([\d.]+ \w+)", re.DOTALL | re.IGNORECASE)
"""What torch says, of a GPU and of the CPU."""


def run(work: Callable[[Console], None], where: str = "") -> int:
    """Returns 0; 2 where the input is bad or the disk full; 130 after Ctrl-C or SIGTERM, of which all can go on.

    where: where they go on, such as " from the last checkpoint"
    """
    console = Console(stderr=True, emoji=False)  # ":x:" in a name is no picture
    try:
        with termination_interrupts():
            work(console)
    except (TrainingError, CheckpointError, PackageError, TokenizerError, EngineError, DeviceError, OSError) as error:
        console.print(f"error: {told(error)}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 2
    except RuntimeError as error:
        found = NO_MEMORY.search(str(error))
        if found is None:
            raise
        lacking = (
            f"error: there is not enough memory: {found[1]} more were needed. Lower batches.tokens or model's sizes"
        )
        console.print(lacking, style="red", highlight=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        console.print(f"interrupted. Run the same command again to go on{where}", soft_wrap=True)
        return 130
    return 0
