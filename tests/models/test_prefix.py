"""One stack for source and target: its steps against the cache are its pass over whole targets."""

import pytest
import torch
from pydantic import ValidationError

from models.architectures.prefix.config import Mask, PrefixConfig
from models.architectures.prefix.model import Prefix
from models.best_tokens import NEVER

BASE: dict[str, object] = {
    "architecture": "prefix",
    "source_vocab_size": 131,
    "target_vocab_size": 131,
    "width": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "heads": 3,
    "ffn": 64,
    "max_positions": 64,
    "pad_id": 130,
    "end_id": 0,
    "decoder_start_id": 0,
}


def random_prefix(**changes: object) -> Prefix:
    """Weights large enough for targets that vary, and end."""
    torch.manual_seed(7)
    model = Prefix(PrefixConfig.model_validate(BASE | changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
        model.output_bias[model.config.target_vocab_size :] = NEVER
    return model


@pytest.mark.parametrize("source_mask", ["both", "causal"])
@torch.no_grad()
def test_decode_step_agrees_with_the_teacher_forced_pass(source_mask: Mask) -> None:
    model, lengths = random_prefix(source_mask=source_mask), torch.tensor([9, 5, 1])
    source, target = torch.randint(1, 130, (3, 9)), torch.randint(1, 130, (3, 12))
    forced = model(source, lengths, target)
    assert forced.std() > 0.3, "logits too flat to tell anything"
    target[:, 0] = source[torch.arange(3), lengths - 1]  # what is fed in place of a start token
    _, starts = model.encode_source(source, lengths)
    # Whatever lies behind a source in the cache: padding was read there, and the rest was never written.
    past = [torch.cat([start, torch.full((3, 3, 15, 16), 9.0)], 2) for start in starts]
    for step in range(12):
        positions = (lengths - 1 + step).int()
        cache = positions, positions.max() + 1, (lengths - 1).int(), lengths.max(), past
        x, query, past = model.decode_step(target[:, step], *cache, [], [])
        assert query is not None
        torch.testing.assert_close(model.logits(x)[:, :131], forced[:, step], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"heads": 5}, "width 48 is not a multiple of 5 heads"),
        ({"width": 45}, "sinusoidal positions need an even width, not 45"),
        ({"max_positions": 40_000}, "max_positions\n  Input should be less than or equal to 32768"),
        ({"encoder_layers": 3}, "both are one stack: take as many"),
    ],
)
def test_a_shape_that_no_stack_has_is_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        PrefixConfig.model_validate(BASE | changes)
