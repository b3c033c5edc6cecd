"""Greedy and beam search against Hugging Face `generate`, and against exhaustive search."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import MarianConfig, MarianMTModel

from engine.request import FinishReason, Hypothesis
from engine.targets import TargetRules
from models.decoding import Decoding
from tests.engine.search.searching import EARLY_STOPPING, END, LanguageModel, Prefix, Run, random_model, run
from tests.fakes import rules_of

# Against transformers


@dataclass(frozen=True)
class Shape:
    """A tiny Marian model with random weights."""

    vocab: int
    width: int
    heads: int
    layers: int
    end_bias: float
    """Added to the logit of the end token, so that some hypotheses end early and some do not."""

    @property
    def pad(self) -> int:
        return self.vocab - 1


SHAPES = (
    Shape(37, 32, 4, 1, end_bias=1.5),
    Shape(37, 48, 3, 2, end_bias=2.0),
    Shape(131, 32, 4, 2, end_bias=2.0),
    Shape(131, 48, 3, 1, end_bias=2.5),
)


@cache
def marian(shape: Shape) -> MarianMTModel:
    """In double precision, so that decoding with and without a cache gives the same float32 logits."""
    torch.manual_seed(shape.vocab + shape.width)
    config = MarianConfig(
        vocab_size=shape.vocab,
        d_model=shape.width,
        encoder_layers=shape.layers,
        decoder_layers=shape.layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        init_std=0.15,
        pad_token_id=shape.pad,
        eos_token_id=END,
        decoder_start_token_id=shape.pad,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config).double().eval()
    model.final_logits_bias[0, END] = shape.end_bias
    return model


@dataclass(frozen=True)
class Case:
    shape: Shape
    source: Prefix
    decoding: Decoding
    rules: TargetRules


@cache
def marian_language_model(shape: Shape, source: Prefix) -> LanguageModel:
    """The decoder without a cache. Remembers what it was asked, for cases often differ only in how they search."""
    model, known = marian(shape), dict[Prefix, list[float]]()
    with torch.inference_mode():
        memory = model.get_encoder()(torch.tensor([source])).last_hidden_state

    def log_probs(prefixes: Sequence[Prefix]) -> list[list[float]]:
        new = [prefix for prefix in prefixes if prefix not in known]
        if new:
            ids = torch.tensor([(shape.pad, *prefix) for prefix in new])
            with torch.inference_mode():
                memories = memory.expand(len(new), -1, -1)
                logits = model(encoder_outputs=(memories,), decoder_input_ids=ids).logits[:, -1]
            known.update(zip(new, logits.float().log_softmax(-1).tolist(), strict=True))
        return [known[prefix] for prefix in prefixes]

    return log_probs


@cache
def decode(case: Case) -> Run:
    return run(case.decoding, case.rules, marian_language_model(case.shape, case.source))


def generate(case: Case) -> list[tuple[Prefix, float]]:
    """The tokens and scores of Hugging Face, without those that only fill up (score -1e9) and without padding."""
    decoding, pad = case.decoding, case.shape.pad
    with torch.inference_mode():
        output = marian(case.shape).generate(
            torch.tensor([case.source]),
            num_beams=decoding.num_beams,
            num_return_sequences=decoding.num_return_sequences,
            max_new_tokens=decoding.max_new_tokens,
            length_penalty=decoding.length_penalty,
            early_stopping=decoding.early_stopping,
            forced_eos_token_id=case.rules.forced_end_id,
            bad_words_ids=[[token] for token in case.rules.suppressed_ids],
            output_logits=True,
            output_scores=True,
            return_dict_in_generate=True,
            do_sample=False,
        )
    sequences = [tuple(token for token in row if token != pad) for row in output.sequences[:, 1:].tolist()]
    if decoding.num_beams > 1:
        scores = output.sequences_scores.tolist()
    else:
        scores = [greedy_score(sequences[0], torch.cat(output.logits), case)]
    return [(tokens, score) for tokens, score in zip(sequences, scores, strict=True) if score > -1e8]


def greedy_score(tokens: Prefix, logits: torch.Tensor, case: Case) -> float:
    """`generate` gives greedy decoding no score, so it is made from its logits [steps, vocab]."""
    log_probs = logits.log_softmax(-1)[range(len(tokens)), tokens]
    if case.rules.forced_end_id is not None and len(tokens) == case.decoding.max_new_tokens:
        log_probs[-1] = 0
    return float(log_probs.sum()) / math.pow(len(tokens), case.decoding.length_penalty)


def make_cases(num_beams: int, max_new_tokens: int) -> list[Case]:
    """Every length penalty, stopping rule and forced end, each with some model, source and number of results."""
    chance = random.Random(f"{num_beams} {max_new_tokens}")
    cases = []
    for length_penalty, early_stopping, forced in product((-0.5, 0.0, 0.6, 1.0, 2.0), EARLY_STOPPING, (None, END)):
        shape = chance.choice(SHAPES)
        source = (*(chance.randrange(1, shape.pad) for _ in range(chance.randrange(1, 9))), END)
        returned = chance.randint(1, num_beams)
        # transformers does not let the end token be suppressed.
        suppressed = chance.choice([(shape.pad,), (shape.pad, 3, 5), (END, shape.pad)])
        decoding = Decoding(num_beams, returned, max_new_tokens, length_penalty, early_stopping)
        cases.append(Case(shape, source, decoding, rules_of(END, forced, suppressed)))
    return cases


def check(case: Case) -> None:
    """Ours is what transformers says, token for token."""
    ours, theirs = decode(case).hypotheses, generate(case)
    assert [hypothesis.token_ids for hypothesis in ours] == [tokens for tokens, _ in theirs], case
    assert [hypothesis.score for hypothesis in ours] == pytest.approx([score for _, score in theirs], rel=1e-5), case
    for hypothesis in ours:
        forced = case.rules.forced_end_id is not None and len(hypothesis.token_ids) == case.decoding.max_new_tokens
        ended = hypothesis.token_ids[-1] == END and not forced
        assert hypothesis.finish_reason is (FinishReason.END_TOKEN if ended else FinishReason.LENGTH)


WIDTHS, LENGTHS = (1, 2, 3, 4, 8, 16), (1, 2, 7, 24)


@pytest.mark.parametrize("max_new_tokens", LENGTHS)
@pytest.mark.parametrize("num_beams", WIDTHS)
def test_equals_generate(num_beams: int, max_new_tokens: int) -> None:
    for case in make_cases(num_beams, max_new_tokens):
        check(case)


def test_cases_are_hard() -> None:
    """A wrong reorder, finish reason, length penalty or stopping rule would change many of the cases."""
    cases = [case for num_beams in WIDTHS[1:] for case in make_cases(num_beams, 24)]
    assert sum(decode(case).reordered > 2 for case in cases) > len(cases) / 3
    reasons = Counter(decode(case).hypotheses[0].finish_reason for case in cases)
    assert min(reasons[FinishReason.END_TOKEN], reasons[FinishReason.LENGTH]) > len(cases) / 4
    for change in (
        {"length_penalty": 0.0},
        {"length_penalty": 2.0},
        {"early_stopping": True},
        {"early_stopping": False},
        {"early_stopping": "never"},
        {"max_new_tokens": 23},
    ):
        changed = [replace(case, decoding=replace(case.decoding, **change)) for case in cases]
        differ = sum(found_tokens(a) != found_tokens(b) for a, b in zip(cases, changed, strict=True))
        assert differ > len(cases) / 20, change


def found_tokens(case: Case) -> list[Prefix]:
    return [hypothesis.token_ids for hypothesis in decode(case).hypotheses]


@pytest.mark.parametrize("num_beams", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("spare", [0, 1, 3])
def test_equals_generate_when_the_vocabulary_is_hardly_larger_than_the_beam(num_beams: int, spare: int) -> None:
    shape = Shape(num_beams + 1 + spare, 32, 4, 1, end_bias=-1.0)
    rules = rules_of(END, None, (shape.pad,))
    for early_stopping, max_new_tokens in product(EARLY_STOPPING, (1, 2, 7)):
        decoding = Decoding(num_beams, num_beams, max_new_tokens, 0.6, early_stopping)
        check(Case(shape, (1, END), decoding, rules))
        check(Case(shape, (1, END), decoding, replace(rules, forced_end_id=END)))


# Against exhaustive search, and what holds of every search


def log_prob_of(tokens: Prefix, model: LanguageModel) -> float:
    rows = model([tokens[:position] for position in range(len(tokens))])
    return sum(row[token] for row, token in zip(rows, tokens, strict=True))


penalties = st.floats(-3, 3) | st.sampled_from([0.0, 1.0])
models = st.builds(random_model, st.just(6), st.integers(0, 10_000), st.floats(-3, 3))
suppressed_ids = st.sampled_from([(), (5,), (4, 5), (END,)])
all_rules = st.builds(rules_of, st.just(END), st.sampled_from([None, END, 4]), suppressed_ids)


@st.composite
def decodings(draw: st.DrawFn) -> Decoding:
    num_beams = draw(st.integers(1, 16))
    returned, max_new_tokens = draw(st.integers(1, num_beams)), draw(st.integers(1, 12))
    return Decoding(num_beams, returned, max_new_tokens, draw(penalties), draw(st.sampled_from(EARLY_STOPPING)))


@given(decodings(), all_rules, models)
@settings(deadline=None)
def test_holds_of_every_search(decoding: Decoding, rules: TargetRules, model: LanguageModel) -> None:
    result = run(decoding, rules, model)
    assert result.live[-1] == 0
    assert all(0 < live <= decoding.num_beams for live in result.live[:-1])
    # A forced end token needs no step of its own.
    assert result.steps <= max(1, decoding.max_new_tokens - (rules.forced_end_id is not None))
    assert 1 <= len(result.hypotheses) <= decoding.num_return_sequences
    assert len({hypothesis.token_ids for hypothesis in result.hypotheses}) == len(result.hypotheses)
    scores = [hypothesis.score for hypothesis in result.hypotheses]
    assert scores == sorted(scores, reverse=True)
    for hypothesis in result.hypotheses:
        check_hypothesis(hypothesis, decoding, rules, model)


def check_hypothesis(hypothesis: Hypothesis, decoding: Decoding, rules: TargetRules, model: LanguageModel) -> None:
    """The tokens are allowed, and the score and the finish reason are what follows from them."""
    tokens, length = hypothesis.token_ids, len(hypothesis.token_ids)
    forced = rules.forced_end_id is not None and length == decoding.max_new_tokens
    chosen = tokens[:-1] if forced else tokens
    assert END not in tokens[:-1]
    assert not (set(rules.suppressed_ids) - {END}) & set(chosen)
    if forced:
        assert tokens[-1] == rules.forced_end_id
    ended = not forced and tokens[-1] == END
    assert hypothesis.finish_reason is (FinishReason.END_TOKEN if ended else FinishReason.LENGTH)
    assert ended or length == decoding.max_new_tokens
    log_prob = log_prob_of(chosen, model)
    assert hypothesis.score == pytest.approx(log_prob / length**decoding.length_penalty)


@given(decodings(), all_rules, models)
@settings(deadline=None)
def test_settled_tokens_are_never_taken_back(decoding: Decoding, rules: TargetRules, model: LanguageModel) -> None:
    result = run(decoding, rules, model)
    for before, after in pairwise(result.settled):
        assert after[: len(before)] == before
    assert result.settled[-1] == result.hypotheses[0].token_ids


@given(decodings(), all_rules, models, st.integers(1, 6))
@settings(deadline=None)
def test_asks_for_as_many_candidates_as_it_needs(
    decoding: Decoding, rules: TargetRules, model: LanguageModel, surplus: int
) -> None:
    wanted, more = run(decoding, rules, model), run(decoding, rules, model, surplus=surplus)
    assert wanted == more


@given(st.integers(0, 10_000), st.floats(-3, 3), penalties, st.sampled_from([None, END]), st.integers(1, 4))
@settings(deadline=None)
def test_wide_beam_is_exhaustive(
    seed: int, end_bias: float, length_penalty: float, forced: int | None, max_new_tokens: int
) -> None:
    """Two tokens besides the end token give at most 16 sequences of 4: a beam of 31 never drops one."""
    model, rules = random_model(3, seed, end_bias), rules_of(END, forced, ())
    decoding = Decoding(31, 31, max_new_tokens, length_penalty, "never")
    found = [hypothesis.token_ids for hypothesis in run(decoding, rules, model).hypotheses]
    sequences = list(every_sequence(max_new_tokens, forced))
    scores = {}
    for tokens in sequences:
        free = tokens[:-1] if forced is not None and len(tokens) == max_new_tokens else tokens
        log_prob = log_prob_of(free, model)
        scores[tokens] = log_prob / len(tokens) ** length_penalty
    assert len(found) == len(sequences)
    assert [scores[tokens] for tokens in found] == pytest.approx(sorted(scores.values(), reverse=True))


def every_sequence(max_new_tokens: int, forced: int | None) -> set[Prefix]:
    """All targets over the tokens 1 and 2."""
    sequences = set()
    for length in range(1, max_new_tokens + 1):
        for body in product((1, 2), repeat=length - 1):
            last = {END} if length < max_new_tokens else {END, 1, 2} if forced is None else {forced}
            sequences |= {(*body, token) for token in last}
    return sequences
