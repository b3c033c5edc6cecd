"""The file that says who may call: `--callers`. docs/deploy.md has an example."""

import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from server.admission.quotas import Quota
from server.config import ConfigError
from server.identity.identity import USUAL_SCOPES, Identity, Scope
from server.identity.tokens import TokenTable
from server.telemetry.metrics.caller import OTHER

MAX_BYTES = 16 * 1024 * 1024

Hash = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,256}$")]
"""Fits into a line of the log."""


class ListedCaller(BaseModel):
    """What the file says of one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: list[Hash] = []
    """Hashes. Several, so that a new token can be given out before the old one is taken away."""
    certificate: bool = False
    """A client certificate with this caller's name among its subject alternative names will do."""
    scopes: frozenset[Scope] = Field(default=USUAL_SCOPES, min_length=1)
    quota: Quota | None = None


class CallersFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    callers: dict[Name, ListedCaller] = {}


class Callers:
    """All who may call."""

    def __init__(self, listed: CallersFile) -> None:
        identities = {name: Identity(name, one.scopes, one.quota) for name, one in listed.callers.items()}
        self.names = tuple(identities)
        """In the order of the file."""
        self.by_certificate_only = tuple(name for name, one in listed.callers.items() if not one.tokens)
        """Those who have no token."""
        self._by_token = TokenTable(
            (token, identities[name]) for name, one in listed.callers.items() for token in one.tokens
        )
        self._by_certificate = {name: identities[name] for name, one in listed.callers.items() if one.certificate}

    def by_token(self, token: str) -> Identity | None:
        """Whose token it is. None: nobody's."""
        return self._by_token.owner(token)

    def by_certificate(self, names: tuple[str, ...]) -> Identity | None:
        """Whose certificate it is, by its subject alternative names. None: nobody's who is listed."""
        return next((self._by_certificate[name] for name in names if name in self._by_certificate), None)


def read_callers(file: Path) -> Callers:
    """Raises ConfigError."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(f"callers {file} has more than {MAX_BYTES} bytes, the most that are read")
        text = data.decode("utf-8-sig")  # some editors put a mark of byte order before a text
        listed = CallersFile.model_validate(tomllib.loads(text))
    except ValidationError as error:
        first = error.errors(include_input=False)[0]  # what stands there may be a token, and is not repeated
        raise ConfigError(f"callers {file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"callers {file}: {getattr(error, 'strerror', None) or error}") from error
    for name, one in listed.callers.items():
        if not (one.tokens or one.certificate):
            raise ConfigError(f"callers {file}: {name} has neither tokens nor certificate = true, and could never call")
    if OTHER in listed.callers:
        raise ConfigError(f"callers {file}: {OTHER} is what metrics call everybody else; choose another name")
    hashes = Counter(token for one in listed.callers.values() for token in one.tokens)
    if twice := next((token for token, count in hashes.items() if count > 1), None):
        raise ConfigError(f"callers {file}: {twice[:19]}... is there twice; give every caller a token of its own")
    return Callers(listed)
