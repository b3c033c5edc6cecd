"""What a caller must be let do for each method."""

from collections.abc import Sequence

from server.identity.identity import Scope

SCOPES = {
    "dragoman.v1.TranslationService": Scope.TRANSLATE,
    "dragoman.v1.EncodingService": Scope.ENCODE,
    "dragoman.v1.ModelService": Scope.MODELS,
    "inference.GRPCInferenceService": Scope.MODELS,
}
"""By service. Of all others, such as reflection: admin."""
LATER = frozenset({"inference.GRPCInferenceService/ModelInfer", "inference.GRPCInferenceService/ModelStreamInfer"})
"""Methods whose scope depends on the model, which their requests name."""
MORE_SCOPES = {"dragoman.v1.TranslationService/TranslateAndEncode": Scope.ENCODE}
"""And for some methods."""


ADMIN_METHODS = {"dragoman.v1.ModelService/Reload"}
"""These change what is served."""


def scopes_of(method: str) -> Sequence[Scope]:
    """All that a method takes, which goes by SERVICE/METHOD."""
    if method in LATER:
        return ()
    if method in ADMIN_METHODS:
        return (Scope.ADMIN,)
    service = SCOPES.get(method.partition("/")[0], Scope.ADMIN)
    return (service, MORE_SCOPES[method]) if method in MORE_SCOPES else (service,)


def computes(method: str) -> bool:
    """Whether a method, which goes by SERVICE/METHOD, has a model compute."""
    return method in LATER or not {Scope.TRANSLATE, Scope.ENCODE}.isdisjoint(scopes_of(method))
