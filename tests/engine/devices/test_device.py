"""engine.cuda: what is missing for CUDA is named, with the way to get it; and what is chosen runs there."""

import math
from dataclasses import dataclass, field, replace

import onnx
import pytest

from engine.devices.cudart import CudaRuntime
from engine.devices.machine import Machine
from engine.devices.selection import LIBRARIES, Wanted, select_device
from engine.devices.session import CPU, Device, DeviceError, is_out_of_memory, open_session, stray_operators
from engine.devices.sizing import Load, most_rows, most_tokens
from engine.loading.load import worker_count
from models.package.declared.numbers import Precisions
from models.package.declared.precision import Precision
from models.package.derived import graphs_spec
from models.package.folder import Package
from server.config import Settings
from server.placement import device_memory, facts, serving_device
from tests.checkpoints import ZOO
from tests.engine.devices.cuda_bindings import GIB, NO_DEVICE, FakeBindings
from tests.models.test_transformer import config

BASE = config(
    width=512,
    encoder_layers=6,
    decoder_layers=6,
    encoder_heads=8,
    decoder_heads=8,
    encoder_ffn=2048,
    decoder_ffn=2048,
    source_vocab_size=58101,
    target_vocab_size=58101,
    pad_id=58100,
    decoder_start_id=58100,
    max_positions=512,
)
"""Of the size of OPUS-MT's base models."""
LOAD = Load(graphs_spec(BASE, "fp16"), rows=64, source_tokens=256, target_tokens=256)
CUDA = Wanted("cuda")
ALL = frozenset({"libcuda.so.1", *LIBRARIES})


def test_memory_is_told_as_it_is_and_nan_where_the_device_does_not_answer() -> None:
    memory = device_memory(CudaRuntime(library := FakeBindings()), index=0)
    assert memory() == (70 * GIB, 80 * GIB)
    library.free = 5 * GIB
    assert memory() == (5 * GIB, 80 * GIB)
    library.cudaSetDevice = lambda device: (NO_DEVICE,)  # type: ignore[method-assign]
    assert all(map(math.isnan, memory()))


@dataclass
class FakeMachine(Machine):
    """A machine with everything for CUDA, but for what a test takes away."""

    installed: tuple[str, ...] = ("onnxruntime-gpu",)
    built_with: tuple[str, ...] = ("CUDAExecutionProvider", "CPUExecutionProvider")
    libraries: frozenset[str] = ALL
    library: FakeBindings = field(default_factory=FakeBindings)
    hidden: str | None = None

    def wheels(self) -> dict[str, str]:
        return dict.fromkeys(self.installed, "1.31.1")

    def providers(self) -> list[str]:
        return list(self.built_with)

    def preload(self) -> None:
        """Nothing lies elsewhere."""

    def load(self, library: str) -> None:
        if library not in self.libraries:
            # What the loader says, as seen on a machine with onnxruntime-gpu and without a driver.
            raise OSError(f"{library}: cannot open shared object file: No such file or directory")

    def runtime(self) -> CudaRuntime:
        return CudaRuntime(self.library)

    def visible_devices(self) -> str | None:
        return self.hidden


def refused(machine: Machine, wanted: Wanted = CUDA, load: Load = LOAD) -> str:
    with pytest.raises(DeviceError) as caught:
        select_device(wanted, load, machine)
    return str(caught.value)


def test_a_machine_with_everything_is_described() -> None:
    device, obstacle = select_device(Wanted("cuda", 1), LOAD, FakeMachine(library=FakeBindings(devices=2)))
    assert device == Device("cuda", 1, "Some GPU", "9.0", "13.0", 70 * GIB, cuda_graphs=True)
    assert obstacle == ""
    assert facts(device) == {
        "device": "cuda:1",
        "name": "Some GPU",
        "provider": "CUDAExecutionProvider",
        "kernels": "",
        "compute_capability": "9.0",
        "driver": "13.0",
        "options": f"gpu_mem_limit={70 * GIB},arena_extend_strategy=kSameAsRequested,use_tf32=0,enable_cuda_graph=1",
    }


def test_auto_takes_cuda_where_it_can_and_else_says_why_not() -> None:
    assert select_device(Wanted("auto"), LOAD, FakeMachine())[0].kind == "cuda"
    device, obstacle = select_device(Wanted("auto"), LOAD, FakeMachine(libraries=frozenset()))
    assert device == CPU
    assert obstacle.startswith("no NVIDIA driver: libcuda.so.1: cannot open shared object file")


def test_both_wheels_are_refused_on_every_device() -> None:
    machine = FakeMachine(installed=("onnxruntime", "onnxruntime-gpu"))
    for kind in ("cpu", "cuda", "auto"):
        told = refused(machine, Wanted(kind))
        assert "onnxruntime 1.31.1 and onnxruntime-gpu 1.31.1 are both installed" in told
        assert "pip uninstall --yes onnxruntime onnxruntime-gpu, then pip install '.[cpu]'" in told


