"""NVIDIA's tritonclient, unchanged: asks a server what its methods, streams and errors give, and prints JSON.

Runs in an environment of its own (requirements/tritonclient.txt): nothing of this repository is imported.
"""

import asyncio
import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException

WAIT_S = 60


def tensor(*texts: str) -> Any:
    """[texts, 1]"""
    array = np.array([[text.encode()] for text in texts], dtype=object)
    made = triton.InferInput("text", list(array.shape), "BYTES")
    made.set_data_from_numpy(array)
    return made


def rows(result: Any, name: str) -> Any:
    """A tensor of a result, as lists; None: it has none of that name."""
    array = result.as_numpy(name)
    if array is None or array.dtype != object:
        return None if array is None else array.tolist()
    return [[text.decode() for text in row] for row in array]


def described(client: Any) -> dict[str, Any]:
    config = client.get_model_config("en-pt.stream").config
    metadata = client.get_model_metadata("en-pt", as_json=True)
    return {
        "live": [client.is_server_live(), client.is_server_ready()],
        "ready": [client.is_model_ready(*asked) for asked in (["en-pt"], ["en-pt", "1"], ["en-pt", "2"], ["zz"])],
        "server": client.get_server_metadata(as_json=True)["name"],
        "outputs": {one["name"]: [one["datatype"], one["shape"]] for one in metadata["outputs"]},
        "decoupled": [config.model_transaction_policy.decoupled, config.max_batch_size],
        "index": sorted(one["name"] for one in client.get_model_repository_index(as_json=True)["models"]),
    }


def inferred(client: Any) -> dict[str, Any]:
    beams = {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.6, "early_stopping": "never"}
    result = client.infer("en-pt", [tensor("Good morning.", "The cat sleeps.")], request_id="7", parameters=beams)
    names = "translation", "score", "tokens", "finish_reason"
    chosen = client.infer("en-pt", [tensor("A dog.")], outputs=[triton.InferRequestedOutput("tokens")])
    encoded = client.infer("en-pt.encode", [tensor("A dog.", "Two dogs.")], parameters={"normalize": True})
    return {
        **{name: rows(result, name) for name in names},
        "id": result.get_response().id,
        "chosen": [one.name for one in chosen.get_response().outputs],
        "embedding": encoded.as_numpy("embedding").tolist(),
    }


def refused(client: Any) -> list[list[str]]:
    asked = [
        ("zz", [tensor("A dog.")], {}),
        ("en-pt", [tensor("A dog.")], {"num_beams": 99}),
        ("en-pt", [tensor(" ")], {}),
    ]
    found = []
    for model, inputs, parameters in asked:
        try:
            client.infer(model, inputs, parameters=parameters)
        except InferenceServerException as error:
            found.append([error.status(), error.message()])
    return found


def streamed(client: Any) -> list[Any]:
    """Of one stream: a decoupled model, a request that is refused, and a model with one response."""
    came: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: came.put((result, error)))
    found: list[Any] = []
    cat = tensor("The cat sleeps on the sofa.")
    # Hundreds of steps, so that what is found does not all wait for the first part to be sent.
    client.async_stream_infer("en-pt.stream", [cat], request_id="a", parameters={"min_new_tokens": 300})
    while True:
        result, error = came.get(timeout=WAIT_S)
        assert error is None, error
        found.append([rows(result, "text_delta"), rows(result, "translation")])
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
    client.async_stream_infer("zz", [tensor("A dog.")])
    found.append(str(came.get(timeout=WAIT_S)[1]))
    client.async_stream_infer("en-pt", [tensor("A dog.")], request_id="b")
    result, _ = came.get(timeout=WAIT_S)
    found.append([result.get_response().id, rows(result, "translation")])
    client.stop_stream()
    return found


async def asynchronous(url: str) -> dict[str, Any]:
    async def requests() -> Any:
        for number in range(3):
            yield {"model_name": "en-pt", "inputs": [tensor(f"A dog {number}.")], "request_id": str(number)}

    async with triton_aio.InferenceServerClient(url) as client:
        results = await asyncio.gather(*(client.infer("en-pt", [tensor(f"A dog {number}.")]) for number in range(3)))
        stream = [result async for result, error in client.stream_infer(requests()) if error is None]
    return {
        "unary": [rows(result, "translation") for result in results],
        "stream": {result.get_response().id: rows(result, "translation") for result in stream},
    }


def statistics(client: Any) -> dict[str, list[int]]:
    """Requests that succeeded and failed, and texts, of each model."""
    found = client.get_inference_statistics().model_stats
    counts = {one.name: (one.inference_stats.success.count, one.inference_stats.fail.count) for one in found}
    return {one.name: [*counts[one.name], one.inference_count] for one in found}


def fields(message: Any) -> dict[str, Any]:
    """What is on the wire: number and type of every field."""
    return {one.name: [one.number, one.type] for one in message.fields}


def messages() -> dict[str, Any]:
    """Of all messages of the protocol."""
    found: dict[str, Any] = {}
    waiting = [
        one for file in (service_pb2, model_config_pb2) for one in file.DESCRIPTOR.message_types_by_name.values()
    ]
    for message in waiting:
        found[message.full_name] = fields(message)
        waiting.extend(message.nested_types)
    return found


def main() -> None:
    url = sys.argv[1]
    client = triton.InferenceServerClient(url)
    told = {
        "described": described(client),
        "inferred": inferred(client),
        "refused": refused(client),
        "streamed": streamed(client),
        "asynchronous": asyncio.run(asynchronous(url)),
        "statistics": statistics(client),
        "messages": messages(),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
