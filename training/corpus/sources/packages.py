"""Packages of Debian and PyPI, got and unpacked. Needs no root and changes nothing on the system."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from training.corpus.errors import CorpusError
from training.corpus.sources.descriptions import FOLDER, LANGUAGES
from training.data.files import new_file, new_folder

VERSION = "VERSION"
"""File in the folder of an unpacked package. No package brings one there."""
CAT_FILE = "/usr/lib/apt/apt-helper"
"""Prints what apt keeps compressed."""


@dataclass(frozen=True)
class Apt:
    """apt with lists of its own, in a folder."""

    folder: Path

    def update(self) -> None:
        """Gets the lists of packages and their descriptions, once: later runs see the same versions.

        Raises CorpusError.
        """
        if shutil.which("apt-get") is None:
            raise CorpusError("apt-get is not here; build the corpus on Debian, or in a container of it")
        if not self.updated.exists():
            for name in ("lists/partial", "cache/archives/partial"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            self.configuration.write_text(_configuration(self.folder.resolve()), encoding="utf-8")
            self.run("apt-get", "update", doing="apt cannot get its lists")
            self.updated.touch()

    @property
    def updated(self) -> Path:
        """Is there since the lists are."""
        return self.folder / "updated"

    @property
    def configuration(self) -> Path:
        return self.folder / "apt.conf"

    def versions(self, names: Iterable[str]) -> dict[str, str]:
        """Of the packages that there are."""
        stanzas = self.run("apt-cache", "show", "--no-all-versions", *names, doing=None).split("\n\n")
        fields = [dict(line.split(": ", 1) for line in stanza.split("\n") if ": " in line) for stanza in stanzas]
        return {each["Package"]: each["Version"] for each in fields if "Package" in each}

    def download(self, versions: dict[str, str], folder: Path) -> None:
        """Puts the .deb of each package into a folder. apt verifies them, and leaves alone what is there already."""
        folder.mkdir(parents=True, exist_ok=True)
        wanted = [f"{name}={version}" for name, version in sorted(versions.items())]
        self.run("apt-get", "download", *wanted, doing="apt cannot download all packages", folder=folder)

    def descriptions(self, language: str) -> str:
        """The descriptions of all packages. Raises CorpusError where the mirror has none."""
        query = (
            "apt-get",
            "indextargets",
            "--format",
            "$(FILENAME)",
            "Created-By: Translations",
            f"Language: {language}",
        )
        names = sorted(self.run(*query, doing="apt cannot name its lists").split())
        if not names:
            raise CorpusError(
                f"apt's sources have no package descriptions in {language}; add a mirror of Debian to them"
            )
        return "\n\n".join(self.run(CAT_FILE, "cat-file", name, doing=f"{name} cannot be read") for name in names)

    def run(self, *command: str, doing: str | None, folder: Path | None = None) -> str:
        """What a command prints. Raises CorpusError where it fails, unless `doing` is None."""
        # Not the variable APT_CONFIG, which the system's own settings overrule.
        program, *arguments = command
        done = subprocess.run(
            [program, "--config-file", self.configuration.resolve(), *arguments],
            cwd=folder,
            env=os.environ | {"LC_ALL": "C.UTF-8"},
            capture_output=True,
        )
        if done.returncode and doing is not None:
            raise CorpusError(f"{doing}: {_reason(done.stderr)}")
        return done.stdout.decode("utf-8", "replace")


def downloaded(folder: Path, name: str, version: str) -> Path:
    """The .deb of a package that was just downloaded. Others may lie beside it, of a run that was interrupted."""
    return next(folder.glob(f"{name}_{version.replace(':', '%3a')}_*.deb"))  # as apt writes a version


def unpack_deb(file: Path, version: str, root: Path) -> None:
    """Puts the files of NAME_*.deb under root/NAME, whole or not at all. Raises CorpusError."""
    name = file.name.partition("_")[0]
    with new_folder(root / name) as draft:
        done = subprocess.run(["dpkg-deb", "--extract", file, draft], capture_output=True)
        if done.returncode:
            raise CorpusError(f"{file} cannot be unpacked ({_reason(done.stderr)}); delete it and run again")
        (draft / VERSION).write_text(version, encoding="utf-8")


def unpack_wheel(requirement: str, downloads: Path, root: Path) -> None:
    """The same for `NAME==VERSION` of PyPI. Raises CorpusError."""
    name, _, version = requirement.partition("==")
    shutil.rmtree(downloads, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run([*pip, "--dest", downloads, requirement], capture_output=True)
    if done.returncode:
        raise CorpusError(f"{requirement} cannot be downloaded: {_reason(done.stderr)}")
    with new_folder(root / name) as draft:
        try:
            zipfile.ZipFile(next(downloads.glob("*.whl"))).extractall(draft)
        except zipfile.BadZipFile as error:
            raise CorpusError(f"{requirement} cannot be unpacked: {error}") from error
        (draft / VERSION).write_text(version, encoding="utf-8")
    shutil.rmtree(downloads)


def unpacked_version(root: Path, name: str) -> str | None:
    file = root / name / VERSION
    return file.read_text("utf-8") if file.exists() else None


def write_descriptions(apt: Apt, root: Path) -> None:
    """root/descriptions/LANGUAGE, anew where apt's lists are newer."""
    for language in LANGUAGES:
        file = root / FOLDER / language
        if not file.exists() or file.stat().st_mtime_ns < apt.updated.stat().st_mtime_ns:
            with new_file(file) as draft:
                draft.write_text(apt.descriptions(language), encoding="utf-8")


def descriptions_version(root: Path) -> str:
    """They have none: a part of their hash."""
    digest = sha256(b"".join((root / FOLDER / language).read_bytes() for language in LANGUAGES))
    return f"sha256 {digest.hexdigest()[:12]}"


def refuse_missing(names: Sequence[str], versions: dict[str, str]) -> None:
    """Raises CorpusError that names every package that apt does not know."""
    missing = [name for name in names if name not in versions]
    if missing:
        raise CorpusError(
            f"apt knows {len(versions)} of {len(names)} packages; it lacks {', '.join(missing)}. The corpus is made of "
            "Debian 12: add its main section to apt's sources, or leave their texts out with --skip-missing"
        )


def _configuration(folder: Path) -> str:
    languages = " ".join(f'"{language}";' for language in LANGUAGES)
    return f"""\
#clear Acquire::Languages;
Acquire::Languages {{ {languages} }};
Dir::State "{folder}";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "{folder}/cache";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
APT::Update::Post-Invoke-Success {{}};
"""


def _reason(stderr: bytes) -> str:
    """The first errors of a command, without its warnings."""
    lines = stderr.decode("utf-8", "replace").strip().split("\n")
    errors = [line for line in lines if not line.startswith(("W:", "N:", "WARNING"))]
    return "; ".join((errors or lines)[:3])
