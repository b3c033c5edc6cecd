"""Greedy and beam search, worked out by hand."""

import math
from dataclasses import replace

import pytest

from engine.request import FinishReason, Hypothesis
from engine.search.paths import Paths
from models.decoding import Decoding, EarlyStopping
from models.tokenizers.target_texts import Pieces, StopStrings
from tests.engine.search.searching import EARLY_STOPPING, END, BeamAlone, GreedyAlone, alone, found, random_model, run
from tests.fakes import rules_of

RULES = rules_of(END, None, ())


def plain(num_beams: int = 1, max_new_tokens: int = 8, length_penalty: float = 0.0) -> Decoding:
    return Decoding(num_beams, num_beams, max_new_tokens, length_penalty, early_stopping=False)


def logs(*probabilities: float) -> list[float]:
    return [math.log(probability) for probability in probabilities]


def test_greedy_takes_the_best_token() -> None:
    search = alone(plain(length_penalty=1.0), rules_of(END, None, suppressed_ids=(9,)))
    assert isinstance(search, GreedyAlone)
    assert search.ask.best == 2
    assert search.advance(found([[9, 4]], [logs(0.5, 0.3)])) == [(0, 4)]
    assert search.advance(found([[7, 9]], [logs(0.5, 0.4)])) == [(0, 7)]
    assert search.settled() == (4, 7)
    assert not search.advance(found([[END, 7]], [logs(0.8, 0.1)]))
    (best,) = search.hypotheses()
    assert (best.token_ids, best.finish_reason) == ((4, 7, END), FinishReason.END_TOKEN)
    assert best.score == pytest.approx(math.log(0.3 * 0.5 * 0.8) / 3)


def test_beam_finds_what_greedy_misses() -> None:
    """Token 1 looks best at first (0.5 x 0.3), token 2 is best in the end (0.4 x 0.9)."""
    search = alone(plain(num_beams=2), RULES)
    assert isinstance(search, BeamAlone)
    assert search.ask.best == 3
    assert search.advance(found([[1, 2, 3]], [logs(0.5, 0.4, 0.1)])) == [(0, 1), (0, 2)]
    assert search.settled() == ()
    second = search.advance(found([[3, 1, 2], [5, 1, 2]], [logs(0.3, 0.2, 0.1), logs(0.9, 0.06, 0.04)]))
    assert second == [(1, 5), (0, 3)]
    third = search.advance(found([[6, 7, END], [6, 7, END]], [logs(0.6, 0.3, 0.1), logs(0.4, 0.3, 0.3)]))
    assert third == [(0, 6), (0, 7)]
    assert search.settled() == (2, 5)
    # 0.216 x 0.9 ends, 0.216 x 0.06 and 0.108 x 0.8 live on, 0.108 x 0.1 ends as the fourth of two: it is dropped.
    fourth = search.advance(found([[END, 6, 7], [8, END, 7]], [logs(0.9, 0.06, 0.04), logs(0.8, 0.1, 0.1)]))
    assert fourth == [(1, 8), (0, 6)]
    assert search.settled() == (2, 5)
    # The two live ones are 0.0864 and 0.01296; the first ends now and fills the results, and beats what still lives.
    assert search.advance(found([[END, 1, 2], [END, 1, 2]], [logs(0.98, 0.01, 0.01)] * 2)) == []
    first, second_best = search.hypotheses()
    assert first.token_ids == search.settled() == (2, 5, 6, END)
    assert first.score == pytest.approx(math.log(0.4 * 0.9 * 0.6 * 0.9))
    assert second_best.token_ids == (2, 5, 7, 8, END)
    assert second_best.score == pytest.approx(math.log(0.4 * 0.9 * 0.3 * 0.8 * 0.98))


ENDS, GOES_ON = ([END, 1, 2], logs(0.5, 0.4, 0.05)), ([1, END, 2], logs(0.6, 0.3, 0.05))


@pytest.mark.parametrize(
    ("row", "length_penalty", "early_stopping", "worthwhile"),
    [
        # Finished: ln 0.5, ln 0.15. Best live: ln 0.12, which can only fall.
        (ENDS, 0.0, False, False),
        (ENDS, 0.0, "never", False),
        # Finished: ln 0.5 / 1, ln 0.15 / 2. Best live: ln 0.12 / 2, but as much as ln 0.12 / 8 at the length limit.
        (ENDS, 1.0, False, False),
        (ENDS, 1.0, "never", True),
        (ENDS, 1.0, True, False),
        # Finished: ln 0.5, ln 0.09. Best live: ln 0.18.
        (GOES_ON, 0.0, False, True),
        (GOES_ON, 0.0, True, False),
        # Finished: ln 0.5 x 1, ln 0.09 x 2. Best live: ln 0.18 x 2, and ln 0.18 x 8 at the length limit is worse.
        (GOES_ON, -1.0, False, True),
        (GOES_ON, -1.0, "never", True),
    ],
)
def test_when_two_of_two_are_finished(
    row: tuple[list[int], list[float]], length_penalty: float, early_stopping: EarlyStopping, worthwhile: bool
) -> None:
    search = alone(Decoding(2, 2, 8, length_penalty, early_stopping), RULES)
    assert search.advance(found([[END, 1, 2]], [logs(0.5, 0.3, 0.1)])) == [(0, 1), (0, 2)]
    token_ids, log_probs = row
    step = search.advance(found([token_ids, [1, 2, END]], [log_probs, logs(0.4, 0.3, 0.1)]))
    assert step == ([(0, 1), (1, 1)] if worthwhile else [])


