"""The processes of a run: one, or as many as torchrun starts."""

import os
from collections.abc import Iterator, Mapping
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
    """Takes this process's place, on a device of its own.

    Raises TrainingError where there is no such place or device, or the processes do not find each other.
    """
    count, rank, local = _place(os.environ)
    device = choose_device(settings, local)
    if count == 1:
        yield Processes(device)
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        torch.distributed.init_process_group(backend, timeout=WAIT)
    except (torch.distributed.DistError, ValueError) as error:  # the latter for a port that is none
        meet = ":".join(os.environ[name] for name in _MEETING)
        told = str(error).partition("\n")[0]  # torch adds where it was in C++
        raise TrainingError(f"processes cannot meet at {meet}, which {' and '.join(_MEETING)} say: {told}") from error
    try:
        yield Processes(device, rank, count)
    finally:
        torch.distributed.destroy_process_group()


_MEETING = ("MASTER_ADDR", "MASTER_PORT")


def _place(environment: Mapping[str, str]) -> tuple[int, int, int]:
    """How many processes there are, which this is of them, and of those of its machine, as torchrun sets it.

    Raises TrainingError where that cannot be, or is told of in part.
    """
    count = _number(environment, "WORLD_SIZE", 1)
    local = _number(environment, "LOCAL_RANK", 0)
    if local < 0:
        raise TrainingError(f"LOCAL_RANK is {local}; it is at least 0 where torchrun sets it, or else unset it")
    if count == 1:
        return count, 0, local
    if count < 1:
        raise TrainingError(f"WORLD_SIZE is {count}; it is at least 1 where torchrun sets it, or else unset it")
    if missing := [name for name in ("RANK", *_MEETING) if name not in environment]:
        raise TrainingError(
            f"WORLD_SIZE is {count}, and {missing[0]} is not set: start with torchrun, which sets both, or unset "
            "WORLD_SIZE"
        )
    rank = _number(environment, "RANK", 0)
    if not 0 <= rank < count:
        raise TrainingError(f"RANK is {rank}, and WORLD_SIZE {count}: ranks go from 0 to {count - 1}; unset both")
    return count, rank, local


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    told = environment.get(name, str(default))
    try:
        return int(told)
    except ValueError:
        raise TrainingError(f"{name} is {told!r}, not a number as torchrun sets it; unset it") from None


def choose_device(settings: Training, index: int) -> torch.device:
    """The device of the process with this index on its machine. Raises TrainingError."""
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
