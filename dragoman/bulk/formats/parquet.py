"""Apache Parquet."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from dragoman.bulk.errors import BulkError
from dragoman.bulk.formats.arrow import BATCH_ROWS, check_schema, needed, rows_of
from dragoman.bulk.rows import Columns, Row, value_of


class Parquet:
    """The file gets one more column, of texts, at its end."""

    def __init__(self, source: Path, columns: Columns) -> None:
        self._source, self._columns = source, columns

    def check(self) -> None:
        with self._open() as file:
            check_schema(file.schema_arrow, self._columns, self._source)

    def rows(self) -> Iterator[Row]:
        with self._open() as file:
            seen, all_rows = 0, file.metadata.num_rows
            for batch in self._batches(file, [self._columns.source]):
                yield from rows_of(batch.column(0), seen, all_rows)
                seen += len(batch)

    def write(self, part: Path, translations: Iterable[str | None]) -> None:
        pa, left = needed("pyarrow"), iter(translations)
        with self._open() as file:
            schema, groups = file.schema_arrow.append(pa.field(self._columns.target, pa.string())), file.metadata
            compression = groups.row_group(0).column(0).compression if groups.num_row_groups else "SNAPPY"
            schema = schema.with_metadata(file.schema_arrow.metadata)
            kind = "NONE" if compression == "UNCOMPRESSED" else compression
            with needed("pyarrow.parquet").ParquetWriter(part, schema, compression=kind) as writer:
                for batch in self._batches(file, None):
                    texts = (row.text for row in rows_of(batch.column(self._columns.source), 0, len(batch)))
                    values = list(map(value_of, texts, islice(left, len(batch))))
                    arrays = [*batch.columns, pa.array(values, pa.string())]
                    writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
        if next(left, self) is not self:
            raise ValueError("there are more translations than rows")

    def _open(self) -> Any:
        parquet = needed("pyarrow.parquet")
        try:
            return parquet.ParquetFile(self._source)
        except needed("pyarrow").ArrowException as error:
            raise BulkError(f"{self._source} is no Parquet file: {error}") from error

    def _batches(self, file: Any, columns: list[str] | None) -> Iterator[Any]:
        """Raises BulkError."""
        try:
            yield from file.iter_batches(BATCH_ROWS, columns=columns)
        except (needed("pyarrow").ArrowException, OSError) as error:
            raise BulkError(f"{self._source} cannot be read: {error}") from error
