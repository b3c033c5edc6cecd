"""Models of Firefox: firefox:en-pt is what Mozilla's registry has now, firefox:en-pt@WHICH one of several.

WHICH is an architecture (tiny, base, base-memory) or the beginning of the model's SHA-256.
"""

import re
import shutil
from pathlib import Path

from pydantic import ValidationError

from export.sources.download import AGAIN, unpack
from export.sources.fetched import Fetched, SourceError
from export.sources.registry import HASH_LENGTH, Record, Registry, read_registry
from export.tell import Tell
from models.disk import sync
from models.package.folder import draft, sha256
from models.package.home import user_folder

PAIR = re.compile(r"[A-Za-z_]{2,10}-[A-Za-z_]{2,10}")
VERSION = re.compile(rf"[0-9a-f]{{{HASH_LENGTH},64}}")
RECORD = "record.json"
NOTICE = """\
Firefox Translations model {source}-{target} ({architecture}), by Mozilla, from
{url}
Mozilla Public License 2.0, https://www.mozilla.org/MPL/2.0/
"""


def fetch(name: str, registry: str, tell: Tell) -> Fetched:
    """Gets a model's files, unless the cache has them. Raises SourceError.

    registry: URL of the list of models
    """
    pair, _, which = name.partition("@")
    if not PAIR.fullmatch(pair):
        raise SourceError(f"firefox:{name} is no pair of languages; expected one like firefox:en-pt")
    folder = cached(pair, which)
    if folder is None:
        tell(registry)
        models = read_registry(registry)
        record = models.find(pair, which)
        folder = cached(pair, record.version) or download(models, record, pair, tell)
    record = Record.model_validate_json((folder / RECORD).read_bytes())
    source, target = (language.replace("_", "-") for language in (record.source, record.target))
    return Fetched(folder, f"firefox-{pair}", f"firefox:{pair}@{record.version}", (source,), (target,))


def cache(pair: str) -> Path:
    """Where models of a pair are kept, each in a folder named by its version."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "dragoman" / "firefox" / pair


def cached(pair: str, which: str) -> Path | None:
    """The folder of a version that is in the cache, and whole."""
    folder = cache(pair) / which[:HASH_LENGTH]
    if not VERSION.fullmatch(which) or not folder.exists():
        return None
    try:
        files = Record.model_validate_json((folder / RECORD).read_bytes()).files
        whole = all((folder / file.name).is_file() for file in files.all)
        return folder if whole and sha256(folder / files.model.name) == files.model.sha256 else None
    except (OSError, ValidationError):  # it is fetched again
        return None


def download(registry: Registry, record: Record, pair: str, tell: Tell) -> Path:
    """Puts a model into the cache, with all of its files or not at all. Returns its folder."""
    target = cache(pair) / record.version
    if target.exists():  # and is not whole
        shutil.rmtree(target)
    with draft(target) as folder:
        for file in record.files.all:
            tell(file.path)
            unpack(f"{registry.base_url}/{file.path}", folder / file.name)
        check(folder, registry, record)
        url = f"{registry.base_url}/{record.files.model.path}"
        notice = NOTICE.format(source=record.source, target=record.target, architecture=record.architecture, url=url)
        (folder / "NOTICE").write_text(notice, encoding="utf-8")
        (folder / RECORD).write_text(record.model_dump_json(by_alias=True, indent=2), encoding="utf-8")
        for path in [*folder.iterdir(), folder]:
            sync(path)
        folder.rename(target)
    return target


def check(folder: Path, registry: Registry, record: Record) -> None:
    """Raises SourceError where the model is not the one that the registry means."""
    model = record.files.model
    found = sha256(folder / model.name)
    if found != model.sha256:
        raise SourceError(
            f"{registry.base_url}/{model.path} has another SHA-256 than the registry says: {found}, expected "
            f"{model.sha256}. Nothing was kept: {AGAIN}, later if it stays so"
        )
