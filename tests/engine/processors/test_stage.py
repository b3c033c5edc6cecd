"""The best tokens after processors are those that a look at all tokens finds."""

import gc
import weakref
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.decoder import NOT_FINITE, Ask, Found
from engine.processors.chain import Chain, chain
from engine.processors.processed import SPARE, Processed
from engine.processors.processor import Seen
from engine.processors.repetition import EncoderRepetitionPenalty, NoRepeatNGram, RepetitionPenalty
from engine.processors.stage import ProcessorStage
from engine.processors.targets import STEPS, FedTokens
from engine.targets import TargetRules
from models.decoding import Decoding
from models.tokenizers.target_texts import Pieces

VOCABULARY, ROWS, STEPS_MADE = 50, 6, 30
CHAINS: list[Chain] = [
    (RepetitionPenalty(3.0),),
    (RepetitionPenalty(0.2),),
    (NoRepeatNGram(1),),
    (EncoderRepetitionPenalty(2.0), RepetitionPenalty(1.5), NoRepeatNGram(2)),
]
SOURCE = (4, 9, 2)
RULES = TargetRules((0,), frozenset({0}))


def test_processors_that_are_kept_for_those_to_come_hold_no_tokenizer() -> None:
    """It would outlive its model."""
    pieces = Pieces(lambda: [b"a"] * VOCABULARY)
    held, rules = weakref.ref(pieces), replace(RULES, pieces=pieces)
    kept = chain(Decoding(no_repeat_ngram_size=3), rules)
    assert kept == chain(Decoding(no_repeat_ngram_size=3), rules) != ()
    assert len(chain(Decoding(must_exclude=("a",)), rules)) == 1
    del pieces, rules
    gc.collect()
    assert held() is None


def found(chance: np.random.Generator, ask: Ask) -> Found:
    """What a decoder finds where it is asked for that."""
    best = ask.best
    logits = chance.normal(0, 3, (ROWS, VOCABULARY)).astype(np.float32)
    normaliser = np.log(np.exp(logits).sum(1, keepdims=True))
    log_probs = logits - normaliser
    token_ids = np.argsort(-logits, 1, kind="stable")[:, :best]
    return Found(
        token_ids,
        np.take_along_axis(log_probs, token_ids, 1),
        normaliser=(lambda rows: normaliser[rows, 0]) if ask.normaliser else None,
        logits=(lambda rows: logits[rows]) if ask.logits else None,
    )


def expected(step: Found, row: int, processed: Processed, target: NDArray[np.int64]) -> tuple[list[int], list[float]]:
    """The best three of all tokens."""
    assert step.logits is not None
    [logits] = step.logits(np.array([row]))
    log_probs = logits - np.log(np.exp(logits).sum())
    scores = (logits if processed.of_logits else log_probs)[None].copy()
    for processor in processed.chain:
        processor(scores, Seen(target[None], [processed.source_ids], np.array([len(target) - 1])))
    best = np.argsort(-scores[0], kind="stable")[:3]
    return best.tolist(), (log_probs if processed.of_logits else scores[0])[best].tolist()


@pytest.mark.parametrize("of_logits", [True, False], ids=["logits", "log-probabilities"])
def test_the_best_are_those_of_all_tokens(of_logits: bool) -> None:
    """Long targets of few tokens: many of the best are taken away, and the whole row has to be looked at."""
    chance = np.random.default_rng(3)
    stage, rows = ProcessorStage(ROWS), [Processed(chain, of_logits, SOURCE, RULES, 3) for chain in CHAINS]
    for row in range(ROWS):
        stage.start(row)
    stage.begin(rows[0])
    fed = chance.integers(0, 20, (STEPS_MADE, ROWS))
    for step in range(STEPS_MADE):
        stage.feed(fed[step])
        ask = stage.ask(Ask(best=3))
        assert ask == Ask(3 + SPARE, normaliser=of_logits, logits=True)
        seen = found(chance, ask)
        told = stage.process(seen, [*rows, None, None])
        for row, processed in enumerate(rows):
            tokens, log_probs = expected(seen, row, processed, fed[: step + 1, row])
            assert told.token_ids[row].tolist() == tokens
            np.testing.assert_allclose(told.log_probs[row], log_probs, rtol=1e-5, atol=1e-5)
        for row in (ROWS - 2, ROWS - 1):
            np.testing.assert_array_equal(told.token_ids[row], seen.token_ids[row, :3])
            np.testing.assert_array_equal(told.log_probs[row], seen.log_probs[row, :3])


