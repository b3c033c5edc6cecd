"""The zoo's English-Portuguese model."""

import pytest

from engine.loading.load import Loadable
from models.package.folder import Package
from tests.exported import ZOO


@pytest.fixture(scope="module")
def loadable() -> Loadable:
    return Loadable.of(Package.open(ZOO))
