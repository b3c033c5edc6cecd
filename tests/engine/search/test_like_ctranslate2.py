"""Options that CTranslate2 has find the tokens that it finds, with the same weights, all in one running batch."""

import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import MarianMTModel

from engine.devices.session import CPU
from engine.loading.load import Kernels, Loadable, open_decoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import Event, Score, Scored
from engine.runner import Runner
from models.config import ModelConfig
from models.decoding import Decoding
from models.package.folder import Package
from models.tokenizers.sentencepiece_pair import load_vocabulary
from models.tokenizers.tokenizer import Tokenizer
from server.translation.wording import without_unknown
from tests.checkpoints import ZOO, flores

ctranslate2 = pytest.importorskip("ctranslate2")

TEXTS = [english for english, _ in flores()[::150] if len(english) < 160]
"""Short enough to end by themselves."""
MOST = 100
TOLERANCE = 2e-3
"""Of log-probabilities: the sum of a row's exponentials is mended, within that (decision 22)."""
Case = tuple[Decoding, dict[str, Any]]
"""Our options, and CTranslate2's."""


@pytest.fixture(scope="module")
def package() -> Package:
    return Package.open(ZOO)


def cases(tokenizer: Tokenizer) -> Iterator[Case]:
    """Where scores are changed, beam search is that of `generate`, which differs."""
    plain = Decoding(max_new_tokens=MOST)
    beams = replace(plain, num_beams=4, early_stopping=True)
    for base, theirs in ((plain, {"beam_size": 1}), (beams, {"beam_size": 4})):
        yield base, theirs
        yield replace(base, disable_unknown=True), {**theirs, "disable_unk": True}
        for prefix in (["O"], ["Os", "dois"]):
            ids = tuple(tokenizer.encode_target(" ".join(prefix)))
            pieces = [[f"▁{word}" for word in prefix]] * len(TEXTS)
            for beta in (0.0, 0.2, 0.7):
                options = {**theirs, "target_prefix": pieces, "prefix_bias_beta": beta}
                yield replace(base, target_prefix=ids, prefix_bias_beta=beta), options
    for prefix in ([], ["Os"]):
        ids = tuple(tokenizer.encode_target(" ".join(prefix)))
        alternatives: dict[str, Any] = {"return_alternatives": True, "num_return_sequences": 3, "target_prefix": ids}
        pieces = [[f"▁{word}" for word in prefix]] * len(TEXTS)
        options = {"beam_size": 1, "num_hypotheses": 3, "return_alternatives": True, "target_prefix": pieces}
        for least in (0.0, 0.01):
            chosen: dict[str, Any] = {"min_alternative_expansion_prob": least}
            yield replace(plain, **alternatives, **chosen), {**options, **chosen}
    for patience in (1.5, 3.0):
        yield replace(beams, patience=patience), {"beam_size": 4, "patience": patience}
    words = ["presidente", "o", "que"]
    yield (
        replace(plain, bad_words=tuple(tuple(tokenizer.encode_target(word)) for word in words)),
        {"beam_size": 1, "suppress_sequences": [[f"▁{word}"] for word in words]},
    )
    yield replace(plain, min_new_tokens=30), {"beam_size": 1, "min_decoding_length": 30}
    yield (
        replace(plain, no_repeat_ngram_size=2, repetition_penalty=1.3),
        {"beam_size": 1, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3},
    )


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from ctranslate2.converters import TransformersConverter

    class AllHeads(TransformersConverter):  # type: ignore[misc]  # Any
        """Attention is the mean of the last layer's heads, and not the first one's."""

        def _load(self) -> Any:
            spec = super()._load()
            config = Package.open(ZOO).manifest.model
            assert isinstance(config, ModelConfig)
            spec.decoder.alignment_heads = np.int16(config.decoder_heads)
            return spec

    folder: Path = tmp_path_factory.mktemp("ctranslate2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers: that a tokenizer could have a package that we do without
        AllHeads(str(ZOO)).convert(str(folder), quantization="float32", force=True)
    yield ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)


