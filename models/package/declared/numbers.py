"""What the numbers of a package's weights, hidden states and cache are."""

from models.config import Frozen
from models.package.declared.precision import WHOLE, Precision


class Precisions(Frozen):
    """What the numbers of a package are."""

    weights: Precision
    activations: Precision
    """Hidden states and logits."""
    cache: Precision
    """Keys and values, or states."""

    @classmethod
    def of_all(cls, precision: Precision) -> "Precisions":
        """The same everywhere; with weights that are whole numbers, fp32."""
        rest = "fp32" if precision in WHOLE else precision
        return cls(weights=precision, activations=rest, cache=rest)

    @property
    def kinds(self) -> tuple[Precision, ...]:
        """Those there are."""
        return self.weights, self.activations, self.cache
