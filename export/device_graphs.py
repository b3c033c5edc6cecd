"""Makes the small graphs of engine/cuda/graphs and engine/devices/graphs: python -m export.device_graphs.

What serves has no onnx library to make them with, so they lie in the repository, and a test makes them again.
"""

from collections.abc import Iterator
from pathlib import Path

import onnx

from engine.cuda import graphs as of_cuda
from engine.devices import graphs as of_devices


def device_graphs() -> Iterator[tuple[Path, bytes]]:
    """Every ONNX file, and what belongs in it: the graph that the text beside it says, checked by the onnx library.

    The text is ONNX's own (docs/Syntax.md in onnx/onnx).
    """
    for text in sorted(path for one in (of_cuda, of_devices) for path in one.FOLDER.glob("*.onnxtxt")):
        model = onnx.parser.parse_model(text.read_text())
        onnx.checker.check_model(model, full_check=True)
        yield text.with_suffix(".onnx"), model.SerializeToString(deterministic=True)


if __name__ == "__main__":
    for file, content in device_graphs():
        file.write_bytes(content)