def test_the_best_hypotheses(package: Package, theirs: Any) -> None:
    tokenizer, loadable, vocabulary = package.tokenizer(), Loadable.of(package), load_vocabulary(ZOO / "vocab.json")
    piece_of = {token: piece for piece, token in vocabulary.items()}
    sources = [tuple(tokenizer.encode(text)) for text in TEXTS]
    pieces = [[piece_of[token] for token in source] for source in sources]
    asked = list(cases(tokenizer))
    requests = [(source, without_unknown(decoding, tokenizer)) for decoding, _ in asked for source in sources]
    with (
        closing(open_decoder(loadable, CPU, 512, 512, "off")) as decoder,
        Runner(decoder, 32, 1, Unobserved()) as runner,
    ):
        answers = iter(list(decode(runner, loadable.rules, requests, window=len(requests))))
    for decoding, options in asked:
        for result in theirs.translate_batch(pieces, max_decoding_length=MOST, **options):
            answer, count = next(answers), len(result.hypotheses) if decoding.return_alternatives else 1
            if decoding.return_alternatives:
                assert len(answer.hypotheses) == count
            for ours, one in zip(answer.hypotheses[:count], result.hypotheses, strict=False):
                expected = [vocabulary[piece] for piece in one]
                whole = (*decoding.forced_prefix, *ours.token_ids)
                found = [token for token in whole if token not in loadable.rules.end_ids]
                assert found == expected, (options, tokenizer.decode(found), tokenizer.decode(expected))


@pytest.mark.parametrize("kernels", ["off", "auto"])
def test_given_targets_are_as_probable(package: Package, theirs: Any, kernels: Kernels) -> None:
    """As CTranslate2 finds them, and as transformers does with them as labels: good ones and wrong ones."""
    tokenizer, loadable, vocabulary = package.tokenizer(), Loadable.of(package), load_vocabulary(ZOO / "vocab.json")
    piece_of, end_id = {token: piece for piece, token in vocabulary.items()}, loadable.graphs.spec.vocabulary.end_id
    pairs = flores()[::40]
    sources = [tuple(tokenizer.encode(english)) for english, _ in pairs]
    given = [tuple((*tokenizer.encode_target(portuguese), end_id)) for _, portuguese in pairs]
    targets = [(given[index], given[index - 1], given[index][:3]) for index in range(len(given))]
    answers = [Future[Event]() for _ in sources]
    with (
        closing(open_decoder(loadable, CPU, 512, 512, kernels)) as decoder,
        Runner(decoder, 32, 2, Unobserved()) as runner,
    ):
        for source, of_source, answer in zip(sources, targets, answers, strict=True):
            runner.submit(Score(source, answer.set_result, targets=of_source, fed_ids=loadable.rules.fed_ids))
        events = [answer.result() for answer in answers]
    model = MarianMTModel.from_pretrained(ZOO, dtype=torch.float32, local_files_only=True).eval()
    for source, of_source, event in zip(sources, targets, events, strict=True):
        assert isinstance(event, Scored)
        for target, found in zip(of_source, event.log_probs, strict=True):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([source]), labels=torch.tensor([target])).logits[0]
            expected = logits.log_softmax(1)[range(len(target)), list(target)]
            assert found == pytest.approx(expected.tolist(), abs=1e-4)
            if target[-1] == end_id:
                pieces = [piece_of[token] for token in target[:-1]]
                [scored] = theirs.score_batch([[piece_of[token] for token in source]], [pieces])
                assert found == pytest.approx(scored.log_probs, abs=TOLERANCE, rel=3e-4)


