"""Apache Parquet."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from dragoman.bulk.errors import BulkError, WrongUsage
from dragoman.bulk.formats.arrow import BATCH_ROWS, check_schema, needed, rows_of
from dragoman.bulk.rows import Columns, Row, value_of


class Parquet:
    """The file gets one more column, of texts, at its end."""

    def __init__(self, source: Path, columns: Columns) -> None:
        self._source, self._columns = source, columns

    def check(self) -> None:
        with self._open() as file:
            check_schema(file.schema_arrow, self._columns, self._source)
            for column in map(file.schema.column, range(len(file.schema))):
                if column.converted_type == "INTERVAL":
                    raise WrongUsage(
                        f"{self._source}: column {column.path!r} has intervals, which Arrow reads as bytes: cast it to "
                        "text or to a number first"
                    )

    def rows(self) -> Iterator[Row]:
        with self._open() as file:
            seen, all_rows = 0, file.metadata.num_rows
            for batch in self._batches(file, [self._columns.source]):
                # By name: of columns "a" and "a.b" Arrow gives for "a.b" what "a" has of that name, too.
                yield from rows_of(batch.column(self._columns.source), seen, all_rows)
                seen += len(batch)

    def write(self, part: Path, translations: Iterable[str | None]) -> None:
        pa, left = needed("pyarrow"), iter(translations)
        with self._open(self._int96_unit()) as file:
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

    def _open(self, int96_unit: str = "ns") -> Any:
        parquet = needed("pyarrow.parquet")
        try:
            return parquet.ParquetFile(self._source, coerce_int96_timestamp_unit=int96_unit)
        except (needed("pyarrow").ArrowException, OSError, UnicodeDecodeError) as error:
            raise BulkError(f"{self._source} is no Parquet file that can be read: {error}") from error

    def _int96_unit(self) -> str:
        """Of timestamps of 96 bits, such as Spark writes them, in 64 bits: what reads all of them right, at best "ns".

        Arrow reads those of other years than 1677 to 2262 as nanoseconds, but wrong.
        """
        pa = needed("pyarrow")
        with self._open("us") as file, self._open("ns") as fine:
            finer = [field for field, same in zip(fine.schema_arrow, file.schema_arrow, strict=True) if field != same]
            for batch in self._batches(file, [field.name for field in finer]) if finer else ():
                try:
                    for field in finer:
                        batch.column(field.name).cast(field.type)
                except pa.ArrowInvalid:
                    return "us"
        return "ns"

    def _batches(self, file: Any, columns: list[str] | None) -> Iterator[Any]:
        """Raises BulkError."""
        try:
            yield from file.iter_batches(BATCH_ROWS, columns=columns)
        except (needed("pyarrow").ArrowException, OSError) as error:
            raise BulkError(f"{self._source} cannot be read: {error}") from error
