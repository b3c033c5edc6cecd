"""Native graphs give what the model gives, step by step, wherever their rows lie."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pytest
import torch

from export.native.graphs import native_graphs
from export.quantization.recipe import Recipe
from export.verification.reference import log_probs
from models.config import ModelConfig
from models.package import signature
from models.transformer import Transformer
from tests.export.native.emulated import emulated
from tests.export.native.recipes import recipe_of
from tests.export.native.slots import Numbers, Slots, Step
from tests.models.test_transformer import EVERY, VARIANTS, random_model

SOURCE_LENGTHS = (9, 1, 23, 4, 17)
STEPS = 20
JOINS = (0, 0, 1, 5, 9)
"""The step at which each row begins."""
SLOTS = (5, 0, 6, 2, 3)
SOURCE_SLOTS = (1, 4, 0, 6, 3)
CAPACITY = 32
BEST = 5
NORMALISER = 2e-3
"""The sum over all tokens is computed in 8 bits, but for the best tokens: so far the log-probabilities may be off."""

Opens = Callable[..., Slots]

every_model = pytest.mark.parametrize("variant", EVERY.values(), ids=list(EVERY))


def sources_of(config: ModelConfig) -> list[list[int]]:
    choose = np.random.default_rng(1)
    return [[*choose.integers(1, config.source_vocab_size - 1, n - 1).tolist(), config.end_id] for n in SOURCE_LENGTHS]


def targets_of(config: ModelConfig, rows: int) -> list[list[int]]:
    choose = np.random.default_rng(2)
    return [
        [config.decoder_start_id, *choose.integers(1, config.target_vocab_size - 1, STEPS - 1).tolist()]
        for _ in range(rows)
    ]


def error(found: Step, expected: Sequence[Numbers]) -> Numbers:
    """How far the best tokens' log-probabilities are off, and those tokens from being the best [rows, BEST].

    expected: log-probabilities [vocabulary] of each row. Tokens that are as near may change places.
    """
    ids, scores = found
    rows = np.stack(expected)
    best = -np.sort(-rows)[:, : ids.shape[1]]
    chosen = np.take_along_axis(rows, ids, axis=1)
    differences = (
        chosen - best,
        scores - scores[:, :1] - best + best[:, :1],
        (np.abs(scores - best) - NORMALISER).clip(0),
    )
    errors: Numbers = np.abs(differences).max(axis=0)
    return errors


@torch.no_grad()
def decode(model: Transformer, slots: Slots, reference: Transformer) -> Numbers:
    """Errors of rows that begin one after the other, in slots in disorder."""
    sources, targets = sources_of(model.config), targets_of(model.config, len(JOINS))
    expected = [log_probs(reference, *pair).numpy() for pair in zip(sources, targets, strict=True)]
    encoded = slots.encode(sources)
    errors = []
    for step in range(STEPS):
        rows = [row for row, joins in enumerate(JOINS) if joins <= step]
        for row in rows:
            if JOINS[row] == step:
                slots.start(SLOTS[row])
                slots.put_source(SOURCE_SLOTS[row], encoded[row])
        rows = rows[::-1] if step % 2 else rows  # which row is which does not matter: its slot says
        at = [step - JOINS[row] for row in rows]
        where, sources_at, lengths = ([given[row] for row in rows] for given in (SLOTS, SOURCE_SLOTS, SOURCE_LENGTHS))
        ids = [targets[row][position] for row, position in zip(rows, at, strict=True)]
        found = slots.step(ids, at, where, sources_at, lengths, BEST)
        errors.append(error(found, [expected[row][position] for row, position in zip(rows, at, strict=True)]))
    return np.concatenate(errors)


@every_model
def test_fp32_gives_the_tokens_of_the_model(variant: ModelConfig, open_slots: Opens) -> None:
    model = random_model(variant)
    assert decode(model, open_slots(native_graphs(model), 7, CAPACITY), model).max() < 1e-4


@every_model
@pytest.mark.parametrize(("per_row", "bits"), [(True, 8), (False, 8), (True, 16)])
def test_8_bits_are_what_the_recipe_says(
    variant: ModelConfig, per_row: bool, bits: Literal[8, 16], open_slots: Opens
) -> None:
    """But where a rounding falls otherwise. 8 bits of activations move log-probabilities by some 0.05."""
    model = random_model(variant)
    recipe = recipe_of(model, per_row, bits=bits)
    errors = decode(model, open_slots(native_graphs(model, recipe), 7, CAPACITY), emulated(model, recipe))
    assert np.median(errors) < 5e-4 and errors.max() < 0.03


def test_a_recipe_of_some_layers_leaves_the_others_as_they_are(open_slots: Opens) -> None:
    for variant, without in (("plain", "encoder."), ("recurrent", "recurrence"), ("plain", "output")):
        model = random_model(VARIANTS[variant])
        recipe = recipe_of(model, without=without)
        errors = decode(model, open_slots(native_graphs(model, recipe), 7, CAPACITY), emulated(model, recipe))
        assert np.median(errors) < 5e-4 and errors.max() < 0.03


@every_model
@torch.no_grad()
def test_beams_share_a_source_and_change_slots(variant: ModelConfig, open_slots: Opens) -> None:
    """After some steps, one beam is continued twice: a copy of its slot goes on."""
    model = random_model(variant)
    slots, beams = open_slots(native_graphs(model), 7, CAPACITY), 3
    [source] = sources_of(model.config)[:1]
    targets = targets_of(model.config, beams)
    targets[2][:8] = targets[0][:8]
    expected = [log_probs(model, source, target).numpy() for target in targets]
    [encoded] = slots.encode([source])
    slots.put_source(6, encoded)
    of_beams = [2, 5, 0]
    for slot in of_beams:
        slots.start(slot)
    for step in range(STEPS):
        if step == 8:
            slots.copy(2, 3)
            of_beams = [2, 5, 3]
        ids = [target[step] for target in targets]
        found = slots.step(ids, [step] * beams, of_beams, [6] * beams, [len(source)] * beams, BEST)
        assert error(found, [row[step] for row in expected]).max() < 1e-4


@torch.no_grad()
def test_a_row_is_the_same_bits_alone_and_among_others(open_slots: Opens) -> None:
    """Of en-pt's size in nothing, but with whole and half blocks of rows."""
    model = random_model(VARIANTS["plain"])
    for recipe in ({}, recipe_of(model), recipe_of(model, per_row=False)):
        graphs = native_graphs(model, recipe)
        found = []
        for rows in (1, 4, 13):
            slots = open_slots(graphs, 16, CAPACITY)
            lengths = [3 + row for row in range(rows)]
            sources = [sources_of(model.config)[2][:length] for length in lengths]
            for row, encoded in enumerate(slots.encode(sources)):
                slots.put_source(row, encoded)
            steps = [
                slots.step([7 + step] * rows, [step] * rows, list(range(rows)), list(range(rows)), lengths, BEST)
                for step in range(5)
            ]
            found.append(b"".join(ids[0].tobytes() + scores[0].tobytes() for ids, scores in steps))
        assert len(set(found)) == 1


