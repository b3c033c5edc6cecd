"""server.telemetry.calls: names of calls, and what is told of their time."""

import re

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from engine.request import Timings
from server.telemetry.calls import AnsweredContent, Call, begin, current_call, request_id, server_timing

TRACE = 0x0AF7651916CD43DD8448EB211C80319C


def content(timings: Timings) -> AnsweredContent:
    return AnsweredContent("A cat.", "Um gato.", timings, 0.0, 0.0, 0.0, source_tokens=4, target_tokens=3)


@pytest.mark.parametrize(
    "name", ["a", "req-1", "0b7c6f1e-4d2a-4f43-9f0e-3c1d2b5a6e7f", "Root=1-67891233-abcdef", "x" * 128]
)
def test_a_well_formed_name_is_kept(name: str) -> None:
    assert request_id({"x-request-id": name}) == name


@pytest.mark.parametrize("name", [None, "", " ", "-a", "a b", "a\nb", "é", 'a"b', "x" * 129])
def test_other_names_are_replaced(name: str | None) -> None:
    metadata = {} if name is None else {"x-request-id": name}
    made = request_id(metadata)
    assert re.fullmatch("[0-9a-f]{32}", made)
    assert made != request_id(metadata)


def test_a_call_without_contents_tells_its_total() -> None:
    assert server_timing(Call("m", "r"), 0.0123456) == "total;dur=12.346"


def test_of_several_contents_the_longest_of_each_phase_is_told() -> None:
    call = Call("m", "r")
    call.contents.append(content(Timings(0.001, 0.002, 0.03, 5, 2.0, 0.0001, 0.0002)))
    call.contents.append(content(Timings(0.004, 0.001, 0.02, 7, 1.5, 0.0003, 0.0001)))
    assert server_timing(call, 0.05) == (
        "tokenize;dur=0.300, queue;dur=4.000, encode;dur=2.000, decode;dur=30.000, detokenize;dur=0.200, "
        'total;dur=50.000, steps;desc="7", batch-rows;desc="2.0"'
    )
    assert (call.source_tokens, call.target_tokens) == (8, 6)


def test_only_a_trace_that_is_recorded_is_an_exemplar() -> None:
    assert Call().exemplar == ""
    for flags, exemplar in ((0, ""), (TraceFlags.SAMPLED, "0af7651916cd43dd8448eb211c80319c")):
        call = Call(trace=SpanContext(TRACE, 1, is_remote=True, trace_flags=TraceFlags(flags)))
        assert (call.exemplar, call.trace_id) == (exemplar, "0af7651916cd43dd8448eb211c80319c")


async def test_a_task_knows_its_call() -> None:
    begin(call := Call("m", "r"))
    assert current_call() is call


async def test_outside_of_calls_there_is_one_that_nobody_sees() -> None:
    assert current_call() is not current_call()
