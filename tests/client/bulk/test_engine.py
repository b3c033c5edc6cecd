"""The engine of bulk, for real."""

import pytest

from dragoman.bulk.engine import ROWS, Engine
from engine.devices.memory import resident_bytes
from tests.client.bulk.test_bulk_process import PACKAGE

MEGABYTE = 2**20


def rows_of(engine: Engine) -> int:
    """That each worker has, once it has translated."""
    assert engine.translate(["Good morning."]) == ["Bom dia."]
    assert engine._translator is not None
    [model] = engine._translator.models()
    return model.rows


def test_it_has_more_rows_than_a_server() -> None:
    with Engine([PACKAGE], {}, "cpu", 1) as engine:
        assert rows_of(engine) == ROWS


def test_it_has_fewer_where_the_memory_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.placement.memory_limit", lambda: resident_bytes() + 600 * MEGABYTE)
    with Engine([PACKAGE], {}, "cpu", 1) as engine:
        assert rows_of(engine) < ROWS
