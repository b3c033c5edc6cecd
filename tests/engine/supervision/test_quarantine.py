"""engine.supervision.quarantine: what makes an engine fail twice is refused, and all that is like it."""

from dataclasses import replace

import pytest

from engine.errors import Quarantined
from engine.request import Encode, Request, Score, Translate, nobody
from engine.supervision.policy import Supervision
from engine.supervision.quarantine import Quarantine
from engine.supervision.supervisor import suspect
from engine.targets import TargetRules
from models.decoding import Decoding
from tests.engine.calling import RULES, Call, calls_of, serving, sources_of
from tests.engine.supervision.faults import POISON, SUPERVISED, poisoned, restarts, together


def test_what_makes_it_fail_twice_is_refused_from_then_on_and_costs_the_others_nothing() -> None:
    with serving(supervision=SUPERVISED) as service:
        poison, others = Call(POISON), calls_of(3)
        together(service, [others[0], poison, *others[1:]], poisoned)
        assert [call.target for call in others] == sources_of(others)
        assert isinstance(poison.error, Quarantined)
        assert restarts(service) == {"crash": 2}
        again = Call(POISON)
        service.submit(again)
        assert isinstance(again.error, Quarantined)
        assert restarts(service) == {"crash": 2}
        assert service.sample("dragoman_quarantined_total") == 2
        wider, other = Call(POISON, num_beams=2), Call()
        service.decoder.fault = None
        service.submit(wider, other)  # something else is asked of the source
        assert wider.target == POISON
        assert other.target == other.request.source_ids


def test_others_like_it_that_wait_are_refused_with_it_and_cost_no_restart() -> None:
    with serving(max_rows=3, supervision=Supervision(restarts=2)) as service:
        poison, other = [Call(POISON) for _ in range(12)], Call()
        service.submit(poison[0])
        service.gate.wait_until_held()
        service.submit(*poison[1:], other)
        service.decoder.fault = poisoned
        service.gate.open()
        assert all(isinstance(call.error, Quarantined) for call in poison)
        assert other.target == other.request.source_ids
        assert restarts(service) == {"crash": 2}
        assert service.waiting == 0


def test_two_of_a_kind_on_board_are_tried_once() -> None:
    with serving(supervision=Supervision(restarts=2)) as service:
        poison, other = [Call(POISON), Call(POISON)], Call()
        together(service, [*poison, other], poisoned)
        assert all(isinstance(call.error, Quarantined) for call in poison)
        assert other.target == other.request.source_ids
        assert restarts(service) == {"crash": 2}


def sampled(seed: int, rules: TargetRules = RULES) -> Request:
    return Translate(POISON, nobody, decoding=Decoding(do_sample=True, seed=seed), rules=rules)


def scored(targets: tuple[tuple[int, ...], ...], fed_ids: tuple[int, ...] = (1,)) -> Request:
    return Score(POISON, nobody, targets=targets, fed_ids=fed_ids)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (sampled(1), sampled(2), True),
        (scored(((5,),)), scored(((5,),)), True),
        (scored(((5,),)), scored(((6,),)), False),
        (scored(((5,),)), scored(((5,),), (2,)), False),
        (sampled(1), sampled(1, replace(RULES, prefix_ids=(9,))), False),
        (Encode(POISON, nobody), scored(((5,),)), False),
    ],
)
def test_what_is_refused_is_known_by_what_is_asked_of_the_engine(one: Request, other: Request, equal: bool) -> None:
    quarantine = Quarantine()
    quarantine.add(one)
    assert (other in quarantine) == equal


@pytest.mark.parametrize(
    "decoding", [Decoding(target_prefix=(5, 6)), Decoding(forced_bos_token=(5,), return_alternatives=True)]
)
def test_what_is_tried_for_one_that_was_told_tokens_is_what_it_asked(decoding: Decoding) -> None:
    quarantine, request = Quarantine(), Translate(POISON, nobody, decoding=decoding, rules=RULES, stream=True)
    request.told = request.cancelled = True
    tried = suspect(request, RuntimeError("broken"), memory=False)
    assert isinstance(tried, Translate)
    assert not (tried.told or tried.cancelled)
    assert tried.rules == request.rules
    quarantine.add(tried)
    assert request in quarantine
