"""Who a caller is and what it may."""

from dataclasses import dataclass
from enum import StrEnum

from server.admission.quotas import Quota


class Scope(StrEnum):
    """What a caller may be let do."""

    TRANSLATE = "translate"
    ENCODE = "encode"
    MODELS = "models"
    ADMIN = "admin"


USUAL_SCOPES = frozenset(Scope) - {Scope.ADMIN}
"""Of a caller of whom nothing else is said."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller that the server knows, or who says nothing of itself and is known by its address."""

    name: str
    scopes: frozenset[Scope] = USUAL_SCOPES
    quota: Quota | None = None
    """None: the one for callers without a quota of their own."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a call says of its caller, as the face knows it that the call came by."""

    address: str
    """Of the caller, or what else is known of one without an identity."""
    authorization: str | None = None
    """The header, or the metadata, of that name."""
    certificate_names: tuple[str, ...] | None = None
    """Subject alternative names of the certificate that the caller has proved to have the key of. None: it has none."""
