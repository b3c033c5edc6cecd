"""The images that serve: who runs in them, and what is in them, however the Dockerfile is written."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman import __version__
from server.config import Settings
from tests.deploy.dockerfile import faults, parse

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
TARGETS = {"cpu": "serve.lock.txt", "cuda": "serve-cuda.lock.txt"}
"""The default one first."""
SHOW_ORIGINS = """
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] in ("server", "engine", "models", "dragoman", "export", "training"):
        print(module.__file__ or module.__path__[0])
"""
PORTS = {str(Settings.model_fields[name].default) for name in ("port", "http_port", "metrics_port")}


def found(text: str) -> str:
    return "\n".join(faults(text, TARGETS, __version__, PORTS))


def changed(pattern: str, new: str | Callable[[re.Match[str]], str]) -> str:
    """The Dockerfile with every match replaced. There is one."""
    text, count = re.subn(pattern, new, DOCKERFILE, flags=re.MULTILINE)
    assert count, pattern
    return text


def test_nothing_is_wrong_with_the_images() -> None:
    assert found(DOCKERFILE) == ""


REWRITES: dict[str, tuple[str, str | Callable[[re.Match[str]], str]]] = {
    "an instruction over two lines": (r"^ENTRYPOINT ", "ENTRYPOINT \\\n    "),
    "small letters": (r"^(USER|ENTRYPOINT|COPY|FROM)\b", lambda found: found[1].lower()),
    "comments and blank lines": (r"^USER", "\n# who\nUSER"),
    "another user, no group": (r"^USER .*$", "USER 65532"),
    "ports one by one": (r"^EXPOSE (\d+) (\d+)", r"EXPOSE \2\nEXPOSE \1"),
    "another order": (r"^(COPY --from=serve-\S+ .*\n)((?:.*\n)*?)(COPY --from=code .*)$", r"\3\n\2\1"),
    "no space in the list": (r'\["python", "-m", "server"\]', '["python","-m","server"]'),
    "other options of pip": (r"pip install --require-hashes", "pip install --no-cache-dir --require-hashes"),
    "a flag before the stage": (r"^COPY --from=code ", "COPY --chown=0:0 --link --from=code "),
    "settings of an image": (r"^COPY --from=code ", "ENV DRAGOMAN_LOG_FORMAT=json\nCOPY --from=code "),
}


@pytest.mark.parametrize("name", REWRITES)
def test_what_says_the_same_in_other_words_is_as_good(name: str) -> None:
    text = changed(*REWRITES[name])
    assert text != DOCKERFILE
    assert found(text) == ""


WRONG = {
    "ENTRYPOINT needs a shell": (r"^ENTRYPOINT .*$", "ENTRYPOINT python -m server"),
    "ENTRYPOINT is not python -m server": (r"^ENTRYPOINT .*$", 'ENTRYPOINT ["python", "-m", "dragoman"]'),
    "CMD needs a shell": (r"^ENTRYPOINT .*$", r"\g<0>\nCMD --max-rows 8"),
    "HEALTHCHECK needs a shell": (r"CMD \[.*\]$", "CMD python -m dragoman health"),
    "HEALTHCHECK is not": (r"^HEALTHCHECK .*\n.*$", "HEALTHCHECK NONE"),
    "USER is dragoman": (r"^USER .*$", "USER dragoman"),
    "USER is 0": (r"^USER .*$", "USER 10001:10001\nUSER 0"),
    "USER is root": (r"^USER .*$", ""),
    "cuda: USER is root": (r"^ENV DRAGOMAN_DEVICE=cuda", "USER root\nENV DRAGOMAN_DEVICE=cuda"),
    "STOPSIGNAL does not drain": (r"^STOPSIGNAL .*$", "STOPSIGNAL SIGKILL"),
    "EXPOSE and the settings differ by ['9500']": (r"^EXPOSE .*$", "EXPOSE 8500 8580"),
    "RUN leaves a layer": (r"^COPY --from=code .*$", r"\g<0>\nRUN pip list"),
    "come from export, which is not locked": (r"--from=serve-cpu", "--from=export"),
    "come from serve-cpu, which is not locked": (r"--require-hashes ", ""),
    "serve.lock.txt is not installed": (r"^COPY --from=serve-cpu .*$", ""),
    "serve-cuda.lock.txt is not installed": (r"--from=serve-cuda", "--from=build"),
    "['/opt/venv'] come from serve-cpu": (r"^(FROM packages-cpu AS serve-cpu)$", r"\1\nRUN pip install torch"),
    "cuda: ['/app'] come from export": (r"--from=code", "--from=export"),
    "VERSION is 9.9": (r"^ARG VERSION=.*$", "ARG VERSION=9.9"),
    "the default target is last": (r"\Z", "\nFROM runtime AS last\n"),
    "no stage cuda": (r"AS cuda$", "AS gpu"),
}


def test_the_images_have_all_code_that_serves(tmp_path: Path) -> None:
    """And import it from there: the tests' environment knows the repository too."""
    code = next(stage for stage in parse(DOCKERFILE) if stage.name == "code")
    for instruction, value in code.own:
        if instruction == "COPY":
            *sources, place = value.split()
            for file in (file for source in sources for file in ROOT.glob(source)):
                target = tmp_path / place / file.name if place.endswith("/") else tmp_path / place
                if file.is_dir():
                    shutil.copytree(file, target, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, target)
    modules = [
        ".".join(file.relative_to(tmp_path).with_suffix("").parts).removesuffix(".__init__")
        for folder in ("server", "engine", "dragoman")
        for file in (tmp_path / folder).rglob("*.py")
        if file.name != "__main__.py"
        and not any(file.is_relative_to(tmp_path / extra) for extra in ("engine/cuda", "dragoman/bulk/cluster"))
    ]
    assert "server.lifecycle" in modules
    script = "\n".join(["import sys", *(f"import {module}" for module in modules), SHOW_ORIGINS])
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    origins = [Path(line) for line in done.stdout.splitlines()]
    assert origins and [path for path in origins if not path.is_relative_to(tmp_path)] == []


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_is_named(fault: str) -> None:
    assert fault in found(changed(*WRONG[fault]))
