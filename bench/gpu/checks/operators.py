"""Our operators for devices, one by one: those of the device against the same in plain C++ on the host."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.gpu.plan import Findings
from bench.gpu.sides.operators import (
    Case,
    Sizes,
    best_logits,
    difference,
    embed_tokens,
    history_attention,
    keep_sources,
    packed_attention,
    row_linear,
    slot_attention,
)
from engine.devices.session import CPU

ROUNDED = 2.0**-8
"""Of fp16 between 2 and 4, two units in the last place. Linear layers give numbers of up to 30."""
ATTENTION = {"attended": ROUNDED}
BOUNDS: dict[str, dict[str, float]] = {
    "HistoryAttention": ATTENTION | {"present_keys": 0, "present_values": 0},
    "SlotAttention": ATTENTION,
    "PackedAttention": ATTENTION,
    "KeepSources": {"kept": 0},
    "RowLinear": {"y": 8 * ROUNDED},
    "EmbedTokens": {"embedded": 4 * ROUNDED},
    "BestLogits": {"ids": 0, "log_probs": 1e-3},
}
"""Largest differences that are accepted of outputs. All numbers are drawn from normal distributions."""


def cases() -> Iterator[Case]:
    """Of the sizes of models that are served, and of heads that do not fill a vector."""
    random = np.random.default_rng(1)
    for sizes in (Sizes(8, 8, 64, 100), Sizes(3, 4, 40, 300), Sizes(5, 2, 256, 33)):
        yield history_attention(sizes, random)
        yield slot_attention(sizes, random)
        yield keep_sources(sizes, tensors=12, random=random)
        yield packed_attention([1, 30, 512, 7, 1, 1, 64], sizes.heads, sizes.head_dim, random)
    for rows in (1, 16, 32, 64, 200):
        yield row_linear(rows, 512, 1536, random)
        yield row_linear(rows, 2048, 512, random, without="x_scale x_shift")
        yield row_linear(rows, 512, 2048, random, "relu", without="residual residual_scale residual_shift")
    yield embed_tokens(9, 512, 1000, 512**0.5, random)
    yield best_logits(8, 512, 58112, 8, random)


def compare(library: Path, provider: str) -> Findings:
    """The largest difference of every output, by operator. Raises RuntimeError where one is larger than is accepted."""
    found: dict[str, dict[str, float]] = {operator: dict.fromkeys(bounds, 0.0) for operator, bounds in BOUNDS.items()}
    for case in cases():
        there, here = (case.run(library, name) for name in (provider, CPU.provider))
        for name, largest in found[case.operator].items():
            found[case.operator][name] = float(np.max([largest, difference(there, here, [name])]))
    over = [
        f"{name} of {operator} by {found[operator][name]:.3g}, more than {bound:.3g}"
        for operator, bounds in BOUNDS.items()
        for name, bound in bounds.items()
        if not found[operator][name] <= bound
    ]
    if over:
        raise RuntimeError(f"operators of the device differ from those of the host: {'; '.join(over)}; all: {found}")
    return dict(found)
