"""server.telemetry.guards: which translations look wrong, and which only seem to."""

from collections.abc import Sequence

import pytest

from server.telemetry.guards import GuardFlag, Translated, ends_in_loop, guard_flags, is_of_another_script
from tests.checkpoints import flores

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


def flags(source: str, text: str, token_ids: Sequence[int], language: str = "en") -> set[GuardFlag]:
    return set(guard_flags(Translated(source, text, token_ids, len(token_ids), language=language)))


def test_a_copy_is_the_source_word_for_word() -> None:
    assert flags(TEXT, f" {TEXT}  ", IDS) == {GuardFlag.COPY}
    assert flags(TEXT, TEXT.lower(), IDS) == set()


def test_a_name_may_stay_as_it_is() -> None:
    assert flags("Lisbon", "Lisbon", (1, 2)) == set()


@pytest.mark.parametrize(
    ("source_tokens", "target_tokens", "flagged"),
    [(10, 30, False), (10, 31, True), (31, 10, True), (30, 10, False), (3, 11, False), (4, 13, True), (500, 0, True)],
)
def test_a_translation_may_be_too_long_or_too_short(source_tokens: int, target_tokens: int, flagged: bool) -> None:
    of = Translated(TEXT, "Onde?", tuple(range(target_tokens)), source_tokens)
    assert (GuardFlag.LENGTH_RATIO in guard_flags(of)) is flagged


def test_a_translation_may_be_cut() -> None:
    assert list(guard_flags(Translated(TEXT, "Onde posso", IDS, 10, cut=True))) == [GuardFlag.LENGTH_LIMIT]


@pytest.mark.parametrize(
    ("text", "language", "flagged"),
    [
        ("Где я могу купить билет?", "ru", False),
        ("Где я могу купить билет?", "pt", True),
        ("Where can I buy a ticket?", "ru", True),
        ("Where can I buy a ticket?", "pt", False),
        ("切符はどこで買えますか、教えてください", "ja", False),
        ("切符はどこで買えますか、教えてください", "zh", True),
        ("NASA e ESA", "ru", False),  # too short to say
        ("Где NASA, ESA и JAXA?", "en", False),  # 11 of 15 letters are Latin
        ("Где я могу купить билет?", "", False),
        ("Где я могу купить билет?", "sr", False),  # written in two scripts
        ("12345 67890 12345!", "ru", False),
    ],
)
def test_a_translation_may_be_in_another_script(text: str, language: str, flagged: bool) -> None:
    assert (GuardFlag.SCRIPT in flags(TEXT, text, IDS, language)) is flagged


def test_references_are_in_their_scripts() -> None:
    assert not [text for pair in flores() for text, tag in zip(pair, ("en", "pt"), strict=True)
                if is_of_another_script(text, tag)]  # fmt: skip


def test_a_translation_may_look_wrong_in_several_ways() -> None:
    text = "la " * 20
    of = Translated(text, text, (5,) * 20, 5, cut=True, language="ru")
    assert set(guard_flags(of)) == set(GuardFlag)
