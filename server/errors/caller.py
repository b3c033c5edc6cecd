"""Who calls may not do this, or not so much of it."""

from collections.abc import Sequence

from server.errors.error import ServerError, quoted


class NoCredentials(ServerError):
    """The caller does not say who it is. Expected."""

    status = "UNAUTHENTICATED"
    reason = "NO_CREDENTIALS"

    def __init__(self) -> None:
        super().__init__("the call does not say who makes it; send metadata authorization: Bearer TOKEN")


class InvalidToken(ServerError):
    """A token that lets nobody in. Expected."""

    status = "UNAUTHENTICATED"
    reason = "INVALID_TOKEN"

    def __init__(self, why: str) -> None:
        super().__init__(f"the token of the call is not valid: {why}")


class CallerNotListed(ServerError):
    """A certificate that is good, of somebody who is not let in. Expected."""

    status = "PERMISSION_DENIED"
    reason = "CALLER_NOT_LISTED"

    def __init__(self, names: Sequence[str]) -> None:
        told = ", ".join(names)
        message = (
            f"the certificate is of {quoted(told)}, whom this server does not list; have the name added to its callers"
        )
        super().__init__(message, {"names": told})


class ScopeMissing(ServerError):
    """The caller is known and may not do this. Expected."""

    status = "PERMISSION_DENIED"
    reason = "SCOPE_MISSING"

    def __init__(self, caller: str, scope: str, granted: Sequence[str]) -> None:
        has = ", ".join(granted)
        message = f"the call needs scope {scope}; {quoted(caller)} has {has or 'none'}: have it added"
        super().__init__(message, {"caller": caller, "scope": scope, "granted": has})


class QuotaExceeded(ServerError):
    """The caller asks for more than it may, however much there is. Expected."""

    status = "RESOURCE_EXHAUSTED"
    reason = "QUOTA_EXCEEDED"

    def __init__(self, caller: str, quota: str, asked: float, left: float, limit: float, retry_after_s: float) -> None:
        """quota: which of its quotas, as the file of callers calls it."""
        message = (
            f"{quoted(caller)} asks for {asked:g}, and {left:.3g} are left of its {quota}, which are {limit:g}: "
            f"retry in {retry_after_s * 1000:.0f} ms"
        )
        numbers = {"asked": f"{asked:g}", "left": f"{left:.3g}", "limit": f"{limit:g}"}
        super().__init__(message, {"caller": caller, "quota": quota, **numbers}, retry_after_s=retry_after_s)
