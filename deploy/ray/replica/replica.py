"""A replica of a group: loads its packages, or the few of them that are asked for, and answers entries."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import ray
from ray import serve

from deploy.ray.arguments import Group
from deploy.ray.autoscaling import QUEUE_S, QueueTime
from deploy.ray.relayed import Answered, Asked, Described, Refused
from deploy.ray.replica.models import Models
from deploy.ray.replica.packages import packages_of
from engine.devices.machine import Machine
from server.app import SWITCH_INTERVAL_S
from server.catalog.packages import OpenPackage
from server.catalog.served_model import ServedModel, served_model
from server.placement import serving_device, warn_of_memory
from server.telemetry import logs


class Replica:
    """Has all packages of its group in memory. Ray Serve makes and ends it."""

    async def __init__(  # type: ignore[misc]  # it is awaited
        self, group: Group, hashes: Sequence[str], made_on: str
    ) -> None:
        """hashes: the SHA-256 of every package on the node where the application was made.

        Raises ConfigError or DeviceError.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._group, self._node = group, ray.util.get_node_ip_address()
        self._settings = group.server_settings().model_copy(update={"host": self._node})
        logs.configure(self._settings)
        warn_of_memory(group.memory_mb or self._settings.memory_mb)  # of all that are loaded, where it is told so
        self._packages = packages_of(group, hashes, made_on, self._node)
        self._queue = QueueTime()
        self._open: list[Models] = []
        await self._begin()

    async def _begin(self) -> None:
        await self._load(self._packages)

    async def _load(self, packages: Sequence[OpenPackage]) -> Models:
        replica = serve.get_replica_context().replica_id
        labels = {"replica": replica.unique_id, "deployment": replica.deployment_id.name}
        models = await Models.open(self._settings, packages, labels)
        self._open = [*(one for one in self._open if not one.closed), models]
        return models

    async def models(self, name: str) -> Models:
        """Those that have the model of this name in memory."""
        return self._open[0]

    async def describe(self) -> Described:
        """The facts of every package."""
        return Described(self._group, self.facts())

    def facts(self) -> list[ServedModel]:
        """Of every package."""
        return self._open[0].facts

    async def answer(self, asked: Asked) -> Answered | Refused:
        """See Models."""
        return await (await self.models(serve.get_multiplexed_model_id())).answer(asked)

    async def answers(self, asked: Asked) -> AsyncIterator[bytes | Answered | Refused]:
        """See Models."""
        models = await self.models(serve.get_multiplexed_model_id())
        async with aclosing(models.answers(asked)) as responses:
            async for response in responses:
                yield response

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What the policy of the deployment is told."""
        return {QUEUE_S: self._queue.seconds(one.registry for one in self._open)}

    async def check_health(self) -> None:
        """Raises RuntimeError where Ray Serve is to make another replica instead."""
        for models in self._open:
            if failed := models.failed():
                raise RuntimeError(f"the engines of {', '.join(failed)} have failed too often on {self._node}")
            if models.wrong:
                names = ", ".join(one.name for one in models.facts)
                raise RuntimeError(f"probes of {names} have other answers on {self._node}; its log says which")
            if not models.closed:
                await models.announce()

    async def __del__(self) -> None:
        """Ray Serve sends no more calls, and has waited for those that were running."""
        for models in self._open:
            await models.close()


class Shelved:
    """Models that Ray Serve has loaded, until others are asked for: then it calls `__del__`, on another thread."""

    def __init__(self, models: Models) -> None:
        self.models, self._loop, self._thread = models, asyncio.get_running_loop(), threading.current_thread()

    def __del__(self) -> None:
        """Waits until they are closed. Python calls it as well, when there is nothing left to be done."""
        if not self.models.closed and self._loop.is_running() and threading.current_thread() is not self._thread:
            asyncio.run_coroutine_threadsafe(self.models.close(), self._loop).result()


def shelf(most: int) -> type[Replica]:
    """A replica that has at most so many packages in memory: the ones that were asked for last.

    Ray Serve sends calls to replicas that have the model that they are for.
    """

    class Shelf(Replica):
        async def _begin(self) -> None:
            """Nothing was asked for yet."""

        @serve.multiplexed(max_num_models_per_replica=most)  # type: ignore[untyped-decorator]  # Ray is not installed
        async def shelved(self, name: str) -> Shelved:
            return Shelved(await self._load([one for one in self._packages if one.name == name]))

        async def models(self, name: str) -> Models:
            shelved: Shelved = await self.shelved(name)
            return shelved.models

        def facts(self) -> list[ServedModel]:
            device = serving_device(self._settings, [one.package.manifest.graphs for one in self._packages], Machine())
            return [served_model(one.package, self._settings, device.provider) for one in self._packages]

    return Shelf
