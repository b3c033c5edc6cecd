"""What is said of a model that cannot be had."""

import pytest


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    """The one error that was told, and no traceback."""
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    said = [line for line in shown.err.splitlines() if line.startswith("error: ")]
    assert len(said) == 1, shown.err
    return said[0]
