"""Where generated code puts the services of a gRPC server."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import grpc


class _Generic:
    """Adds handlers as those that know every method, and not once more method by method."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """They are those that are generic."""


def generic(server: grpc.aio.Server) -> grpc.aio.Server:
    """What services are to be added to in place of the server.

    For each method that it is told of by name gRPC keeps a task that waits for a call, and at every call it begins to
    wait for each of these anew: with our methods, that was a quarter of all calls of functions that a refusal took.
    """
    return cast("grpc.aio.Server", _Generic(server))
