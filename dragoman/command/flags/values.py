"""What the values of flags mean. ArgumentTypeError's message is shown with the flag's name."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dragoman.channel import MAX_TIMEOUT_S, TlsOptions
from dragoman.command.lines import Line, LineError


def text(value: str) -> str:
    """A text of a request: UTF-8 whatever the locale, which has decoded the command line."""
    raw = os.fsencode(value)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        told = f"byte {error.start + 1} (0x{raw[error.start]:02x}) is not UTF-8; convert the text to UTF-8 first"
        raise argparse.ArgumentTypeError(told) from error


def glossary(path: str) -> dict[str, str]:
    """What a file of terms says. Raises ArgumentTypeError for one that cannot be read."""
    pairs = [line.split("\t") for line in _lines(path) if line.strip()]
    for pair in pairs:
        if len(pair) > 2:
            raise argparse.ArgumentTypeError(f"{path} has a line of {len(pair)} columns; a term has 1 or 2: {pair[0]}")
    terms = dict[str, str]()
    for source, *rest in pairs:
        target = "".join(rest)
        if terms.setdefault(source, target) != target:
            told = f"{path} has two translations of {source!r}, {terms[source]!r} and {target!r}; leave one out"
            raise argparse.ArgumentTypeError(told)
    return terms


def _lines(path: str) -> Iterator[str]:
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be read: {error.strerror}") from error
    for number, raw in enumerate(lines, 1):
        try:
            yield Line(number, raw).text()
        except LineError as error:
            raise argparse.ArgumentTypeError(f"{path}: line {number}: {error}") from error


def bias(value: str) -> tuple[str, float]:
    """A text and what is added to its scores, TEXT=X."""
    phrase, _, bias = value.rpartition("=")
    if not phrase:
        raise argparse.ArgumentTypeError(f"{value!r} is no TEXT=X, such as 'car park=2.5'")
    return text(phrase), number(bias)


def authorities(path: str) -> TlsOptions:
    """A file of the certificates of authorities."""
    try:
        return TlsOptions(root_certificates=Path(path).read_bytes())
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from error


def one_of(values: dict[str, Any], text: str) -> Any:
    """What a word stands for."""
    if text not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(values)}")
    return values[text]


def number(text: str) -> float:
    """A number, also one that is not finite."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def seconds(text: str) -> float:
    """How long a call may take."""
    value = number(text)
    if not 0 < value <= MAX_TIMEOUT_S:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most {MAX_TIMEOUT_S:.0f} seconds")
    return value


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def int32(text: str) -> int:
    """What the API's messages can hold."""
    return _fitting(whole(text), 32)


def int64(text: str) -> int:
    """The same of larger ones."""
    return _fitting(whole(text), 64)


def _fitting(value: int, bits: int) -> int:
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise argparse.ArgumentTypeError(f"{value} does not fit {bits} bits")
    return value


def best_count(text: str) -> int:
    """So many translations of a text. How many at most, the server says."""
    if (value := int32(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1, which is the best translation alone")
    return value


def request_count(text: str) -> int:
    """So many requests at a time."""
    return _counted(whole(text), 1000)


def worker_count(text: str) -> int:
    """As many workers as an engine may have."""
    return _counted(whole(text), 1024)


def cluster(text: str) -> str:
    """Where a cluster of Ray is."""
    if not text.strip():
        raise argparse.ArgumentTypeError('is empty; give HOST:PORT, or "auto"')
    return text


def _counted(value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise argparse.ArgumentTypeError(f"{value} is not from 1 to {most}")
    return value
