"""The engine of bulk, for real."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dragoman.bulk.engine import ROWS, Engine
from dragoman.bulk.errors import BulkError
from dragoman.bulk.windows import BATCH
from engine.devices.memory import resident_bytes
from server import errors
from tests.client.bulk.test_bulk_process import PACKAGE
from tests.server_process import eventually

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


def test_it_is_given_no_more_than_it_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are by the cores of the machine, of which a container may have two: what does not fit would be refused,
    and come back when the engine has had nothing to do for a while."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    for module in ("engine.loading.load", "server.local.engine"):
        monkeypatch.setattr(f"{module}.usable_cores", lambda: 1)
    refused = list[str]()
    made = errors.Overloaded.__init__

    def told(self: errors.Overloaded, *given: Any) -> None:
        made(self, *given)
        refused.append(self.message)

    monkeypatch.setattr(errors.Overloaded, "__init__", told)
    with Engine([PACKAGE], {}, "cpu", None) as engine, ThreadPoolExecutor(engine.threads) as pool:
        assert engine.threads > 64
        found = list(pool.map(engine.translate, [[f"{n} {m}" for m in range(BATCH)] for n in range(24)]))
    assert [len(texts) for texts in found] == [BATCH] * 24
    assert refused == []


def test_a_run_that_ends_while_the_model_is_loaded_translates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-C: the process would end when all that its threads were given is translated."""
    begun = threading.Event()

    class Loaded:
        closed = False

        def close(self) -> None:
            self.closed = True

    def load(engine: Engine) -> Loaded:
        begun.set()
        eventually(lambda: engine._closed)
        return Loaded()

    monkeypatch.setattr(Engine, "_load", load)
    with ThreadPoolExecutor() as pool:
        with Engine([PACKAGE], {}, "cpu", 1) as engine:
            waiting = [pool.submit(engine.translate, ["a"]) for _ in range(2)]
            assert begun.wait(30)
        for one in waiting:
            with pytest.raises(BulkError, match="the run has ended"):
                one.result(30)
        assert isinstance(engine._translator, Loaded)
        assert engine._translator.closed
