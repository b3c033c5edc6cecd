"""A dataset of Hugging Face `datasets`, as `Dataset.save_to_disk` writes it into a folder."""

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from dragoman.bulk.errors import BulkError
from dragoman.bulk.formats.arrow import BATCH_ROWS, check_schema, needed, rows_of
from dragoman.bulk.rows import Columns, Row, value_of

COLUMN = "column.arrow"
"""The new column alone, before it is one of the dataset's."""


class Dataset:
    """The dataset gets one more column, of texts."""

    def __init__(self, source: Path, columns: Columns) -> None:
        self._source, self._columns = source, columns

    def check(self) -> None:
        check_schema(self._open().features.arrow_schema, self._columns, self._source)

    def rows(self) -> Iterator[Row]:
        for first, array in self._texts():
            yield from rows_of(array, first, self._count)

    def write(self, part: Path, translations: Iterable[str | None]) -> None:
        pa, datasets, left = needed("pyarrow"), needed("datasets"), iter(translations)
        file, schema = part.with_name(COLUMN), pa.schema([(self._columns.target, pa.string())])
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for _, array in self._texts():
                texts = (row.text for row in rows_of(array, 0, len(array)))
                values = list(map(value_of, texts, islice(left, len(array))))
                writer.write_batch(pa.record_batch([pa.array(values, pa.string())], schema=schema))
        if next(left, self) is not self:
            raise ValueError("there are more translations than rows")
        source = self._open()
        if len(source):
            made = datasets.concatenate_datasets([source, datasets.Dataset.from_file(str(file))], axis=1)
        else:  # of which that would keep no column
            made = source.add_column(self._columns.target, [], feature=datasets.Value("string"))
        kept = source.format
        made.set_format(
            kept["type"], [*kept["columns"], self._columns.target], kept["output_all_columns"], **kept["format_kwargs"]
        )
        # By itself it depends on when the file of the column was written.
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        made._fingerprint = hashlib.sha256(f"{source._fingerprint} {digest}".encode()).hexdigest()[:16]
        if part.exists():
            shutil.rmtree(part)
        made.save_to_disk(str(part), num_shards=None if len(source) else 1)  # with none it could not be loaded
        file.unlink()

    def _open(self) -> Any:
        datasets = needed("datasets")
        datasets.disable_progress_bars()
        try:
            return datasets.load_from_disk(str(self._source))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, needed("pyarrow").ArrowException) as error:
            raise BulkError(f"{self._source} is no dataset that can be read: {error}") from error

    def _texts(self) -> Iterator[tuple[int, Any]]:
        """The number of the row before, and an array of texts."""
        found = self._open().select_columns([self._columns.source]).with_format("arrow")
        self._count = len(found)
        for first in range(0, self._count, BATCH_ROWS):
            yield first, found[first : first + BATCH_ROWS].column(0).combine_chunks()