def test_the_tokens_of_what_is_pushed_out_are_never_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a long way back, and with this length penalty each hypothesis that ends is better than the last one."""
    looked, tokens = list[int](), Paths.tokens

    def count(paths: Paths, number: int, length: int, hypothesis: int) -> tuple[int, ...]:
        looked.append(length)
        return tokens(paths, number, length, hypothesis)

    monkeypatch.setattr(Paths, "tokens", count)
    search, rows = alone(Decoding(2, 2, 8, 10.0, "never"), RULES), 1
    while rows:
        rows = len(search.advance(found([[END, 1, 2]] * rows, [logs(0.5, 0.3, 0.1)] * rows)))
    assert [len(one.token_ids) for one in search.hypotheses()] == [8, 8]
    assert looked == [7, 7]


@pytest.mark.parametrize("num_beams", [1, 2])
def test_length_limit(num_beams: int) -> None:
    search = alone(plain(num_beams, max_new_tokens=2), RULES)
    rows = len(search.advance(found([[4, 5, 6]], [logs(0.6, 0.3, 0.1)])))
    assert not search.advance(found([[4, 5, 6]] * rows, [logs(0.6, 0.3, 0.1)] * rows))
    best = search.hypotheses()[0]
    assert (best.token_ids, best.finish_reason) == ((4, 4), FinishReason.LENGTH)
    assert best.score == pytest.approx(math.log(0.36))


@pytest.mark.parametrize("num_beams", [1, 2])
def test_forced_end_needs_no_step_and_costs_nothing(num_beams: int) -> None:
    search = alone(plain(num_beams, max_new_tokens=2), rules_of(END, END, ()))
    assert not search.advance(found([[4, 5, 6]], [logs(0.6, 0.3, 0.1)]))
    best = search.hypotheses()[0]
    assert best.score == pytest.approx(math.log(0.6))
    assert best.finish_reason is FinishReason.LENGTH
    assert [hypothesis.token_ids for hypothesis in search.hypotheses()] == [(4, END), (5, END)][:num_beams]


@pytest.mark.parametrize("num_beams", [1, 2])
def test_one_forced_token_leaves_no_choice(num_beams: int) -> None:
    search = alone(plain(num_beams, max_new_tokens=1), rules_of(END, END, ()))
    assert not search.advance(found([[4, 5, 6]], [logs(0.6, 0.3, 0.1)]))
    assert search.hypotheses() == (Hypothesis((END,), 0.0, FinishReason.LENGTH),)


def test_a_prefix_that_has_a_stop_string_ends_nothing() -> None:
    """Where it leaves nothing to choose, either."""
    stops = StopStrings(["b"], Pieces(lambda: [b"a", b"b"]))
    search = alone(plain(max_new_tokens=1), replace(rules_of(END, END, (), start_id=1), stops=stops))
    assert not search.advance(found([[4, 5, 6]], [logs(0.6, 0.3, 0.1)]))
    assert search.hypotheses() == (Hypothesis((END,), 0.0, FinishReason.LENGTH),)


def test_end_token_chosen_at_the_limit_is_no_cut() -> None:
    search = alone(plain(num_beams=2, max_new_tokens=1), RULES)
    assert not search.advance(found([[END, 5, 6]], [logs(0.6, 0.3, 0.1)]))
    assert [hypothesis.finish_reason for hypothesis in search.hypotheses()] == [
        FinishReason.END_TOKEN,
        FinishReason.LENGTH,
    ]


def test_fewer_sequences_than_beams() -> None:
    """One token besides the end token, at most two of it: there are three targets."""
    result = run(plain(num_beams=8, max_new_tokens=2), RULES, lambda prefixes: [logs(0.25, 0.75)] * len(prefixes))
    assert [hypothesis.token_ids for hypothesis in result.hypotheses] == [(1, 1), (END,), (1, END)]


@pytest.mark.parametrize("length_penalty", [1e308, -1e308, 5e3, -5e3])
@pytest.mark.parametrize("num_beams", [1, 4])
def test_any_finite_length_penalty_gives_an_answer(num_beams: int, length_penalty: float) -> None:
    for early_stopping in EARLY_STOPPING:
        decoding = Decoding(num_beams, num_beams, 12, length_penalty, early_stopping)
        result = run(decoding, RULES, random_model(6, seed=1))
        assert result.hypotheses and not any(math.isnan(hypothesis.score) for hypothesis in result.hypotheses)
