"""engine.queueing.queue: each caller its share of the work, wide beams too, and nothing for those that are too late."""

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from engine.queueing.cost import CostModel, Measured, Work
from engine.queueing.express import EXPRESS_ROWS, EXPRESS_TOKENS
from engine.queueing.queue import CROWD_S, CROWD_SLOWDOWN, ENCODE_TOKENS, JOINING_TOKENS, SURE, FairQueue
from engine.request import Encode, Request, Score, Translate
from models.decoding import Decoding
from tests.engine.calling import RULES

ROWS = 16


def request(
    caller: str,
    beams: int = 1,
    tokens: int = 10,
    bulk: bool = False,
    deadline: float | None = None,
    arrived: float = 0.0,
) -> Request:
    decoding = Decoding(num_beams=beams, max_new_tokens=512)
    made = Translate((5,) * tokens, lambda event: None, decoding=decoding, rules=RULES)
    made.caller, made.bulk, made.deadline, made.arrived = caller, bulk, deadline, arrived
    return made


def scored(caller: str, given: int) -> Request:
    made = Score((5,) * 10, lambda event: None, targets=((5,) * given,), fed_ids=(5,))
    made.caller, made.arrived = caller, 0.0
    return made


def vector(caller: str, tokens: int = 10) -> Request:
    made = Encode((5,) * tokens, lambda event: None)
    made.caller, made.arrived = caller, 0.0
    return made


def queue_of(requests: Iterable[Request], workers: int = 1) -> FairQueue:
    queue = FairQueue(CostModel(workers, ROWS))
    for one in requests:
        queue.put(one)
    return queue


def joining(queue: FairQueue, free: Sequence[int]) -> list[Request]:
    """What the first worker is to admit, whose rows but these are held by others."""
    return queue.share(0, free, ROWS - free[0], 0.0).joining


def late(queue: FairQueue, now: float) -> list[Request]:
    """What cannot be answered any more at that time, by a worker without a free row."""
    return list(queue.share(0, [0], ROWS, now).late)


def served(queue: FairQueue, shares: int, free: Sequence[int] = (1,)) -> Counter[str]:
    """Whose requests come of so many shares, each of which ends before the next."""
    callers = Counter[str]()
    for _ in range(shares):
        for one in joining(queue, free):
            callers[one.caller] += 1
            queue.ended(one, 0, one.cost)
    return callers


def test_those_of_one_caller_come_in_their_order() -> None:
    requests = [request("a", tokens=tokens) for tokens in (3, 90, 5, 7)]
    assert joining(queue_of(requests), [ROWS]) == requests


def test_callers_take_turns_however_many_requests_each_has() -> None:
    queue = queue_of([request("many") for _ in range(500)] + [request("few") for _ in range(10)])
    assert served(queue, 24)["few"] >= 9


def test_shares_are_of_work_and_not_of_requests() -> None:
    queue = queue_of([request("long", tokens=100) for _ in range(50)] + [request("short") for _ in range(400)])
    callers = served(queue, 220)
    assert 6 < callers["short"] / callers["long"] < 14


def test_interactive_requests_get_four_times_what_bulk_gets() -> None:
    queue = queue_of([request("b", bulk=True) for _ in range(300)] + [request("i") for _ in range(300)])
    callers = served(queue, 200)
    assert callers["i"] / callers["b"] == pytest.approx(4, rel=0.2)


def test_a_caller_alone_never_waits_for_a_share() -> None:
    assert served(queue_of([request("a", beams=4, tokens=500) for _ in range(9)]), 9, [ROWS]) == {"a": 9}


def test_what_a_request_cost_more_than_expected_is_taken_from_its_caller() -> None:
    queue = queue_of([request("endless") for _ in range(100)] + [request("honest") for _ in range(100)])
    [first] = joining(queue, [1])
    assert first.caller == "endless"
    queue.ended(first, 0, 31 * first.cost)
    callers = served(queue, 60)
    assert callers["honest"] - callers["endless"] == pytest.approx(30, abs=10)


def test_a_wide_beam_is_not_starved_by_narrow_ones() -> None:
    queue = queue_of([request("wide", beams=ROWS)] + [request("narrow") for _ in range(100)])
    callers = served(queue, 90, [1])
    assert callers["wide"] == 0
    assert callers["narrow"] < 60  # its turn came, and the others wait for it
    assert served(queue, 1, [ROWS])["wide"] == 1


def test_beams_of_one_caller_leave_rows_to_others() -> None:
    queue = queue_of([request("beams", beams=4) for _ in range(8)])
    assert len(joining(queue, [ROWS])) == 3
    queue.put(other := request("other"))
    assert joining(queue, [4]) == [other]


def test_in_a_crowd_the_rows_of_one_caller_do_not_make_everybodys_steps_long() -> None:
    for since_s, expected in ((CROWD_S / 2, int(2 * CROWD_SLOWDOWN) - 1), (2 * CROWD_S, ROWS)):
        queue = FairQueue(CostModel(1, ROWS, Measured(fixed=0.001, each=0.001)))
        queue.put(other := request("other", arrived=0.0))
        queue.discard(other)
        for _ in range(2 * ROWS):
            queue.put(request("many", arrived=since_s))
        assert len(queue.share(0, [ROWS], 0, since_s).joining) == expected


