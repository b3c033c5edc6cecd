"""Checkpoints of the Hugging Face Hub: hf:OWNER/NAME, or hf:OWNER/NAME@REVISION.

They lie in the cache of huggingface_hub and are fetched with its token (HF_HOME, HF_TOKEN, HF_ENDPOINT), once for each
commit.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from httpx2 import HTTPError
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import disable_progress_bars

from export.sources.fetched import Fetched, SourceError
from export.tell import Tell

SETTINGS = ("config.json", "generation_config.json", "tokenizer_config.json", "adapter_config.json")
SENTENCES = ("modules.json", "sentence_*_config.json", "config_sentence_transformers.json")
"""What sentence-transformers says of vectors."""
TOKENIZER = (
    *("tokenizer.json", "vocab.json", "target_vocab.json", "source.spm", "target.spm"),
    *("spiece.model", "sentencepiece.bpe.model", "merges.txt", "special_tokens_map.json", "added_tokens.json"),
    *("vocab-src.json", "vocab-tgt.json", "vocab.txt"),
)
NOTICES = ("LICENSE*", "NOTICE*", "README.md")
"""A README.md is the model's card: its first lines say which languages the model has."""
MODULE = (*SETTINGS, "sentence_*_config.json", *TOKENIZER)
"""What a module of sentence-transformers may have in a folder of its own, beside weights."""
WEIGHTY = ("Transformer", "Dense")
"""The modules that have some."""
CHECK = "check the connection, and HF_ENDPOINT if it is set"
GO_ON = "Run the command again: it goes on where it stopped"


def fetch(name: str, tell: Tell) -> Fetched:
    """Gets the files that export reads, and no others. Raises SourceError.

    Where the Hub cannot be reached, the cache serves what it has: a revision as it was when it was last fetched.
    """
    repository, _, revision = name.partition("@")
    with _explained(repository, revision):
        tell(f"{name}, settings and tokenizer")
        folder = _download(repository, revision, [*SETTINGS, *SENTENCES, *TOKENIZER, *NOTICES])
        commit = folder.name
        modules = _modules(folder, repository)
        if inner := [path for path in modules if path]:
            _download(repository, commit, [f"{path}/{file}" for path in inner for file in MODULE])
        if adapted := _is_adapter(folder, repository):
            tell(f"{repository}@{commit}, adapter")
            _download(repository, commit, ["adapter_model.safetensors", "adapter_model.bin"])
        else:
            _check_family(folder, repository)
        # In the place of an adapter's Transformer is the adapter.
        for path in (path for path, kind in modules.items() if kind in WEIGHTY and (path or not adapted)):
            _fetch_weights(folder, path, repository, tell)
        _check_hashes(folder)
    return Fetched(folder, repository.rpartition("/")[2], f"hf:{repository}@{commit}")


def _download(repository: str, revision: str, files: Sequence[str]) -> Path:
    """Returns the folder of the revision's commit, with those of the files that there are."""
    disable_progress_bars()  # export shows what it is at
    return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(files)))


def _is_adapter(folder: Path, repository: str) -> bool:
    """Raises SourceError for one that is not merged here, before its weights are fetched."""
    from models.checkpoint import CheckpointError
    from models.checkpoint.files import adapter

    if not (folder / adapter.CONFIG).exists():
        return False
    try:
        adapter.read_config(folder)
    except CheckpointError as error:
        raise SourceError(f"hf:{repository}: {error}") from error
    return True


def _modules(folder: Path, repository: str) -> dict[str, str]:
    """Path in the repository -> the module of sentence-transformers there; else the Transformer at the top alone."""
    from models.checkpoint import CheckpointError
    from models.checkpoint.sentence_transformers import read_modules

    if not (folder / "modules.json").exists():
        return {"": "Transformer"}
    try:
        return {module.path: module.name for module in read_modules(folder)}
    except CheckpointError as error:
        raise SourceError(f"hf:{repository}: {error}") from error


