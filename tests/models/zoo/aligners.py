"""What aligns the translations of the zoo's models."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from engine.cpu.decoder import CpuDecoder
from export.inputs import read_samples
from export.verification.alignment import choose_aligner
from export.verification.compare_tokens import Samples, translate
from export.verification.verify import MAX_TOKENS
from models.checkpoint import load_checkpoint
from models.package.declared.attention import Aligner
from models.package.folder import Package
from tests.checkpoints import ROOT

ZOO_SAMPLES = 32
"""Export's default."""


def aligner(checkpoint: Path, package: Package) -> Aligner | None:
    """What export would choose now, by the package's translations of the samples that `make zoo` takes."""
    samples = ROOT / "export" / "verification" / f"samples.{checkpoint.name.partition('-')[0]}.txt"
    texts = read_samples(samples, ZOO_SAMPLES)
    loaded = Samples(load_checkpoint(checkpoint), checkpoint, MAX_TOKENS, texts, share=1.0)
    with closing(CpuDecoder(package.graphs(), MAX_TOKENS, MAX_TOKENS)) as decoder:
        generation = replace(package.manifest.generation, max_new_tokens=MAX_TOKENS)
        found = translate(decoder.spec.vocabulary, generation, decoder, loaded.sources)
        return choose_aligner(loaded.attended(decoder, found[1]))