def express_queue(workers: int = 2) -> FairQueue:
    """One caller's wide searches hold most rows of every worker, and another caller has one row of the first."""
    queue = queue_of([request("greedy", beams=8) for _ in range(workers)], workers)
    for worker in range(workers):
        assert len(queue.share(worker, [ROWS] * workers + [EXPRESS_ROWS], 0, 0.0).joining) == 1
    return queue


def test_whom_another_caller_hinders_goes_to_the_express_worker_and_nobody_else_does() -> None:
    queue, free = express_queue(), [8, 8, EXPRESS_ROWS]
    queue.put(modest := request("modest"))
    queue.put(wide := request("wide", beams=EXPRESS_ROWS + 1))
    queue.put(long := request("long", tokens=EXPRESS_TOKENS + 1))
    queue.put(more := request("greedy"))
    assert queue.may_go_express(modest) and not queue.may_go_express(wide) and not queue.may_go_express(long)
    assert not queue.may_go_express(more), "it has rows: the express worker would be woken for nothing"
    shares = [queue.share(worker, free, 8, 0.0) for worker in (0, 1, 0, 1)]
    assert all(share.express for share in shares)
    assert {one for share in shares for one in share.joining} == {wide, long, more}
    assert queue.share(2, free, 0, 0.0, tokens=0).joining == []
    assert queue.share(2, free, 0, 0.0) == ([modest], {}, False)


def test_nobody_goes_to_the_express_worker_who_has_rows_or_finds_a_worker_that_is_nobodys() -> None:
    queue = express_queue()
    assert queue.hindered("modest", [8, 8, EXPRESS_ROWS], 0.0)
    assert queue.hindered("modest", [0, 8, EXPRESS_ROWS], 0.0)
    assert not queue.hindered("greedy", [8, 8, EXPRESS_ROWS], 0.0)
    queue.restarted(1)
    assert not queue.hindered("modest", [8, ROWS, EXPRESS_ROWS], 0.0)
    assert queue.hindered("modest", [8, 0, EXPRESS_ROWS], 0.0), "it has no room"
    assert queue.share(2, [8, ROWS, EXPRESS_ROWS], 0, 0.0).joining == []


def test_among_callers_with_a_text_each_nobody_goes_to_the_express_worker() -> None:
    queue = queue_of(request(str(number)) for number in range(2 * ROWS))
    assert len(queue.share(0, [ROWS - 4, EXPRESS_ROWS], 0, 0.0).joining) == ROWS - 4
    assert not queue.may_go_express(request("one more"))
    assert queue.share(1, [4, EXPRESS_ROWS], 0, 0.0).joining == []


def test_where_the_express_worker_has_no_room_the_others_take_whoever_waits() -> None:
    queue = express_queue(1)
    queue.put(modest := request("modest"))
    assert queue.share(0, [8, EXPRESS_ROWS], 8, 0.0).joining == []
    assert queue.share(0, [8, 0], 8, 0.0) == ([modest], {}, False)
    assert not queue.hindered("modest", [7, EXPRESS_ROWS], 0.0), "it has a row there now"


def test_vectors_and_scores_of_few_tokens_go_there_few_at_a_time() -> None:
    queue, free = express_queue(1), [8, EXPRESS_ROWS]
    for number in range(EXPRESS_ROWS + 1):
        queue.put(vector(str(number)))
    queue.put(long := scored("long", EXPRESS_TOKENS - 9))
    assert queue.share(0, free, 8, 0.0).joining[-1] is long, "and one more than there are places for"
    assert len(queue.share(1, free, 0, 0.0).joining) == EXPRESS_ROWS
    queue.put(short := scored("short", EXPRESS_TOKENS - 10))
    assert queue.share(1, free, 0, 0.0).joining == [short]


def test_rows_of_the_express_worker_are_given_back_and_cost_no_share() -> None:
    queue = express_queue(1)
    for _ in range(3):
        queue.put(modest := request("modest"))
        assert queue.share(1, [8, EXPRESS_ROWS], 0, 0.0).joining == [modest]
        queue.ended(modest, 1, 100 * modest.cost)
    assert queue.ahead("modest", False, 1.0) == 1.0, "it owes nothing"


def test_who_would_be_late_there_is_told_so_by_the_express_worker() -> None:
    queue = express_queue(1)
    queue.put(urgent := request("modest", deadline=0.0195))
    share = queue.share(1, [8, EXPRESS_ROWS], 2, 0.0)
    assert (share.joining, [*share.late], share.express) == ([], [urgent], False)
    assert share.late[urgent] > 0.0195


