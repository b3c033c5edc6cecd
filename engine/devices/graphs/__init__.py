"""Small graphs that ask what a processor does: each `.onnx` is made from the `.onnxtxt` beside it (make graphs)."""

from pathlib import Path

FOLDER = Path(__file__).parent
EXTREME = FOLDER / "extreme.onnx"
