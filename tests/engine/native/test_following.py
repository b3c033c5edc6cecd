"""Steps that are made without ONNX Runtime, and several of them without the interpreter: the answers stay the same."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from engine.batch import running_batch
from engine.decoder import Ask, Followed, Goes
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.native import step
from engine.native.cache import SlotCache
from engine.native.decoder import NativeDecoder
from engine.offline import decode
from engine.request import Event, Translate
from engine.search.beam_rows import BeamRows
from engine.search.extending import CompiledExtending, Extended
from engine.search.greedy import GreedyRows
from engine.targets import TargetRules
from kernels.beams import Ended
from kernels.library import Library
from kernels.steps import NEVER_MIND, Arrivals, BestSteps, Following, Recording, SoFar
from models.decoding import Decoding
from models.package.folder import Package
from tests.checkpoints import ZOO, flores
from tests.engine.native.graphs import LONGEST, PRE, Exported, export_random
from tests.engine.native.test_native_engine import Guests, Tokens, hypotheses, random_sources

pytestmark = pytest.mark.timeout(300)

NO_END = TargetRules((1,), frozenset())
RULES = NO_END, TargetRules((1,), frozenset({22, 107, 113}), suppressed_ids=frozenset({70}))
"""The second has tokens that the model finds now and then."""
GREEDY = Decoding(max_new_tokens=25)
BEAMS = Decoding(num_beams=3, num_return_sequences=3, max_new_tokens=25)
WISHES = {
    "greedy": ([GREEDY], True),
    "beams": ([BEAMS], True),
    "beams that end early": ([Decoding(num_beams=4, max_new_tokens=25, early_stopping=True)], True),
    "patient beams": ([Decoding(num_beams=4, max_new_tokens=25, patience=2.0, with_tokens=True)], True),
    "lengths": ([Decoding(max_new_tokens=length) for length in (1, 2, 9)], True),
    "some of each": ([GREEDY, BEAMS, Decoding(num_beams=2, max_new_tokens=12)], False),
    "scores that are changed": ([Decoding(max_new_tokens=20, repetition_penalty=1.5), GREEDY], False),
}
"""And whether steps are made together: rows must be of one search, which sees the model's scores as they are."""


