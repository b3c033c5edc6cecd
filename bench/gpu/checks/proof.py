"""Part `proof`: the model runs on the device and nowhere else, decodes there, and what cannot be used is refused."""

import dataclasses
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnxruntime as ort

from bench.gpu import sources
from bench.gpu.checks import operators
from bench.gpu.plan import Findings, Plan
from bench.gpu.sides.ours import Ours, choose
from engine.devices.selection import Wanted
from engine.devices.session import Device, DeviceError, open_session
from kernels.device_library import device_library

NO_SUCH_DEVICE = 999
BEAM = 4


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields the device, which operators run where, how long the first answers take, and what refusals say."""
    ours = Ours(plan, "zoo", "fp16", plan.sizes.sentence_tokens)
    device = ours.decoder.device
    options = device.provider_options(capture=True)
    yield "device", {**dataclasses.asdict(device), "provider": device.provider, "options": options}
    yield "onnxruntime", {"version": ort.__version__, "build": ort.get_build_info()}
    graphs = ours.package.graphs()
    for name, graph in (("encoder", graphs.encoder), ("decoder", graphs.decoder)):
        yield f"{name}, nodes by provider", placement(graph, device)
    if (step := ours.package.manifest.graphs.device_step) is not None and device.kernels:
        library = device_library()
        for file in step.files:
            which = f"{file.file} of our operators, nodes by provider"
            yield which, placement(ours.package.folder / file.file, device, library)
    yield "refusals", {"no such device": refusal(ours, Wanted("cuda", NO_SUCH_DEVICE))}
    try:
        yield "probe", probe(ours, plan)
    except DeviceError as error:
        yield "probe", {"error": str(error)}
        launched = Ours(replace(plan, cuda_graphs=False), "zoo", "fp16", plan.sizes.sentence_tokens)
        yield "probe without CUDA graphs", probe(launched, plan)
    if device.kernels:
        yield "our operators, differences from the host's", operators.compare(device_library(), device.provider)


def placement(graph: Path, device: Device, library: Path | None = None) -> Findings:
    """How many nodes of each operator every provider has. Raises DeviceError where one has what it must not."""
    found: dict[str, Counter[str]] = {}
    for part in open_session(graph, device, library=library).get_provider_graph_assignment_info():
        found.setdefault(part.ep_name, Counter()).update(node.op_type for node in part.get_nodes())
    return {provider: dict(operators) for provider, operators in found.items()}


def probe(ours: Ours, plan: Plan) -> Findings:
    """Milliseconds of the first answers, greedy and beam 4, which capture CUDA graphs, and of the second ones."""
    given, longest = sources.real(ours.package, 1, plan.sizes.sentence_tokens), plan.sizes.sentence_tokens
    times, target = list[float](), tuple[int, ...]()
    with ours.engine(BEAM) as engine:
        for _ in range(2):
            started = time.perf_counter()
            engine.targets(given, BEAM, longest)
            (target,) = engine.targets(given, 1, longest)
            times.append((time.perf_counter() - started) * 1000)
    return {"first_ms": times[0], "second_ms": times[1], "text": ours.package.tokenizer().decode(target)}


def refusal(ours: Ours, wanted: Wanted) -> str:
    """What is said where something is asked for that cannot be. Raises RuntimeError where it is not refused."""
    try:
        choose(wanted, ours.package)
    except DeviceError as error:
        return str(error)
    raise RuntimeError(f"{wanted} was not refused")
