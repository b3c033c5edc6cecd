"""Messages of every method as clients send them, and what changes at random leave of them."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from dragoman.v1.decoding_pb2 import DecodingOptions
from dragoman.v1.encoding_pb2 import ClassifyRequest, EncodeRequest, StreamEncodeRequest
from dragoman.v1.model_pb2 import GetModelRequest, ListModelsRequest, ReloadRequest
from dragoman.v1.translation_pb2 import (
    Candidates,
    ScoreRequest,
    StreamTranslateRequest,
    TranslateAndEncodeRequest,
    TranslateDocumentRequest,
    TranslateRequest,
)
from server.kserve.v2.inference_pb2 import (
    InferParameter,
    InferTensorContents,
    ModelConfigRequest,
    ModelInferRequest,
    ModelMetadataRequest,
    ModelReadyRequest,
    ModelStatisticsRequest,
    RepositoryIndexRequest,
    ServerLiveRequest,
    ServerMetadataRequest,
    ServerReadyRequest,
)

STRANGE = [
    *("\0", "\u202e\u2066abc", "e" + "\u0301" * 300, "\ufdfa" * 50, "\U0001f468\u200d\U0001f469" * 20, "\u2581" * 9),
    *(
        ">>pt<<",
        "a" * 3000,
        " " * 5000,
        "\x9b31m",
        "%s{0}\n\r",
        "<unk></s><pad>",
        "\ue000" * 40,
        "漢字" * 200,
        "A cat.",
    ),
]
NUMBERS = [0, 1, 2, 3, 4, 17, -1, 128, 129, 2**31 - 1, -(2**31)]
LENGTHS = [0.0, -0.0, 1.0, 10.0, -10.0, 10.0001, 1e38, float("nan"), float("inf"), 1e-45]
SPLICES = [b"\xff" * 9, b"\x80" * 12, b"\x0a\xff\xff\xff\x7f", b"\x0b" * 120, b"\x0c", b"\xed\xa0\x80", b"\x00"]


def decoding(chance: random.Random) -> DecodingOptions:
    options = DecodingOptions(max_new_tokens=chance.choice([1, 2, 4, 8, 8, *NUMBERS]))
    if chance.random() < 0.4:
        options.num_beams = chance.choice(NUMBERS)
    if chance.random() < 0.4:
        options.num_return_sequences = chance.choice(NUMBERS)
    if chance.random() < 0.4:
        options.length_penalty = chance.choice(LENGTHS)
    if chance.random() < 0.4:
        options.early_stopping = chance.choice([0, 1, 2, 3, 4, -1, 99])  # type: ignore[assignment]
    if chance.random() < 0.2:
        options.return_alternatives = True
    return options


def content(chance: random.Random) -> str:
    return chance.choice(STRANGE) + chance.choice(["", " cat", chance.choice(STRANGE)])


def language(chance: random.Random) -> str:
    return chance.choice(["", "en", "pt", "pt", "pt", "pt", "pt-BR", "EN-gb", "xx", "\0", "-", "en-" + "a" * 60, "é"])


def translate(chance: random.Random) -> Message:
    return TranslateRequest(
        contents=[content(chance) for _ in range(chance.choice([0, 1, 1, 2, 3, 20]))],
        source_language_code=chance.choice(["", "", "en", language(chance)]),
        target_language_code=language(chance),
        model=chance.choice(["", "", "", "copy", "x"]),
        decoding=decoding(chance),
        labels={"a": "b", "": "\0" * 9} if chance.random() < 0.1 else {},
    )


def stream(chance: random.Random) -> Message:
    return StreamTranslateRequest(
        content=content(chance), target_language_code=language(chance), decoding=decoding(chance)
    )


def encode(chance: random.Random) -> EncodeRequest:
    return EncodeRequest(contents=[content(chance) for _ in range(chance.choice([0, 1, 2, 5]))])


def classify(chance: random.Random) -> Message:
    return ClassifyRequest(
        contents=[content(chance) for _ in range(chance.choice([0, 1, 2, 5]))],
        most_labels=chance.choice([None, *NUMBERS]),
        truncation=chance.choice([0, 1, 2, 99]),  # type: ignore[arg-type]
        grouping=chance.choice([0, 1, 2, 99]),  # type: ignore[arg-type]
    )


def stream_encode(chance: random.Random) -> Message:
    return StreamEncodeRequest(request=encode(chance))


def both(chance: random.Random) -> Message:
    return TranslateAndEncodeRequest(
        contents=[content(chance) for _ in range(chance.choice([0, 1, 2, 5]))],
        target_language_code=language(chance),
        decoding=decoding(chance),
        poolings=[chance.choice([0, 1, 4, 7, 9, 99]) for _ in range(chance.choice([0, 1, 2]))],  # type: ignore[misc]
        dimensions=chance.choice([None, 2, *NUMBERS]),
    )


def score(chance: random.Random) -> Message:
    targets = [[content(chance) for _ in range(chance.choice([0, 1, 2, 9]))] for _ in range(chance.choice([0, 1, 2]))]
    return ScoreRequest(
        contents=[Candidates(content=content(chance), targets=given) for given in targets],
        target_language_code=language(chance),
        prompt=chance.choice([None, "", "shorten", "x"]),
    )


def document(chance: random.Random) -> Message:
    return TranslateDocumentRequest(
        document=content(chance).encode(),
        format=chance.choice([0, 1, 2, 3, 4, 5, 6, 7, 99]),  # type: ignore[arg-type]
        target_language_code=language(chance),
        decoding=decoding(chance),
    )


def infer(chance: random.Random) -> Message:
    texts = [content(chance).encode() for _ in range(chance.choice([0, 1, 1, 2, 9]))]
    raw = chance.random() < 0.5
    text = ModelInferRequest.InferInputTensor(
        name=chance.choice(["text"] * 9 + ["", "\0"]),
        datatype=chance.choice(["BYTES"] * 9 + ["", "FP32"]),
        shape=chance.choice([[len(texts), 1], [len(texts), 1], [len(texts), 1], [], [-1], [2**62, 2**62], NUMBERS]),
        contents=None if raw else InferTensorContents(bytes_contents=texts),
    )
    named = chance.choice(["no_cache", "num_beams", "dimensions", "priority", "x", "top_p", "\0"])
    return ModelInferRequest(
        model_name=infer_model(chance),
        model_version=chance.choice(["", "", "", "1", "-1"]),
        id=chance.choice(["", "a", "\0"]),
        inputs=[text] * chance.choice([0, 1, 1, 1, 1, 1, 2]),
        outputs=[
            ModelInferRequest.InferRequestedOutputTensor(name=chance.choice(["translation", "score", "embedding", ""]))
            for _ in range(chance.choice([0, 0, 1, 2]))
        ],
        parameters={
            "target_language": InferParameter(string_param=language(chance)),
            "max_new_tokens": InferParameter(int64_param=chance.choice([1, 8, *NUMBERS])),
        }
        | ({named: parameter(chance)} if chance.random() < 0.3 else {}),
        raw_input_contents=[b"".join(len(one).to_bytes(4, "little") + one for one in texts)] if raw else [],
    )


def infer_model(chance: random.Random) -> str:
    return chance.choice(["copy", "copy", "copy.stream", "copy.stream", "copy.encode", "", "x" * 900])


def parameter(chance: random.Random) -> InferParameter:
    return chance.choice(
        [
            InferParameter(),
            InferParameter(bool_param=True),
            InferParameter(int64_param=chance.choice(NUMBERS)),
            InferParameter(double_param=chance.choice(LENGTHS)),
            InferParameter(string_param=content(chance)),
        ]
    )


def get_model(chance: random.Random) -> Message:
    return GetModelRequest(name=chance.choice(["", "copy", "x" * 900, "\0"]))


def reload(chance: random.Random) -> Message:
    return ReloadRequest(name=chance.choice(["", "copy", "x" * 900, "\0"]))


def check(chance: random.Random) -> Message:
    return HealthCheckRequest(service=chance.choice(["", "x", "dragoman.v1.TranslationService"]))


def reflect(chance: random.Random) -> Message:
    if chance.random() < 0.5:
        return ServerReflectionRequest(file_containing_symbol=content(chance))
    return ServerReflectionRequest(file_by_filename=chance.choice(["../../../etc/passwd", "dragoman/v1/model.proto"]))


INFERENCE = "/inference.GRPCInferenceService"
METHODS: dict[str, tuple[str, Callable[[random.Random], Message]]] = {
    "/dragoman.v1.TranslationService/Translate": ("unary_unary", translate),
    "/dragoman.v1.TranslationService/StreamTranslate": ("unary_stream", stream),
    "/dragoman.v1.TranslationService/TranslateAndEncode": ("unary_unary", both),
    "/dragoman.v1.TranslationService/Score": ("unary_unary", score),
    "/dragoman.v1.EncodingService/Encode": ("unary_unary", encode),
    "/dragoman.v1.EncodingService/Classify": ("unary_unary", classify),
    "/dragoman.v1.EncodingService/StreamEncode": ("stream_stream", stream_encode),
    "/dragoman.v1.ModelService/GetModel": ("unary_unary", get_model),
    "/dragoman.v1.ModelService/ListModels": ("unary_unary", lambda chance: ListModelsRequest()),
    "/dragoman.v1.ModelService/Reload": ("unary_unary", reload),
    "/grpc.health.v1.Health/Check": ("unary_unary", check),
    "/grpc.health.v1.Health/List": ("unary_unary", lambda chance: HealthCheckRequest()),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": ("stream_stream", reflect),
    "/dragoman.v1.TranslationService/TranslateDocument": ("unary_stream", document),
    f"{INFERENCE}/ServerLive": ("unary_unary", lambda chance: ServerLiveRequest()),
    f"{INFERENCE}/ServerReady": ("unary_unary", lambda chance: ServerReadyRequest()),
    f"{INFERENCE}/ServerMetadata": ("unary_unary", lambda chance: ServerMetadataRequest()),
    f"{INFERENCE}/ModelReady": ("unary_unary", lambda chance: ModelReadyRequest(name=infer_model(chance))),
    f"{INFERENCE}/ModelMetadata": ("unary_unary", lambda chance: ModelMetadataRequest(name=infer_model(chance))),
    f"{INFERENCE}/ModelConfig": ("unary_unary", lambda chance: ModelConfigRequest(name=infer_model(chance))),
    f"{INFERENCE}/ModelStatistics": ("unary_unary", lambda chance: ModelStatisticsRequest(name=infer_model(chance))),
    f"{INFERENCE}/RepositoryIndex": ("unary_unary", lambda chance: RepositoryIndexRequest(ready=True)),
    f"{INFERENCE}/ModelInfer": ("unary_unary", infer),
    f"{INFERENCE}/ModelStreamInfer": ("stream_stream", infer),
}


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The same message, or what some changes have left of it."""
    left = bytearray(data)
    for _ in range(chance.choice([0, 0, 0, 1, 1, 2, 5, 30])):
        at = chance.randrange(len(left) + 1)
        change = chance.randrange(6)
        if change == 0 and at < len(left):
            left[at] ^= 1 << chance.randrange(8)
        elif change == 1:
            del left[at : at + chance.randrange(1, 9)]
        elif change == 2:
            left[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif change == 3:
            del left[at:]
        elif change == 4:
            left[at:at] = left[at : at + chance.randrange(1, 40)] * chance.choice([1, 2, 50])
        else:
            left[at:at] = chance.choice(SPLICES)
    return bytes(left)


@dataclass(frozen=True)
class Sent:
    """A message, and how it is sent."""

    seed: int
    path: str
    kind: str
    data: bytes

    @classmethod
    def of(cls, seed: int) -> "Sent":
        chance = random.Random(seed)
        path = chance.choice(list(METHODS))
        kind, make = METHODS[path]
        return cls(seed, path, kind, mutated(make(chance).SerializeToString(), chance))
