"""The documentation names everything a user can set, watch or type, and its links lead somewhere."""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from pydantic import BaseModel

from dragoman.command.commands import OWN
from dragoman.wire.messages import OPTIONS
from server.config import OTHERS_VARIABLES, PREFIX, Settings
from tests.documentation.commands import calls, named, options
from tests.watch.families import everything
from training.config import Experiment, ParallelText
from training.encoders.config import EncoderExperiment

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("models/zoo/*/*.md"))]
WRAPPED = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MOST_COLUMNS = 120
TYPES = ("counter", "gauge", "histogram")
EXAMPLES = "training.examples.number_words", "training.examples.labelled_words"
PROGRAMS = {
    "server": "configuration.md",
    "server.identity": "deploy.md",
    "inspection": "inspection.md",
    **dict.fromkeys(("export", "export.command.pull", "export.command.show", "export.command.remove"), "export.md"),
    **dict.fromkeys((f"dragoman {name}" for name in OWN), "command-line.md"),
    "dragoman bulk": "bulk.md",
    **dict.fromkeys(("training", "training.distill", "training.encoders", *EXAMPLES), "training.md"),
    **dict.fromkeys(("training.examples.bst", "training.examples.click_log"), "history.md"),
    **dict.fromkeys(
        tuple(f"bench.history.{name}" for name in ("systems", "encoders", "alignments", "depths")), "history.md"
    ),
    "training.examples.en_pt_slice": "history.md",
    **dict.fromkeys(("training.corpus", "training.corpus.check", "training.corpus.choose"), "training.md"),
    **dict.fromkeys(
        ("bench", "bench.firefox", "bench.floor", "bench.gpu_check", "bench.instructions"), "benchmarks.md"
    ),
    "bench.fleet": "scaling.md",
    "tests.engine.exact": "checkpoints.md",
    "tests.fuzz": "development.md",
    "tests.hostile.by_hand.network": "development.md",
    "tests.hostile.by_hand.connections": "development.md",
    "tests.hostile.by_hand.budget": "development.md",
    "tests.hostile.by_hand.growth": "development.md",
    "tests.hostile.by_hand.recovery": "development.md",
    "tests.hostile.files": "development.md",
    "tests.hostile.fuzz": "development.md",
    "tests.simulation": "development.md",
    **dict.fromkeys(
        (
            "bench.bulk",
            "bench.server.embedding",
            "bench.server.faces",
            "bench.server.libretranslate",
            "bench.server.metrics",
            "bench.server.playground",
            "bench.server.reload",
            "bench.server.beside",
            "bench.server.overload",
            "bench.server.refusals",
            "bench.quality",
            "bench.ray",
            "bench.options.constraints",
            "bench.export_memory",
            "bench.options",
            "bench.history",
            "bench.options.alignment",
            "bench.options.before",
            "bench.options.encoding",
            "bench.options.exactness",
            "bench.options.packed",
            "bench.options.scoring",
            "bench.server.rolling",
            "bench.server.several",
            "bench.soak",
            "bench.options.texts",
        ),
        "benchmarks.md",
    ),
}
"""What people run, and the page that has its options."""
FOR_MAKE = {
    "bench.cpu.sides.peer",
    "bench.instructions.marked",
    "bench.fleet.paced_server",
    "bench.options.embedder",
    "bench.options.engine_turns",
    "bench.soak.faulty_server",
    "deploy.grafana",
    "dragoman.quickstart",
    "export.device_graphs",
    "kernels",
    "proto.client_options",
}
"""What `make` or another program runs."""
FOREIGN_PROGRAMS = {"pip", "pytest", "venv", "ziglang"}
FOREIGN_OPTIONS = {"--build-arg", "--constraint", "--enable-feature", "--health-cmd", "--profile"}
"""Of docker, pip and prometheus."""
EVERYWHERE = {"--help", "--version"}
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?[^)]*\)")
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def text() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def missing(names: list[str], text: str) -> list[str]:
    """The names that no page has as a whole word."""
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]


@dataclass(frozen=True)
class Family:
    """A metric as Prometheus shows it."""

    name: str
    type: str
    labels: frozenset[str]


def metric_families() -> set[Family]:
    """What the server counts, sorted by what the page says of it."""
    everything(registry := CollectorRegistry())
    suffixes = {"counter": "_total", "info": "_info"}
    return {
        Family(family.name + suffixes.get(family.type, ""), family.type, _labels(family))
        for family in registry.collect()
    }


def documented_families() -> set[Family]:
    """The tables of docs/metrics.md."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines()]
    return {
        Family(name, "info" if kind == "gauge, always 1" else kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for _, names, kind, labels, *_ in (row for row in rows if len(row) > 4 and row[2].split(",")[0] in TYPES)
        for name in re.findall(r"`(\w+)`", names)
    }


def _labels(family: Metric) -> frozenset[str]:
    return frozenset(label for sample in family.samples for label in sample.labels) - {"le"}


def make_targets() -> list[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return [f"make {target}" for target in re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE)]


def test_the_page_of_metrics_has_every_name_type_and_label_and_no_other() -> None:
    assert documented_families() == metric_families()


def test_the_queries_of_the_page_name_metrics_that_there_are() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    used = set(re.findall(r"dragoman_[a-z_]+", page.split("## Questions and queries")[1]))
    assert used
    known = {family.name for family in metric_families()}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in used} <= known


def settings_table() -> list[tuple[list[str], str, str]]:
    """Flags, variable and default of every row of docs/configuration.md."""
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("| `--")]
    return [(re.findall(r"`(--[\w-]+)`", flags), variable, default) for _, flags, variable, default, *_ in rows]


def written(default: object) -> str | None:
    """A default as the table has it. None is said in words."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ",".join(map(str, default)) or None
    return f"{default:g}" if isinstance(default, float) else None if default is None else str(default)


