"""What a caller must be let do for each service."""

from server.identity.identity import Scope

SCOPES = {
    "dragoman.v1.TranslationService": Scope.TRANSLATE,
    "dragoman.v1.EncodingService": Scope.ENCODE,
    "dragoman.v1.ModelService": Scope.MODELS,
}
"""Of all others, such as reflection: admin."""
OPEN_SERVICES = frozenset({"grpc.health.v1.Health"})
"""Load balancers and orchestrators ask without a name."""
