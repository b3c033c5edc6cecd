"""server.traffic.bounds: what callers may take, by the settings and by the memory that there is."""

import pytest

from server.config import Settings
from server.traffic.bounds import CONNECTION_BYTES, MOST_MESSAGES, MOST_NEW_CALLS, Bounds

GIBIBYTE = 1 << 30


def bounds(memory: int | None = None, **settings: object) -> Bounds:
    return Bounds.within(Settings(**{"http": False, **settings}), memory)  # type: ignore[arg-type]


def test_where_memory_is_short_each_kind_has_its_share() -> None:
    whole, plenty, short = bounds(), bounds(8 * GIBIBYTE), bounds(GIBIBYTE // 2)
    assert whole == plenty
    assert (whole.messages, whole.new_calls) == (MOST_MESSAGES, MOST_NEW_CALLS)
    for part in ("calls", "messages", "requests", "answers", "documents"):
        assert short.parts[part] < whole.parts[part], part
    assert short.bytes < GIBIBYTE / 6
    assert bounds(1 << 20).messages >= 2


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("max_connections", "connections"),
        ("max_message_bytes", "messages"),
        ("max_waiting", "calls"),
        ("max_incoming", "messages"),
    ],
)
def test_what_settings_give_is_calculated_and_not_cut(setting: str, part: str) -> None:
    before = bounds(GIBIBYTE)
    more = bounds(GIBIBYTE, **{setting: 20 * (getattr(Settings(), setting) or MOST_MESSAGES)})
    assert more.parts[part] > before.parts[part]


def test_both_ports_have_connections() -> None:
    assert bounds(http=True).parts["connections"] > bounds().parts["connections"] == 1024 * CONNECTION_BYTES
