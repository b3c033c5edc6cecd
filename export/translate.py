"""The model's own translations of a text, by the engine that will serve it."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.offline import decode
from export.tracing.trace import trace
from export.weights.save import save
from models.checkpoint import Checkpoint
from models.package.declared.precision import AttentionKind

ROWS = 32
"""Sentences that each worker decodes at a time."""


def translate(
    checkpoint: Checkpoint, attention: AttentionKind, sources: Sequence[Sequence[int]]
) -> Iterator[tuple[int, ...]]:
    """Greedily, from the whole vocabulary and in fp32: the target tokens of each source, in their order."""
    decoding = replace(checkpoint.generation.decoding(), num_beams=1, num_return_sequences=1, do_sample=False)
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:
        model = Loadable(save(trace(checkpoint.model, attention), Path(folder)), checkpoint.generation)
        with load(model, CPU, Limits(rows=ROWS)) as runner:
            for answer in decode(runner, model.rules, ((tuple(source), decoding) for source in sources)):
                yield answer.hypotheses[0].token_ids
