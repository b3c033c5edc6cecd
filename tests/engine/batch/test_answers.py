"""engine.batch.answers: how many rows the requests that are held allow."""

from dataclasses import replace
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from engine.batch.answers import Answers
from engine.request import Encode, Probed, Request, nobody

ROWS = 64


def request(most_rows: float) -> Request:
    return replace(Encode((1, 0), nobody), most_rows=most_rows)


limits = st.sampled_from([1.0, 2.5, 7.0, 7.0, 40.0, inf])
acts = st.lists(st.tuples(st.sampled_from(["hold", "give", "say", "deliver", "forget"]), limits, st.integers(0)))


@given(acts)
def test_the_strictest_of_those_that_are_held_decides(acts: list[tuple[str, float, int]]) -> None:
    answers = Answers()
    for act, most_rows, number in acts:
        held = list(answers.held)
        if act == "hold":
            answers.hold([request(most_rows)])
        elif act == "deliver":
            answers.deliver()
        elif held:
            one = held[number % len(held)]
            if act == "forget":
                answers.forget(one)
            else:
                (answers.give if act == "give" else answers.say)(one, Probed())
        wanted = min((one.most_rows for one in answers.held), default=ROWS)
        assert answers.most_rows(ROWS) == wanted
