"""server.telemetry.guards: which translations look wrong, and which only seem to."""

import pytest

from server.telemetry.guards import GuardFlag, ends_in_loop, guard_flags

TEXT = "Where can I buy a ticket for the train?"
IDS = tuple(range(20, 30))


@pytest.mark.parametrize(
    "token_ids",
    [
        (7,) * 12,
        (1, 2, 3, *(7,) * 12),
        (1, *(4, 5) * 6),
        (*(4, 5, 6) * 4, 4),
        (9, 9, *(1, 2, 3, 4, 5, 6, 7, 8) * 4, 1, 2, 3),
    ],
)
def test_a_loop_at_the_end_is_found(token_ids: tuple[int, ...]) -> None:
    assert ends_in_loop(token_ids)


@pytest.mark.parametrize(
    "token_ids",
    [
        (),
        (7,) * 11,  # "ha ha ha"
        (*(7,) * 12, 8),  # it found its way out
        (4, 5) * 5,
        (1, 2, 3, 4, 5, 6, 7, 8) * 3,
        tuple(range(100)),
        (1, 2, 3, 4, 5, 6, 7, 8, 9) * 9,  # a sentence that is repeated
    ],
)
def test_what_is_no_loop_is_not(token_ids: tuple[int, ...]) -> None:
    assert not ends_in_loop(token_ids)


def test_a_copy_is_the_source_word_for_word() -> None:
    assert list(guard_flags(TEXT, f" {TEXT}  ", IDS)) == [GuardFlag.COPY]
    assert list(guard_flags(TEXT, TEXT.lower(), IDS)) == []


def test_a_name_may_stay_as_it_is() -> None:
    assert list(guard_flags("Lisbon", "Lisbon", (1, 2))) == []


def test_a_translation_may_look_wrong_in_two_ways() -> None:
    text = "la " * 20
    assert set(guard_flags(text, text, (5,) * 20)) == set(GuardFlag)
