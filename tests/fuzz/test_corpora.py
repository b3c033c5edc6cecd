"""Every input that is checked in is answered or refused: those of the start, and those that once were not."""

import pytest

from dragoman.v1 import encoding_pb2, model_pb2, translation_pb2
from tests.fuzz import TARGETS, inputs, trying
from tests.hostile.fuzz.messages import METHODS


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_are_answered_or_refused(target: str) -> None:
    with trying(target) as attempt:
        for file in inputs(target):
            try:
                attempt(file.read_bytes())
            except BaseException as error:
                raise AssertionError(f"python -m tests.fuzz {target} {file}") from error
    assert len(inputs(target)) > 2


def test_messages_go_to_every_method() -> None:
    services = [
        service
        for file in (encoding_pb2, model_pb2, translation_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
    ]
    methods = {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}
    assert methods and methods <= METHODS.keys()
