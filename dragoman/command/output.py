"""How the command line writes results: one line each, for people or as JSON."""

import json
import math
import re
import sys
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from dragoman.command.lines import LineError
from dragoman.errors import DeadlineExceeded, DragomanError, Unreachable
from dragoman.results.classification import Classification, Label
from dragoman.results.embedding import Embedding, EncodingDefaults
from dragoman.results.scores import Scores, TargetScore
from dragoman.results.server import Model, Reloaded
from dragoman.results.translation import Alignment, Hypothesis, Span, TargetToken, Timings, Translation

CORE_PREFIX = re.compile(r"^[A-Z_]+: (ipv[46]:\S+: )?")
"""What gRPC's core puts before its words: a status, and the address, which the target has named already."""
HTTP_PORT = "{} is no gRPC port, but perhaps an HTTP port, such as a server's metrics port; check --target"
WRONG_DOORS = {
    "Failed parsing HTTP/2": HTTP_PORT,
    "missing selected ALPN": HTTP_PORT,
    "WRONG_VERSION_NUMBER": "{} does not speak TLS; leave --tls and --ca out, or check --target",
    "CERTIFICATE_VERIFY_FAILED": "the certificate of {} is signed by nobody who is trusted, or is out of date; "
    "name its authority with --ca",
    "Hostname Verification Check failed": "the certificate of {} is for another name; check --target",
}
"""What to tell where somebody is there, by what gRPC's core says of it."""
TOO_LARGE = re.compile(r"message larger than max \((\d+) vs\. (\d+)\)")
"""gRPC's own words for a message that no server of ours has seen."""
HTTP_STATUS = re.compile(r"Received http2 header with status: (\d+)")
"""The same, for what speaks HTTP/2 and no gRPC."""
ALWAYS_TOLD = ("num_beams", "num_return_sequences", "length_penalty")
"""Of a model's default options, beside those that change something."""


def to_json(value: dict[str, Any]) -> str:
    """One line of JSON; bytes in base64."""
    return json.dumps(value, ensure_ascii=False, default=lambda data: b64encode(data).decode())


def translation_line(translation: Translation) -> str:
    """The best hypothesis; a line break in it becomes a space."""
    return _on_one_line(translation.text)


def ranked_lines(translation: Translation) -> str:
    """All hypotheses, best first: rank, score and text, one line each."""
    ranked = enumerate(translation.hypotheses, 1)
    return "\n".join(f"{rank}\t{hypothesis.score:.6g}\t{_on_one_line(hypothesis.text)}" for rank, hypothesis in ranked)


def translation_json(translation: Translation) -> str:
    """The best hypothesis' fields, then all the others."""
    return to_json(asdict(translation.hypotheses[0]) | asdict(translation))


def notes(text: str, translation: Translation) -> list[str]:
    """More about a text's translation for people, a line each, where it came: tokens, links, and what looks wrong."""
    tokens = [tokens_line(one) for one in translation.hypotheses if one.target_tokens]
    links = [links_line(text, one, one.alignment) for one in translation.hypotheses if one.alignment]
    wrong = f"looks wrong: {', '.join(translation.guards)}" if translation.guards else ""
    again = "translated twice" if translation.retried else ""
    told = "; ".join(filter(None, (wrong, again)))
    return [*tokens, *links, *([told] if told else ())]


def tokens_line(target: Hypothesis | TargetScore) -> str:
    """Its tokens with their probabilities."""
    return " ".join(map(_shown, target.target_tokens))


def links_line(text: str, hypothesis: Hypothesis, alignment: Alignment) -> str:
    """Each token that has links, and the token of the text that it comes from most, with its weight."""
    strongest = {link.target: link for link in reversed(alignment.links)}  # of each target the first is the strongest
    return " ".join(
        f"{_quoted(hypothesis.text, alignment.target_spans[target])}"
        f" < {_quoted(text, alignment.source_spans[link.source])} {link.weight:.0%}"
        for target, link in sorted(strongest.items())
    )


def _quoted(text: str, span: Span) -> str:
    return json.dumps(text[span.begin : span.end], ensure_ascii=False)


def scores_line(scores: Scores) -> str:
    """The logarithm of each translation's probability, a tab between two."""
    return "\t".join(f"{target.log_prob:.6g}" for target in scores.targets)


def scores_json(scores: Scores) -> str:
    """All fields."""
    return to_json(asdict(scores))


def _shown(token: TargetToken) -> str:
    return f"{json.dumps(token.text, ensure_ascii=False)} {math.exp(token.log_prob):.1%}"


def timings_line(timings: Timings) -> str:
    """Where the time of one text went."""
    phases = {
        "tokenize": timings.tokenize_s,
        "queue": timings.queue_s,
        "encode": timings.encode_s,
        "decode": timings.decode_s,
        "detokenize": timings.detokenize_s,
    }
    told = ", ".join(f"{phase} {seconds * 1000:.3f} ms" for phase, seconds in phases.items())
    return f"{told}; {timings.steps} steps of {timings.mean_batch_rows:.1f} rows in the mean"


