"""Recurrent models: PyTorch's own recurrences, equations written out, and ways through the model that must agree."""

import math
from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from models.architectures.recurrent.cells import RecurrentCell
from models.architectures.recurrent.config import GATES, Cell, RecurrentConfig, Score
from models.architectures.recurrent.encoder import RecurrentEncoder
from models.architectures.recurrent.model import Recurrent
from tests.models.recurrent.shapes import BASE, LUONG, SHAPES, random_model, shape

CELLS: dict[Cell, tuple[Callable[..., nn.RNNBase], Callable[..., nn.RNNCellBase]]] = {
    "rnn": (nn.RNN, nn.RNNCell),
    "gru": (nn.GRU, nn.GRUCell),
    "lstm": (nn.LSTM, nn.LSTMCell),
}
FROM_PYTORCH: dict[Cell, str] = {"rnn": "h", "gru": "rzn", "lstm": "ifgo"}
OURS: dict[Cell, str] = {"rnn": "h", "gru": "zrn", "lstm": "iofg"}
"""The gates in their order."""
LENGTHS = torch.tensor([9, 5, 1])
ATOL = 2e-4
"""A tanh recurrence of large weights is chaotic: twelve steps make a hundred times as much of a rounding."""


def ordered(cell: Cell, weight: Tensor) -> Tensor:
    """PyTorch's weight or bias of all gates, in our order."""
    gates = dict(zip(FROM_PYTORCH[cell], weight.chunk(GATES[cell]), strict=True))
    return torch.cat([gates[gate] for gate in OURS[cell]])


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_is_pytorchs(cell: Cell) -> None:
    torch.manual_seed(1)
    theirs, ours = CELLS[cell][1](10, 16), RecurrentCell(cell, 10, 16)
    with torch.no_grad():
        for layer, name in ((ours.input, "ih"), (ours.hidden, "hh")):
            layer.weight.copy_(ordered(cell, theirs.get_parameter(f"weight_{name}")))
            layer.bias.copy_(ordered(cell, theirs.get_parameter(f"bias_{name}")))
        x, states = torch.randn(5, 10), [torch.randn(5, 16) for _ in range(2 if cell == "lstm" else 1)]
        expected = theirs(x, tuple(states) if cell == "lstm" else states[0])
    expected = list(expected) if cell == "lstm" else [expected]
    for found, state in zip(ours(x, states), expected, strict=True):
        torch.testing.assert_close(found, state)


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_layers_over_a_source_are_pytorchs(cell: Cell, both_ways: bool) -> None:
    torch.manual_seed(2)
    config = shape(cell=cell, bidirectional=both_ways)
    directions = 1 + both_ways
    theirs = CELLS[cell][0](24, 24 // directions, 2, batch_first=True, bidirectional=both_ways)
    ours = RecurrentEncoder(config)
    with torch.no_grad():
        for index, layer in enumerate(ours.layers):
            for direction in range(directions):
                suffix = f"l{index}{'_reverse' if direction else ''}"
                weights = {
                    part: ordered(cell, theirs.get_parameter(f"{part}_{suffix}"))
                    for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                }
                layer.get_parameter("weight_input")[direction] = weights["weight_ih"]
                layer.get_parameter("weight_hidden")[direction] = weights["weight_hh"]
                layer.get_parameter("bias")[direction] = torch.cat([weights["bias_ih"], weights["bias_hh"]])
        x = torch.randn(3, 9, 24)
        read = ours(x, LENGTHS)
        for sentence, length in enumerate(LENGTHS.tolist()):
            hidden, last = theirs(x[sentence : sentence + 1, :length])
            torch.testing.assert_close(read[-1].hidden[sentence, :length], hidden[0])
            states = last if cell == "lstm" else (last,)
            for index, each in enumerate(read):
                for found, state in zip(each.last, states, strict=True):
                    of_layer = state[directions * index : directions * (index + 1), 0].flatten()
                    torch.testing.assert_close(found[sentence], of_layer)


def written_out(model: Recurrent, score: Score, state: Tensor, hidden: Tensor, position: int) -> Tensor:
    """What a state [width] finds in the hidden states of its source [source, width], by the papers' formulas."""
    attention = model.attention
    scores = []
    for place, h in enumerate(hidden):
        match score:
            case "dot":
                scores.append(state @ h)
            case "scaled_dot":
                scores.append(state @ h / math.sqrt(len(h)))
            case "cosine":
                scores.append(attention.sharpness[0] * (state @ h) / (state.norm() * h.norm()))
            case "general":
                scores.append(state @ attention.key.weight @ h)
            case "projected":
                query = attention.query.weight @ state + attention.query.bias
                scores.append(query @ (attention.key.weight @ h) / math.sqrt(len(h)))
            case "additive":
                inner = attention.query.weight @ state + attention.query.bias + attention.key.weight @ h
                scores.append(attention.weight @ torch.tanh(inner))
            case "concat":
                joined = torch.cat([attention.query.weight, attention.key.weight], 1) @ torch.cat([state, h])
                scores.append(attention.weight @ torch.tanh(joined + attention.query.bias))
            case "location":
                scores.append(attention.places.weight[place] @ state)
    weights = torch.stack(scores).exp()
    if model.config.window is not None:
        centre = min(position, len(hidden) - 1)
        weights[: max(0, centre - model.config.window)] = 0
        weights[centre + model.config.window + 1 :] = 0
    return (weights / weights.sum()) @ hidden


@pytest.mark.parametrize(
    "score", ["dot", "scaled_dot", "cosine", "general", "projected", "additive", "concat", "location"]
)
@torch.no_grad()
def test_bahdanau_looks_with_the_state_before_and_luong_with_the_new_one(score: Score) -> None:
    """Two tokens of a target, step by step as the papers write them; and with Luong's window."""
    for luong, window in ((False, None), (True, None), (True, 1)):
        config = shape(score=score, decoder_layers=1, window=window, **(LUONG if luong else {}))
        model = random_model(config)
        source, target = torch.tensor([[5, 9, 100, 0]]), torch.tensor([[130, 17, 3]])
        hidden, (state, *_) = model.encode_source(source, torch.tensor([4]))
        state, fed = state[0], torch.zeros(24)
        cell = nn.GRUCell(48, 24)
        cell.weight_ih.copy_(gates(model.decoder[0].get_parameter("input.weight")))
        cell.weight_hh.copy_(gates(model.decoder[0].get_parameter("hidden.weight")))
        cell.bias_ih.copy_(gates(model.decoder[0].get_parameter("input.bias")))
        cell.bias_hh.copy_(gates(model.decoder[0].get_parameter("hidden.bias")))
        for position, logits in enumerate(model(source, torch.tensor([4]), target)[0]):
            word = model.target_embedding[target[0, position]]
            if luong:
                state = cell(torch.cat([word, fed]), state)
                found = written_out(model, score, state, hidden[0], position)
            else:
                found = written_out(model, score, state, hidden[0], position)
                state = cell(torch.cat([word, found]), state)
            fed = torch.tanh(model.readout(torch.cat([state, found])))
            expected = model.output_weight @ fed + model.output_bias
            torch.testing.assert_close(logits, expected[:131], atol=1e-4, rtol=1e-4)


def gates(weight: Tensor) -> Tensor:
    """Our weight of a GRU, in PyTorch's order."""
    z, r, n = weight.chunk(3)
    return torch.cat([r, z, n])


def batch(config: RecurrentConfig) -> tuple[Tensor, Tensor, Tensor]:
    source = torch.randint(1, config.source_vocab_size - 1, (3, 9))
    return source, LENGTHS, torch.randint(1, config.target_vocab_size - 1, (3, 12))


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_decode_step_agrees_with_the_teacher_forced_pass(config: RecurrentConfig) -> None:
    model = random_model(config)
    source, lengths, target = batch(config)
    forced = model(source, lengths, target)
    assert forced.std() > 0.3, "logits too flat to tell anything"
    _, starts = model.encode_source(source, lengths)
    past, cross = starts[: len(config.states)], starts[len(config.states) :]
    past += [torch.zeros(3, config.width)] if config.input_feeding else []
    rows = torch.arange(3)
    last = [tensor[rows, :, lengths - 1].flatten(1).unsqueeze(1) for tensor in cross]
    # Whatever lies behind a source in the cache.
    cross = [torch.cat([tensor, torch.full((3, 1, 7, config.width), 9.0)], 2) for tensor in cross]
    for position in range(12):
        positions = torch.full((3,), position, dtype=torch.int32)
        total = torch.tensor(position + 1)
        x, query, present = model.decode_step(
            target[:, position], positions, total, (lengths - 1).int(), lengths.max(), past, cross, last
        )
        assert (query is not None) == (config.score != "none")
        past = present[: len(past)]
        torch.testing.assert_close(
            model.logits(x)[:, : config.target_vocab_size], forced[:, position], atol=ATOL, rtol=0
        )


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
def test_padding_does_not_matter_and_gradients_reach_every_weight(config: RecurrentConfig) -> None:
    model = random_model(config)
    source, lengths, target = batch(config)
    together = model(source, lengths, target)
    alone = model(source[1:2, :5], lengths[1:2], target[1:2])
    torch.testing.assert_close(together[1:2], alone, atol=ATOL, rtol=0)
    together[:, -1].pow(3).sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_a_reversed_source_is_read_from_its_end() -> None:
    config = SHAPES["lstm, none, reversed (Sutskever)"]
    reverse, straight = random_model(config), random_model(config.model_copy(update={"reverse_source": False}))
    source = torch.tensor([[5, 9, 100, 0, 130, 130], [1, 2, 3, 4, 5, 6]])
    turned = torch.tensor([[0, 100, 9, 5, 130, 130], [6, 5, 4, 3, 2, 1]])
    lengths, target = torch.tensor([4, 6]), torch.tensor([[130, 7, 8], [130, 9, 10]])
    assert torch.equal(reverse(source, lengths, target), straight(turned, lengths, target))
    hidden, other = (model.encode_source(ids, lengths)[0] for model, ids in ((reverse, source), (straight, turned)))
    assert torch.equal(hidden[0, :4], other[0, :4].flip(0))


@torch.no_grad()
def test_with_scheduled_sampling_the_decoder_is_fed_what_it_finds_itself() -> None:
    model = random_model(shape())
    source, lengths, target = batch(model.config)
    own = target[:, :1]
    while own.shape[1] < target.shape[1]:
        own = torch.cat([own, model(source, lengths, own)[:, -1:].argmax(2)], 1)
    fed_own, fed_target = model(source, lengths, own), model(source, lengths, target)
    model.sampled = 1.0
    assert torch.equal(model(source, lengths, target), fed_target), "only while it trains"
    model.train()
    torch.testing.assert_close(model(source, lengths, target), fed_own)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"width": 25}, "width is 25; a bidirectional encoder takes an even number"),
        ({"first_state": "copied", "decoder_layers": 3}, "there are 2 encoder layers and 3 decoder layers"),
        ({"score": "none", "window": 2}, "without attention, there is nothing to limit"),
        ({"score": "none", "input_feeding": True}, "without attention, the state is the readout"),
        ({"end_id": 131}, "end_id 131 is not below the vocabulary size 131"),
        ({"cell": "sru"}, "'rnn', 'gru' or 'lstm'"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        RecurrentConfig.model_validate(BASE | changes)
