"""Text <-> token ids by the tokenizer.json of Hugging Face `tokenizers`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from models.config import Frozen
from models.tokenizers.tokenizer import TokenizerError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


class TokenizerJsonSpec(Frozen):
    """A tokenizer.json, and the tokens that stand around a source."""

    kind: Literal["tokenizers"] = "tokenizers"
    file: str = "tokenizer.json"
    prefix: tuple[int, ...] = ()
    """Ids before a source, such as that of [CLS]."""
    suffix: tuple[int, ...]
    """Ids after it, such as that of [SEP]. One at least."""

    @property
    def files(self) -> list[str]:
        """The files it is loaded from."""
        return [self.file]


class TokenizerJson:
    """A `Tokenizer` of one vocabulary. May be used from several threads."""

    def __init__(self, backend: "Backend", spec: TokenizerJsonSpec) -> None:
        self._backend = backend
        self._prefix, self._suffix = list(spec.prefix), list(spec.suffix)
        self.longest_piece = 1 + max(map(len, backend.get_vocab(with_added_tokens=False)))
        """Characters of the longest source piece, and a space before it."""

    @classmethod
    def load(cls, folder: Path, spec: TokenizerJsonSpec) -> "TokenizerJson":
        """Reads the file. Raises TokenizerError."""
        return cls(load_backend(folder / spec.file), spec)

    def encode(self, text: str, target_language: str = "") -> list[int]:
        """The token ids of a source, with those around it. What looks like a special token in a text is text."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return [*self._prefix, *ids, *self._suffix]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of tokens. Special ones stand for none."""
        text: str = self._backend.decode(list(token_ids), skip_special_tokens=True)
        return text

    def names_target(self, text: str) -> bool:
        """No text does."""
        return False


def load_backend(file: Path) -> "Backend":
    """A tokenizer that neither cuts nor fills up, and takes no text for a special token. Raises TokenizerError."""
    try:
        from tokenizers import Tokenizer as Backend
    except ModuleNotFoundError as error:
        raise TokenizerError(f"{file.name} needs the package tokenizers: pip install 'dragoman[tokenizers]'") from error
    try:
        backend = Backend.from_str(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TokenizerError(f"{file.name} cannot be read: {error.strerror}") from error
    except Exception as error:  # the library's own have no type of theirs
        raise TokenizerError(f"{file.name} is not a tokenizer: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True
    if not backend.get_vocab(with_added_tokens=False):
        raise TokenizerError(f"{file.name} is a tokenizer without a vocabulary")
    return backend
