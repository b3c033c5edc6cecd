"""What this machine is, and how much memory is in use. No host names: results are published."""

import os
import subprocess
from pathlib import Path

from bench.gpu.plan import Plan
from bench.pages.markdown import processors

FACTS = ("name", "driver_version", "compute_cap", "memory.total")
"""What nvidia-smi is asked for."""


def facts(plan: Plan) -> dict[str, str]:
    """The device, by the names that nvidia-smi has for its properties."""
    if plan.device == "cpu":
        return {"name": processors()[0]}
    return dict(zip(FACTS, nvidia_smi(plan.device_id, ",".join(FACTS)).split(", "), strict=True))


def memory_mb(plan: Plan) -> float:
    """Device memory in use, by all processes; on the CPU, what is resident of this process."""
    if plan.device == "cuda":
        return float(nvidia_smi(plan.device_id, "memory.used", "nounits"))
    return resident_mb()


def resident_mb() -> float:
    """Memory of this process on the host."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def nvidia_smi(device_id: int, query: str, *formats: str) -> str:
    """One line of comma-separated values. Raises RuntimeError where there is no driver or no such device."""
    form = ",".join(("csv", "noheader", *formats))
    command = ["nvidia-smi", "-i", str(device_id), f"--query-gpu={query}", f"--format={form}"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise RuntimeError("there is no nvidia-smi: is NVIDIA's driver installed?") from error
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"nvidia-smi: {(error.stdout + error.stderr).strip()}") from error
    return run.stdout.strip()
