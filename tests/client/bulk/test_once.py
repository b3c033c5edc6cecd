"""Equal texts are translated once, wherever they stand, and a run does not remember without an end."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from dragoman.bulk.memory import NoMemory, open_memory
from dragoman.bulk.once import ENTRY_BYTES, Once
from dragoman.bulk.windows import ROWS
from tests.client.bulk.running import REFUSED, Bulk, capitals


class Counting:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.asked, self._lock = Counter[str](), threading.Lock()

    def __call__(self, texts: list[str]) -> list[str]:
        with self._lock:
            self.asked.update(texts)
        return capitals(texts)


@pytest.mark.parametrize("with_memory", [False, True])
def test_texts_of_many_windows_are_translated_once(with_memory: bool, tmp_path: Path) -> None:
    """Six windows: the first three are under way at a time, later ones find what is done."""
    translate, lines = Counting(), [f"text {number % 1500}" for number in range(6 * ROWS)]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    with open_memory(tmp_path / "memory" if with_memory else None, ["1"], {}) as memory:
        Bulk(translate=translate, memory=memory).run(tmp_path / "a.txt", tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_text() == "".join(f"{line}\n" for line in lines).upper()
    assert translate.asked == Counter(set(lines))


def test_texts_of_several_files_are_translated_once(tmp_path: Path) -> None:
    translate = Counting()
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "in" / name).write_text("one\ntwo\n")
    Bulk(translate=translate).run(tmp_path / "in", tmp_path / "out")
    assert translate.asked == {"one": 1, "two": 1}
    assert [(tmp_path / "out" / name).read_text() for name in ("a.txt", "b.txt")] == ["ONE\nTWO\n"] * 2


def test_what_was_translated_before_the_run_ended_is_known(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def killed(texts: list[str]) -> list[str]:
        if "last" in texts:
            raise Killed
        return capitals(texts)

    translate, lines = Counting(), [*(f"text {number % 9}" for number in range(5 * ROWS)), "last", "text 3"]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(Killed):
        Bulk(translate=killed).run(tmp_path / "a.txt", tmp_path / "b.txt")
    heard = Bulk(translate=translate).run(tmp_path / "a.txt", tmp_path / "b.txt")
    assert heard.before >= ROWS
    assert translate.asked == {"last": 1}
    assert (tmp_path / "b.txt").read_text() == "".join(f"{line}\n" for line in lines).upper()


def test_a_refused_text_is_refused_in_each_window_that_has_it(tmp_path: Path) -> None:
    lines = [REFUSED if number % 500 == 7 else f"text {number}" for number in range(4 * ROWS)]
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    heard = Bulk(keep_going=True).run(tmp_path / "a.txt", tmp_path / "b.txt")
    assert len(heard.refused) == lines.count(REFUSED)


def known(once: Once, *texts: str) -> list[str]:
    """Those that need not be translated."""
    asked = once.ask(texts)
    once.answer(asked, [text.upper() for text in asked.new])
    return [text for text in texts if text not in asked.new]


def test_what_was_not_used_for_the_longest_time_is_forgotten() -> None:
    once = Once(NoMemory(), most_bytes=3 * (ENTRY_BYTES + 200))
    assert known(once, "a", "b", "c") == []
    assert known(once, "a", "d") == ["a"]
    assert known(once, "a", "c", "d") == ["a", "c", "d"]
    assert known(once, "x" * 10_000) == []
    assert known(once, "a") == []


def test_a_window_keeps_what_it_waits_for() -> None:
    """Though there is no room for anything."""
    once = Once(NoMemory(), most_bytes=0)
    first, second = once.ask(["a", "b"]), once.ask(["b", "c"])
    assert (first.new, second.new) == (["a", "b"], ["c"])
    assert once.answer(first, ["A", "B"]) == {"a": "A", "b": "B"}
    assert once.answer(second, ["C"]) == {"b": "B", "c": "C"}
