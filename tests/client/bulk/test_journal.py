"""The journal, cut or damaged at any byte."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from dragoman.bulk.journal import Done, Journal

WINDOWS = st.lists(
    st.lists(st.one_of(st.none(), st.just(False), st.text(max_size=8)), min_size=1, max_size=4), max_size=4
)


@given(WINDOWS, st.data())
def test_what_is_whole_stays_and_the_rest_can_be_added_again(windows: list[list[Done]], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        journal, sizes = Journal(path), [0]
        for window in windows:
            journal.add(window)
            sizes.append(path.stat().st_size)
        journal.close()
        written = path.read_bytes()
        kept = data.draw(st.integers(0, len(written)))
        noise = data.draw(st.binary(max_size=20))
        path.write_bytes(written[:kept] + noise.replace(b"\n", b""))
        whole = max(number for number, size in enumerate(sizes) if size <= kept)

        journal = Journal(path)
        before = [done for window in windows[:whole] for done in window]
        assert [journal.rows, journal.refused, journal.ended] == [len(before), before.count(False), False]
        for window in windows[whole:]:
            journal.add(window)
        assert path.read_bytes() == written
        journal.end()
        journal.close()
        journal = Journal(path)
        assert journal.ended
        assert list(journal) == [None if done is False else done for window in windows for done in window]
        journal.close()
