"""Decoding with a shortlist, on both decoders: only what is allowed is chosen, and log-probabilities are over that."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.batch.running_batch import RunningBatch
from engine.cpu.allowed import STEP, AllowedTokens, OutputLayer
from engine.cpu.decoder import CpuDecoder
from engine.cuda.decoder import CudaDecoder
from engine.decoder import Decoder
from engine.devices.session import CPU
from engine.observer import Unobserved
from engine.request import Event, Finished, Translate
from export.verification.reference import log_probs
from export.weights.save import save
from models.decoding import Decoding
from models.package.derived import vocabulary
from models.package.graph_files import GraphFiles
from models.package.shortlist import Shortlist
from tests.engine.cpu import test_cpu_decoder
from tests.engine.cpu.test_cpu_decoder import ATOL, LONGEST, Served, Tokens
from tests.engine.cuda import test_cuda_decoder
from tests.engine.cuda.test_cuda_decoder import Twins
from tests.engine.traced import shared_model, traced
from tests.fakes import rules_of
from tests.models.test_transformer import config
from tests.shortlists import FIRST, random_lists, write

pytestmark = pytest.mark.timeout(600)

TOKENS = 1300
"""So many that the tokens that are in use come and go."""
CONFIGS = {
    "recurrent": config(decoder_cell="ssru"),
    "attention, pre-norm, untied": config(norm="pre", tie_output=False),
}
IMPROBABLE = -1000.0


@dataclass
class Shortlisted(Served):
    """A model with a shortlist."""

    graphs: GraphFiles
    shortlist: Shortlist

    def log_probs(self, source: Tokens, target: Tokens) -> NDArray[np.float32]:
        """PyTorch's, after each target token [target, vocabulary]. Of what is not allowed: -inf."""
        scores: NDArray[np.float32] = log_probs(self.model, source, target, self.shortlist).numpy()
        return scores


