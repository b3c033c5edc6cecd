"""Small graphs that move numbers on a device: each `.onnx` is made from the `.onnxtxt` beside it (make graphs)."""

from pathlib import Path

FOLDER = Path(__file__).parent
MOVE, AHEAD, GO_ON, KEEP = (FOLDER / f"{name}.onnx" for name in ("move", "ahead", "go_on", "keep"))
