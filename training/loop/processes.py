"""The processes of a run: one, or as many as torchrun starts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import numpy as np
import torch
import torch.distributed

from training.config import Training
from training.errors import TrainingError

WAIT = timedelta(hours=1)
"""How long the others wait while the first process validates."""

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among those of the run."""

    device: torch.device
    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """The one that writes files, validates and shows progress."""
        return self.rank == 0

    def share(self, items: list[T]) -> list[T]:
        """This process's part of what all of them do together."""
        return items[self.rank :: self.count]

    def reseed(self, seed: int, step: int) -> None:
        """Gives each process but the first random numbers of its own: else all would drop out the same units."""
        if not self.first:
            torch.manual_seed(int(np.random.SeedSequence([seed, step, self.rank]).generate_state(1)[0]))

    def broadcast(self, value: T) -> T:
        """What the first process has."""
        if self.count == 1:
            return value
        box = [value]
        torch.distributed.broadcast_object_list(box, device=self.device)
        return box[0]

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Over all processes."""
        if self.count > 1:
            torch.distributed.all_reduce(values)
        return values


@contextmanager
def join_processes(settings: Training) -> Iterator[Processes]:
    """Takes this process's place, on a device of its own. Raises TrainingError where there is no such device."""
    count, rank, local = (int(os.environ.get(name, default)) for name, default in _TORCHRUN)
    device = choose_device(settings, local)
    if count == 1:
        yield Processes(device)
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, timeout=WAIT)
    try:
        yield Processes(device, rank, count)
    finally:
        torch.distributed.destroy_process_group()


_TORCHRUN = (("WORLD_SIZE", "1"), ("RANK", "0"), ("LOCAL_RANK", "0"))


def choose_device(settings: Training, index: int) -> torch.device:
    """The device of the process with this index on its machine."""
    gpus = torch.cuda.device_count()
    if settings.device == "cpu" or (settings.device == "auto" and gpus == 0):
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        return torch.device("cpu")
    if index >= gpus:
        raise TrainingError(
            f"process {index} of this machine finds {gpus} CUDA devices; start fewer processes, "
            'or set training.device = "cpu"'
        )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def multiplies_bf16(device: torch.device) -> bool:
    """Whether the device has instructions for it; without them bf16 is several times slower than fp32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
