"""What only a request of this protocol can have wrong."""

from server.errors import InvalidRequest, quoted


class InvalidTensor(InvalidRequest):
    """A tensor that is not what the model's metadata say."""

    reason = "INVALID_TENSOR"

    def __init__(self, tensor: str, has: object, takes: object, way_out: str = "") -> None:
        """`tensor`: which, and what of it. `takes`: what it must be."""
        message = f"{tensor} is {has}; it must be {takes}{way_out and f': {way_out}'}"
        super().__init__(message, {"tensor": tensor, "has": has, "takes": takes}, tensor)


class InvalidParameter(InvalidRequest):
    """A parameter that nobody reads, or of another type."""

    reason = "INVALID_PARAMETER"

    def __init__(self, field: str, what: str) -> None:
        """`what`: is wrong with it, and what to send instead."""
        super().__init__(f"{field} {what}", {"parameter": field}, field)


class DecoupledModel(InvalidRequest):
    """A model that answers with several messages, asked for one."""

    reason = "DECOUPLED_MODEL"

    def __init__(self, name: str) -> None:
        message = f"model {quoted(name)} answers with several messages; ask it by ModelStreamInfer"
        super().__init__(message, {"model": name}, "model_name")
