"""Between plain values and protobuf, for scores of given translations: pure functions that both clients share."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypedDict

from dragoman.results.scores import Scores, TargetScore
from dragoman.v1 import translation_pb2
from dragoman.wire.given import check_known, checked, listed
from dragoman.wire.messages import MAX_CONTENT_BYTES, MAX_CONTENTS, check_count, target_token, timings


class ScoreOptions(TypedDict, total=False):
    """What translations are scored for. What is left out, or None, takes the model's default."""

    source_language: str
    """BCP-47 code of the text. Left out: the model's only source language."""
    target_language: str
    """BCP-47 code of the translations. Left out: the model's only target language."""
    model: str
    """Name of the model. Left out: the server's default model."""
    prompt: str | None
    """Name of a prompt of the model, which is put before each text and tells the model its task. Empty: none."""


Pair = tuple[str, list[str]]
"""A text, and translations of it."""


def paired(texts: str | Sequence[str], targets: Sequence[str] | Sequence[Sequence[str]]) -> list[Pair]:
    """Every text with its translations. Raises TypeError or ValueError for what does not go together."""
    if isinstance(targets, str | bytes) or not isinstance(targets, Iterable):
        raise TypeError(f"targets is {targets!r}; it must be a list of them")
    given = listed(texts)
    of_texts: list[Any] = [targets] if isinstance(texts, str) else list(targets)
    if len(given) != len(of_texts):
        raise ValueError(f"there are {len(given)} texts, and targets of {len(of_texts)}; each text must have some")
    for index, of_text in enumerate(of_texts):
        if isinstance(of_text, str):
            raise TypeError(f"targets[{index}] is {of_text!r}; with a list of texts it must be a list of them")
    names = ["targets"] if isinstance(texts, str) else [f"targets[{index}]" for index in range(len(of_texts))]
    return [(text, list(checked(*of_text))) for text, *of_text in zip(given, of_texts, names, strict=True)]


def score_requests(pairs: Sequence[Pair], options: ScoreOptions, most: int) -> Iterator[translation_pb2.ScoreRequest]:
    """The requests that together score the translations. Raises TypeError for an impossible option.

    most: so many translations the server takes. A text's are not divided: it refuses more
    """
    check_known(options, ScoreOptions)
    for batch in _batches(pairs, min(most, MAX_CONTENTS)):
        yield translation_pb2.ScoreRequest(
            contents=[translation_pb2.Candidates(content=text, targets=targets) for text, targets in batch],
            source_language_code=options.get("source_language", ""),
            target_language_code=options.get("target_language", ""),
            model=options.get("model", ""),
            prompt=options.get("prompt"),
        )


def _batches(pairs: Sequence[Pair], most: int) -> Iterator[list[Pair]]:
    """The pairs in order, in lists that each fit one request."""
    batch, targets, size = list[Pair](), 0, 0
    for text, of_text in pairs:
        length = sum(len(one.encode()) for one in (text, *of_text))
        if batch and (targets + len(of_text) > most or size + length > MAX_CONTENT_BYTES):
            yield batch
            batch, targets, size = [], 0, 0
        batch.append((text, of_text))
        targets, size = targets + len(of_text), size + length
    if batch:
        yield batch


def scores(request: translation_pb2.ScoreRequest, response: translation_pb2.ScoreResponse) -> list[Scores]:
    """The scores of a request's contents, in order."""
    check_count(request.contents, response.contents)
    return [_scores(asked, told) for asked, told in zip(request.contents, response.contents, strict=True)]


def _scores(asked: translation_pb2.Candidates, told: translation_pb2.ScoredContent) -> Scores:
    check_count(asked.targets, told.targets)
    return Scores(tuple(map(_target_score, told.targets)), told.source_tokens, timings(told.timings))


def _target_score(message: translation_pb2.TargetScore) -> TargetScore:
    tokens = tuple(map(target_token, message.target_tokens))
    return TargetScore(message.text, message.log_prob, message.score, message.tokens, tokens)
