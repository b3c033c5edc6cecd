"""`python -m bench.export_memory`: the most memory that an export needs, over the size of the weights in fp32.

The model has the shape of nllb-200-distilled-600M and random weights. Resident memory after the imports, before a
weight is read, is told apart. Pages of files that the kernel may drop are counted, too.
"""

import argparse
import re
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from bench.flags.values import whole
from bench.packages.families import NLLB_600M, write_family

ZOO = Path(__file__).parent.parent / "models" / "zoo" / "en-pt"
MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one export, in bytes."""

    imported: int
    """Resident before it began."""
    most: int
    """Resident at most."""
    weights: int

    @property
    def ratio(self) -> float:
        """Without the imports."""
        return (self.most - self.imported) / self.weights


def measure(checkpoint: Path, target: Path, samples: int) -> Memory:
    """Exports in a process of its own. Raises RuntimeError where the export fails."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_export, checkpoint, target, samples).result()


def _export(checkpoint: Path, target: Path, samples: int) -> Memory:
    from export import __main__ as command
    from export.command import run  # noqa: F401  # what the command imports late

    imported = _status("VmRSS")
    languages = ("--source-language", "en", "--target-language", "pt")
    arguments = [str(checkpoint), "--out", str(target), "--verify-samples", str(samples), *languages]
    if command.main(arguments):
        raise RuntimeError("the export failed")
    return Memory(imported, _status("VmHWM"), (checkpoint / "model.safetensors").stat().st_size)


def _status(key: str) -> int:
    found = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) << 10


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.export_memory", description=__doc__)
    parser.add_argument("--layers", type=whole, default=12, help="of each side (default: 12)")
    parser.add_argument("--samples", type=whole, default=2, help="sentences to verify (default: 2)")
    arguments = parser.parse_args()
    layers = {"encoder_layers": arguments.layers, "decoder_layers": arguments.layers}
    shape = replace(NLLB_600M, sizes={**NLLB_600M.sizes, **layers})
    with tempfile.TemporaryDirectory() as folder:
        write_family(Path(folder) / "checkpoint", shape, ZOO)
        found = measure(Path(folder) / "checkpoint", Path(folder) / "package", arguments.samples)
    print(
        f"{found.weights / MB:,.0f} MB of weights: {found.most / MB:,.0f} MB resident at most, "
        f"{found.imported / MB:,.0f} of them after the imports; without these {found.ratio:.2f} times the weights "
        f"(asked for: at most 3.5)"
    )


if __name__ == "__main__":
    main()
