"""What a caller must be let do for each service."""

from server.identity.identity import Scope

SCOPES = {
    "dragoman.v1.TranslationService": Scope.TRANSLATE,
    "dragoman.v1.EncodingService": Scope.ENCODE,
    "dragoman.v1.ModelService": Scope.MODELS,
}
"""Of all others, such as reflection: admin."""
MORE_SCOPES = {"dragoman.v1.TranslationService/TranslateAndEncode": Scope.ENCODE}
"""And for some methods."""
OPEN_SERVICES = frozenset({"grpc.health.v1.Health"})
"""Load balancers and orchestrators ask without a name."""
