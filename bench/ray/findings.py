"""What is found, told as it comes."""


class Findings:
    """Of one run."""

    def __init__(self) -> None:
        self._wrong: list[str] = []

    def tell(self, told: str, well: bool = True) -> None:
        """A finding, which is as it must be, or not."""
        print(told if well else f"WRONG: {told}", flush=True)
        if not well:
            self._wrong.append(told)

    def end(self) -> int:
        """The exit code."""
        print(f"{len(self._wrong)} findings are wrong" if self._wrong else "nothing was wrong")
        return 1 if self._wrong else 0
