"""What a Dockerfile's instructions come to, however they are written."""

import io
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dockerfile_parse import DockerfileParser

FROM_EXPORT = "/models"
"""The one folder that an image that serves may have of a stage with torch."""
COMPILERS = "nvcc.lock.txt"
"""What a stage may install, too, which only compiles."""


@dataclass
class Stage:
    """One `FROM`, and what comes after it."""

    name: str
    parent: "Stage | None"
    """The stage it is made from, unless it is made from an image of elsewhere."""
    own: list[tuple[str, str]] = field(default_factory=list)
    """Its instructions and what they say."""

    def values(self, instruction: str) -> list[str]:
        """Of the stage and of those it is made from, the last one last."""
        above = self.parent.values(instruction) if self.parent else []
        return above + [value for name, value in self.own if name == instruction]

    def copies(self) -> Iterator[tuple[str | None, list[str]]]:
        """The stage that a COPY takes from, None for the build context, and what it takes."""
        for value in self.values("COPY"):
            words = shlex.split(value)
            flags = dict(word.removeprefix("--").partition("=")[::2] for word in words if word.startswith("--"))
            yield flags.get("from"), [word for word in words if not word.startswith("--")][:-1]


def parse(text: str) -> list[Stage]:
    """In the order of the file. The last one is the default target."""
    stages: list[Stage] = []
    for entry in DockerfileParser(fileobj=io.BytesIO(text.encode())).structure:
        instruction, value = entry["instruction"], entry["value"]
        if instruction == "FROM":
            words = [word for word in value.split() if not word.startswith("--")]
            parent = next((stage for stage in stages if stage.name == words[0]), None)
            stages.append(Stage(words[2] if len(words) == 3 else str(len(stages)), parent))
        elif instruction != "COMMENT" and stages:
            stages[-1].own.append((instruction, value))
    return stages


def argument(stage: Stage, name: str) -> str | None:
    """The default of an ARG."""
    defaults = dict(value.partition("=")[::2] for value in stage.values("ARG"))
    return defaults.get(name)


def faults(text: str, targets: dict[str, str], version: str, ports: set[str]) -> list[str]:
    """What is wrong with images that serve, in words.

    targets: the stages that are served from, and the lock file of what each serves with
    """
    stages = {stage.name: stage for stage in parse(text)}
    found = [f"no stage {name}" for name in targets if name not in stages]
    if not found and list(stages)[-1] != next(iter(targets)):
        found.append(f"the default target is {list(stages)[-1]}")
    for name, lock in targets.items():
        if name in stages:
            about = [*_process(stages[name], ports), *_content(stages[name], stages, lock)]
            if argument(stages[name], "VERSION") != version:
                about.append(f"VERSION is {argument(stages[name], 'VERSION')}, not {version}")
            found += [f"{name}: {fault}" for fault in about]
    return found


def _process(stage: Stage, ports: set[str]) -> Iterator[str]:
    """What runs, and as whom."""
    commands = {name: stage.values(name)[-1:] for name in ("ENTRYPOINT", "CMD")}
    commands["HEALTHCHECK"] = [value.partition("CMD")[2] for value in stage.values("HEALTHCHECK")[-1:]]
    for name, values in commands.items():
        if any(_words(value) is None for value in values):
            yield f"{name} needs a shell"
    for name, module in (("ENTRYPOINT", "server"), ("HEALTHCHECK", "dragoman")):
        words = [_words(value) or [] for value in commands[name]]
        if not words or words[0][:3] != ["python", "-m", module]:
            yield f"{name} is not python -m {module}"
    user = (stage.values("USER") or ["root"])[-1]
    if not all(part.isdecimal() and int(part) > 0 for part in user.split(":")):
        yield f"USER is {user}: Kubernetes' runAsNonRoot takes numbers above 0"
    if (stage.values("STOPSIGNAL") or ["SIGTERM"])[-1] not in ("SIGTERM", "SIGINT"):
        yield "STOPSIGNAL does not drain"
    if exposed := ports ^ {port for value in stage.values("EXPOSE") for port in value.split()}:
        yield f"EXPOSE and the settings differ by {sorted(exposed)}"


def _content(stage: Stage, stages: dict[str, Stage], lock: str) -> Iterator[str]:
    """What is in the image."""
    if stage.values("RUN"):
        yield "RUN leaves a layer in the image that serves"
    origins = [(stages[source], paths) for source, paths in stage.copies() if source in stages]
    for origin, paths in origins:
        unlocked = [run for run in _installs(origin) if not _locked(run, lock, COMPILERS)]
        if paths != [FROM_EXPORT] and unlocked:
            yield f"{paths} come from {origin.name}, which is not locked by hash to {lock}: {unlocked}"
    if not any(_locked(run, lock) for origin, paths in origins if paths != [FROM_EXPORT] for run in _installs(origin)):
        yield f"{lock} is not installed"


def _installs(stage: Stage) -> list[str]:
    """The commands of pip that install, each a line."""
    commands = [command.split() for run in stage.values("RUN") for command in re.split(r"&&|;|\|\|", run)]
    return [" ".join(words) for words in commands if "pip" in words and "install" in words]


def _locked(install: str, *locks: str) -> bool:
    """Whether nothing is installed but what one of these lock files has."""
    words = install.split()
    listed = [Path(word).name for word in words if word.endswith(".txt")]
    return "--require-hashes" in words and listed in [[lock] for lock in locks]


def _words(command: str) -> list[str] | None:
    """Of a command without a shell; None where there is one."""
    try:
        words = json.loads(command)
    except ValueError:
        return None
    return words if isinstance(words, list) and words and words[0] not in ("sh", "bash", "/bin/sh") else None
