"""bench.server.overload: what is told of calls that were refused."""

from bench.server.overload import Outcome


def test_where_none_was_refused_it_says_so() -> None:
    assert Outcome().refused_after == "-"
    assert Outcome(refusals_s=[0.003, 0.001, 0.002]).refused_after == "2.0 / 3.0 ms"
