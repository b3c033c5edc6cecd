"""Translations by PyTorch, what 8 bits cost, and what happens where they cost too much."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from export.quantization import bits
from export.quantization.bits import large
from export.quantization.calibrate import Pair
from export.quantization.make import make_recipe
from export.quantization.model import native_model, standard_model
from export.quantization.translations import gate
from export.quantization.translations.drift import drift, equal_texts, teacher_forced
from export.quantization.translations.gate import Gate
from export.quantization.translations.translate import translate
from export.verification.reference import greedy_tokens
from models.package.manifest import GenerationDefaults
from models.transformer import Transformer
from tests.models.test_transformer import config, random_model

SOURCES = [(5, 9, 3, 0), (11, 0), (6, 6, 2, 2, 7, 8, 0), (1, 2, 3, 4, 0)]
LONGEST = 12


@pytest.fixture(scope="module", params=["attention", "ssru"])
def model(request: pytest.FixtureRequest) -> Transformer:
    return random_model(config(decoder_cell=request.param, encoder_layers=1, decoder_layers=1))


@pytest.fixture(scope="module")
def pairs(model: Transformer) -> list[Pair]:
    return list(zip(SOURCES, translate(model, SOURCES, LONGEST), strict=True))


def test_translations_are_those_of_the_teacher_forced_pass(model: Transformer, pairs: list[Pair]) -> None:
    generation = GenerationDefaults(max_new_tokens=LONGEST)
    for source, target in pairs:
        assert len(target) == LONGEST or target[-1] == model.config.end_id
        assert greedy_tokens(model, source, target, generation) == target


def test_a_recipe_passes_or_gets_more_bits(
    model: Transformer, pairs: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe(model, pairs)
    told: list[str] = []
    monkeypatch.setattr(gate, "LEAST_EQUAL", 0.0)
    monkeypatch.setattr(bits, "LARGE_SHARE", 1.0)
    same, measured = Gate(model, pairs).hold(recipe, told.append)
    assert same == recipe and {layer.activation_bits for layer in measured.layers} == {8}
    assert [layer.layer for layer in measured.layers] == list(recipe)
    assert (
        all(layer.drift > 0 for layer in measured.layers)
        and measured.drift > max(layer.drift for layer in measured.layers) / 2
    )
    monkeypatch.setattr(gate, "LEAST_EQUAL", 2.0)  # never reached
    nothing, measured = Gate(model, pairs).hold(recipe, told.append)
    assert set(nothing) == {"output"}
    assert {layer.activation_bits for layer in measured.layers if layer.layer != "output"} == {32}
    assert measured.equal <= len(pairs) and "more bits for cross_kv" in told


def test_layers_that_cost_much_more_than_others_get_more_bits() -> None:
    assert large({"a": 0.1, "b": 0.01, "c": 0.012, "output": 0.2}) == ["a"]


def test_more_bits_cost_less(model: Transformer, pairs: list[Pair]) -> None:
    recipe = make_recipe(model, pairs)
    wide = {
        name: replace(layer, activations=replace(layer.activations, bits=16 if name != "output" else 8))
        for name, layer in recipe.items()
    }
    expected = teacher_forced(model, pairs)
    drifts = [drift(teacher_forced(native_model(model, given), pairs), expected) for given in (recipe, wide)]
    assert drifts[1] < drifts[0]
    assert equal_texts(expected, pairs) == len(pairs)
    assert drift(expected, expected) == 0


def test_what_was_calibrated_on_other_text_is_seen_to_cost_more(model: Transformer, pairs: list[Pair]) -> None:
    """Text of another language, say: what is measured is always text that the model is for."""
    other = [((0,), translate(model, [(0,)], LONGEST)[0])]
    costs = []
    for calibrating in (pairs, other):
        recipe = make_recipe(model, calibrating)
        expected = teacher_forced(model, pairs)
        costs.append(drift(teacher_forced(standard_model(model, recipe), pairs), expected))
    assert costs[1] > 1.05 * costs[0]


def test_constant_scales_are_near_those_of_rows(model: Transformer, pairs: list[Pair]) -> None:
    recipe, expected = make_recipe(model, pairs), teacher_forced(model, pairs)
    spread = float(torch.cat(expected).std())
    for made in (native_model, standard_model):
        assert drift(teacher_forced(made(model, recipe), pairs), expected) < 0.2 * spread
    np.testing.assert_equal(drift([row + 3 for row in expected], expected) < 1e-5, True)
