"""A request of a stream is a call of its own: its id, its log line and its error are."""

from collections.abc import Sequence

from opentelemetry.trace import NonRecordingSpan, set_span_in_context

from server.errors import ServerError
from server.kserve.streams import Put
from server.kserve.v2.inference_pb2 import ModelInferRequest, ModelInferResponse, ModelStreamInferResponse
from server.telemetry.calls import REQUEST_ID_KEY, Call, current_call
from server.telemetry.tracing import PROPAGATOR

FINAL = "triton_final_response"
"""Parameter of a response: whether it is the last of its request."""
REASON, STATUS = "reason", "status"
"""Parameters of one that comes with an error: what our own API calls it, and the name of the gRPC status code."""


class StreamedRequest:
    """Whoever sent it: a `Caller`, who is that of the stream. Its span is below that of the stream."""

    system = "grpc"

    def __init__(
        self,
        metadata: Sequence[tuple[str, str | bytes]],
        request: ModelInferRequest,
        put: Put[ModelStreamInferResponse],
    ) -> None:
        """`metadata`: of the stream."""
        stream = current_call()
        self._request, self._put = request, put
        self.metadata = {key: value for key, value in metadata if isinstance(value, str)}
        if stream.trace.is_valid:
            PROPAGATOR.inject(self.metadata, set_span_in_context(NonRecordingSpan(stream.trace)))
        if request.id:
            self.metadata[REQUEST_ID_KEY] = request.id
        self.name, self.deadline = stream.caller, stream.deadline

    def tell(self, call: Call) -> None:
        """Nothing: what gRPC sends after an answer, it sends after a stream."""

    async def refuse(self, call: Call, error: ServerError) -> None:
        """Answers this request, and no other, with an error."""
        response = ModelInferResponse(model_name=self._request.model_name, id=self._request.id)
        response.parameters[FINAL].bool_param = True
        response.parameters[REASON].string_param, response.parameters[STATUS].string_param = error.reason, error.status
        await self._put(ModelStreamInferResponse(error_message=error.message, infer_response=response))

    def leaving(self) -> str:
        """It does not know more."""
        return "CANCELLED"