def test_the_wheel_without_cuda_is_named() -> None:
    machine = FakeMachine(installed=("onnxruntime",), built_with=("CPUExecutionProvider",))
    told = refused(machine)
    assert (
        "(onnxruntime 1.31.1) is built without CUDA: pip uninstall --yes onnxruntime, then pip install '.[cuda]'"
        in told
    )


def test_this_machine_says_what_it_lacks(zoo_package: Package) -> None:
    """Tests run with the wheel for CPUs."""
    settings = Settings(device="cuda", workers=1)
    with pytest.raises(DeviceError, match="built without CUDA"):
        serving_device(settings, [zoo_package.manifest.graphs], Machine())


def test_no_driver_is_named() -> None:
    told = refused(FakeMachine(libraries=ALL - {"libcuda.so.1"}))
    assert "no NVIDIA driver: libcuda.so.1: cannot open shared object file" in told
    assert "Install driver 580 or newer" in told


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_missing_library_is_named_with_its_wheel(library: str) -> None:
    told = refused(FakeMachine(libraries=ALL - {library}))
    assert f"{library}: cannot open shared object file" in told
    assert f"{library} is in '{LIBRARIES[library]}': pip install '.[cuda]'" in told


def test_missing_bindings_are_named_with_their_package() -> None:
    class Machine(FakeMachine):
        def runtime(self) -> CudaRuntime:
            raise ImportError("No module named 'cuda'")

    told = refused(Machine())
    assert "the package 'cuda-bindings==13.*' cannot be imported: No module named 'cuda'. pip install '.[cuda]'" in told


def test_a_driver_of_an_older_cuda_is_named_with_both_versions() -> None:
    told = refused(FakeMachine(library=FakeBindings(driver=12080)))
    assert "the NVIDIA driver supports CUDA 12.8; onnxruntime-gpu is built for CUDA 13.0: install driver 580" in told


def test_a_library_without_a_driver_behind_it_is_told() -> None:
    """Seen with the stub of libcuda that is there to link against."""
    assert "libcuda.so.1 is there, but no driver behind it" in refused(FakeMachine(library=FakeBindings(driver=0)))


def test_a_driver_that_finds_no_device_is_quoted() -> None:
    library = FakeBindings()
    library.cudaGetDeviceCount = lambda: (NO_DEVICE, None)  # type: ignore[method-assign]
    told = refused(FakeMachine(library=library))
    assert "cudaGetDeviceCount: no CUDA-capable device is detected (CUDA error 100)" in told
    assert "nvidia-smi" in told


@pytest.mark.parametrize(
    ("devices", "hidden", "message"),
    [
        (1, None, "--device-id is 3; CUDA sees 1 devices: choose only device 0"),
        (3, "0,1,2", "--device-id is 3; CUDA sees 3 devices (CUDA_VISIBLE_DEVICES is '0,1,2'): choose 0 to 2"),
        (0, "", "--device-id is 3; CUDA sees 0 devices (CUDA_VISIBLE_DEVICES is ''): choose none"),
    ],
)
def test_a_device_that_is_not_there_is_named(devices: int, hidden: str | None, message: str) -> None:
    assert message in refused(FakeMachine(library=FakeBindings(devices=devices), hidden=hidden), Wanted("cuda", 3))


@pytest.mark.parametrize(("precision", "capability"), [("fp16", (7, 0)), ("bf16", (7, 5))])
def test_a_device_that_is_too_old_for_the_precision_is_named(precision: Precision, capability: tuple[int, int]) -> None:
    load = replace(LOAD, graphs=graphs_spec(BASE, precision))
    told = refused(FakeMachine(library=FakeBindings(capability=capability)), load=load)
    assert f"device 0 (Some GPU) has compute capability {capability[0]}.{capability[1]}; a package of precision" in told


def test_a_package_of_8_bits_is_for_the_cpu() -> None:
    half = graphs_spec(BASE, "fp16")
    precision = half.precision.model_copy(update={"weights": "int8"})
    told = refused(FakeMachine(), load=replace(LOAD, graphs=half.model_copy(update={"precision": precision})))
    assert told.startswith("the package is int8, which is made for CPUs: serve it with --device cpu")


def test_a_package_that_cuda_has_no_kernel_for_is_named() -> None:
    told = refused(FakeMachine(), load=replace(LOAD, graphs=graphs_spec(BASE, "fp32")))
    assert "fp32 with fused attention" in told
    assert "export the checkpoint with --precision fp16, or with --attention plain" in told
    plain = replace(LOAD, graphs=graphs_spec(BASE, "fp32", "plain"))
    assert select_device(CUDA, plain, FakeMachine())[0].kind == "cuda"


