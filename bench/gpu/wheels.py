"""What the check needs of a machine without network: which modules are missing, and wheels brought in a folder."""

import hashlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.gpu.plan import Device

GPU_WHEEL = "onnxruntime-gpu==1.31.*"
NEEDED = {
    "torch": "torch",
    "transformers": "transformers",
    "numpy": "numpy",
    "sentencepiece": "sentencepiece",
    "onnx": "onnx",
    "onnx_ir": "onnx-ir",
    "onnxscript": "onnxscript",
    "onnxruntime": GPU_WHEEL,
    "safetensors": "safetensors",
    "pydantic": "pydantic",
    "pydantic_core": "pydantic-core",
    "annotated_types": "annotated-types",
    "typing_inspection": "typing-inspection",
    "prometheus_client": "prometheus-client",
    "rich": "rich",
    "langcodes": "langcodes",
}
"""Modules and the distributions that bring them. What these need in turn comes with torch and transformers."""
SERVER_NEEDS = {
    "google.protobuf": "protobuf",
    "google.rpc": "googleapis-common-protos",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "h11": "h11",
    "opentelemetry": "opentelemetry-api",
    "pydantic_settings": "pydantic-settings",
    "dotenv": "python-dotenv",
    "typing_extensions": "typing-extensions",
    "uvloop": "uvloop",
}
"""What `python -m server` imports besides to start and to translate. cryptography and sentencex it does not."""
PART = re.compile(r"(?P<wheel>.+\.whl)\.(part)?[-_.]?(\d+|[a-z]{2,3})$")
"""onnxruntime_gpu-1.31.1-....whl.part00, ....whl.aa: pieces of a file too large to carry as one."""


class MissingModulesError(Exception):
    """Something is not installed. The message says what, and how to bring it."""


def require_modules(device: Device) -> None:
    """Raises MissingModulesError. An ONNX Runtime that is built without CUDA does not count, where CUDA is wanted."""
    missing = [wheel for module, wheel in NEEDED.items() if not _is_there(module)]
    if device == "cuda" and GPU_WHEEL not in missing:
        import onnxruntime

        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            missing.append(GPU_WHEEL)
    _refuse(missing)


def require_server() -> None:
    """Raises MissingModulesError where `python -m server` would not start."""
    _refuse([wheel for module, wheel in SERVER_NEEDS.items() if not _is_there(module)])


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def _refuse(missing: Sequence[str]) -> None:
    """Raises MissingModulesError if any are."""
    if missing:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise MissingModulesError(
            f"not installed: {', '.join(missing)}. Without network here, bring wheels: run on a machine that has one\n"
            f"  python -m pip download --no-deps --only-binary=:all: --python-version {python} "
            "--platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 -c requirements/lock.txt -d wheels "
            f"{shlex.join(missing)}\n"
            "carry the folder over, and add: --wheels wheels"
        )


def install(folder: Path) -> Path:
    """Installs the wheels of a folder, joining those that come in parts. Returns the folder to put on the path.

    It lies among the temporary files and is used again by the next run. Raises OSError or CalledProcessError.
    """
    files = sorted(file for file in folder.iterdir() if file.suffix == ".whl" or PART.match(file.name))
    if not files:
        raise FileNotFoundError(f"{folder} has no wheels (*.whl, or parts of one: *.whl.part00, *.whl.part01, ...)")
    state = hashlib.sha256("\n".join(f"{file.name} {file.stat().st_size}" for file in files).encode()).hexdigest()
    site = Path(tempfile.gettempdir()) / f"dragoman-wheels-{state[:16]}"
    if site.exists() and site.stat().st_uid != os.getuid():
        raise PermissionError(
            f"{site} is somebody else's: nothing is imported from there. Set TMPDIR to another folder"
        )
    if not site.exists():
        with tempfile.TemporaryDirectory(dir=site.parent) as workspace:
            wheels = [file for file in files if file.suffix == ".whl"] + _join(files, Path(workspace))
            target = Path(workspace) / "site"
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
            subprocess.run([*pip, "--target", str(target), *map(str, wheels)], check=True)
            _link_cuda(target)
            target.rename(site)
    return site


def _link_cuda(site: Path) -> None:
    """ONNX Runtime looks for NVIDIA's packages beside itself, as they are where pip installs all of them."""
    packages = importlib.util.find_spec("nvidia")
    if packages is not None and packages.submodule_search_locations:
        (site / "nvidia").symlink_to(next(iter(packages.submodule_search_locations)))


def run_with(site: Path, arguments: Sequence[str]) -> None:
    """Starts this process again with `site` first on the path, before what is installed. Does not return."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "bench.gpu_check", *arguments]
    os.execve(sys.executable, command, os.environ | {"PYTHONPATH": path})


def _join(files: Sequence[Path], workspace: Path) -> list[Path]:
    """Puts the parts together, in the order of their names."""
    joined: list[Path] = []
    for file in files:
        part = PART.match(file.name)
        if part is None:
            continue
        wheel = workspace / part["wheel"]
        with wheel.open("ab") as output:
            output.write(file.read_bytes())
        if wheel not in joined:
            joined.append(wheel)
    return joined