class Told:
    """How caches made their steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, follows: bool) -> None:
        self.together = list[int]()
        """Steps that were made at a time."""
        self.ended = 0
        """Hypotheses that ended meanwhile."""
        plainly, beams = SlotCache.follow, CompiledExtending.follow

        def follow(cache: SlotCache, search: Goes, most: int, arrivals: SoFar) -> Followed | None:
            followed = plainly(cache, search, most, arrivals) if follows else None
            self.together.append(0 if followed is None else followed.steps)
            return followed

        def extend(*given: Any) -> tuple[list[Extended], list[Ended]]:
            made, ended = beams(*given)
            self.ended += len(ended)
            return made, ended

        monkeypatch.setattr(SlotCache, "follow", follow)
        monkeypatch.setattr(CompiledExtending, "follow", extend)


def answered(
    decoder: NativeDecoder,
    model: Loadable,
    sources: Sequence[Tokens],
    wishes: Sequence[Decoding],
    rules: TargetRules,
) -> Any:
    """What comes of sources that are there from the beginning, and of as many that come when those have made steps."""
    guests = Guests(decoder, model, rows=60)
    guests.rules = rules
    half = len(sources) // 2
    told = []
    for some in (sources[:half], sources[half:]):
        for number, source in enumerate(some):
            told += guests.admit([source], wishes[number % len(wishes)])
        guests.batch.step()
        guests.batch.step()
    guests.finish()
    return [numbers(events) for _, events in told]


def numbers(events: Sequence[Event]) -> list[Any]:
    """Of an answer."""
    return [(one.token_ids, one.score, one.finish_reason, one.log_probs) for one in hypotheses(events)]


@pytest.fixture(scope="module", params=[False, True], ids=["fp32", "8 bits"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export_random(tmp_path_factory.mktemp("graphs"), PRE, request.param)


@pytest.mark.parametrize(("wishes", "together"), WISHES.values(), ids=WISHES)
def test_answers_are_those_of_steps_one_by_one_to_the_last_bit(
    exported: Exported,
    library: Library,
    monkeypatch: pytest.MonkeyPatch,
    wishes: Sequence[Decoding],
    together: bool,
) -> None:
    monkeypatch.setattr(running_batch, "TOGETHER_S", 5.0)
    sources, decoder = random_sources(PRE, 10), exported.native(library)
    found = {}
    for follows in (False, True):
        with monkeypatch.context() as patches:
            told = Told(patches, follows)
            found[follows] = [answered(decoder, exported.loadable(), sources, wishes, rules) for rules in RULES]
        assert (max(told.together, default=0) > 3) == (follows and together)
    assert found[True] == found[False]


def some_wish(chance: random.Random) -> Decoding:
    beams = chance.choice([1, 1, 2, 4, 4, 8])
    most = chance.choice([1, 2, 12, 40, 40])  # the last is beyond the first memory of a row
    return Decoding(
        num_beams=beams,
        num_return_sequences=chance.randint(1, beams),
        max_new_tokens=most,
        min_new_tokens=min(most, chance.choice([0, 0, 0, 5])),
        length_penalty=chance.choice([-1.0, 0.6, 1.0]),
        early_stopping=chance.choice([True, False, "never"]),
        patience=chance.choice([0.5, 1.0, 2.5, 6.0]),
        target_prefix=chance.choice([(), (), (), (7, 9)]),
        with_tokens=chance.random() < 0.5,
    )


def test_nor_are_those_of_requests_that_come_and_go_at_random(
    exported: Exported, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who stay have what each has alone, by steps that are made one by one."""
    monkeypatch.setattr(running_batch, "TOGETHER_S", 5.0)
    chance, decoder, model = random.Random(1), exported.native(library), exported.loadable()
    sources, compared, together, ended = random_sources(PRE, 12), 0, 0, 0
    endless = answered(decoder, model, sources, [BEAMS], NO_END)
    tokens_of_all = [token for answer in endless for tokens, *_ in answer for token in tokens]
    found = [token for token, _ in Counter(tokens_of_all).most_common()]
    rules = replace(NO_END, end_ids=frozenset(found[4:12]), suppressed_ids=frozenset(found[3:4]))
    for _ in range(20):
        wish = some_wish(chance)
        alike = chance.random() < 0.7
        asked = [(source, wish if alike else some_wish(chance)) for source in chance.choices(sources, k=6)]
        with monkeypatch.context() as patches:
            Told(patches, follows=False)
            alone = [answered(decoder, model, [source], [wanted], rules)[0] for source, wanted in asked]
        with monkeypatch.context() as patches:
            told, guests = Told(patches, follows=True), Guests(decoder, model, rows=60)
            guests.rules, come = rules, list[tuple[Translate, list[Event]]]()
            while len(come) < len(asked) or not guests.batch.idle:
                if len(come) < len(asked) and (guests.batch.idle or chance.random() < 0.2):
                    source, wanted = asked[len(come)]
                    come += guests.admit([source], wanted)
                if chance.random() < 0.1:
                    chance.choice(come)[0].cancel()
                guests.batch.step()
            guests.batch.answers.deliver()
        for expected, (_, events) in zip(alone, come, strict=True):
            if events:  # it did not leave before
                assert numbers(events) == expected
                compared += 1
        together, ended = together + [steps > 1 for steps in told.together].count(True), ended + told.ended
    assert compared > 60 and together > 20 and ended > 5


