"""Real weights that nobody here trained, and that no configuration comes with: annalog's, which its own code runs.

Its description and its tokenizer are what docs/checkpoints.md has as an example.
"""

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.offline import decode
from export.__main__ import main
from models.package.folder import Package

ROOT = Path(__file__).parents[2]
ANNALOG = importlib.util.find_spec("annalog")
SECTION = re.compile(r"^## Weights without a configuration\n(.*?)^## ", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(toml|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SOURCES = (
    "CC(=O)Oc1ccccc1C(=O)O",
    "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
    "C[C@H](N)C(=O)O",
    "O=C(Cc1ccccc1)NC1C(=O)N2C1SC(C)(C)C2C(=O)O",
    "Clc1ccc(Br)cc1CCN(CC)CC",
    "CCO",
)
"""Molecules: aspirin, caffeine, alanine, penicillin, a made-up one, ethanol."""

pytestmark = [
    pytest.mark.skipif(ANNALOG is None, reason="annalog is not installed"),
    pytest.mark.timeout(600),
]


def modules() -> tuple[ModuleType, Any]:
    """Its model and its tokenizer, without its package, which imports a chemistry."""
    assert ANNALOG is not None and ANNALOG.origin is not None
    files = Path(ANNALOG.origin).with_name("model_files")
    found = []
    for name in ("vocabulary", "seq2seq_attention"):
        spec = importlib.util.spec_from_file_location(f"model_files.{name}", files / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault("model_files", ModuleType("model_files")).__dict__[name] = module
        spec.loader.exec_module(module)
        found.append(module)
    return found[1], found[0].SMILESTokenizer()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its weights, and what the page says to put beside them."""
    assert ANNALOG is not None and ANNALOG.origin is not None
    folder = tmp_path_factory.mktemp("annalog")
    for file in (Path(ANNALOG.origin).parent / "ckpt_and_vocab").iterdir():
        shutil.copy(file, folder)
    section = SECTION.search((ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8"))
    assert section is not None
    blocks = dict(BLOCK.findall(section[1]))
    (folder / "checkpoint.toml").write_text(blocks["toml"], encoding="utf-8")
    here = Path.cwd()
    try:
        os.chdir(folder)
        exec(blocks["python"], {})
    finally:
        os.chdir(here)
    return folder


@pytest.fixture(scope="module")
def package(folder: Path) -> Package:
    samples = folder / "samples.txt"
    samples.write_text("\n".join(SOURCES), encoding="utf-8")
    out = folder / "package"
    arguments = ["--out", str(out), "--samples", str(samples), "--verify-samples", str(len(SOURCES)), "--quiet"]
    assert main([str(folder), *arguments]) == 0
    return Package.open(out)


class Annalog:
    """The model as annalog makes it."""

    def __init__(self, folder: Path) -> None:
        module, self.tokenizer = modules()
        cpu = torch.device("cpu")
        sides = (kind(59, 256, 3, 8, 512, 0.1, cpu, 102) for kind in (module.Encoder, module.Decoder))
        self.model = module.Seq2Seq(*sides, 1, 1, cpu).eval()
        self.model.load_state_dict(torch.load(folder / "Lev_extended.pt", "cpu", weights_only=True))

    @torch.no_grad()
    def greedy(self, source: Sequence[int]) -> tuple[tuple[int, ...], float]:
        """The likeliest token after each beginning, up to the end token, and their log-probability."""
        target, score = [2], 0.0
        while target[-1] != 3 and len(target) < 102:
            logits, _ = self.model(torch.tensor([source]), torch.tensor([target]))
            best = logits[0, -1].log_softmax(0).max(0)
            target.append(int(best.indices))
            score += float(best.values)
        return tuple(target[1:]), score


def test_translates_as_annalog_does(package: Package, folder: Path) -> None:
    annalog, tokenizer = Annalog(folder), package.tokenizer()
    token_ids = {token: index for index, token in enumerate(tokens_of(folder))}
    sources = [tokenizer.encode(text) for text in SOURCES]
    for text, source in zip(SOURCES, sources, strict=True):
        assert source == [2, *(token_ids[token] for token in annalog.tokenizer.tokenize(text)), 3]
        assert tokenizer.decode(source) == text
    manifest, rules = package.manifest, Loadable.of(package).rules
    with load(Loadable.of(package), CPU, Limits(8, 1)) as runner:
        found = list(decode(runner, rules, [(tuple(source), manifest.generation.decoding()) for source in sources]))
    for source, it in zip(sources, found, strict=True):
        expected, score = annalog.greedy(source)
        assert it.hypotheses[0].token_ids == expected
        assert it.hypotheses[0].score == pytest.approx(score / len(expected), abs=1e-4)  # the length penalty is 1
    assert len({it.hypotheses[0].token_ids for it in found}) == len(SOURCES)


def tokens_of(folder: Path) -> list[str]:
    """Its vocabulary, in order."""
    ids = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return sorted(ids, key=lambda token: ids[token])