def _fetch_weights(folder: Path, path: str, repository: str, tell: Tell) -> None:
    """The first of the weights files that there is in a path of the repository; of an index, all its shards."""
    from models.checkpoint import CheckpointError
    from models.checkpoint.files.weights import WEIGHTS, weights_files

    commit, before = folder.name, f"{path}/" if path else ""
    for weights in WEIGHTS:
        tell(f"{repository}@{commit}, {before}{weights}")
        _download(repository, commit, [before + weights])
        if (folder / path / weights).exists():
            break
    else:
        return
    try:
        shards = [file.name for file in weights_files(folder / path / weights) if file.name != weights]
    except CheckpointError as error:
        raise SourceError(f"hf:{repository}: {error}") from error
    if shards:
        tell(f"{repository}@{commit}, {len(shards)} shards")
        _download(repository, commit, [before + shard for shard in shards])


def _check_family(folder: Path, repository: str) -> None:
    """Before the weights are fetched, which are large."""
    # It imports torch, which takes seconds: a name that there is not is told before.
    from models.checkpoint import CheckpointError, find_loader
    from models.checkpoint.encoders import is_encoder
    from models.checkpoint.files.foreign import say_what_it_is

    if not (folder / "config.json").exists() and not (folder / "modules.json").exists():
        if said := say_what_it_is(folder):
            raise SourceError(f"hf:{repository}: {said}")
        raise SourceError(
            f"hf:{repository} has no config.json, so it is no checkpoint of Hugging Face's; one of Marian NMT can be "
            f"exported from a folder (see docs/checkpoints.md)"
        )
    try:
        if not is_encoder(folder):
            find_loader(folder)
    except CheckpointError as error:
        raise SourceError(f"hf:{repository}: {error}") from error


def _check_hashes(folder: Path) -> None:
    """The cache names a file by its hash, but never looks again. Removes a file that is not what it is called."""
    for link in (link for link in folder.rglob("*") if not link.is_dir()):
        file = link.resolve()
        if not _is_named_by_hash(file):
            file.unlink()
            link.unlink()
            raise SourceError(
                f"{link} was damaged, on the way or here: its content does not have the hash {file.name} that the Hub "
                f"gives. It was removed; run the command again to fetch it again"
            )


def _is_named_by_hash(file: Path) -> bool:
    """SHA-256 of large files, git's hash of others. A name that is none (where there are no links) says nothing."""
    if re.fullmatch(r"[0-9a-f]{64}", file.name):
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == file.name
    if re.fullmatch(r"[0-9a-f]{40}", file.name):
        data = file.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest() == file.name
    return True


@contextmanager
def _explained(repository: str, revision: str) -> Iterator[None]:
    """Errors of huggingface_hub become SourceErrors."""
    try:
        yield
    except (HFValidationError, HTTPError, OSError) as error:
        # Where the cache has nothing either, huggingface_hub wraps the Hub's answer.
        cause = error.__cause__ if isinstance(error.__cause__, HfHubHTTPError) else error
        raise SourceError(f"hf:{repository}: {_explain(cause, repository, revision)}") from error


def _explain(error: BaseException, repository: str, revision: str) -> str:
    """What happened, and what to do."""
    hub, log_in = constants.ENDPOINT, "log in with `hf auth login`, or set HF_TOKEN"
    match error:
        case HFValidationError():
            return "is no name of the Hub; expected hf:OWNER/NAME or hf:OWNER/NAME@REVISION"
        case GatedRepoError():
            return f"is gated: accept its terms at {hub}/{repository}, then {log_in}"
        case RevisionNotFoundError():
            return f"there is no revision {revision!r}; the others are at {hub}/{repository}/commits/main"
        case RepositoryNotFoundError():
            return f"{hub} has no such model, or it is private: check the name, or {log_in}"
        case HfHubHTTPError():
            status = error.response.status_code
            return f"{hub} answers {status}: {log_in if status in (401, 403) else 'try again later'}"
        case LocalEntryNotFoundError() | HTTPError():
            return f"{hub} cannot be reached, and the cache lacks files of it ({_reason(error)}): {CHECK}"
        case OSError(errno=int()):  # the disk's, which says what, and not always where
            return f"{error.filename or constants.HF_HUB_CACHE}: {error.strerror}. {GO_ON}"
        case _:
            return f"{_reason(error)}. {GO_ON}"


def _reason(error: BaseException) -> str:
    return str(error).partition("\n")[0].removeprefix("Got: ") or type(error).__name__
