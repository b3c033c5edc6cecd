"""Resources: memory, threads, processor, device, and what runs."""

from collections.abc import Sequence

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from deploy.grafana.frame import build
from deploy.grafana.panels import GREEN, RED, YELLOW, facts, lines, number
from deploy.grafana.queries import INSTANCE, MODEL, by, or_none, rate, ratio

DAY_S = 86_400
BUDGET = "dragoman_memory_bytes"
MEMORY = "dragoman_device_memory_bytes"


def dashboard() -> Dashboard:
    """All of it."""
    return build(
        "resources",
        "Resources",
        "Memory, threads, processor, device, and what runs.",
        {"Process": _process(), "Device": _device(), "What runs": _what_runs()},
    )


def _process() -> Sequence[Builder[Panel]]:
    memory = by("instance", f"process_resident_memory_bytes{{{INSTANCE}}}")
    budget = by("instance", f'{BUDGET}{{{INSTANCE}, kind="budget"}}')
    cores = by("instance", rate("process_cpu_seconds_total", INSTANCE))
    threads = by("instance", f"dragoman_threads{{{INSTANCE}}}")
    files = ratio(by("instance", f"process_open_fds{{{INSTANCE}}}"), by("instance", f"process_max_fds{{{INSTANCE}}}"))
    return [
        lines(
            "Memory",
            "Resident memory of each server, and what it may come to need as calculated at its start.",
            "bytes",
            {"{{instance}}": memory, "{{instance}}: most": budget},
        ),
        lines("Processor", "Cores that each server keeps busy.", "short", {"{{instance}}": cores}),
        lines(
            "Threads",
            "Threads of each server, with those of ONNX Runtime and gRPC.",
            "short",
            {"{{instance}}": threads},
        ),
        lines(
            "File descriptors",
            "Share in use of the file descriptors that a server may have.",
            "percentunit",
            {"{{instance}}": files},
            ((0.8, RED),),
        ),
    ]


def _device() -> Sequence[Builder[Panel]]:
    used = by("instance", f'{MEMORY}{{{INSTANCE}, kind="used"}}')
    total = by("instance", f'{MEMORY}{{{INSTANCE}, kind="total"}}')
    no_device = ("instance", "no CUDA device")
    return [
        lines(
            "Device memory",
            "Memory of the CUDA device in use by all its processes. A line at zero: the servers run on CPUs.",
            "bytes",
            {"{{instance}}": or_none(used, *no_device)},
        ),
        lines(
            "Device memory, share",
            "The same, as a share of what the device has.",
            "percentunit",
            {"{{instance}}": or_none(ratio(used, total), *no_device)},
            ((0.95, RED),),
        ),
        facts(
            "Devices", "Where each server runs, and what it was asked for.", f"dragoman_device_info{{{INSTANCE}}}"
        ).span(24),
    ]


def _what_runs() -> Sequence[Builder[Panel]]:
    up = f"time() - min(process_start_time_seconds{{{INSTANCE}}})"
    loading = f"max(dragoman_model_load_seconds{{{MODEL}}})"
    certificate = f"min(dragoman_tls_certificate_expiry_timestamp_seconds{{{INSTANCE}}}) - time()"
    graphs = f"min(dragoman_cuda_graphs{{{MODEL}}})"
    expiry = ((3 * DAY_S, YELLOW), (21 * DAY_S, GREEN))
    return [
        number("Up for", "Time since the server that runs longest started.", "s", up).span(6),
        number("Model load", "From opening the package until the server was ready, the slowest.", "s", loading).span(6),
        number(
            "Certificate",
            "Time until the first certificate ends.",
            "s",
            certificate,
            expiry,
            RED,
            "the servers have no TLS",
        ).span(6),
        number("CUDA graphs", "1 if every server launches a step as one CUDA graph.", "bool_on_off", graphs).span(6),
        facts("Models", "Each server's model, its precision and who runs it.", f"dragoman_model_info{{{MODEL}}}"),
        facts("Versions", "What each server is made of.", f"dragoman_build_info{{{INSTANCE}}}"),
    ]