def test_the_table_of_settings_has_every_flag_with_its_variable_and_default_and_no_other() -> None:
    table = settings_table()
    assert {flag for flags, *_ in table for flag in flags} <= options("server")
    documented = {flags[0]: (variable, default) for flags, variable, default in table}
    flags = {name: f"--{name.replace('_', '-')}" for name in Settings.model_fields}
    assert set(documented) == set(flags.values())
    for name, field in Settings.model_fields.items():
        variable, default = documented[flags[name]]
        literal = re.fullmatch(r"`(.*)`", default)
        assert variable == f"`{PREFIX}{name.upper()}`"
        assert (literal and literal[1]) == written(field.default), name


def test_every_variable_that_is_no_setting_of_the_server_is_documented(text: str) -> None:
    assert missing(sorted(OTHERS_VARIABLES), text) == []


def test_the_page_of_dashboards_has_each_and_no_other() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    table = re.search(r"\| dashboard \|.*\n\|---.*\n((?:\|.*\n)+)", page)
    assert table
    documented = [row.split("|")[1].strip() for row in table[1].splitlines()]
    files = (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")
    titles = [json.loads(file.read_text("utf-8"))["title"].removeprefix("Dragoman / ") for file in files]
    assert sorted(documented) == sorted(titles)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_option_is_on_the_page_of_its_program(program: str) -> None:
    page = (ROOT / "docs" / PROGRAMS[program]).read_text(encoding="utf-8")
    given = {option for called, used in calls(page) if called == program for option in used}
    found = options(program)
    assert "--help" in found
    if program in ("dragoman translate", "dragoman bulk"):  # docs/decoding.md has them, under the names of the API
        found -= {f"--{no}{name.replace('_', '-')}" for name in OPTIONS for no in ("", "no-")}
    negated = {option for option in found if option.replace("--no-", "--", 1) in found - {option}}
    assert found - negated - EVERYWHERE - named(page) - given == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_names_a_program_or_an_option_that_there_is_not(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for program, used in calls(text):
        if program not in FOREIGN_PROGRAMS:
            assert program in {*PROGRAMS, "dragoman"}
            assert used <= options(program), program
    assert named(text) <= FOREIGN_OPTIONS.union(*map(options, PROGRAMS))


def test_every_program_is_known() -> None:
    starts = [file for file in ROOT.glob("[!.]*/**/*.py") if '__name__ == "__main__"' in file.read_text("utf-8")]
    modules = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__") for file in starts}
    documented = {program.split()[0] for program in PROGRAMS}
    assert (
        modules
        - {
            "tests.documentation.test_documented",
            "tests.engine.exact.cases",
            "tests.engine.exact.test_families",
            "tests.engine.processors.test_processed_exact",
            "tests.engine.search.group_cases",
            "tests.kernels.translations",
            "tests.models.number_words",
            "tests.server.foreign.clients",
            "tests.server.kserve.perf_analyzer",
            "tests.server.kserve.triton",
        }
        == documented | FOR_MAKE
    )


def test_what_is_not_there_is_noticed() -> None:
    """In a block, over two lines, behind a prompt or a variable, in a line of text."""
    page = (
        "Say `--max-rows 8`, or `python -m server --max-row 8`.\n\n"
        "    FOO=1 python -m export zoo \\\n      --outt x | cat\n\n"
        "```console\n$ make && dragoman translate --bems 4 'from dragoman import'\n```\n"
    )
    used = [("dragoman translate", {"--bems"}), ("export", {"--outt"}), ("server", {"--max-row"})]
    assert sorted(calls(page)) == used
    assert named(page) == {"--max-rows"} <= options("server")


def test_every_key_of_an_experiment_is_documented() -> None:
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    keys = experiment_keys(Experiment) + experiment_keys(EncoderExperiment)
    assert {"output", "peak_learning_rate", "[distillation]"} <= set(keys)
    assert missing(keys, page) == []


def experiment_keys(model: type[BaseModel]) -> list[str]:
    """Of a section and of those below it, whose names are in brackets."""
    keys = []
    for name, field in model.model_fields.items():
        sections = [kind for kind in models_in(field.annotation) if kind is not ParallelText]
        keys += [f"[{name}]"] if sections else [name]
        keys += [key for section in sections for key in experiment_keys(section)]
    return keys


def models_in(annotation: object) -> list[type[BaseModel]]:
    """Those a value may be, whatever they are among."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


def test_every_make_target_is_documented(text: str) -> None:
    targets = make_targets()
    assert "make run" in targets
    assert missing(targets, text) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    """Their anchors too."""
    links = LINK.findall(page.read_text(encoding="utf-8"))
    files = [(page.parent / name if name else page, anchor) for name, anchor in links]
    assert [str(file) for file, _ in files if not file.exists()] == []
    assert [(str(file), anchor) for file, anchor in files if anchor and anchor not in anchors(file)] == []


@cache
def anchors(page: Path) -> frozenset[str]:
    """What GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    shown = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in shown)


@pytest.mark.parametrize("page", WRAPPED, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_wraps(page: Path) -> None:
    """Tables and blocks are as wide as they are."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    prose = [line for line in text.splitlines() if not line.lstrip().startswith("|") and not line.startswith("    ")]
    assert [line for line in prose if len(line) > MOST_COLUMNS] == []
