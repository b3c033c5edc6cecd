"""server.telemetry.trace_context: https://www.w3.org/TR/trace-context/."""

import pytest

from server.telemetry.trace_context import NO_TRACE, TraceContext, parse_traceparent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True), ("ff", True)])
def test_the_last_flag_says_whether_it_is_sampled(flags: str, sampled: bool) -> None:
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-{flags}") == TraceContext(TRACE, sampled)


def test_a_later_version_may_have_more() -> None:
    assert parse_traceparent(f"01-{TRACE}-{SPAN}-01-what-comes") == TraceContext(TRACE, sampled=True)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        TRACE,
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_what_the_standard_says_to_ignore_is_ignored(value: str | None) -> None:
    assert parse_traceparent(value) == NO_TRACE
