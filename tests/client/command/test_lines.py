"""Reading lines and working through them in order."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.command.lines import BLOCK_BYTES, MAX_LINE_BYTES, Line, LineError, given_lines, in_order, read_lines


async def read_all(path: Path) -> list[Line]:
    return [line async for line in read_lines(str(path))]


# Reading


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.binary(max_size=4) | st.just(b"x" * BLOCK_BYTES)), st.booleans())
def test_lines_are_what_stands_between_line_ends(tmp_path: Path, contents: list[bytes], ended: bool) -> None:
    data = b"\n".join(contents) + b"\n" * ended
    expected = data.removesuffix(b"\n").split(b"\n") if data else []
    file = tmp_path / "lines"
    file.write_bytes(data)
    lines = asyncio.run(read_all(file))
    assert [line.raw for line in lines] == expected
    assert [line.number for line in lines] == list(range(1, len(expected) + 1))


@pytest.mark.parametrize("extra", [1, BLOCK_BYTES, 20 * BLOCK_BYTES])
async def test_a_line_too_long_is_refused_and_the_next_one_is_whole(tmp_path: Path, extra: int) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a" * MAX_LINE_BYTES + b"\n" + b"b" * (MAX_LINE_BYTES + extra) + b"\nnext")
    longest, too_long, following = await read_all(file)
    assert longest.text() == "a" * MAX_LINE_BYTES
    with pytest.raises(LineError, match="over 1048576 bytes; put one sentence on each line"):
        too_long.text()
    assert (following.number, following.text()) == (3, "next")


async def test_of_a_line_too_long_only_a_part_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"b" * (4 * MAX_LINE_BYTES))
    (line,) = await read_all(file)
    assert MAX_LINE_BYTES < len(line.raw) <= MAX_LINE_BYTES + BLOCK_BYTES


async def test_a_line_is_given_before_the_file_ends() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"first\nsec")
    async with aclosing(read_lines(f"/dev/fd/{reader}")) as lines:  # type: ignore[type-var]
        assert (await anext(lines)).raw == b"first"
        os.write(writer, b"ond\n")
        assert (await anext(lines)).raw == b"second"
        os.close(writer)
        with pytest.raises(StopAsyncIteration):
            await anext(lines)
    os.close(reader)


@pytest.mark.parametrize(
    ("number", "raw", "text"),
    [
        (1, b"plain", "plain"),
        (1, b"windows\r", "windows"),
        (1, "\ufeffafter a byte order mark".encode(), "after a byte order mark"),
        (2, "\ufeffnot the first line".encode(), "\ufeffnot the first line"),
        (1, "coração".encode(), "coração"),
    ],
)
def test_text_of_a_line(number: int, raw: bytes, text: str) -> None:
    assert Line(number, raw).text() == text


def test_a_line_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(LineError, match=r"byte 5 \(0xe7\) is not UTF-8"):
        Line(1, "coração".encode("latin-1")).text()


def test_a_line_of_utf_16_without_a_mark_is_refused() -> None:
    """It is UTF-8 too, and would be translated letter by letter."""
    with pytest.raises(LineError, match=r"byte 2 \(0x00\) is in no text; if the file is UTF-16, convert it to UTF-8"):
        Line(1, "Good morning.".encode("utf-16-le")).text()


# Working


async def numbers(count: int, taken: list[int]) -> AsyncIterator[int]:
    for number in range(count):
        taken.append(number)
        yield number


async def test_results_are_in_order_though_work_ends_in_any() -> None:
    later = asyncio.Event()

    async def work(number: int) -> int:
        if number == 0:
            await later.wait()
        if number == 3:
            later.set()
        return number

    assert [result async for result in in_order(numbers(10, []), work, concurrency=4)] == list(range(10))


async def test_no_more_is_read_or_begun_than_allowed() -> None:
    taken: list[int] = []
    begun: list[int] = []
    full, release = asyncio.Event(), asyncio.Event()

    async def work(number: int) -> int:
        begun.append(number)
        if len(begun) == 3:
            full.set()
        await release.wait()
        return number

    async with aclosing(in_order(numbers(100, taken), work, concurrency=3)) as results:
        first = asyncio.ensure_future(anext(results))
        await full.wait()
        for _ in range(100):  # every other task would have had its turn
            await asyncio.sleep(0)
        assert begun == [0, 1, 2]
        assert taken == [0, 1, 2, 3]
        release.set()
        assert await first == 0


async def test_a_result_is_given_before_the_next_item_is_there() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def items() -> AsyncIterator[str]:
        yield "first"
        await never

    async def work(item: str) -> str:
        return item.upper()

    async with aclosing(in_order(items(), work, concurrency=8)) as results:
        assert await anext(results) == "FIRST"


async def test_leaving_early_cancels_what_is_under_way() -> None:
    cancelled: list[int] = []
    all_began = asyncio.Barrier(3)

    async def work(number: int) -> int:
        await all_began.wait()
        try:
            if number:
                await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    async with aclosing(in_order(numbers(3, []), work, concurrency=3)) as results:
        assert await anext(results) == 0
    await asyncio.sleep(0)  # the cancelled tasks' turn
    assert cancelled == [1, 2]


async def test_an_error_of_the_source_comes_after_the_results_before_it() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1
        raise OSError("gone")

    async def work(number: int) -> int:
        return number

    results = in_order(items(), work, concurrency=2)
    assert await anext(results) == 1
    with pytest.raises(OSError, match="gone"):
        await anext(results)


async def test_given_lines_are_numbered_from_one() -> None:
    assert [line async for line in given_lines([b"a", b""])] == [Line(1, b"a"), Line(2, b"")]
