"""What a server answers, through the client: translations, their deltas, and vectors."""

import asyncio
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from dragoman import AsyncClient, Client, FinishReason, InvalidArgument, TextDelta, Translation
from dragoman.command.main import main
from models.decoding import Decoding
from models.tokenizers.tokenizer import Tokenizer
from tests.end_to_end.questions import TEXTS
from tests.oracles import HuggingFace, Tokens
from tests.server_process import ServerProcess

pytestmark = pytest.mark.timeout(600)


def sources(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Tokens]:
    return [tuple(tokenizer.encode(text)) for text in texts]


@pytest.mark.parametrize("num_beams", [1, 4])
def test_many_contents_are_translated_in_order(
    num_beams: int, client: Client, tokenizer: Tokenizer, huggingface: HuggingFace
) -> None:
    decoding = Decoding(num_beams, 1, 512, 1.0, False)
    found = client.translate(TEXTS, num_beams=num_beams, no_cache=True)
    encoded = sources(tokenizer, TEXTS)
    for source, translation, [(tokens, score)] in zip(
        encoded, found, huggingface.generate(encoded, decoding), strict=True
    ):
        assert translation.text == tokenizer.decode(tokens)
        assert translation.score == pytest.approx(score, abs=1e-4)
        assert (translation.source_tokens, translation.tokens) == (len(source), len(tokens))
        assert translation.finish_reason is FinishReason.END_TOKEN
        check_timings(translation)


def check_timings(translation: Translation) -> None:
    timings = translation.timings
    parts = timings.queue_s, timings.encode_s, timings.decode_s
    assert min(parts) > 0
    assert sum(parts) == pytest.approx(timings.total_s, abs=1e-6)
    assert timings.steps >= translation.tokens - 1


def test_every_option_of_beam_search_arrives(client: Client) -> None:
    text = TEXTS[0]
    wide = client.translate(text, num_beams=6, num_return_sequences=5)
    assert len({hypothesis.text for hypothesis in wide.hypotheses}) > 1
    assert all(better.score >= worse.score for better, worse in pairwise(wide.hypotheses))
    assert len(wide.hypotheses) == 5
    cut = client.translate(text, max_new_tokens=5)
    assert (cut.tokens, cut.finish_reason) == (5, FinishReason.LENGTH)
    scores = [client.translate(text, num_beams=2, length_penalty=penalty).score for penalty in (0.0, 1.0, 2.0)]
    assert scores == sorted(set(scores))
    early, never = (client.translate(text, num_beams=4, early_stopping=stop).timings.steps for stop in (True, "never"))
    assert early < never


def test_options_that_name_words(client: Client, tokenizer: Tokenizer) -> None:
    text = "The weather is nice today."
    assert client.translate(text).text == "O tempo é bom hoje."
    for phrase in ("O tempo", tokenizer.encode_target("O tempo")):
        banned = client.translate(text, bad_words=[phrase], num_beams=4, num_return_sequences=4)
        assert all("O tempo" not in hypothesis.text for hypothesis in banned.hypotheses)
    prefixed = client.translate(text, target_prefix="Hoje", num_beams=2)
    assert prefixed.text.startswith("Hoje")
    assert prefixed.text != "Hoje"
    assert client.translate(text, target_prefix="Hoje", prefix_bias_beta=1e-6).text == "O tempo é bom hoje."
    assert client.translate(text, sequence_bias=[("Hoje", 30.0)]).text.startswith("Hoje")
    assert client.translate(text, max_new_tokens_ratio=0.5).finish_reason is FinishReason.LENGTH
    several = client.translate(text, do_sample=True, temperature=3.0, num_return_sequences=4, seed=3)
    assert len({hypothesis.text for hypothesis in several.hypotheses}) == 4


def test_a_stream_begins_with_its_prefix(client: Client) -> None:
    *deltas, last = client.stream_translate("The weather is nice today.", target_prefix="Hoje o tempo")
    assert isinstance(last, Translation)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == last.text
    assert last.text.startswith("Hoje o tempo")


