"""The languages of a package, and what export tells of them where nobody has named them."""

from collections.abc import Sequence
from pathlib import Path

from export.command.arguments import Options
from export.sources import Fetched
from export.sources.card import card_languages
from models.checkpoint import Checkpoint
from models.checkpoint.files.reading import read_json
from models.languages import UNDETERMINED

Sides = tuple[Sequence[str], Sequence[str]]
"""BCP-47 tags of sources, and of targets."""


def said_languages(checkpoint: Checkpoint, fetched: Fetched, options: Options) -> Sides:
    """What the command line says, else where the checkpoint is from, else the checkpoint."""
    return (
        options.source_language or fetched.source_languages or checkpoint.source_languages,
        options.target_language or fetched.target_languages or checkpoint.target_languages,
    )


def package_languages(checkpoint: Checkpoint, fetched: Fetched, options: Options) -> Sides:
    """The same. A model that may do without has the one language of its card, else an unknown one, on both sides.

    Several of a card are none: what comes of which is up to a task, and each request would have to name two.
    """
    said = said_languages(checkpoint, fetched, options)
    if any(said) or checkpoint.needs_languages:
        return said
    card = card_languages(fetched.folder)
    only = card if len(card) == 1 else (UNDETERMINED,)
    return only, only


def advice(checkpoint: Checkpoint, fetched: Fetched, options: Options) -> list[str]:
    """Lines that say what was assumed, and what the checkpoint offers."""
    lines = []
    if not any(said_languages(checkpoint, fetched, options)):
        [named] = package_languages(checkpoint, fetched, options)[0]
        lines.append(f"languages: {named} on both sides; --source-language and --target-language name others")
    if not options.task and (prefixes := task_prefixes(fetched.folder)):
        lines.append(f"no task: config.json has --task {', --task '.join(map(repr, prefixes))}")
    return lines


def task_prefixes(folder: Path) -> list[str]:
    """What config.json says that texts begin with, task by task, as a T5's does."""
    file = folder / "config.json"
    tasks = read_json(file).get("task_specific_params") if file.exists() else None
    settings = tasks.values() if isinstance(tasks, dict) else ()
    found = (one.get("prefix") for one in settings if isinstance(one, dict))
    return [prefix for prefix in found if isinstance(prefix, str) and prefix.strip() and prefix.isprintable()]
