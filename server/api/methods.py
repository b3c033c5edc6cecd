"""The methods of the API, each a function of its request, for faces whose messages do not come by gRPC."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dragoman.v1 import encoding_pb2, model_pb2, translation_pb2
from server.api.documents import Documents
from server.api.encoding import EncodingService
from server.api.service import ModelService, TranslationService
from server.catalog.catalog import Catalog
from server.catalog.reloading import Reload
from server.translation.translator import Translator


@dataclass(frozen=True)
class Method:
    """One that takes one request. Its handler raises `server.errors.ServerError`."""

    descriptor: MethodDescriptor
    handler: Callable[[Message], object]

    @property
    def path(self) -> str:
        """SERVICE/METHOD, both in full, as gRPC names it."""
        return f"{self.service}/{self.name}"

    @property
    def service(self) -> str:
        return self.descriptor.containing_service.full_name

    @property
    def name(self) -> str:
        return self.descriptor.name

    @property
    def streams(self) -> bool:
        """It answers with several messages."""
        return self.descriptor.server_streaming

    @property
    def request(self) -> type[Message]:
        """What it takes."""
        return GetMessageClass(self.descriptor.input_type)

    async def answer(self, request: Message) -> Message:
        """Of a method that does not stream."""
        return await cast(Awaitable[Message], self.handler(request))

    def responses(self, request: Message) -> AsyncGenerator[Message]:
        """Of one that does. Close it to leave it early."""
        return cast(AsyncGenerator[Message], self.handler(request))


def methods(
    models: Catalog[Translator], documents: Documents, pivots: bool = False, reload: Reload | None = None
) -> Iterator[Method]:
    """All that take one request, whatever they are called and say."""
    services: list[tuple[Any, Any]] = [
        (translation_pb2, TranslationService(models, documents, pivots)),
        (encoding_pb2, EncodingService(models)),
        (model_pb2, ModelService(models, reload)),
    ]
    for file, servicer in services:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                if not method.client_streaming:
                    yield Method(method, partial(_without_context, getattr(servicer, method.name)))


def _without_context(handler: Callable[[Message, None], object], request: Message) -> object:
    """What only gRPC has, no handler uses."""
    return handler(request, None)
