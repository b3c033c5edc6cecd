"""From packages of Debian and PyPI to the texts and their card."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from training import command
from training.corpus.card import card
from training.corpus.collection import collect, write
from training.corpus.held_out import DOCUMENT_WORDS, listed
from training.corpus.sources.all_sources import TextSource
from training.corpus.sources.descriptions import descriptions
from training.corpus.sources.packages import (
    Apt,
    descriptions_version,
    downloaded,
    refuse_missing,
    unpack_deb,
    unpack_wheel,
    unpacked_version,
    write_descriptions,
)
from training.corpus.sources.passages import Passage
from training.data.files import claimed, new_file


def run(sources: Sequence[TextSource], out: Path, work: Path, held_out: Path, skip_missing: bool) -> int:
    """Returns 0, 2 where the corpus cannot be built, or 130 after Ctrl-C.

    work: folder of the packages. held_out: folder of the sentences to leave out
    """

    def make(console: Console) -> None:
        excluded = list(listed(held_out))
        with claimed(work, "another --work"):
            versions = get_packages(sources, work, skip_missing, console)
            build(sources, work / "packages", out, excluded, versions, console)

    return command.run(make)


def get_packages(sources: Sequence[TextSource], work: Path, skip_missing: bool, console: Console) -> dict[str, str]:
    """Puts the files of all packages under WORK/packages. Returns their versions. Raises CorpusError."""
    root = work / "packages"
    apt = Apt(work / "apt")
    apt.update()
    names = sorted({name for source in sources for name in source.packages})
    versions = apt.versions(names)
    if not skip_missing:
        refuse_missing(names, versions)
    missing = {name: version for name, version in versions.items() if unpacked_version(root, name) != version}
    if missing:
        with console.status(f"downloading {len(missing)} packages"):
            apt.download(missing, work / "downloads")
        for name, version in track(sorted(missing.items()), "unpacking", console=console):
            file = downloaded(work / "downloads", name, version)
            unpack_deb(file, version, root)
            file.unlink()
    for wheel in sorted({wheel for source in sources for wheel in source.wheels}):
        name, _, version = wheel.partition("==")
        if unpacked_version(root, name) != version:
            unpack_wheel(wheel, work / "wheels", root)
        versions[name] = version
    write_descriptions(apt, root)
    return versions


def build(
    sources: Sequence[TextSource],
    root: Path,
    out: Path,
    excluded: Sequence[str],
    versions: dict[str, str],
    console: Console,
) -> None:
    """Reads what is unpacked under root, and writes the texts and the card.

    excluded: sentences to leave out, beside those of the held-out documents.
    versions: of each package.
    """
    passages = list(_passages(sources, root, console))
    with console.status("cleaning"):
        collection, held_out = collect(passages, excluded)
    write(collection, held_out, out)
    versions = versions | {source.name: descriptions_version(root) for source in sources if source.read is descriptions}
    with new_file(out / "README.md") as draft:
        draft.write_text(card(collection, sources, versions, len(excluded), DOCUMENT_WORDS), encoding="utf-8")
    console.print(
        f"{out} is ready: {len(collection.pairs):,} pairs, {len(collection.english):,} English and "
        f"{len(collection.portuguese):,} Portuguese sentences",
        highlight=False,
        soft_wrap=True,
    )


def _passages(sources: Sequence[TextSource], root: Path, console: Console) -> Iterator[tuple[str, Passage]]:
    for source in track(sources, "texts", console=console):
        for passage in source.read(root):
            yield source.name, passage
