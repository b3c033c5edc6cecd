"""`python -m server` as a process with the package of models/zoo/en-pt, and who asks it."""

import signal
from collections.abc import Iterator

import grpc
import pytest

from dragoman import Client
from models.package.folder import Package
from models.tokenizers.tokenizer import Tokenizer
from tests.checkpoints import ZOO
from tests.oracles import HuggingFace
from tests.server_process import ServerProcess, server_process


@pytest.fixture(scope="package")
def server(zoo_package: Package) -> Iterator[ServerProcess]:
    with server_process(zoo_package.folder) as server:
        yield server
        assert server.end(signal.SIGTERM) == 0


@pytest.fixture(scope="package")
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.target) as client:
        yield client


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.target) as channel:
        yield channel


@pytest.fixture(scope="package")
def tokenizer(zoo_package: Package) -> Tokenizer:
    return zoo_package.tokenizer()


@pytest.fixture(scope="package")
def huggingface() -> HuggingFace:
    return HuggingFace(ZOO)