@pytest.mark.parametrize(
    "decoding",
    [Decoding(num_beams=4, early_stopping=True), Decoding(num_beams=5, num_return_sequences=2, with_tokens=True)],
    ids=["until there are enough", "until none is better"],
)
def test_nor_are_those_of_sentences_where_hypotheses_end_meanwhile(
    library: Library, monkeypatch: pytest.MonkeyPatch, decoding: Decoding
) -> None:
    monkeypatch.setattr(running_batch, "TOGETHER_S", 5.0)
    package = Package.open(ZOO.with_name("en-pt-int8"))
    model, tokenizer = Loadable.of(package), package.tokenizer()
    sources = [tuple(tokenizer.encode(text)) for text, _ in flores()[:12]]
    decoder = NativeDecoder.open(model.graphs, LONGEST, 256)
    found = {}
    for follows in (False, True):
        with monkeypatch.context() as patches:
            told = Told(patches, follows)
            found[follows] = answered(decoder, model, sources, [decoding], model.rules)
        assert (told.ended > 3) == follows
    assert found[True] == found[False]


def test_steps_made_again_find_what_onnx_runtime_finds(
    exported: Exported, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unrepeatable(Recording):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.nodes = -1

    decoder, sources = exported.native(library), random_sources(PRE, 5)
    again, each = decoder.open_cache(5), decoder.open_cache(5)
    for cache in (again, each):
        for source in decoder.encode(sources):
            cache.join(source)
    fed = np.full(5, 1)
    for ask in [Ask(3)] * 20 + [Ask(3, normaliser=True)] * 3:
        again.begin_step(fed, ask)
        found = again.end_step()
        with monkeypatch.context() as patches:
            patches.setattr(step, "Recording", Unrepeatable)
            each.begin_step(fed, ask)
            expected = each.end_step()
        assert found.token_ids.tobytes() == expected.token_ids.tobytes()
        assert found.log_probs.tobytes() == expected.log_probs.tobytes()
        if found.normaliser and expected.normaliser:
            rows = np.arange(5)
            assert found.normaliser(rows).tobytes() == expected.normaliser(rows).tobytes()
        fed = found.token_ids[:, 0].copy()
    assert again.take([4, 4, 0]) == each.take([4, 4, 0]) > 0


def test_what_a_step_refuses_it_refuses_again(exported: Exported, library: Library) -> None:
    decoder = exported.native(library)
    cache = decoder.open_cache(2)
    cache.join(*decoder.encode([(5, 6, 7)]))
    for _ in range(3):
        cache.begin_step([1], Ask())
        cache.end_step()
    cache.begin_step([10**6], Ask())
    with pytest.raises(ValueError, match=f"dragoman.Embed: .*1000000 .*{PRE.target_vocab_size}"):
        cache.end_step()


def test_a_graph_with_operators_of_onnx_runtime_is_run_by_it(library: Library, tmp_path: Path) -> None:
    """It computes what the same graph of our operators alone does."""
    exported = export_random(tmp_path, PRE)
    _, expected = begun(exported.native(library), steps=10)
    file = tmp_path / "native_decoder.onnx"
    graph = onnx.load(file, load_external_data=False)
    [embed] = [node for node in graph.graph.node if node.op_type == "Embed"]
    [given], (less, more) = embed.output, ("less", "more")
    embed.output[0] = less
    after = list(graph.graph.node).index(embed) + 1
    graph.graph.node.insert(after, onnx.helper.make_node("Add", [more, more], [given]))
    half = onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half")
    graph.graph.initializer.append(half)
    graph.graph.node.insert(after, onnx.helper.make_node("Mul", [less, "half"], [more]))
    onnx.save(graph, file)
    cache, search = begun(exported.native(library), steps=10)
    assert cache.follow(search, 5, NEVER_MIND) is None
    cache.end_step()
    assert search.fed.tolist() == expected.fed.tolist()


def begun(decoder: NativeDecoder, steps: int) -> tuple[SlotCache, GreedyRows]:
    """A cache with rows that never end, which have made some steps and have begun another."""
    cache, search = decoder.open_cache(4), GreedyRows(4)
    for source in decoder.encode([(4, 5, 6), (7, 8), (9,), (4, 3, 7, 7)]):
        row = cache.join(source)
        search.join()
        search.search(row, Decoding(max_new_tokens=100), NO_END)
    search.fed[:] = NO_END.prefix_ids[0]
    for _ in range(steps):
        cache.begin_step(search.fed, search.ask)
        search.append(cache.end_step())
    cache.begin_step(search.fed, search.ask)
    return cache, search


def test_the_first_step_of_so_many_rows_is_run_by_onnx_runtime(exported: Exported, library: Library) -> None:
    cache, search = begun(exported.native(library), steps=0)
    assert cache.follow(search, 5, NEVER_MIND) is None
    search.append(cache.end_step())
    cache.begin_step(search.fed, search.ask)
    followed = cache.follow(search, 5, NEVER_MIND)
    assert followed is not None
    assert followed.steps == 5


def test_steps_end_for_those_who_arrive(exported: Exported, library: Library) -> None:
    cache, search = begun(exported.native(library), steps=1)
    arrivals = Arrivals()
    before = arrivals.so_far()
    arrivals.note()
    for so_far, expected in ((before, 1), (arrivals.so_far(), 4), (NEVER_MIND, 4)):
        followed = cache.follow(search, 4, so_far)
        assert followed is not None
        assert followed.steps == expected
        cache.begin_step(search.fed, search.ask)


def test_and_where_memory_does(exported: Exported, library: Library) -> None:
    """Behind it the caches lie elsewhere, and what was recorded is recorded anew."""
    decoder = exported.native(library)
    cache, search = begun(decoder, steps=1)
    alone, step_by_step = begun(decoder, steps=1)
    made, by_onnx_runtime = 0, 0
    while made < 80:
        if (followed := cache.follow(search, 80 - made, NEVER_MIND)) is None:
            search.append(cache.end_step())
            by_onnx_runtime += 1
        made += 1 if followed is None else followed.steps
        cache.begin_step(search.fed, search.ask)
    for _ in range(80):
        step_by_step.append(alone.end_step())
        alone.begin_step(step_by_step.fed, step_by_step.ask)
    assert made == 80
    assert by_onnx_runtime >= 2
    assert search.fed.tolist() == step_by_step.fed.tolist()


def test_rows_that_do_not_fit_are_refused(exported: Exported, library: Library) -> None:
    cache, _ = begun(exported.native(library), steps=1)

    class Narrow:
        def follow(self, following: Any, found: Any, most: int) -> int:
            room = np.zeros((8, 3), np.int64)
            steps = BestSteps(room, np.zeros((8, 3)), np.zeros((3, 1), np.int64))
            assert isinstance(following, Following)
            return following.best(steps.at(0), most)

    with pytest.raises(ValueError, match="4 rows, where there is room for 3"):
        cache.follow(Narrow(), 2, NEVER_MIND)
    beams = BeamRows()
    beams.search(0, Decoding(num_beams=1), NO_END)
    with pytest.raises(ValueError, match="1 searches of 1 hypotheses are not 4 rows"):
        cache.follow(beams, 2, NEVER_MIND)


def test_arrays_that_do_not_fit_each_other_are_refused() -> None:
    tokens, log_probs, special = np.zeros((4, 3), np.int64), np.zeros((4, 3)), np.zeros((3, 1), np.int64)
    with pytest.raises(ValueError, match=r"tokens are \(4, 3\), .* \(4, 3\), of 2"):
        BestSteps(tokens, log_probs, special[:2])
    with pytest.raises(ValueError, match=r"tokens are \(4, 3\), their log-probabilities \(3, 3\), of 3"):
        BestSteps(tokens, log_probs[:3], special)
    with pytest.raises(ValueError, match="together"):
        BestSteps(tokens[::2], log_probs[::2], special)


def test_a_runner_follows(exported: Exported, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of two workers, whose callers come one by one, are those of a batch."""
    sources, model, told = random_sources(PRE, 12), exported.loadable(), Told(monkeypatch, follows=True)
    with load(model, CPU, Limits(6, 2, LONGEST, 40), kernels="required") as runner:
        found = list(decode(runner, model.rules, [(source, GREEDY) for source in sources], window=5))
    expected = answered(exported.native(library), model, sources, [GREEDY], model.rules)
    tokens = [[one.token_ids for one in each.hypotheses] for each in found]
    assert tokens == [[token_ids for token_ids, *_ in answer] for answer in expected]
    assert sum(told.together) > 0
