"""Which models there are, and which deployment has each: asked of a replica of every group."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from deploy.ray.arguments import Group
from deploy.ray.entry.forwarding import LOST, Route
from deploy.ray.relayed import Described
from server.catalog.catalog import Catalog

LOOK_S = 1.0
"""Between two looks whether a replica answers by now that is as it was deployed."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """A group, as the application was deployed."""

    group: Group
    handle: DeploymentHandle[Any]
    hashes: Sequence[str]
    """The SHA-256 of its packages."""

    async def described(self) -> Described:
        """By a replica, for which it waits."""
        found: Described = await self.handle.describe.remote()
        return found

    def routes(self, described: Described) -> list[Route]:
        """To the models of a replica."""
        multiplexed, waiting = self.group.loaded is not None, self.group.most_waiting
        return [Route(model, self.handle, multiplexed, waiting) for model in described.models]

    def deployed(self, described: Described) -> bool:
        """Whether the replica has the packages and settings that were deployed, not those of before."""
        hashes = [model.package_sha256 for model in described.models]
        return described.group == self.group and hashes == list(self.hashes)


class Routes:
    """Of all groups."""

    def __init__(self, deployed: Sequence[Deployed]) -> None:
        self._deployed = deployed
        self._described: list[Described] = []
        self.catalog: Catalog[Route]

    async def open(self) -> None:
        """Waits until every group has a replica."""
        self._described = list(await asyncio.gather(*(one.described() for one in self._deployed)))
        self.catalog = Catalog(self._all())

    async def settle(self) -> None:
        """Asks again, until all are as they were deployed.

        While other packages or settings are rolled out, the first replica that is asked may be a former one.
        """
        for number, one in enumerate(self._deployed):
            while not one.deployed(self._described[number]):
                await asyncio.sleep(LOOK_S)
                try:
                    found = await one.described()
                except (*LOST, DeploymentUnavailableError):
                    continue
                if one.deployed(found):
                    self._described[number] = found
                    self.catalog.renew(self._all())

    def _all(self) -> list[Route]:
        return [
            route
            for one, described in zip(self._deployed, self._described, strict=True)
            for route in one.routes(described)
        ]
