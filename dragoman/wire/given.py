"""What callers give, before it goes into a message: protobuf's own errors name neither an option nor a text."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import SupportsIndex

from dragoman.channel import check_seconds

LEAST_INT32, MOST_INT32 = -(2**31), 2**31 - 1

KINDS: dict[type, tuple[Callable[[object], bool], str]] = {
    str: (lambda value: isinstance(value, str), "a str"),
    int: (lambda value: isinstance(value, SupportsIndex), "a whole number"),
    bool: (lambda value: _is_bool(value), "True or False"),
}
"""Of plain options: what protobuf takes, numbers of NumPy too, and what to call it."""


def deadline(timeout_s: float) -> float:
    """A timeout that is fit for a call. Raises ValueError for one that is not, and TypeError for what is no number."""
    check_seconds("timeout_s", timeout_s)
    return timeout_s


def listed(texts: str | Iterable[str]) -> list[str]:
    """One text, or many, as a list. Raises TypeError for what is no text, and ValueError for one that is not whole."""
    if isinstance(texts, str):
        check_whole("text", texts)
        return [texts]
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise TypeError(f"texts is {texts!r}; it must be a str, or a list of them")
    return list(checked(texts))


def checked(texts: Iterable[str], name: str = "texts") -> Iterator[str]:
    """The texts, one after the other. Raises TypeError for what is no text, ValueError for one that is not whole."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise TypeError(f"{name} is {texts!r}; it must be a list of str, or what gives them")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{index}] is {text!r}; every text must be a str")
        check_whole(f"{name}[{index}]", text)
        yield text


def check_whole(name: str, text: str) -> None:
    """Raises ValueError for a text with half a character, as JSON may have it, which is nothing in UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} has half a character at {error.start} ({text[error.start]!r}, a lone surrogate): mend it, or "
            "leave it out"
        ) from error


def check_name(kind: str, name: str | None) -> None:
    """Raises TypeError for what is no name, and ValueError for one that is not whole. None is as good as empty."""
    if not isinstance(name, str | None):
        raise TypeError(f"{kind} is {name!r}; it must be a str")
    check_whole(kind, name or "")


def check_known(options: Mapping[str, object], known: type) -> None:
    """Raises TypeError for an option that the TypedDict `known` lacks, or a plain one of another kind.

    ValueError: a text that is not whole.
    """
    if unknown := options.keys() - known.__annotations__.keys():
        raise TypeError(f"unknown option {min(unknown)!r}; known are {', '.join(known.__annotations__)}")
    for name, value in options.items():
        for kind, (fits, told) in KINDS.items():
            if known.__annotations__[name] in (kind, kind | None) and not (value is None or fits(value)):
                raise TypeError(f"{name} is {value!r}; it must be {told}")
        if isinstance(value, str):
            check_whole(name, value)


def int32(name: str, value: int | None) -> int | None:
    """The same. Raises ValueError for one that no message holds."""
    if value is not None and not LEAST_INT32 <= value <= MOST_INT32:
        raise ValueError(f"{name} is {value}; it must be from {LEAST_INT32} to {MOST_INT32}")
    return value


def _is_bool(value: object) -> bool:
    return hasattr(value, "__bool__") and not isinstance(value, float) and value in (False, True)