@pytest.fixture(scope="module", params=CONFIGS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shortlisted:
    sizes = {"source_vocab_size": TOKENS, "target_vocab_size": TOKENS, "max_positions": LONGEST}
    model = shared_model(config(**CONFIGS[request.param].model_dump() | sizes))
    folder: Path = tmp_path_factory.mktemp("graphs")
    file = write(folder / "lex.bin", random_lists(TOKENS, TOKENS))
    shortlist = Shortlist.load(file, vocabulary(model.config))
    graphs = replace(save(traced(model, shortlist=True), folder), shortlist=shortlist)
    return Shortlisted(model, CpuDecoder(graphs, LONGEST, LONGEST), graphs, shortlist)


@pytest.fixture(scope="module", params=["long", 1])
def batch(served: Shortlisted, request: pytest.FixtureRequest) -> test_cpu_decoder.Batch:
    if request.param == "long":
        return test_cpu_decoder.play_long(served)
    return test_cpu_decoder.play(served, request.param)


def test_rows_get_what_pytorch_gives(served: Shortlisted, batch: test_cpu_decoder.Batch) -> None:
    sizes = set()
    for row in batch.histories:
        allowed = served.shortlist.allowed(row.source)
        sizes.add(len(allowed))
        for expected, found in zip(served.log_probs(row.source, row.fed), row.found, strict=True):
            k = min(len(found.token_ids), len(allowed))
            np.testing.assert_allclose(found.log_probs[:k], np.sort(expected)[::-1][:k], atol=ATOL, rtol=0)
            np.testing.assert_allclose(found.log_probs[:k], expected[found.token_ids[:k]], atol=ATOL, rtol=0)
            assert set(found.token_ids[:k].tolist()) <= set(allowed.tolist())
    assert min(sizes) < 5 * FIRST < STEP < max(sizes), "too much alike to show something"


def test_rows_get_what_they_get_alone_to_the_last_bit(served: Shortlisted, batch: test_cpu_decoder.Batch) -> None:
    """Whatever tokens other rows are allowed."""
    test_cpu_decoder.test_rows_get_what_they_get_alone_to_the_last_bit(served, batch)


def test_beams_find_their_source_after_the_memory_changed(served: Shortlisted) -> None:
    test_cpu_decoder.test_beams_find_their_source_after_the_memory_changed(served)


def test_candidates_that_are_not_allowed_are_improbable(served: Shortlisted) -> None:
    source = next((token,) for token in range(TOKENS) if len(served.shortlist.allowed((token,))) < 2 * FIRST)
    allowed = served.shortlist.allowed(source)
    found = served.step_alone(source, (1,), k=50)[0]
    assert set(found.token_ids[0, : len(allowed)].tolist()) == set(allowed.tolist())
    assert np.isclose(np.exp(found.log_probs[0, : len(allowed)]).sum(), 1, atol=1e-5)
    assert (found.log_probs[0, len(allowed) :] < IMPROBABLE).all()
    assert (found.token_ids >= 0).all() and (found.token_ids < TOKENS).all()


def open_device(served: Shortlisted) -> CudaDecoder:
    return CudaDecoder(served.graphs, LONGEST, LONGEST, CPU)


@pytest.mark.parametrize(("seed", "rows"), [(2, 5)])
def test_a_device_gives_what_the_cpu_gives(served: Shortlisted, seed: int, rows: int) -> None:
    batches = test_cuda_decoder.Batches(
        Twins(served.graphs, served.model.config, served.decoder, open_device(served)), rows
    )
    chance = random.Random(seed)
    for _ in range(40):
        live = batches.device.live
        if live and chance.random() < 0.3:
            staying = chance.sample(range(live), k=chance.randint(live // 2, live))
            copies = chance.choices(staying, k=chance.randint(0, rows - len(staying))) if staying else []
            batches.take(chance.sample(staying + copies, k=len(staying + copies)))
        room = rows - batches.device.live
        lengths = chance.choices((2, 9, 17, 70, LONGEST), k=chance.randint(room == rows, room))
        batches.join([served.random_tokens(chance, length) for length in lengths])
        batches.step(served.random_tokens(chance, batches.device.live), k=chance.choice((1, 2, 9)))


@pytest.mark.parametrize("on_device", [False, True])
def test_the_engine_never_leaves_the_shortlist(served: Shortlisted, on_device: bool) -> None:
    """Greedy and with beams, requests joining and leaving."""
    decoder: Decoder[Any] = open_device(served) if on_device else served.decoder
    end_id = served.model.config.end_id
    rules = rules_of(end_id, start_id=served.model.config.decoder_start_id)
    engine = RunningBatch(decoder, 9, Unobserved(), worker=0)
    chance, answers = random.Random(7), dict[Tokens, Finished]()
    for source, num_beams in requests(served, chance):
        while engine.free_rows < num_beams:
            engine.step()
        decoding = Decoding(num_beams, 1, max_new_tokens=20, length_penalty=1.0, early_stopping=False)
        engine.admit([Translate(source, partial(keep, answers, source), decoding=decoding, rules=rules)])
        engine.step()
    while not engine.idle:
        engine.step()
    assert len(answers) == 16
    for source, answer in answers.items():
        [best] = answer.hypotheses
        assert set(best.token_ids) <= set(served.shortlist.allowed(source).tolist())
        scores = served.log_probs(source, (served.model.config.decoder_start_id, *best.token_ids[:-1]))
        assert np.isfinite(scores[range(len(best.token_ids)), list(best.token_ids)]).all()


def requests(served: Shortlisted, chance: random.Random) -> Iterator[tuple[Tokens, int]]:
    for length in (1, 3, 30, 2, 90, 5, 5, 12):
        for num_beams in (1, 4):
            yield served.random_tokens(chance, length), num_beams


def keep(answers: dict[Tokens, Finished], source: Tokens, event: Event) -> None:
    assert isinstance(event, Finished)
    answers[source] = event


class TestAllowedTokens:
    """engine.cpu.allowed.AllowedTokens by itself."""

    @pytest.fixture
    def tokens(self, served: Shortlisted) -> AllowedTokens:
        output = served.graphs.spec.output
        assert output is not None
        return AllowedTokens(OutputLayer(served.graphs.contents().graph(output.file), TOKENS), rows=4)

    def check(self, served: Shortlisted, tokens: AllowedTokens, rows: list[list[int]]) -> None:
        """Every row has its tokens, at places with their rows of the output layer."""
        weight, bias, allowed = tokens.inputs(len(rows)).values()
        for row, expected in enumerate(rows):
            places = allowed[row][allowed[row] >= 0]
            assert tokens.token_ids(places).tolist() == expected
            assert (weight[places] == served.model.output_weight[expected].detach().numpy()).all()
            assert (bias[places] == served.model.output_bias[expected].detach().numpy()).all()

    def test_tokens_that_are_in_use_are_not_taken_in_again(self, served: Shortlisted, tokens: AllowedTokens) -> None:
        tokens.put(0, np.arange(100))
        before = tokens.inputs(1)["output_weight"]
        assert not tokens.put(1, np.arange(50, 130))
        after = tokens.inputs(2)["output_weight"]
        assert np.shares_memory(before, after) and before.shape == after.shape == (STEP, served.model.config.width)
        self.check(served, tokens, [list(range(100)), list(range(50, 130))])

    def test_room_grows_and_is_given_up(self, served: Shortlisted, tokens: AllowedTokens) -> None:
        tokens.put(0, np.arange(100))
        assert tokens.put(1, np.arange(200, 900))
        assert len(tokens.inputs(2)["output_bias"]) == 1024
        self.check(served, tokens, [list(range(100)), list(range(200, 900))])
        assert tokens.put(0, np.arange(30))
        assert len(tokens.inputs(1)["output_bias"]) == STEP
        self.check(served, tokens, [list(range(30))])

    def test_tokens_of_rows_that_left_leave_when_room_is_needed(
        self, served: Shortlisted, tokens: AllowedTokens
    ) -> None:
        tokens.put(0, np.arange(10))
        for start in range(0, 1200, 100):
            tokens.put(1, np.arange(start, start + 100))  # over the one before
            assert len(tokens.inputs(2)["output_bias"]) <= 2 * STEP
            self.check(served, tokens, [list(range(10)), list(range(start, start + 100))])

    def test_copies(self, served: Shortlisted, tokens: AllowedTokens) -> None:
        tokens.put(0, np.arange(10))
        tokens.put(1, np.arange(5, 300))
        tokens.copy(1, 0)
        self.check(served, tokens, [list(range(5, 300))] * 2)
        tokens.put(2, np.arange(1000))  # makes room anew
        self.check(served, tokens, [list(range(5, 300)), list(range(5, 300)), list(range(1000))])
