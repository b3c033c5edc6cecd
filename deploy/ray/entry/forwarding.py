"""The services of the API at an entry: the handlers send each request to a group that has the model for it."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from ray.exceptions import ObjectLostError, RayActorError, WorkerCrashedError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from deploy.ray.relayed import Answered, Asked, Refused
from dragoman.v1 import encoding_pb2, model_pb2_grpc, translation_pb2
from server.api.encoding import AHEAD
from server.api.service import ModelService, TextsAsked
from server.api.streams import in_order
from server.catalog.catalog import Catalog
from server.catalog.served_model import ServedModel
from server.errors import EngineFailed, EngineStopped, Overloaded
from server.grpc.rpc import Handler
from server.telemetry.calls import current_call

ATTEMPTS = 4
"""Replicas that may die with a request before it is taken for the cause."""
PAUSE_S = 0.1
"""Before another replica is asked; twice as long each time, a half more or less."""
RETRY_S = 1.0
"""Advice where no replica has room."""

ENCODE = "dragoman.v1.EncodingService/Encode"
LOST = (RayActorError, WorkerCrashedError, ObjectLostError)
"""What Ray says of a replica, or of its node, that is gone."""


@dataclass(frozen=True, slots=True)
class Route:
    """A model, and the deployment that has it: an entry of the catalog."""

    model: ServedModel
    handle: DeploymentHandle[Any]
    multiplexed: bool
    max_waiting: int
    """Calls that may wait for a replica of it."""
    open: bool = True

    def to(self, method: str, stream: bool = False) -> DeploymentHandle[Any]:
        """The method of a replica, which has the model in memory if any has."""
        wanted = self.model.name if self.multiplexed else ""
        return self.handle.options(method_name=method, stream=stream, multiplexed_model_id=wanted)


class Forwarding:
    """Adds all services to a server."""

    def __init__(self, models: Catalog[Route], pivots: bool) -> None:
        """pivots: requests may ask for a way through a third language, where one group has both models."""
        self._models, self._pivots = models, pivots

    def register(self, server: grpc.aio.Server) -> None:
        model_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(self._models), server)
        for file in (translation_pb2, encoding_pb2):
            for service in file.DESCRIPTOR.services_by_name.values():
                handlers = {method.name: self._handler(method) for method in service.methods}
                generic = grpc.method_handlers_generic_handler(service.full_name, handlers)
                server.add_generic_rpc_handlers((generic,))

    def _handler(self, method: MethodDescriptor) -> Handler:
        """Its responses are bytes, which nobody here looks at."""
        name = f"{method.containing_service.full_name}/{method.name}"
        parse = GetMessageClass(method.input_type).FromString

        async def one(request: Message, _: object) -> bytes:
            return await self._one(name, request)

        def many(request: Message, _: object) -> AsyncIterator[bytes]:
            return self._responses(name, request, stream=True)

        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(self._stream_encode, parse)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(many, parse)
        return grpc.unary_unary_rpc_method_handler(one, parse)

    def _stream_encode(
        self, requests: AsyncIterator[encoding_pb2.StreamEncodeRequest], _: object
    ) -> AsyncIterator[bytes]:
        """Each of them by whichever replica has least to do. It is the one method with a stream of requests."""

        async def encode(request: encoding_pb2.StreamEncodeRequest) -> bytes:
            response = encoding_pb2.EncodeResponse.FromString(await self._one(ENCODE, request.request))
            return encoding_pb2.StreamEncodeResponse(response=response).SerializeToString()

        return in_order(requests, encode, AHEAD)

    def _route(self, request: Any) -> Route:
        """Raises ModelNotFound or LanguageNotSupported."""
        if isinstance(request, encoding_pb2.EncodeRequest | encoding_pb2.ClassifyRequest):
            return self._models.find(request.model)
        languages = request.source_language_code, request.target_language_code
        if self._pivots and isinstance(request, TextsAsked) and request.pivot:
            way = None if request.model else self._models.pivot(*languages)
            if way is not None and way.first.handle is way.second.handle and not way.first.multiplexed:
                return way.first
        return self._models.route(request.model, *languages)

    async def _one(self, method: str, request: Message) -> bytes:
        """Raises ServerError."""
        async with aclosing(self._responses(method, request, stream=False)) as responses:
            return await anext(responses)

    async def _responses(self, method: str, request: Message, stream: bool) -> AsyncGenerator[bytes]:
        """What a replica says. Another one is asked where it dies before it has said anything: nobody has noticed.

        Raises ServerError.
        """
        route, call = self._route(request), current_call()
        data = request.SerializeToString()
        for attempt in range(ATTEMPTS):
            asked, sent, begun = Asked.of(method, data, call), time.perf_counter(), False
            try:
                async with aclosing(_said(route, asked, stream)) as said:
                    async for response in said:
                        if isinstance(response, Refused):
                            raise response.error()
                        if isinstance(response, Answered):
                            response.tell(call, sent)
                            if stream:
                                return
                            response = response.response
                        begun = True
                        yield response
                return
            except BackPressureError as error:
                raise Overloaded(route.max_waiting + 1, route.max_waiting, RETRY_S) from error
            except DeploymentUnavailableError as error:
                raise EngineStopped() from error
            except LOST as error:
                if begun:
                    raise EngineStopped() from error
            await asyncio.sleep(PAUSE_S * 2**attempt * random.uniform(0.5, 1.5))
        raise EngineFailed()


async def _said(route: Route, asked: Asked, stream: bool) -> AsyncGenerator[bytes | Answered | Refused]:
    """The words of a replica. Leaving it early tells the replica so."""
    if stream:
        responses = route.to("answers", stream=True).remote(asked)
        ended = False
        try:
            async for response in responses:
                yield response
            ended = True
        finally:
            if not ended:
                responses.cancel()
    else:
        answer = route.to("answer").remote(asked)
        try:
            yield await answer
        except asyncio.CancelledError:
            answer.cancel()
            raise
