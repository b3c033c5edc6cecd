"""bench.gpu.checks.operators: what it compares, on the CPU provider alone."""

from unittest.mock import patch

import numpy as np
import pytest

from bench.gpu.checks import operators
from bench.gpu.sides.operators import Arrays, Case
from kernels.device_library import LIBRARY

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="make -C kernels device")
HOST = "CPUExecutionProvider"


def test_the_host_is_like_itself() -> None:
    found = operators.compare(LIBRARY, HOST)
    assert found == {operator: dict.fromkeys(bounds, 0.0) for operator, bounds in operators.BOUNDS.items()}


@pytest.mark.parametrize("wrong", [0.01, np.nan])
def test_one_number_that_is_another_is_told(wrong: float) -> None:
    run, elsewhere = Case.run, list[str]()

    def running(self: Case, library: object, provider: str) -> Arrays:
        found = run(self, LIBRARY, HOST)
        if provider != HOST and self.operator == "PackedAttention":
            elsewhere.append(self.operator)
            found["attended"][3, 5] += np.float16(wrong)
        return found

    with patch.object(Case, "run", running), pytest.raises(RuntimeError, match="attended of PackedAttention by"):
        operators.compare(LIBRARY, "elsewhere")
    assert elsewhere