@pytest.mark.parametrize("kernels", ["off", "auto"])
def test_log_probs_of_tokens_are_those_of_score_batch(package: Package, theirs: Any, kernels: Kernels) -> None:
    """Greedily, and of all hypotheses of beam search: what the search has is what scoring its result gives."""
    tokenizer, loadable, vocabulary = package.tokenizer(), Loadable.of(package), load_vocabulary(ZOO / "vocab.json")
    piece_of = {token: piece for piece, token in vocabulary.items()}
    greedy = Decoding(max_new_tokens=MOST, with_tokens=True)
    asked = [greedy, replace(greedy, num_beams=4, num_return_sequences=4, length_penalty=0.7)]
    sources = [tuple(tokenizer.encode(text)) for text in TEXTS]
    requests = [(source, decoding) for decoding in asked for source in sources]
    with (
        closing(open_decoder(loadable, CPU, 512, 512, kernels)) as decoder,
        Runner(decoder, 32, 1, Unobserved()) as runner,
    ):
        answers = list(decode(runner, loadable.rules, requests, window=len(requests)))
    for (source, decoding), answer in zip(requests, answers, strict=True):
        for hypothesis in answer.hypotheses:
            target = [piece_of[token] for token in hypothesis.token_ids[:-1]]
            [scored] = theirs.score_batch([[piece_of[token] for token in source]], [target])
            assert hypothesis.log_probs == pytest.approx(scored.log_probs, abs=TOLERANCE)
            length = len(hypothesis.token_ids) ** decoding.length_penalty
            assert hypothesis.log_prob == pytest.approx(sum(hypothesis.log_probs))
            assert hypothesis.score == pytest.approx(hypothesis.log_prob / length)


@pytest.mark.parametrize("prefix", [(), ("Os",)], ids=["alone", "after a prefix"])
@pytest.mark.parametrize("kernels", ["off", "auto"])
def test_what_is_left_out_of_the_source_costs_as_much(
    package: Package, theirs: Any, kernels: Kernels, prefix: tuple[str, ...]
) -> None:
    """Tokens and scores of all that beam search returns, in their order; the end token counts in both."""
    tokenizer, loadable, vocabulary = package.tokenizer(), Loadable.of(package), load_vocabulary(ZOO / "vocab.json")
    piece_of = {token: piece for piece, token in vocabulary.items()}
    ids = tuple(tokenizer.encode_target(" ".join(prefix)))
    # A prefix is a part of their length, and not of ours.
    length_penalty = 0.0 if prefix else 1.0
    beams = Decoding(4, 4, MOST, length_penalty, early_stopping=True, target_prefix=ids)
    penalties, sources = (0.2, 5.0), [tuple(tokenizer.encode(text)) for text in TEXTS]
    requests = [(source, replace(beams, coverage_penalty=penalty)) for penalty in penalties for source in sources]
    with (
        closing(open_decoder(loadable, CPU, 512, 512, kernels)) as decoder,
        Runner(decoder, 32, 1, Unobserved()) as runner,
    ):
        answers = [answer.hypotheses for answer in decode(runner, loadable.rules, requests, window=len(requests))]
    for (source, decoding), ours in zip(requests, answers, strict=True):
        [expected] = theirs.translate_batch(
            [[piece_of[token] for token in source]],  # alone: what pads a source would be a part of it
            target_prefix=[[f"▁{word}" for word in prefix]] if prefix else None,
            beam_size=4,
            num_hypotheses=4,
            max_decoding_length=MOST,
            length_penalty=decoding.length_penalty,
            coverage_penalty=decoding.coverage_penalty,
            return_scores=True,
            return_end_token=True,
        )
        found = [(*ids, *one.token_ids) for one in ours]
        assert found == [tuple(vocabulary[piece] for piece in one) for one in expected.hypotheses]
        assert [one.score for one in ours] == pytest.approx(expected.scores, abs=10 * TOLERANCE)
    targets, count = [[one.token_ids for one in ours] for ours in answers], len(sources)
    mild, strict = targets[:count], targets[count:]
    assert mild != strict, "it decides nothing"
