"""Part `parity`: every package against PyTorch on the same device.

Log-probabilities step by step along given targets, the rows each at a position of its own; then the tokens of real
sentences, greedy and beam 4, against transformers in fp32 and, fp16, against our own fp32.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bench.gpu import sources
from bench.gpu.plan import PRECISIONS, Findings, Plan, Precision, search_name
from bench.gpu.sides.huggingface import HuggingFace
from bench.gpu.sides.ours import Ours
from engine.decoder import Found
from export.verification.compare_numbers import CANDIDATES, candidate_error, decode, random_targets
from export.verification.tolerances import TOLERANCES
from models.architectures.architecture import Architecture
from models.checkpoint import load_checkpoint
from models.package.folder import Package

ROWS = 8
DELAY = 2
"""Each row joins so many steps after the one before."""
BEAMS = (1, 4)
ENGINE_ROWS = 64

Tokens = tuple[int, ...]
LogProbs = list[NDArray[np.float32]]
"""Of each row [steps, vocabulary]."""


@dataclass(frozen=True)
class Reference:
    """What PyTorch in fp32 says of a model."""

    given: Sequence[Tokens]
    """The sources."""
    targets: Sequence[Sequence[int]]
    log_probs: LogProbs
    fp16_error: float
    """Of PyTorch's own fp16: what the precision costs, whoever computes."""


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields, for each model and precision, how far log-probabilities and tokens are from the reference's.

    Raises RuntimeError in the end, where a package did not run or log-probabilities are off by more than is accepted.
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    problems = list[str]()
    for model in plan.models:
        reference = make_reference(plan, model)
        found: dict[tuple[Precision, int], list[Tokens]] = {}
        for precision in PRECISIONS:
            name = f"{model} {precision}, log-probabilities"
            try:
                numbers = compare_numbers(plan, model, precision, reference)
                yield name, numbers
                if not numbers["error"] <= numbers["accepted"]:
                    problems.append(f"{name}: off by {numbers['error']:.3g}, more than {numbers['accepted']:.3g}")
                found |= translate(plan, model, precision)
            except Exception as error:  # the other precision may do better
                problems.append(f"{model} {precision}: {type(error).__name__}: {error}")
        yield from compare_tokens(plan, model, found)
    if problems:
        raise RuntimeError("; ".join(problems))


def make_reference(plan: Plan, model: str) -> Reference:
    """Runs PyTorch on the device."""
    steps = plan.sizes.steps
    checkpoint = load_checkpoint(plan.checkpoint(model))
    given = sources.real(Package.open(plan.package(model, "fp16")), ROWS, steps)
    targets = random_targets(checkpoint.config, len(given), steps)
    transformer = checkpoint.model.to(plan.torch_device)
    expected = log_probs(transformer, given, targets)
    half = [best_candidates(rows) for rows in log_probs(transformer.half(), given, targets)]
    errors = [candidate_error(half[row], step, expected[row][step]) for row in range(ROWS) for step in range(steps)]
    return Reference(given, targets, expected, float(np.max(errors)))


@torch.no_grad()
def log_probs(model: Architecture, given: Sequence[Tokens], targets: Sequence[Sequence[int]]) -> LogProbs:
    """Of every token after each target token, by the teacher-forced pass: one source at a time, without padding."""
    device, rows = model.target_embedding.device, list[NDArray[np.float32]]()
    for source, target in zip(given, targets, strict=True):
        ids, lengths, inputs = (torch.tensor(values, device=device) for values in ([source], [len(source)], [target]))
        rows.append(model(ids, lengths, inputs)[0].float().log_softmax(dim=1).cpu().numpy())
    return rows


def compare_numbers(plan: Plan, model: str, precision: Precision, reference: Reference) -> Findings:
    """The largest error of a candidate's log-probability at each step, and how often the best token is the same."""
    ours = Ours(plan, model, precision, plan.sizes.steps)
    starts = [row * DELAY for row in range(len(reference.given))]
    errors, equal = list[float](), list[bool]()
    for step, candidates in enumerate(decode(ours.decoder, reference.given, reference.targets, starts)):
        rows = range(len(candidates.token_ids))
        expected = [reference.log_probs[row][step - starts[row]] for row in rows]
        errors.append(float(np.max([candidate_error(candidates, row, expected[row]) for row in rows])))
        equal += [bool(candidates.token_ids[row, 0] == expected[row].argmax()) for row in rows]
    accepted = TOLERANCES[precision].error
    return {
        "error": float(np.max(errors)),
        "accepted": accepted if precision == "fp32" else max(accepted, 2 * reference.fp16_error),
        "pytorch_fp16_error": reference.fp16_error,
        "best_token_equal": sum(equal) / len(equal),
        "error_by_step": errors,
    }


def best_candidates(log_probs: NDArray[np.float32]) -> Found:
    """The best tokens of every row, best first.

    log_probs: [rows, vocabulary]
    """
    ids = np.argsort(-log_probs, axis=1)[:, :CANDIDATES].astype(np.int64)
    return Found(ids, np.take_along_axis(log_probs, ids, axis=1))


def real_sources(plan: Plan, model: str) -> tuple[list[Tokens], int]:
    """Sentences, and the most tokens of a target. With random weights these never end: fewer of fewer will do."""
    sizes = plan.sizes
    count, longest = (sizes.sentences, sizes.sentence_tokens) if model == "zoo" else (ROWS, sizes.target_tokens)
    return sources.real(Package.open(plan.package(model, "fp16")), count, longest), longest


def translate(plan: Plan, model: str, precision: Precision) -> dict[tuple[Precision, int], list[Tokens]]:
    """Our targets of real sentences, by precision and number of beams."""
    given, longest = real_sources(plan, model)
    with Ours(plan, model, precision, longest).engine(ENGINE_ROWS) as engine:
        return {(precision, num_beams): engine.targets(given, num_beams, longest) for num_beams in BEAMS}


def compare_tokens(
    plan: Plan, model: str, found: Mapping[tuple[Precision, int], Sequence[Tokens]]
) -> Iterator[tuple[str, Findings]]:
    """fp16 against our fp32, and both against transformers in fp32."""
    for (precision, num_beams), targets in found.items():
        if precision == "fp16" and ("fp32", num_beams) in found:
            yield f"{model} fp16, {search_name(num_beams)}, as fp32", agreement(targets, found["fp32", num_beams])
    given, longest = real_sources(plan, model)
    peer = HuggingFace(plan.checkpoint(model), plan.torch_device, torch.float32)
    expected = {num_beams: peer.translate_all(given, num_beams, longest) for num_beams in BEAMS}
    for (precision, num_beams), targets in found.items():
        name = f"{model} {precision}, {search_name(num_beams)}, as transformers fp32"
        yield name, agreement(targets, expected[num_beams])


def agreement(found: Sequence[Tokens], expected: Sequence[Tokens]) -> Findings:
    """How many targets are equal to the last token."""
    equal = sum(ours == theirs for ours, theirs in zip(found, expected, strict=True))
    return {"sentences": len(found), "equal": equal}
