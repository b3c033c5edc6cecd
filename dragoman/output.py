"""How the command line writes results: one line each, for people or as JSON."""

import json
from dataclasses import asdict
from typing import Any

from dragoman.errors import DeadlineExceeded, DragomanError, Unreachable
from dragoman.lines import LineError
from dragoman.results import Embedding, Model, Timings, Translation


def to_json(value: dict[str, Any]) -> str:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False)


def translation_line(translation: Translation) -> str:
    """The best hypothesis; a line break in it becomes a space."""
    return translation.text.replace("\r", " ").replace("\n", " ")


def translation_json(translation: Translation) -> str:
    """The best hypothesis' fields, then all the others."""
    return to_json(asdict(translation.hypotheses[0]) | asdict(translation))


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
    """The values; 9 digits tell every float32 apart."""
    return " ".join(f"{value:.9g}" for value in embedding.values)


def embedding_json(embedding: Embedding) -> str:
    """All fields."""
    return to_json(asdict(embedding))


def model_json(model: Model) -> str:
    """All fields."""
    return to_json(asdict(model))


def model_block(model: Model) -> str:
    """A model for people, on several lines."""
    default = model.default_decoding
    return f"""{model.name}
  languages   {", ".join(model.source_languages)} -> {", ".join(model.target_languages)}
  limits      {model.max_source_tokens} source tokens, {model.max_new_tokens} new tokens, {model.max_beams} beams
  default     num_beams {default.num_beams}, num_return_sequences {default.num_return_sequences}, \
max_new_tokens {default.max_new_tokens}, length_penalty {default.length_penalty:g}, \
early_stopping {default.early_stopping}
  size        width {model.width}, {model.encoder_layers} encoder and {model.decoder_layers} decoder layers, \
{model.vocabulary_size} target tokens
  runs as     {model.precision} on {model.execution_provider}
  package     {model.package_sha256}
  checkpoint  {model.checkpoint_sha256}"""


def error_json(error: DragomanError | LineError, explanation: str) -> str:
    """What stands in the place of a result."""
    if isinstance(error, LineError):
        return to_json({"error": {"code": "INVALID_ARGUMENT", "reason": "INVALID_LINE", "message": explanation}})
    return to_json({"error": {"code": error.code.name, "reason": error.reason, "message": explanation}})


def explained(error: DragomanError | LineError, target: str, timeout_s: float) -> str:
    """The error and the way out of it, on one line."""
    if isinstance(error, Unreachable):
        cause = " ".join(error.message.rpartition("last error: ")[2].split())
        return (
            f"no server at {target} ({cause}); start one with `make run` in a checkout of Dragoman, "
            "or check --target, --tls and --ca"
        )
    if isinstance(error, DeadlineExceeded):
        return f"no answer within {timeout_s:g} s; allow more with --timeout"
    return " ".join(str(error).split())
