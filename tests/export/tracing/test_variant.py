"""export.tracing.variant: weights in the package's precision, and what cannot be such a package is refused."""

import pytest
import torch

from export.tracing.variant import DTYPES, VariantError, variant
from models.package.declared.precision import Precision
from tests.models.test_transformer import config, random_model


def test_fp32_is_the_model_itself() -> None:
    model = random_model(config())
    assert variant(model, "fp32", "fused") is model


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_all_weights_are_converted_and_the_models_own_stay(precision: Precision) -> None:
    model = random_model(config(norm="pre"))
    converted = variant(model, precision, "fused")
    assert {weight.dtype for weight in converted.state_dict().values()} == {DTYPES[precision]}
    assert {weight.dtype for weight in model.state_dict().values()} == {torch.float32}
    for name, weight in converted.state_dict().items():
        torch.testing.assert_close(weight.float(), model.state_dict()[name], atol=0, rtol=1 / 128)


def test_tied_weights_stay_one() -> None:
    converted = variant(random_model(config()), "fp16", "fused")
    assert converted.output_weight is converted.target_embedding is converted.source_embedding


def test_a_weight_that_fp16_cannot_hold() -> None:
    model = random_model(config())
    with torch.no_grad():
        model.cross_kv.bias[3] = -1e5
    message = r"cross_kv.bias holds 100000; fp16 ends at 65504. Export with --precision bf16 or fp32"
    with pytest.raises(VariantError, match=message):
        variant(model, "fp16", "fused")
    assert variant(model, "bf16", "fused").get_parameter("cross_kv.bias")[3] == torch.tensor(-1e5).bfloat16()


def test_heads_that_fused_attention_does_not_take() -> None:
    model = random_model(config(width=36))
    message = r"heads have 12 numbers \(width 36, 3 heads\); fused attention takes multiples of 8.*--attention plain"
    for precision in DTYPES:
        with pytest.raises(VariantError, match=message):
            variant(model, precision, "fused")
    assert variant(model, "fp32", "plain") is model