def test_in_a_crowd_one_worker_encodes_and_rows_go_to_the_others() -> None:
    texts, vectors = [request("texts") for _ in range(2)], [vector("vectors") for _ in range(3)]
    queue = queue_of([*texts, *vectors], workers=2)
    assert queue.choosy
    assert queue.share(1, [ROWS, ROWS], 0, 0.0).joining == texts
    queue.put(more := request("texts"))
    assert queue.share(0, [ROWS, ROWS], 0, 0.0).joining == vectors
    assert not queue.choosy
    assert queue.share(0, [ROWS, ROWS], 0, 0.0).joining == [more]
    queue = queue_of([request("texts"), vector("vectors")], workers=2)
    assert len(queue.share(0, [ROWS, 0], 0, 0.0).joining) == 1, "the others have no room"


def test_vectors_join_neither_rows_nor_many_others() -> None:
    vectors = [vector("a", ENCODE_TOKENS // 2) for _ in range(3)]
    queue = queue_of([text := request("a"), *vectors])
    assert joining(queue, [ROWS]) == [text]
    assert joining(queue, [ROWS]) == vectors[:2]


def test_sources_join_up_to_a_number_of_tokens() -> None:
    queue = queue_of([request("a", tokens=JOINING_TOKENS // 4) for _ in range(9)])
    assert len(joining(queue, [ROWS])) == 4


def test_fewer_may_join_beside_rows_that_run() -> None:
    queue = queue_of([request("a", tokens=100) for _ in range(9)])
    assert len(queue.share(0, [ROWS], 0, 0.0, tokens=300).joining) == 3
    assert len(queue.share(0, [ROWS], 0, 0.0, tokens=50).joining) == 1
    assert queue.share(0, [ROWS], 0, 0.0, tokens=0).joining == []


def test_requests_that_cannot_be_answered_in_time_are_taken_out() -> None:
    queue = queue_of([first := request("a", deadline=5.0), request("a", deadline=500.0), request("a")])
    assert late(queue, 1.0) == []
    assert late(queue, 5.0) == [first]
    assert len(queue) == 2


def test_a_later_deadline_of_somebody_who_shares_the_request_counts() -> None:
    queue = queue_of([shared := request("a", deadline=5.0)])
    shared.deadline = 50.0
    assert late(queue, 6.0) == []
    assert late(queue, 51.0) == [shared]


def test_a_request_leaves_wherever_it_stands_and_only_once() -> None:
    requests = [request(caller) for caller in "abcab"]
    queue = queue_of(requests)
    assert [queue.discard(requests[3]), queue.discard(requests[3])] == [True, False]
    assert set(queue.clear()) == {*requests} - {requests[3]}
    assert len(queue) == 0
    assert joining(queue, [ROWS]) == []


def test_what_comes_before_a_new_request_is_its_own_callers_and_the_others_share() -> None:
    queue = queue_of([request("big") for _ in range(100)] + [request("small")])
    one = request("small")
    queue.put(one)
    assert queue.ahead("small", False, one.cost) == pytest.approx(6 * one.cost)
    assert queue.ahead("big", False, one.cost) == pytest.approx(103 * one.cost)
    assert queue.ahead("new", False, one.cost) == pytest.approx(3 * one.cost)


def test_vectors_take_no_row() -> None:
    queue = FairQueue(CostModel(1, ROWS))
    queue.put(vector := Encode((1, 2), lambda event: None))
    assert joining(queue, [0]) == [vector]


def test_workers_keep_equally_many_free_rows() -> None:
    queue = queue_of([request("a") for _ in range(8)], workers=2)
    assert len(joining(queue, [ROWS, ROWS])) == 4


# Deadlines and rows: a step takes 0.0011 s and 0.0001 s for each row of it, and who ends is followed by a newcomer


def in_time_with(rows: float) -> float:
    """The deadline of a request that just makes it in a batch of so many rows."""
    cost = CostModel(1, ROWS)
    return cost.service_s(Work(1, 10, 10, 1, 512), rows) / SURE


def test_nobody_joins_where_that_makes_others_late() -> None:
    queue = queue_of([request("a", deadline=in_time_with(6.5)), *(request("b") for _ in range(20))])
    assert len(joining(queue, [ROWS])) == 6


def test_who_would_be_late_among_those_that_run_is_told_so_and_holds_up_nobody() -> None:
    queue = queue_of([hasty := request("a", deadline=in_time_with(6.5)), patient := request("a")])
    share = queue.share(0, [ROWS - 6], 6, 0.0)
    assert (share.joining, [*share.late]) == ([patient], [hasty])
    assert hasty.deadline is not None and hasty.deadline < share.late[hasty] < 1.1 * hasty.deadline


def test_a_batch_without_others_takes_whatever_may_still_be_in_time() -> None:
    queue = queue_of([request("a", deadline=in_time_with(0.5))])
    assert len(joining(queue, [ROWS])) == 1


def test_a_deadline_that_is_far_away_limits_nothing() -> None:
    queue = queue_of([request("a", deadline=in_time_with(ROWS + 1)) for _ in range(ROWS + 4)])
    assert len(joining(queue, [ROWS])) == ROWS
