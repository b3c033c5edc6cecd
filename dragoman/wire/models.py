"""Between plain values and protobuf, for what a server says of its models: pure functions that both clients share."""

from dragoman.results.embedding import EncodingDefaults
from dragoman.results.server import Model, Reloaded, ShadowReport
from dragoman.v1 import encoding_pb2, model_pb2
from dragoman.wire.messages import decoding, plain


def reloaded(message: model_pb2.ReloadResponse) -> Reloaded:
    """What came of a reload."""
    report = message.shadow
    told = ShadowReport(report.compared, report.equal, report.score_difference, report.slowdown, report.dropped)
    return Reloaded(model(message.model), message.former_package_sha256, told if message.HasField("shadow") else None)


def model(message: model_pb2.Model) -> Model:
    """A model and its limits."""
    return Model(
        name=message.name,
        source_languages=tuple(message.source_language_codes),
        target_languages=tuple(message.target_language_codes),
        max_source_tokens=message.max_source_tokens,
        max_new_tokens=message.max_new_tokens,
        max_beams=message.max_beams,
        default_decoding=decoding(message.default_decoding),
        width=message.width,
        encoder_layers=message.encoder_layers,
        decoder_layers=message.decoder_layers,
        vocabulary_size=message.vocabulary_size,
        precision=message.precision,
        execution_provider=message.execution_provider,
        package_sha256=message.package_sha256,
        checkpoint_sha256=message.checkpoint_sha256,
        max_contents=message.max_contents,
        tasks=tuple(plain(model_pb2.Task.DESCRIPTOR, task, "TASK_") for task in message.tasks),
        default_encoding=_encoding_defaults(message.default_encoding),
        state=plain(model_pb2.ModelState.DESCRIPTOR, message.state, "MODEL_STATE_"),
        workers=message.workers,
        rows=message.rows,
        memory_bytes=message.memory_bytes,
        prompts=dict(message.prompts),
        prompt=message.prompt,
        aligns=message.aligns,
        attends=message.attends,
        labels=tuple(message.labels),
        labels_tokens=message.labels_tokens,
        labels_pairs=message.labels_pairs,
        server_version=message.server_version,
    )


def _encoding_defaults(message: model_pb2.EncodingDefaults) -> EncodingDefaults:
    poolings, offered = (
        tuple(plain(encoding_pb2.Pooling.DESCRIPTOR, pooling, "POOLING_") for pooling in named)
        for named in (message.poolings, message.offered)
    )
    prompts = dict(message.prompts)
    return EncodingDefaults(poolings, message.dimensions, message.normalize, prompts, message.prompt, offered)
