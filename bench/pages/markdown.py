"""What every report of results has: the machine, and tables."""

import platform
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path


def machine() -> str:
    """Processor and core count."""
    cores = processors()
    return f"{cores[0]}, {len(cores)} cores, {platform.system()}, Python {platform.python_version()}"


def processors() -> list[str]:
    """The model of every core's processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return [line.split(":")[1].strip() for line in lines if line.startswith("model name")]


def file_name(text: str) -> str:
    """Lower-case words and numbers, joined by hyphens. What stands in brackets, a trade mark say, is left out."""
    return "-".join(re.findall(r"[a-z0-9.]+", re.sub(r"\(.*?\)", "", text.lower())))


def join(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def wrapped(part: str) -> str:
    """A paragraph in lines of 120 columns. Headings, tables and lists stay as they are."""
    return textwrap.fill(part, 120, break_long_words=False, break_on_hyphens=False) if part[:1].isalpha() else part


def verdict(met: bool) -> str:
    return "met" if met else "**short**"
