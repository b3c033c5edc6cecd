"""tritonclient, which nobody here wrote, against a real server with a model of the zoo."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman import Client
from server.kserve.v2 import inference_pb2
from tests.server_process import ServerProcess, server_process
from tests.serving import ZOO

PYTHON = Path(sys.prefix) / "tritonclient" / "bin" / "python"
SCRIPT = Path(__file__).with_name("triton.py")
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no environment with tritonclient: make tools")

GUARD_S = 100
Told = dict[str, Any]


@pytest.fixture(scope="module")
def told() -> Told:
    """What the client saw, and what our own says of the same texts."""
    # It sends the next request of a stream when it has the answer to the one before, however long that took.
    with server_process(ZOO, "--request-timeout-s", GUARD_S) as server:
        ran = subprocess.run([PYTHON, SCRIPT, server.target], capture_output=True, text=True, timeout=GUARD_S)
        assert ran.returncode == 0, ran.stderr
        found: Told = json.loads(ran.stdout)
        found["ours"] = ours(server)
    return found


def ours(server: ServerProcess) -> Told:
    with Client(server.target) as client:
        texts = ["Good morning.", "The cat sleeps."]
        beams = client.translate(texts, num_beams=4, num_return_sequences=2, length_penalty=0.6, early_stopping="never")
        return {
            "beams": beams,
            "long": client.translate("The cat sleeps on the sofa.", min_new_tokens=300),
            "greedy": client.translate([f"A dog {number}." for number in range(3)]),
            "vectors": client.encode(["A dog.", "Two dogs."], normalize=True),
        }


def test_it_is_told_what_there_is(told: Told) -> None:
    assert told["described"] == {
        "live": [True, True],
        "ready": [True, True, False, False],
        "server": "dragoman",
        "outputs": {
            "translation": ["BYTES", ["-1", "-1"]],
            "score": ["FP32", ["-1", "-1"]],
            "tokens": ["INT32", ["-1", "-1"]],
            "finish_reason": ["BYTES", ["-1", "-1"]],
        },
        "decoupled": [True, 1],
        "index": ["en-pt", "en-pt.encode", "en-pt.stream"],
    }


def test_it_gets_what_our_own_client_gets(told: Told) -> None:
    found, beams = told["inferred"], told["ours"]["beams"]
    assert found["translation"] == [[one.text for one in each.hypotheses] for each in beams]
    assert found["score"] == [[pytest.approx(one.score) for one in each.hypotheses] for each in beams]
    assert found["tokens"] == [[one.tokens for one in each.hypotheses] for each in beams]
    assert found["finish_reason"] == [["end_token"] * 2] * 2
    assert (found["id"], found["chosen"]) == ("7", ["tokens"])
    vectors = [np.ravel(one.values) for one in told["ours"]["vectors"]]
    np.testing.assert_allclose(found["embedding"], vectors, rtol=1e-4, atol=1e-5)


def test_it_is_refused_in_its_own_words(told: Told) -> None:
    [unknown, beams, blank] = told["refused"]
    assert unknown[0] == "StatusCode.NOT_FOUND" and 'no model "zz"' in unknown[1]
    assert beams[0] == "StatusCode.INVALID_ARGUMENT" and "99" in beams[1] and "16" in beams[1]
    assert blank[0] == "StatusCode.INVALID_ARGUMENT" and "blank" in blank[1]


def test_it_streams(told: Told) -> None:
    *deltas, last, refusal, single = told["streamed"]
    best = told["ours"]["long"].text
    assert "".join(delta for [[[delta]], _] in deltas) == best and len(deltas) > 1
    assert last == [None, [[best]]]
    assert 'no model "zz"' in refusal
    assert single[0] == "b" and single[1]


def test_it_asks_without_waiting(told: Told) -> None:
    best = [[[one.text]] for one in told["ours"]["greedy"]]
    assert told["asynchronous"]["unary"] == best
    assert told["asynchronous"]["stream"] == {str(number): one for number, one in enumerate(best)}


def test_its_requests_are_counted(told: Told) -> None:
    assert told["statistics"] == {"en-pt": [9, 2, 10], "en-pt.stream": [1, 0, 1], "en-pt.encode": [1, 0, 2]}


def test_our_messages_are_theirs(told: Told) -> None:
    """Names, numbers and types of all fields that we know."""
    waiting = list(inference_pb2.DESCRIPTOR.message_types_by_name.values())
    for message in waiting:
        theirs = told["messages"][message.full_name]
        assert {one.name: theirs.get(one.name) for one in message.fields} == {
            one.name: [one.number, one.type] for one in message.fields
        }
        waiting.extend(message.nested_types)
    assert len(waiting) > 30