@pytest.mark.parametrize("chain", CHAINS)
def test_what_others_ask_for_changes_nothing(chain: Chain) -> None:
    """A decoder that looks at tokens roughly may miss some of the best: beside others it has found more of them."""
    chance, processed = np.random.default_rng(7), Processed(chain, False, SOURCE, RULES, 3)
    for _ in range(200):
        logits = chance.normal(0, 3, (1, VOCABULARY)).astype(np.float32)
        log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        roughly = np.argsort(-logits, 1, kind="stable")[:, np.sort(chance.permutation(20)[:16])]
        told = []
        for others in (0, 1, 5):
            stage = ProcessorStage(1)
            stage.start(0)
            stage.begin(processed)
            for token in roughly[0, :9]:
                stage.feed(np.array([token]))
            token_ids = roughly[:, : stage.ask(Ask(best=3)).best + others]
            best = np.take_along_axis(log_probs, token_ids, 1)
            step = Found(token_ids, best, logits=partial(np.take, logits, axis=0))
            told.append(stage.process(step, [processed]))
        for beside in told[1:]:
            assert beside.token_ids.tolist() == told[0].token_ids.tolist()
            assert beside.log_probs.tolist() == told[0].log_probs.tolist()


def whole_rows(step: Found, looked: list[int], rows: NDArray[np.intp]) -> NDArray[np.float32]:
    """The logits of rows, which are noted."""
    assert step.logits is not None
    looked += rows.tolist()
    return step.logits(rows)


def test_logits_that_are_known_are_not_asked_for() -> None:
    """A penalty that only lowers scores needs the logits of the best tokens, which a normaliser gives."""
    stage, rows = ProcessorStage(ROWS), [Processed((RepetitionPenalty(1.2), NoRepeatNGram(3)), True, SOURCE, RULES, 1)]
    looked = list[int]()
    stage.start(0)
    stage.begin(rows[0])
    chance = np.random.default_rng(5)
    for step in range(STEPS_MADE):
        stage.feed(np.full(ROWS, step))
        seen = found(chance, stage.ask(Ask()))
        told = stage.process(replace(seen, logits=partial(whole_rows, seen, looked)), rows)
        tokens, log_probs = expected(seen, 0, rows[0], np.arange(step + 1))
        assert told.token_ids[0, 0] == tokens[0]
        assert told.log_probs[0, 0] == pytest.approx(log_probs[0], abs=1e-5)
    assert looked == []


def test_a_row_without_numbers_stays_so() -> None:
    stage = ProcessorStage(ROWS)
    stage.start(0)
    stage.begin(processed := Processed(CHAINS[0], True, SOURCE, RULES, 1))
    stage.feed(np.array([1]))
    seen = found(np.random.default_rng(1), stage.ask(Ask()))
    seen.token_ids[0] = NOT_FINITE
    assert stage.process(seen, [processed]).token_ids[0, 0] == NOT_FINITE


def test_nothing_more_is_asked_where_nobody_has_processors() -> None:
    stage = ProcessorStage(ROWS)
    assert stage.idle and stage.ask(Ask(best=4)) == Ask(best=4)
    stage.begin(processed := Processed(CHAINS[0], True, SOURCE, RULES, 1))
    assert not stage.idle
    stage.end(processed)
    assert stage.idle and stage.ask(Ask(best=4)) == Ask(best=4)


def test_rows_keep_what_they_were_fed_wherever_they_go() -> None:
    fed, said = FedTokens(3), dict[int, list[int]]()
    for row in range(3):
        fed.start(row)
        said[row] = []
    chance = np.random.default_rng(2)
    for step in range(2 * STEPS + 5):
        tokens = chance.integers(0, 99, 3)
        fed.feed(tokens)
        said = {row: [*said[row], int(tokens[row])] for row in said}
        parents = chance.integers(0, 3, 3).tolist()
        fed.take(parents)
        said = {row: said[parent] for row, parent in enumerate(parents)}
        if step == 7:
            fed.start(2)
            said[2] = []
    longest = max(map(len, said.values()))
    expected = [[-1] * (longest - len(said[row])) + said[row] for row in (2, 0)]
    assert fed.of(np.array([2, 0])).tolist() == expected