def test_alternatives(client: Client) -> None:
    """What people choose from, after what they have written already."""
    text = "Where can I buy a ticket?"
    found = client.translate(text, return_alternatives=True, num_return_sequences=3, target_prefix="Onde")
    texts = [hypothesis.text for hypothesis in found.hypotheses]
    assert len({words.split()[1] for words in texts}) == 3
    assert all(words.startswith("Onde ") for words in texts)
    assert texts[0] == client.translate(text, target_prefix="Onde").text
    likely = client.translate(
        text, return_alternatives=True, num_return_sequences=16, min_alternative_expansion_prob=0.5
    )
    assert len(likely.hypotheses) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bad_words": [""]}, "bad_words[0]: the number of tokens is 0; it must be from 1 to 64"),
        ({"bad_words": ["a"] * 1001}, "bad_words: the number of phrases is 1001; it must be from 0 to 1000"),
        ({"bad_words": [[5, 10**6]]}, "bad_words[0]: a token id is 1000000; it must be from 0 to"),
        ({"suppress_tokens": [-1]}, "suppress_tokens: a token id is -1"),
        ({"sequence_bias": [("a", 1e30)]}, "sequence_bias[0]: the bias is 1e+30; it must be from -10000.0 to 10000.0"),
        ({"sequence_bias": [("a", math.nan)]}, "sequence_bias[0]: the bias is nan"),
        ({"forced_bos_token": "two words"}, "forced_bos_token: the number of tokens is 2; it must be from 0 to 1"),
        ({"target_prefix": [5] * 512}, "target_prefix: the number of tokens is 512; it must be from 0 to 511"),
        (
            {"target_prefix": [5] * 12, "max_new_tokens": 512},
            "max_new_tokens is 512; it must be from 1 to 500, which is what a prefix of 12 tokens leaves of 512",
        ),
        ({"prefix_bias_beta": 0.5}, "prefix_bias_beta is 0.5, and target_prefix is empty: send one, or no beta"),
        ({"do_sample": True, "num_beams": 2}, "do_sample is true, and num_beams is 2: send num_beams 1"),
        ({"return_alternatives": True, "num_beams": 2}, "return_alternatives is true, and num_beams is 2: send num_b"),
        ({"return_alternatives": True, "do_sample": True}, "return_alternatives is true, and do_sample is true: send"),
        (
            {"return_alternatives": True, "target_prefix": "Onde", "prefix_bias_beta": 0.5},
            "return_alternatives is true, and prefix_bias_beta is 0.5: send prefix_bias_beta 0",
        ),
        (
            {"return_alternatives": True, "num_return_sequences": 17},
            "num_return_sequences is 17; it must be from 1 to 16",
        ),
        ({"min_alternative_expansion_prob": 1.5}, "min_alternative_expansion_prob is 1.5; it must be from 0.0 to 1.0"),
        ({"num_return_sequences": 2}, "num_return_sequences is 2; it must be from 1 to 1, which is num_beams"),
        ({"min_new_tokens": 9, "max_new_tokens": 8}, "min_new_tokens is 9; it must be from 0 to 8"),
    ],
)
def test_words_that_cannot_be_are_refused(client: Client, options: Any, said: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        client.translate("The weather is nice today.", **options)
    assert said in str(error.value)
    assert [violation.field.partition("[")[0] for violation in error.value.violations] == [
        f"decoding.{said.split()[0].partition('[')[0].rstrip(':')}"
    ]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--n-best 17", "--n-best is 17; it must be from 1 to 16"),
        ("--n-best 3 --num-beams 2", "--n-best is 3; it must be from 1 to 2, which is num_beams"),
        ("--n-best 2 --num-beams 17", "decoding.num_beams is 17; it must be from 1 to 16"),
        ("--num-beams 17", "decoding.num_beams is 17; it must be from 1 to 16"),
    ],
)
def test_what_is_refused_is_told_under_the_flag_that_said_it(
    server: ServerProcess, capsys: pytest.CaptureFixture[str], flags: str, said: str
) -> None:
    assert main(["translate", "--target", server.target, *flags.split(), TEXTS[0]]) == 1
    assert capsys.readouterr().err == f"dragoman: {said} (OPTION_OUT_OF_RANGE)\n"


def test_tokens_come_back_with_their_texts_and_log_probabilities(client: Client, tokenizer: Tokenizer) -> None:
    found = client.translate(TEXTS[:4], target_language="pt", num_beams=4, num_return_sequences=2, with_tokens=True)
    for translation in found:
        for hypothesis in translation.hypotheses:
            tokens = hypothesis.target_tokens
            assert len(tokens) == hypothesis.tokens
            assert "".join(token.text for token in tokens) == hypothesis.text
            assert tokenizer.decode([token.id for token in tokens]) == hypothesis.text
            assert sum(token.log_prob for token in tokens) == pytest.approx(hypothesis.log_prob, abs=1e-4)
            assert hypothesis.log_prob / len(tokens) == pytest.approx(hypothesis.score, abs=1e-4)
            assert [token.begin for token in tokens] == sorted(token.begin for token in tokens)
    again = client.translate(TEXTS[0], target_language="pt")
    assert not again.hypotheses[0].target_tokens


