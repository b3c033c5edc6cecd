"""export.device_graphs: the small ONNX files of the engine are what their texts say."""

import onnx
import pytest

from engine.cuda import graphs as of_cuda
from engine.devices import graphs as of_devices
from export.device_graphs import device_graphs
from models.package.declared import elements


def test_the_files_are_what_is_made_of_their_texts() -> None:
    made = dict(device_graphs())
    files = {file for one in (of_cuda, of_devices) for file in one.FOLDER.glob("*.onnx")}
    assert set(made) == files == {of_cuda.AHEAD, of_cuda.GO_ON, of_cuda.KEEP, of_cuda.MOVE, of_devices.EXTREME}
    for file, content in made.items():
        assert file.read_bytes() == content, f"{file.name} is not what its text says: run make graphs"


@pytest.mark.parametrize("name", ["FLOAT", "INT32", "INT64", "FLOAT16", "DOUBLE", "BFLOAT16"])
def test_elements_have_the_numbers_of_onnx(name: str) -> None:
    assert getattr(elements, name) == getattr(onnx.TensorProto, name)
