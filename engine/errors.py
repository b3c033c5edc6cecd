"""What an engine cannot do. Whoever faces callers says it in words and codes of his own."""


class EngineError(Exception):
    """Expected: the engine is well, and says why a request is not answered."""


class OutOfMemory(EngineError):
    """There was no memory for a source of so many tokens, even alone."""

    def __init__(self, source_tokens: int) -> None:
        super().__init__(f"there is no memory for a source of {source_tokens} tokens")
        self.source_tokens = source_tokens


class NotFinite(EngineError):
    """The model's numbers for a request are NaN or infinite. Whoever shares its steps is not harmed."""

    def __init__(self) -> None:
        super().__init__("the model's numbers for this source are not finite")


class Late(EngineError):
    """A request has so many seconds left, and would be answered after so many more. It is not worked on any more."""

    def __init__(self, seconds: float, left: float) -> None:
        super().__init__(f"the request would be answered in {seconds:.3f} s; {left:.3f} s are left")
        self.seconds, self.left = seconds, left


class Closing(EngineError):
    """The engine is being closed."""

    def __init__(self) -> None:
        super().__init__("the engine is being closed")


class Stopped(EngineError):
    """The engine failed earlier, and takes nothing any more."""

    def __init__(self) -> None:
        super().__init__("the engine has failed, and takes no more requests")


class Hung(EngineError):
    """A turn of the engine takes far longer than turns do."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the engine has hung for {seconds:.1f} s")


class Quarantined(EngineError):
    """The engine has failed twice with this request, the second time with nothing else on board."""

    def __init__(self) -> None:
        super().__init__("the engine has failed twice with this request, and takes it no more")


class NotOffered(EngineError):
    """A search asks for what the package's graphs do not give."""

    def __init__(self, wish: str) -> None:
        super().__init__(f"the package's graphs do not give {wish}; export the checkpoint again")
        self.wish = wish


class DoesNotFit(EngineError):
    """A request that no row of the engine has room for, however long it waits."""

    def __init__(self, what: str, needed: int, most: int) -> None:
        super().__init__(f"the request needs {needed} {what}; the engine has {most}")
        self.what, self.needed, self.most = what, needed, most


class KernelsRefused(EngineError):
    """Our own operators cannot run a package, or do not say what they must. The message says which, and a way out."""
