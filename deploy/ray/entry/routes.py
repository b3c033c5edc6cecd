"""Which models there are, and which deployment has each: asked of a replica of every group."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from deploy.ray.arguments import Group
from deploy.ray.entry.forwarding import LOST, Route
from server.catalog.catalog import Catalog

LOOK_S = 1.0
"""Between two looks whether a replica of the deployed packages answers by now."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """A group, as the application was deployed."""

    group: Group
    handle: DeploymentHandle[Any]
    hashes: Sequence[str]
    """The SHA-256 of its packages."""

    async def routes(self) -> list[Route]:
        """To the models of a replica, for which it waits."""
        models = await self.handle.describe.remote()
        return [Route(model, self.handle, self.group.loaded is not None, self.group.most_waiting) for model in models]

    def has(self, routes: Sequence[Route]) -> bool:
        """Whether they are of the packages that were deployed."""
        return [route.model.package_sha256 for route in routes] == list(self.hashes)


class Routes:
    """Of all groups."""

    def __init__(self, deployed: Sequence[Deployed]) -> None:
        self._deployed = deployed
        self._routes: list[list[Route]] = []
        self.catalog: Catalog[Route]

    async def open(self) -> None:
        """Waits until every group has a replica."""
        self._routes = list(await asyncio.gather(*(one.routes() for one in self._deployed)))
        self.catalog = Catalog(self._all())

    async def settle(self) -> None:
        """Asks again, until all are of the packages that were deployed.

        While a new version is rolled out, the first replica that is asked may be a former one.
        """
        for number, one in enumerate(self._deployed):
            while not one.has(self._routes[number]):
                await asyncio.sleep(LOOK_S)
                try:
                    found = await one.routes()
                except (*LOST, DeploymentUnavailableError):
                    continue
                if one.has(found):
                    self._routes[number] = found
                    self.catalog.renew(self._all())

    def _all(self) -> list[Route]:
        return [route for routes in self._routes for route in routes]