def test_bf16_needs_cuda() -> None:
    told = refused(FakeMachine(), Wanted("cpu"), replace(LOAD, graphs=graphs_spec(BASE, "bf16")))
    assert "the package is bf16, which ONNX Runtime computes on CUDA only: serve it with --device cuda" in told


# Memory


def test_what_does_not_fit_is_told_with_what_would() -> None:
    library = FakeBindings(free=900 << 20, total=4 * GIB)
    told = refused(FakeMachine(library=library))
    assert "64 rows of 256 source and 256 target tokens take 0.9" in told
    assert "device 0 (Some GPU) has 0.9 of 4.0 GiB free, and 0.88 may be used (--device-memory-fraction)" in told
    rows, tokens = most_rows(LOAD, 900 << 20), most_tokens(LOAD, 900 << 20)
    assert f"{rows} rows of these lengths fit (--max-rows), or 64 rows of {tokens} tokens" in told
    for fitting in (replace(LOAD, rows=rows), replace(LOAD, source_tokens=tokens, target_tokens=tokens)):
        select_device(CUDA, fitting, FakeMachine(library=library))
    refused(FakeMachine(library=library), load=replace(LOAD, rows=rows + 1))


def test_where_nothing_fits_it_says_so() -> None:
    assert "not even one row fits" in refused(FakeMachine(library=FakeBindings(free=100 << 20)))


def test_the_fraction_is_of_all_memory() -> None:
    machine = FakeMachine(library=FakeBindings(free=8 * GIB, total=8 * GIB))
    assert select_device(Wanted("cuda", memory_fraction=0.5), LOAD, machine)[0].memory_limit_bytes == 4 * GIB
    assert "and 0.80 may be used" in refused(machine, Wanted("cuda", memory_fraction=0.1))


def test_the_size_of_the_weights_is_the_packages(zoo_package: Package) -> None:
    """Less what lies in the file once and in memory more often: both sessions have the embeddings."""
    manifest = zoo_package.manifest
    load = Load(manifest.graphs, 1, 1, 1)
    shared = 4 * manifest.model.width * manifest.model.target_vocab_size
    in_file = manifest.files[manifest.weights].size_bytes
    assert manifest.graphs.scoring is not None
    again = sum(graph.weight_bytes for graph in manifest.graphs.scoring.files)
    assert load.weight_bytes - again - shared == pytest.approx(in_file, rel=0.05)


# Placement


def test_a_session_runs_where_it_is_to_run_or_not_at_all(zoo_package: Package) -> None:
    open_session(zoo_package.graphs().decoder, CPU)
    with (
        pytest.warns(UserWarning, match="CUDAExecutionProvider' is not in available"),
        pytest.raises(DeviceError) as caught,
    ):
        open_session(zoo_package.graphs().decoder, Device("cuda"))
    assert "did not load its CUDAExecutionProvider" in str(caught.value)


def test_only_arithmetic_on_shapes_may_stay_on_the_host() -> None:
    parts = [("CUDA", ["Gemm", "Shape"]), ("CPU", ["Shape", "Concat", "MultiHeadAttention", "TopK", "TopK"])]
    assert stray_operators(parts, "CUDA") == {"MultiHeadAttention": 1, "TopK": 2}
    assert stray_operators(parts[:1], "CUDA") == {}


def test_the_fused_decoder_asks_nothing_of_the_host() -> None:
    """So that it loads with the host forbidden, and is captured: what Shape gives goes to inputs read there."""
    nodes = onnx.load(Package.open(ZOO).graphs().decoder, load_external_data=False).graph.node
    on_host = {output for node in nodes if node.op_type in ("Shape", "Size") for output in node.output}
    taken = {(node.op_type, index) for node in nodes for index, name in enumerate(node.input) if name in on_host}
    assert taken == {("TopK", 1)}


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (
            RuntimeError("BFCArena::AllocateRawInternal Available memory of 9 is smaller than requested bytes of 10"),
            True,
        ),
        (RuntimeError("Failed to allocate memory for requested buffer of size 10"), True),
        (RuntimeError("CUDA failure 2: out of memory ; GPU=0"), True),
        (RuntimeError("Exception caught: std::bad_alloc"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA failure 700: an illegal memory access was encountered"), False),
    ],
)
def test_out_of_memory_is_told_from_other_errors(error: Exception, memory: bool) -> None:
    assert is_out_of_memory(error) == memory


def test_a_device_with_one_running_batch_has_one_worker() -> None:
    assert worker_count(Precisions.of_all("fp32"), CPU, 2) == 2
    for device, precision, named in (
        (Device("cuda"), Precisions.of_all("fp32"), "a CUDA device"),
        (CPU, Precisions.of_all("fp16"), "a package of precision fp16"),
    ):
        assert worker_count(precision, device, None) == worker_count(precision, device, 1) == 1
        with pytest.raises(DeviceError, match=f"workers is 2; {named} takes 1"):
            worker_count(precision, device, 2)
