"""What follows from the shape of one stack for its package: cache tensors, and sizes. Torch-free."""

from models.architectures.prefix.config import PrefixConfig
from models.package.declared.precision import Precision
from models.package.declared.tensors import CacheTensor


def target_tensors(config: PrefixConfig, precision: Precision) -> tuple[CacheTensor, ...]:
    """Keys and values of every layer, of the source first: a hypothesis goes on behind them."""
    return tuple(
        CacheTensor(
            past=name,
            present=f"present_{name}",
            precision=precision,
            axes=("rows", config.heads, "target", config.width // config.heads),
            owner="hypothesis",
            start=f"source_{name}",
        )
        for name in (f"self_{part}{layer}" for layer in range(config.decoder_layers) for part in "kv")
    )


def weights(config: PrefixConfig) -> tuple[int, int, int]:
    """How many weights the graphs of encoder, decoder and output layer have, about."""
    table = config.width * config.target_vocab_size
    layers = config.decoder_layers * config.width * (4 * config.width + 2 * config.ffn)
    stack = table + layers + 2 * config.width * config.max_positions
    return stack, stack, table


def encoder_numbers(config: PrefixConfig) -> int:
    """How many the encoder keeps of each token while it computes, about."""
    return 2 * config.ffn + 8 * config.width
