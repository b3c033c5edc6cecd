"""How far hidden states and log-probabilities are from the PyTorch model's, on random tokens."""

import random
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.cuda.runtime import NUMBER_TYPES
from engine.decoder import Ask, Decoder, Found, S
from engine.devices.session import CPU, Device, open_session
from engine.logits.target_graphs import TargetGraphs
from engine.native.encoder import encode
from export.tracing.variant import DTYPES
from export.verification.reference import Attention, attention, log_probs
from kernels.library import open_library
from models.architectures.architecture import Architecture
from models.architectures.prefix.model import Prefix
from models.attention.attention import compared
from models.config import ModelShape
from models.decoding import Decoding
from models.package import derived, signature
from models.package.declared.graphs import NativeGraphs
from models.package.graph_files import GraphFiles
from models.package.manifest import StepError
from models.package.shortlist import Shortlist
from models.transformer import Transformer

SEED = 7
SOURCE_LENGTHS = (9, 1, 23, 4, 14, 2, 30, 6)
"""The end token included."""
PASTS = (0, 1, 17, 60)
"""Steps that are reported, each with the largest error since the one before."""
DELAY = 2
"""In a ragged batch, each row joins so many steps after the one before."""
CANDIDATES = 8


@torch.no_grad()
def encoder_error(model: Architecture, graphs: GraphFiles, device: Device) -> float:
    """Largest difference of a hidden state, or of what cache tensors start with, in one padded batch."""
    sources = random_sources(model.config, len(SOURCE_LENGTHS))
    lengths = torch.tensor([len(source) for source in sources], dtype=torch.int32)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(source) for source in sources], batch_first=True)
    hidden, starts = model.encode_source(ids, lengths)
    expected = [hidden, *starts]
    dtype = DTYPES[graphs.spec.precision.activations]
    found = [torch.empty(tensor.shape, dtype=dtype) for tensor in expected]
    run_encoder(graphs, ids, lengths, found, device)
    errors = [(ours.float() - theirs).abs() for ours, theirs in zip(found, expected, strict=True)]
    inside = torch.arange(ids.shape[1]) < lengths.unsqueeze(1)
    # Where there is a source axis, the second of hidden states and the third of keys, padding may hold anything.
    errors = [error.transpose(1, 2)[inside] if error.dim() == 4 else error for error in errors]
    errors[0] = errors[0][inside]
    return float(np.max([error.max() for error in errors]))


@torch.no_grad()
def native_encoder_error(model: Transformer, graphs: GraphFiles, native: NativeGraphs) -> float:
    """The same of the native encoder, which gets the sources one after another."""
    sources = random_sources(model.config, len(SOURCE_LENGTHS))
    session = open_session(graphs.contents().graph(native.encoder.file), CPU, library=open_library().path)
    errors = []
    for source, found in zip(sources, encode(session, sources), strict=True):
        hidden = model.encode(torch.tensor([source]), torch.tensor([len(source)]))[0]
        expected = hidden, model.cross_kv(hidden)
        errors += [np.abs(ours - theirs.numpy()).max() for ours, theirs in zip(found, expected, strict=True)]
    return float(np.max(errors))


@torch.no_grad()
def encoded_error(model: Architecture, decoder: Decoder[S]) -> float:
    """Largest difference of a hidden state of sources that a decoder encodes together."""
    sources = random_sources(model.config, len(SOURCE_LENGTHS))
    errors = []
    for source, found in zip(sources, decoder.encode(sources), strict=True):
        expected, _ = model.encode_source(torch.tensor([source]), torch.tensor([len(source)]))
        errors.append(np.abs(found.hidden() - expected[0].numpy()).max())
    return float(np.max(errors))


@torch.no_grad()
def score_error(model: Architecture, graphs: GraphFiles, device: Device) -> float:
    """Largest difference of a target token's log-probability, of several targets of each source. Raises DeviceError."""
    given, start = TargetGraphs(graphs, device), model.config.decoder_start_id
    given.load(graphs.contents())
    whole = random_targets(model.config, len(SOURCE_LENGTHS), min(max(SOURCE_LENGTHS), model.config.max_positions))
    targets = [target[1:][:length] for target, length in zip(whole, SOURCE_LENGTHS, strict=True)]
    errors = []
    for source in random_sources(model.config, len(SOURCE_LENGTHS)):
        hidden = model.encode_source(torch.tensor([source]), torch.tensor([len(source)]))[0][0].numpy()
        for part in given.score(hidden, (start,), targets):
            for index, found in part.items():
                target = targets[index]
                expected = log_probs(model, source, [start, *target[:-1]]).numpy()
                errors.append(np.abs(found - expected[np.arange(len(target)), target]).max())
    return float(np.max(errors))


