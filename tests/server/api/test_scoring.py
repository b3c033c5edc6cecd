"""TranslationService.Score: real gRPC on loopback, over a decoder that finds its source's own tokens probable."""

import asyncio
from dataclasses import replace

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from dragoman.v1 import model_pb2
from dragoman.v1.translation_pb2 import Candidates, ScoreRequest, ScoreResponse
from tests.fakes import BEST, SECOND
from tests.serving import END, MODEL, Serving, eventually, held, refused, serving, tokenizer, translate_request

SCORE = "dragoman.v1.TranslationService/Score"
TEXT, OTHER = "house river", "river house"


def score_request(*contents: tuple[str, list[str]]) -> ScoreRequest:
    given = [Candidates(content=content, targets=targets) for content, targets in contents]
    return ScoreRequest(contents=given, target_language_code="pt")


async def score(server: Serving, *contents: tuple[str, list[str]]) -> ScoreResponse:
    response: ScoreResponse = await server.translations.Score(score_request(*contents))
    return response


async def test_every_target_of_every_content() -> None:
    ids = tokenizer().encode(TEXT)
    async with serving(workers=2) as server:
        response = await score(server, (TEXT, [TEXT, OTHER, ""]), (OTHER, [OTHER]))
        assert response.model == MODEL.name
        first, second = response.contents
        assert [target.text for target in first.targets] == [TEXT, OTHER, ""]
        assert [target.tokens for target in first.targets] == [len(ids), len(ids), 1]
        own, other, empty = first.targets
        assert [token.id for token in own.target_tokens] == ids
        assert "".join(token.text for token in own.target_tokens) == TEXT
        assert [TEXT[token.begin :].startswith(token.text) for token in own.target_tokens] == [True] * len(ids)
        assert [token.log_prob for token in own.target_tokens] == pytest.approx([BEST] * len(ids))
        assert own.log_prob == pytest.approx(BEST * len(ids)) and own.score == pytest.approx(BEST)
        assert other.log_prob == pytest.approx(SECOND * (len(ids) - 1) + BEST)
        assert [token.id for token in empty.target_tokens] == [END]
        assert second.targets[0].log_prob == pytest.approx(own.log_prob)
        assert first.source_tokens == len(ids)
        assert first.timings.steps == 0 and first.timings.total.ToNanoseconds() > 0
        assert server.model_metric("dragoman_scored_tokens_total") == 3 * len(ids) + 1
        assert server.model_metric("dragoman_source_tokens_total") == 2 * len(ids)
        assert server.metric("dragoman_rpc_requests_total", method=SCORE, code="OK") == 1


async def test_beside_translations() -> None:
    """Both have their answers, whoever comes first."""
    async with serving() as server:
        async with asyncio.TaskGroup() as group:
            scores = [group.create_task(score(server, (TEXT, [TEXT, OTHER]))) for _ in range(3)]
            translations = server.translations.Translate(translate_request(TEXT))
        assert len({MessageToDict(task.result().contents[0].targets[1])["logProb"] for task in scores}) == 1
        assert (await translations).translations[0].hypotheses[0].text == TEXT


async def test_who_leaves_is_dropped() -> None:
    async with serving() as server:
        server.decoder.gate.close()
        call = asyncio.ensure_future(score(server, (TEXT, [TEXT] * 8)))
        await held(server)
        call.cancel()
        await eventually(lambda: server.calls.running == 0)
        server.decoder.gate.open()
        await eventually(lambda: server.model_metric("dragoman_cancellations_total") == 1)
        again = await score(server, (TEXT, [TEXT]))
        assert again.contents[0].targets[0].text == TEXT
        assert server.model_metric("dragoman_scored_tokens_total") == len(tokenizer().encode(TEXT))


@pytest.mark.parametrize(
    ("contents", "reason", "field", "said"),
    [
        ([], "EMPTY_CONTENTS", "contents", "0 texts"),
        ([("a", ["b"]), (" ", ["b"])], "BLANK_CONTENT", "contents[1].content", "is blank"),
        ([("a", ["b"]), ("a", [])], "NO_TARGETS", "contents[1].targets", "0 targets; send at least 1"),
        ([("a", ["b"] * 5), ("a", ["b"] * 4)], "TOO_MANY_TARGETS", "contents", "9 targets; a call takes 8"),
        ([("a", ["b"])] * 9, "TOO_MANY_CONTENTS", "contents", "9 contents; a call takes 8"),
        ([("a", ["b", "c " * 128])], "TARGET_TOO_LONG", "contents[0].targets[1]", "129 tokens; the model takes 128"),
        ([("a", ["c" * 9999])], "TARGET_TOO_LONG", "contents[0].targets[0]", "9999 characters; the model takes"),
        ([("c " * 128, ["a"])], "SOURCE_TOO_LONG", "contents[0].content", "129 tokens; the model takes 128"),
    ],
)
async def test_what_is_refused(contents: list[tuple[str, list[str]]], reason: str, field: str, said: str) -> None:
    async with serving() as server:
        told = await refused(server.translations.Score(score_request(*contents)))
        assert (told.code, told.info.reason) == (grpc.StatusCode.INVALID_ARGUMENT, reason)
        assert told.fields == [field] and said in told.message
        assert server.runner.waiting == 0 and server.model_metric("dragoman_scored_tokens_total") == 0


async def test_a_model_without_the_graphs() -> None:
    async with serving() as server:
        [model] = (await server.models.ListModels(model_pb2.ListModelsRequest())).models
        assert list(model.tasks) == [model_pb2.TASK_TRANSLATE, model_pb2.TASK_ENCODE, model_pb2.TASK_SCORE]
        server.translator.model = replace(server.translator.model, scores=False)
        [model] = (await server.models.ListModels(model_pb2.ListModelsRequest())).models
        assert list(model.tasks) == [model_pb2.TASK_TRANSLATE, model_pb2.TASK_ENCODE]
        told = await refused(server.translations.Score(score_request(("a", ["b"]))))
        assert (told.code, told.info.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "DOES_NOT_SCORE")
