"""Each part's findings as Markdown."""

from collections.abc import Callable, Mapping, Sequence

from bench.gpu.plan import Findings
from bench.pages.markdown import table


def figures(checked: Sequence[Findings]) -> str:
    """What was asked for, and whether it is met."""
    return table(["figure", "measured", "asked", ""], [[str(cell or "") for cell in line.values()] for line in checked])


def show(part: str, findings: Findings) -> str:
    """The table of a part, or its findings one by one."""
    return SPECIAL.get(part, _plain)(findings)


def _plain(findings: Findings) -> str:
    rows = [[name, _facts(value)] for name, value in findings.items()]
    return table(["", "found"], rows)


def _throughput(findings: Findings) -> str:
    """One line a cell, and what did not run."""
    sides = ["ours tokens/s", "ms", "transformers tokens/s", "ms", "its best variant", "ratio", "CTranslate2 tokens/s"]
    cells = {name: found for name, found in findings.items() if "rows" in found}
    facts = {name: found for name, found in findings.items() if "rows" not in found}
    lines = [_plain(facts), ""] if facts else []
    lines += [table(["", "rows", *sides], [[name, *_cell(found)] for name, found in cells.items()]), ""]
    for name, found in cells.items():
        readings = {"ours": found["ours"], **found["transformers"], "CTranslate2": found.get("ctranslate2", {})}
        errors = {side: reading["error"] for side, reading in readings.items() if "error" in reading}
        lines += [f"- {name}, {side}: {_facts(error)}" for side, error in errors.items()]
    return "\n".join(lines).strip()


def _cell(found: Findings) -> list[str]:
    variants = {name: reading for name, reading in found["transformers"].items() if "error" not in reading}
    best = max(variants, key=lambda name: variants[name]["tokens_per_s"], default="")
    ours, theirs = found["ours"], variants.get(best, {})
    ratio = ours["tokens_per_s"] / theirs["tokens_per_s"] if "tokens_per_s" in ours and theirs else None
    readings = [reading.get(key) for reading in (ours, theirs) for key in ("tokens_per_s", "batch_ms")]
    ctranslate2 = found.get("ctranslate2", {}).get("tokens_per_s")
    return [str(found["rows"]), *map(_number, readings), best, _number(ratio), _number(ctranslate2)]


def _steps(findings: Findings) -> str:
    """One line for each number of rows."""
    columns = ("ms", "floor_ms", "bytes_ms", "launch_ms", "kernels", "kernels_ms", "gaps_ms")
    steps = [found for found in findings.values() if "rows" in found]
    rows = [[str(step["rows"]), *(_number(step.get(column)) for column in columns)] for step in steps]
    facts = {name: value for name, value in findings.items() if "rows" not in value}
    return "\n\n".join([_plain(facts), table(["rows", *columns], rows)])


def _parity(findings: Findings) -> str:
    """Without the error of every step."""
    return _plain({name: _without(value, "error_by_step") for name, value in findings.items()})


def _without(findings: Findings, key: str) -> Findings:
    return {name: value for name, value in findings.items() if name != key}


def _facts(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_facts(fact)}" for name, fact in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_facts, value))
    return _number(value) if isinstance(value, float) else str(value).replace("|", "/").replace("\n", " ")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


SPECIAL: dict[str, Callable[[Findings], str]] = {
    "throughput": _throughput,
    "nllb": _throughput,
    "roofline": _steps,
    "parity": _parity,
}
