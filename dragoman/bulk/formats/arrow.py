"""What formats of Apache Arrow have in common. Its packages are the extra `bulk`."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from dragoman.bulk.errors import WrongUsage
from dragoman.bulk.rows import Columns, Row

BATCH_ROWS = 4096
"""That are in memory at a time."""


def needed(name: str) -> ModuleType:
    """A package of the extra. Raises WrongUsage."""
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise WrongUsage(f"{error.name} is not installed, which this format takes: pip install '.[bulk]'") from error


def check_schema(schema: Any, columns: Columns, source: object) -> None:
    """Raises WrongUsage where there is no text to translate, or no room for the translation."""
    types, shown = needed("pyarrow").types, ", ".join(schema.names)
    if schema.names.count(columns.source) != 1:
        raise WrongUsage(f"{source} has {shown}, and not one {columns.source!r}: name the column by --column")
    if columns.target in schema.names:
        raise WrongUsage(f"{source} has {shown}: name another new column by --into")
    kind = schema.field(columns.source).type
    of_values = kind.value_type if types.is_dictionary(kind) else kind
    of_texts = types.is_string, types.is_large_string, types.is_string_view, types.is_null
    if not any(is_one(of_values) for is_one in of_texts):
        raise WrongUsage(f"{source}: column {columns.source!r} has {kind}, and no texts: name another one by --column")


def rows_of(column: Any, first: int, rows: int) -> Iterator[Row]:
    """Those of an array. first: the number of the one before it. rows: of the file, that many."""
    try:
        found = [(text, "") for text in column.to_pylist()]
    except UnicodeDecodeError:
        found = list(map(_text, column))
    for number, (text, fault) in enumerate(found, first + 1):
        yield Row(text, f"row {number}", number / rows, fault)


def _text(value: Any) -> tuple[str | None, str]:
    try:
        return value.as_py(), ""
    except UnicodeDecodeError as error:
        return None, f"byte {error.start + 1} of the text is not UTF-8"
