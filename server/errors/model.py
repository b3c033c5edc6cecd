"""The server has no such model, or one that cannot do this."""

from collections.abc import Sequence

from server.errors.error import ServerError, nearest, quoted


class ModelNotFound(ServerError):
    """No model of that name. Expected."""

    status = "NOT_FOUND"
    reason = "MODEL_NOT_FOUND"

    def __init__(self, field: str, name: str, available: Sequence[str]) -> None:
        known = ", ".join(available)
        message = f"there is no model {quoted(name)}; the server has {known}{nearest(name, available)}"
        super().__init__(message, {"model": name, "available": known}, field)


class ServiceNotFound(ServerError):
    """Health is asked of a service that is not here. Expected."""

    status = "NOT_FOUND"
    reason = "SERVICE_NOT_FOUND"

    def __init__(self, name: str, available: Sequence[str]) -> None:
        known = ", ".join(f'"{service}"' for service in available)
        message = f"there is no service {quoted(name)}; the server has {known}"
        super().__init__(message, {"service": name, "available": known})


class DoesNotTranslate(ServerError):
    """The model is an encoder alone. Expected."""

    status = "FAILED_PRECONDITION"
    reason = "DOES_NOT_TRANSLATE"

    def __init__(self, model: str) -> None:
        message = f"model {quoted(model)} is an encoder alone and does not translate; ask another, or EncodingService"
        super().__init__(message, {"model": model}, "model")


class DoesNotScore(ServerError):
    """The model's package is older than scores. Expected."""

    status = "FAILED_PRECONDITION"
    reason = "DOES_NOT_SCORE"

    def __init__(self, model: str) -> None:
        message = f"the package of model {quoted(model)} has no graphs that score targets: export its checkpoint again"
        super().__init__(message, {"model": model}, "model")


class DoesNotClassify(ServerError):
    """The model has no head that gives labels. Expected."""

    status = "FAILED_PRECONDITION"
    reason = "DOES_NOT_CLASSIFY"

    def __init__(self, model: str) -> None:
        message = f"model {quoted(model)} was not trained to give labels: ask one whose Model.labels has some"
        super().__init__(message, {"model": model}, "model")


class OptionNotOffered(ServerError):
    """The package's graphs give less than an option takes. Expected."""

    status = "FAILED_PRECONDITION"
    reason = "OPTION_NOT_OFFERED"

    def __init__(self, wish: str, way: str = "or export again") -> None:
        message = f"the model's package does not give {wish}, which an option takes: leave it out, {way}"
        super().__init__(message, {"wish": wish}, "decoding")


class ExtraMissing(ServerError):
    """The server was installed without what an option takes. Expected."""

    status = "FAILED_PRECONDITION"
    reason = "EXTRA_MISSING"

    def __init__(self, option: str, package: str, extra: str) -> None:
        message = f"{option} takes {package}, which this server lacks: leave it out, or install the extra {extra!r}"
        super().__init__(message, {"option": option, "package": package, "extra": extra}, f"decoding.{option}")


class CandidateRefused(ServerError):
    """A new version of a model does not take the place of the one that is served. Expected."""

    status = "FAILED_PRECONDITION"
    reason = "CANDIDATE_REFUSED"

    def __init__(self, model: str, why: str, field: str = "name") -> None:
        message = f"the package of model {quoted(model)} is not taken up, and the one before goes on: {why}"
        super().__init__(message, {"model": model}, field)


class ReloadUnderWay(ServerError):
    """One is loaded beside at a time. Expected."""

    status = "ABORTED"
    reason = "RELOAD_UNDER_WAY"

    def __init__(self, model: str) -> None:
        message = f"the package of model {quoted(model)} is being reloaded: ask again when that is done"
        super().__init__(message, {"model": model})
