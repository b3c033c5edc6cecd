"""What follows from a recurrent model's shape for its package: cache tensors, and sizes. Torch-free."""

from models.architectures.recurrent.config import GATES, RecurrentConfig
from models.package.declared.precision import Precision
from models.package.declared.tensors import CacheTensor

FED = "fed"
"""The state that holds the readout before, which is fed."""
KEYS, VALUES = "source_keys", "source_values"


def target_tensors(config: RecurrentConfig, precision: Precision) -> tuple[CacheTensor, ...]:
    """The states of the cells, which start with what the encoder gives, and what is fed."""

    def state(name: str, start: str | None) -> CacheTensor:
        return CacheTensor(
            past=name,
            present=f"present_{name}",
            precision=precision,
            axes=("rows", config.width),
            owner="hypothesis",
            start=start,
        )

    fed = (state(FED, None),) if config.input_feeding else ()
    return (*(state(f"state_{name}", f"first_{name}") for name in config.states), *fed)


def source_tensors(config: RecurrentConfig, precision: Precision) -> tuple[CacheTensor, ...]:
    """What attention looks at: keys and hidden states."""
    names = () if config.score == "none" else (KEYS, VALUES)
    return tuple(
        CacheTensor(
            past=name,
            present=f"present_{name}",
            precision=precision,
            axes=("rows", 1, "source", config.width),
            owner="source",
            start=name,
            last=f"last_{name}",
        )
        for name in names
    )


def weights(config: RecurrentConfig) -> tuple[int, int, int]:
    """How many weights the graphs of encoder, decoder and output layer have, about."""
    square = config.width**2
    tables = config.width * config.target_vocab_size
    encoder = 2 * config.encoder_layers * GATES[config.cell] * square + config.width * config.source_vocab_size
    decoder = 2 * config.decoder_layers * GATES[config.cell] * square + 4 * square
    return encoder, decoder + tables * (1 if config.tie_output else 2), tables


def encoder_numbers(config: RecurrentConfig) -> int:
    """How many the encoder keeps of each token while it computes, about."""
    return (GATES[config.cell] + 6) * config.width