@torch.no_grad()
def attention_error(
    model: Architecture, graphs: GraphFiles, device: Device, expected: Attention | None = None
) -> float:
    """Largest difference of where a token looks, in the encoder and from a target, of one pair. Raises DeviceError.

    expected: of `random_pair`. None: as the model does
    """
    given, start = TargetGraphs(graphs, device), model.config.decoder_start_id
    given.load(graphs.contents())
    source, target = random_pair(model.config)
    hidden = model.encode_source(torch.tensor([source]), torch.tensor([len(source)]))[0][0].numpy()
    [found] = given.look(hidden, (start,), [target[1:]], Decoding(with_attention=True))
    looked = given.source_attention(source), found[0].attention, given.look_back(hidden, (start,), target[1:])
    pairs = zip(looked, expected or attention(model, source, target[:-1]), strict=True)
    both = ((ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None)
    return float(np.max([np.abs(ours - theirs.numpy()).max() for ours, theirs in both]))


@torch.no_grad()
def stack_errors(model: Prefix, graphs: GraphFiles, device: Device) -> tuple[float, float]:
    """The same of one stack, in a source and the target behind it; and of states, as the output layer multiplies them.

    Raises DeviceError.
    """
    given, (source, target) = TargetGraphs(graphs, device), random_pair(model.config)
    given.load(graphs.contents())
    found = given.read_on(source, target[1:])
    assert found is not None
    ids, lengths = torch.tensor([[*source, *target[1:]]]), torch.tensor([len(source)])
    with compared() as layers:
        states = model.read_on(ids, lengths)
    looked = torch.from_numpy(found.attention) - torch.cat([layer.weights() for layer in layers])
    ended = model.decoder_norm(torch.from_numpy(found.states)) - model.decoder_norm(states)
    return looked.abs().max().item(), ended.abs().max().item()


def run_encoder(graphs: GraphFiles, ids: Tensor, lengths: Tensor, outputs: Sequence[Tensor], device: Device) -> None:
    """Fills `outputs`. They are PyTorch's, because numpy has no bf16."""
    session = open_session(graphs.contents().graph(graphs.spec.encoder.file), device)
    binding = session.io_binding()
    for name, tensor in zip(signature.ENCODER_INPUTS, (ids, lengths), strict=True):
        binding.bind_cpu_input(name, tensor.numpy())
    element = NUMBER_TYPES[graphs.spec.precision.activations].element
    for name, tensor in zip(derived.encoder_outputs(graphs.spec), outputs, strict=True):
        binding.bind_output(name, "cpu", 0, element, tuple(tensor.shape), tensor.data_ptr())
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()


def step_errors(
    model: Architecture,
    decoder: Decoder[S],
    capacity: int,
    rows: int,
    ragged: bool,
    shortlist: Shortlist | None = None,
) -> list[StepError]:
    """Largest differences of log-probabilities while given targets are decoded from beginning to end.

    capacity: most tokens of a target
    ragged: the rows join one after the other, so that each is at a position of its own.
    shortlist: the decoder's
    """
    sources = random_sources(model.config, rows)
    targets = random_targets(model.config, rows, min(max(PASTS) + 1, capacity))
    starts = [row * DELAY if ragged else 0 for row in range(rows)]
    pairs = zip(sources, targets, strict=True)
    expected = [log_probs(model, source, target, shortlist).numpy() for source, target in pairs]
    errors, report = list[tuple[float, float]](), list[StepError]()
    for step, candidates in enumerate(decode(decoder, sources, targets, starts)):
        live = len(candidates.token_ids)
        at = [expected[row][step - starts[row]] for row in range(live)]
        errors += (
            (candidate_error(candidates, row, at[row]), logit_error(candidates, row, at[row])) for row in range(live)
        )
        if step in PASTS and live == rows:
            worst = [float(error) for error in np.max(errors, axis=0)]
            report.append(StepError(rows=rows, past=step, ragged=ragged, log_prob_error=worst[0], logit_error=worst[1]))
            errors.clear()
    return report


def decode(
    decoder: Decoder[S], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], starts: Sequence[int]
) -> Iterator[Found]:
    """Feeds the targets to the decoder, each from its start on, until the first is at its end."""
    cache = decoder.open_cache(len(sources))
    for step in range(len(targets[0])):
        while cache.live < len(sources) and starts[cache.live] <= step:
            cache.join(decoder.encode([sources[cache.live]])[0])
        cache.begin_step([targets[row][step - starts[row]] for row in range(cache.live)], Ask(CANDIDATES))
        yield cache.end_step()


def candidate_error(candidates: Found, row: int, expected: NDArray[np.float32]) -> float:
    """The larger of two differences: from each candidate's log-probability, and from the best that there are.

    expected: log-probabilities [vocabulary]
    """
    token_ids, found = candidates.token_ids[row], candidates.log_probs[row]
    if token_ids.max() >= len(expected):
        return float("inf")  # one of the ids that only fill up the vocabulary
    best = np.sort(np.partition(expected, -len(found))[-len(found) :])[::-1]
    return float(np.max(np.abs([found - expected[token_ids], found - best])))


def logit_error(candidates: Found, row: int, expected: NDArray[np.float32]) -> float:
    """The same, but for what all candidates are off alike."""
    token_ids, found = candidates.token_ids[[row]], candidates.log_probs[[row]]
    return candidate_error(Found(token_ids, found - found.max() + expected.max()), 0, expected)


def random_sources(config: ModelShape, count: int) -> list[list[int]]:
    """Sources of SOURCE_LENGTHS."""
    choose = random.Random(SEED)
    lengths = [min(length, config.max_positions) for length in SOURCE_LENGTHS[:count]]
    return [[*choose.choices(range(config.source_vocab_size), k=length - 1), config.end_id] for length in lengths]


def random_targets(config: ModelShape, count: int, length: int) -> list[list[int]]:
    """Targets of one length, after the decoder's start token."""
    choose = random.Random(SEED)
    ids = range(config.target_vocab_size)
    return [[config.decoder_start_id, *choose.choices(ids, k=length - 1)] for _ in range(count)]


def random_pair(config: ModelShape) -> tuple[list[int], list[int]]:
    """A source, and a target after the decoder's start token."""
    [source], [target] = random_sources(config, 1), random_targets(config, 1, min(24, config.max_positions))
    return source, target
