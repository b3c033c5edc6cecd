"""export.device_graphs: the ONNX files of engine/cuda/graphs are what their texts say."""

import onnx
import pytest

from engine.cuda.graphs import AHEAD, FOLDER, MOVE
from engine.devices import elements
from export.device_graphs import device_graphs


def test_the_files_are_what_is_made_of_their_texts() -> None:
    made = dict(device_graphs())
    assert set(made) == set(FOLDER.glob("*.onnx")) == {AHEAD, MOVE}
    for file, content in made.items():
        assert file.read_bytes() == content, f"{file.name} is not what its text says: run make graphs"


@pytest.mark.parametrize("name", ["FLOAT", "INT32", "INT64", "FLOAT16", "BFLOAT16"])
def test_elements_have_the_numbers_of_onnx(name: str) -> None:
    assert getattr(elements, name) == getattr(onnx.TensorProto, name)
