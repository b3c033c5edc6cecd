"""What one server can be asked: its channel, and the stubs of its services."""

from typing import Any

import grpc
from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from dragoman.channel import Token, checked_token, token_metadata
from dragoman.v1.encoding_pb2_grpc import EncodingServiceStub
from dragoman.v1.model_pb2_grpc import ModelServiceStub
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub


class Methods:
    """For synchronous code."""

    def __init__(self, channel: grpc.Channel, token: Token = None) -> None:
        self._token, self.channel = checked_token(token), channel
        self.translation = TranslationServiceStub(self.channel)
        self.encoding = EncodingServiceStub(self.channel)
        self.model = ModelServiceStub(self.channel)
        self.check_health = HealthStub(self.channel).Check  # type: ignore[attr-defined]  # its types lack methods

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call but health's sends along."""
        return token_metadata(self._token)


class AsyncMethods:
    """For the running event loop. See `Methods`."""

    def __init__(self, channel: aio.Channel, token: Token = None) -> None:
        self._token, self.channel = checked_token(token), channel
        self.translation = TranslationServiceStub(self.channel)
        self.encoding = EncodingServiceStub(self.channel)
        self.model = ModelServiceStub(self.channel)
        self.check_health = HealthStub(self.channel).Check  # type: ignore[attr-defined]  # its types lack methods

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call but health's sends along."""
        return token_metadata(self._token)


def reach(methods: Methods | AsyncMethods, timeout: float) -> Any:
    """Asks for the server's health: what costs it the least."""
    return methods.check_health(HealthCheckRequest(), timeout=timeout)
