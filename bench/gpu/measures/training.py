"""Part `training`: how fast the zoo's model trains on sentence pairs, and on what share of the device's FLOPs.

Model FLOPs utilisation (Chowdhery et al. 2022, "PaLM", appendix B), but of what a large matrix product reaches in the
same run, not of a data sheet: FLOPs of an update's matrix products and attention, forward and backward, over its time.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bench.gpu import sources
from bench.gpu.plan import Findings, Plan
from bench.measure import Series, seconds
from models.config import ModelShape
from training.config import Optimizer, Training
from training.data.batches import Batch, make_batch
from training.data.text import Corpus, Sentences
from training.loop.optimizers import make_optimizers
from training.loop.processes import multiplies_bf16
from training.objective.objective import Translation
from training.start import load_suppressed, with_dropout

BEST_OF = 10
WARM_UPS = 3


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields the speed of a matrix product, and for several sizes of a batch that of an update of all weights."""
    if plan.device == "cuda":
        torch.cuda.set_device(plan.device_id)
    size = plan.sizes.product_size
    fastest = product_flops(plan, size)
    yield "matrix product", {"size": size, "precision": str(precision(plan)), "tflops_per_s": fastest / 1e12}
    for tokens in plan.sizes.training_tokens:
        yield f"batches of {tokens} tokens", read(plan, tokens, fastest)


def read(plan: Plan, tokens: int, fastest: float) -> Findings:
    """The median of some updates.

    fastest: FLOPs a second that the utilisation is a share of
    """
    update = make_update(plan, tokens)
    with FlopCounterMode(display=False) as counter:
        update()
    for _ in range(WARM_UPS):
        update()
    taken = Series([seconds(update) for _ in range(plan.sizes.updates)]).median
    flops = counter.get_total_flops()
    return {
        "ms": taken * 1000,
        "target_tokens_per_s": tokens / taken,
        "tflops": flops / 1e12,
        "tflops_per_s": flops / taken / 1e12,
        "utilisation": flops / taken / fastest,
    }


def make_update(plan: Plan, tokens: int) -> Callable[[], None]:
    """One update as `training` makes it, on random pairs without padding, until the device is done with it."""
    settings, training = Optimizer(), Training(max_steps=1)
    model = with_dropout(load_suppressed(plan.checkpoint("zoo")).model, training.dropout)
    objective = Translation(model, training.label_smoothing).to(plan.torch_device).train()
    optimizers = make_optimizers(settings, model)
    batch = random_batch(model.config, tokens // plan.sizes.source_tokens, plan.sizes.source_tokens)
    batch = batch.to(torch.device(plan.torch_device))

    def update() -> None:
        with torch.autocast(plan.device, precision(plan), enabled=precision(plan) is torch.bfloat16):
            loss, _ = objective(batch)
        (loss / tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        wait(plan)

    return update


def random_batch(config: ModelShape, pairs: int, length: int) -> Batch:
    """Pairs of random sentences of one length."""
    ids, ends = np.array(sources.of_length(config, 2 * pairs, length), np.int32), length * np.arange(1, pairs + 1)
    source, target = (Sentences(side.ravel(), ends) for side in np.split(ids, 2))
    return make_batch(Corpus(source, target), np.arange(pairs), config)


def product_flops(plan: Plan, size: int) -> float:
    """FLOPs a second of the product of two square matrices, in the precision that training takes: the best of some."""
    left, right = (matrix(plan, size) for _ in range(2))

    def multiply() -> None:
        left @ right
        wait(plan)

    for _ in range(WARM_UPS):
        multiply()
    return float(2 * size**3 / min(seconds(multiply) for _ in range(BEST_OF)))


def matrix(plan: Plan, size: int) -> Tensor:
    """Of random numbers: a GPU multiplies zeros faster."""
    return torch.randn(size, size, device=plan.torch_device, dtype=precision(plan))


def precision(plan: Plan) -> torch.dtype:
    """Of matrix products, as `training.precision = "auto"` chooses it."""
    return torch.bfloat16 if multiplies_bf16(torch.device(plan.torch_device)) else torch.float32


def wait(plan: Plan) -> None:
    """Until the device is done."""
    if plan.device == "cuda":
        torch.cuda.synchronize()