def embedding_line(embedding: Embedding) -> str:
    """The values; 9 digits tell every float32 apart. Those of tokens: a tab between two tokens. Binary ones: bits."""
    if embedding.values:
        size = embedding.shape[-1]
        vectors = [embedding.values[first : first + size] for first in range(0, len(embedding.values), size)]
        return "\t".join(" ".join(f"{value:.9g}" for value in vector) for vector in vectors)
    row_bytes = -(-embedding.shape[-1] // 8)
    rows = [embedding.data[first : first + row_bytes] for first in range(0, len(embedding.data), row_bytes)]
    bits = ("".join(f"{byte:08b}" for byte in row)[: embedding.shape[-1]] for row in rows)
    return "\t".join(map(" ".join, bits))


def embedding_json(embedding: Embedding) -> str:
    """All fields."""
    return to_json(asdict(embedding))


def labels_line(text: str, found: Classification) -> str:
    """Labels and their probabilities, a tab between two; those of spans behind what is labelled."""
    spans = (
        f"{json.dumps(text[span.begin : span.end], ensure_ascii=False)} {_labels(span.labels)}" for span in found.spans
    )
    return "\t".join(spans) if found.spans else _labels(found.labels, "\t")


def _labels(labels: Iterable[Label], between: str = " ") -> str:
    return between.join(f"{label.name} {label.probability:.1%}" for label in labels)


def model_json(model: Model) -> str:
    """All fields."""
    return to_json(asdict(model))


def reloaded_json(reloaded: Reloaded, target: str) -> str:
    """All fields, and the server that was asked."""
    return to_json({"target": target, **asdict(reloaded)})


def reloaded_line(reloaded: Reloaded) -> str:
    """What is served now, and how it compared."""
    name, now, before = reloaded.model.name, reloaded.model.package_sha256[:12], reloaded.former_package_sha256[:12]
    if not reloaded.changed:
        return f"{name} is served of package {now} already"
    told = f"{name} is served of package {now}, no longer of {before}"
    if (shadow := reloaded.shadow) is None:
        return told
    return f"{told}; {shadow.equal} of {shadow.compared} texts were equal, {shadow.slowdown:.2f} x the time"


def model_block(model: Model) -> str:
    """A model for people, on several lines, without those that say nothing of it, as of a decoder that it has not."""
    runs = f"{model.precision} on {model.execution_provider}"
    if model.workers:
        runs += f", {model.workers} workers of {model.rows} rows, at most {model.memory_bytes // 10**6} MB"
    if model.server_version:
        runs += f", by Dragoman {model.server_version}"
    limits, layers = f"{model.max_source_tokens} source tokens", f"{model.encoder_layers} encoder"
    if model.decoder_layers:
        limits += f", {model.max_new_tokens} new tokens, {model.max_beams} beams"
        layers += f" and {model.decoder_layers} decoder"
    tokens = f"{model.vocabulary_size} {'target ' * bool(model.decoder_layers)}tokens"
    sources, targets = ", ".join(model.source_languages), ", ".join(model.target_languages)
    lines = {
        "does": ", ".join(model.tasks),
        "languages": f"{sources} -> {targets}".strip() if targets else sources,
        "limits": limits,
        "default": _defaults(model) if model.decoder_layers else "",
        "vectors": _vectors(model.default_encoding) if model.default_encoding.dimensions else "",
        "prompts": ", ".join(model.prompts),
        "size": f"width {model.width}, {layers} layers, {tokens}",
        "runs as": runs,
        "package": model.package_sha256,
        "checkpoint": model.checkpoint_sha256,
    }
    title = f"{model.name}{' (stopped)' * (model.state == 'stopped')}"
    return "\n".join([title, *(f"  {name:<11} {told}" for name, told in lines.items() if told)])


def _defaults(model: Model) -> str:
    options = asdict(model.default_decoding).items()
    return ", ".join(f"{name} {_short(value)}" for name, value in options if name in ALWAYS_TOLD or _changes(value))


def _vectors(own: EncodingDefaults) -> str:
    vectors = f"{own.dimensions} values, {' + '.join(own.poolings)}{', normalised' * own.normalize}"
    return f"{vectors}; prompts {', '.join(own.prompts)}" if own.prompts else vectors


def error_json(error: DragomanError | LineError, explanation: str) -> str:
    """What stands in the place of a result."""
    if isinstance(error, LineError):
        return to_json({"error": {"code": "INVALID_ARGUMENT", "reason": "INVALID_LINE", "message": explanation}})
    return to_json({"error": {"code": error.code.name, "reason": error.reason, "message": explanation}})


def explained(error: DragomanError | LineError, targets: list[str], timeout_s: float) -> str:
    """The error and the way out of it, on one line."""
    if isinstance(error, Unreachable):
        return _unreachable(error, targets)
    if isinstance(error, DeadlineExceeded):
        return f"no answer within {timeout_s:g} s; allow more with --timeout"
    told = " ".join(str(error).split())
    if found := HTTP_STATUS.search(told):
        return f"{' or '.join(targets)} answers by HTTP, with {found[1]}: a proxy or another server; check --target"
    if found := TOO_LARGE.search(told):
        size, most = found.groups()
        way = "send its parts, or have the server's --max-message-bytes raised"
        return f"the request has {size} bytes; the server takes {most}: {way}"
    return told


def complain(message: str) -> None:
    """Says on standard error why something failed."""
    print(f"dragoman: {message}", file=sys.stderr, flush=True)


def _unreachable(error: Unreachable, targets: list[str]) -> str:
    target = " or ".join(targets)
    cause = CORE_PREFIX.sub("", " ".join(error.message.rpartition("last error: ")[2].split()))
    for sign, told in WRONG_DOORS.items():
        if sign in cause:
            return told.format(target)
    hosts = [each.rpartition(":")[0].strip("[]") for each in targets]
    here = all(host in ("localhost", "::1") or host.startswith("127.") for host in hosts)
    way = "in a checkout of Dragoman `make run` starts one" if here else "is it running, and can this machine reach it"
    return f"no server at {target} ({cause}); {way}; check --target, --tls and --ca"


def _on_one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


def _changes(value: object) -> bool:
    """Whether an option of this value does anything: most are off at 0, at 1, or where they are empty."""
    return bool(value) and value != 1


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