def test_a_translation_that_looks_wrong_says_so_and_may_be_made_again(client: Client) -> None:
    loop = "la la la la la la la la la la la la la la la la la la la la la la la la la la la la la la"
    first = client.translate(loop, target_language="pt")
    assert first.guards
    again = client.translate(loop, target_language="pt", retry_on_guard=True)
    assert again.retried
    assert len(again.guards) <= len(first.guards)
    assert again.timings.steps > first.timings.steps
    fine = client.translate(TEXTS[0], target_language="pt", retry_on_guard=True)
    assert (fine.guards, fine.retried) == ((), False)


def test_what_is_drawn_depends_on_the_seed(client: Client) -> None:
    [first] = client.translate(TEXTS[:1], do_sample=True, temperature=1.5)
    assert first.seed is not None
    again, other = (client.translate(TEXTS[:8], do_sample=True, temperature=1.5, seed=seed) for seed in (first.seed, 1))
    assert again[0].text == first.text
    assert [one.text for one in again] != [one.text for one in other]
    assert {one.seed for one in other} == {1}
    [best] = client.translate(TEXTS[:1], seed=5)
    assert (best.text, best.seed) == (client.translate(TEXTS[:1])[0].text, None)
    with pytest.raises(InvalidArgument, match="do_sample is true, and num_beams is 4"):
        client.translate(TEXTS[:1], do_sample=True, num_beams=4)


async def test_concurrent_calls_get_what_each_gets_alone(server: ServerProcess, client: Client) -> None:
    alone = [client.translate(text, num_beams=1 + index % 5) for index, text in enumerate(TEXTS)]
    async with AsyncClient(server.target) as concurrent:
        together = await asyncio.gather(
            *(concurrent.translate(text, num_beams=1 + index % 5, no_cache=True) for index, text in enumerate(TEXTS))
        )
    assert [translation.hypotheses for translation in together] == [translation.hypotheses for translation in alone]


@pytest.mark.parametrize("num_beams", [1, 4])
def test_deltas_of_a_stream_add_up_to_the_translation(num_beams: int, client: Client) -> None:
    texts = TEXTS[:8]
    count = 0
    for text in texts:
        *events, last = client.stream_translate(text, num_beams=num_beams, no_cache=True)
        deltas = [event.text for event in events if isinstance(event, TextDelta)]
        assert isinstance(last, Translation)
        assert len(deltas) == len(events)
        assert "".join(deltas) == last.text
        assert last.hypotheses == client.translate(text, num_beams=num_beams).hypotheses
        count += len(deltas)
    assert count > 2 * len(texts)


def test_vectors_are_the_means_of_hidden_states(client: Client, tokenizer: Tokenizer, huggingface: HuggingFace) -> None:
    for source, plain, unit in zip(
        sources(tokenizer, TEXTS), client.encode(TEXTS), client.encode(TEXTS, normalize=True), strict=True
    ):
        expected = huggingface.mean_hidden_state(source)
        np.testing.assert_allclose(plain.values, expected, atol=1e-4)
        np.testing.assert_allclose(unit.values, torch.nn.functional.normalize(expected, dim=0), atol=1e-4)
        assert plain.source_tokens == unit.source_tokens == len(source)
        assert (plain.timings.decode_s, plain.timings.steps) == (0, 0)


def test_translations_and_vectors_of_one_encoder_run_are_those_of_two(client: Client) -> None:
    both = client.translate_and_encode(TEXTS, num_beams=2, poolings=["cls", "mean"], type="int8")
    translated = client.translate(TEXTS, num_beams=2)
    encoded = list(client.stream_encode(iter(TEXTS), poolings=["cls", "mean"], type="int8"))
    assert [translation.hypotheses for translation, _ in both] == [alone.hypotheses for alone in translated]
    assert [(vector.data, vector.scales) for _, vector in both] == [(alone.data, alone.scales) for alone in encoded]