@every_model
@pytest.mark.parametrize("quantized", [False, True])
@torch.no_grad()
def test_a_shortlist_is_all_there_is_to_choose_from(variant: ModelConfig, quantized: bool, open_slots: Opens) -> None:
    model = random_model(variant)
    recipe: Recipe = recipe_of(model) if quantized else {}
    reference, slots = emulated(model, recipe), open_slots(native_graphs(model, recipe, True), 4, CAPACITY)
    sources, rows = sources_of(model.config)[:3], 3
    targets = targets_of(model.config, rows)
    choose = np.random.default_rng(3)
    allowed = np.full((rows, 64), signature.NO_TOKEN, np.int32)
    expected = []
    for row, (source, target, count) in enumerate(zip(sources, targets, (BEST, 40, 64), strict=True)):
        tokens = np.sort(choose.choice(model.config.target_vocab_size, count, replace=False))
        allowed[row, :count] = tokens
        scores = np.full((STEPS, model.config.target_vocab_size), -np.inf, np.float32)
        scores[:, tokens] = log_probs(reference, source, target)[:, tokens].log_softmax(1)
        expected.append(scores)
        slots.start(row)
    for row, encoded in enumerate(slots.encode(sources)):
        slots.put_source(row, encoded)
    for step in range(STEPS):
        ids = [target[step] for target in targets]
        found = slots.step(ids, [step] * rows, [0, 1, 2], [0, 1, 2], SOURCE_LENGTHS[:rows], BEST, allowed)
        assert error(found, [row[step] for row in expected]).max() < (0.03 if quantized else 1e-4)
