"""Which text calibrates, and what 8 bits may cost: real sentences, and a model whose weights have fewer."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.sentences import flores, heldout
from export.command.arguments import CALIBRATION, SAMPLES
from export.quantization import bits
from export.quantization.calibrate import Pair
from export.quantization.make import make_recipe
from export.quantization.recipe import Recipe
from export.quantization.texts import LEAST_LIKENESS, Calibration, CalibrationError, Samples, check_likeness, likeness
from export.quantization.translations import gate, quantize
from export.quantization.translations.quantize import quantize_model
from export.quantization.translations.translate import translate
from export.verification.compare_tokens import shorten
from export.verification.verify import VerificationError, most_tokens
from models.checkpoint import load_checkpoint
from models.package.folder import Package
from models.tokenizers.tokenizer import Tokenizer
from models.transformer import Transformer
from tests.checkpoints import ZOO

SENTENCES = SAMPLES.read_text(encoding="utf-8").splitlines()
TEXTS = {
    "calibration of export": ("en", CALIBRATION.read_text(encoding="utf-8").splitlines()),
    "news": ("en", flores("en")[200:300]),
    "documents": ("en", heldout("en")[:100]),
    "much news": ("en", flores("en")[:900]),
    "Portuguese news": ("pt", flores("pt")[200:300]),
    "Portuguese documents": ("pt", heldout("pt")[:100]),
    "much Portuguese news": ("pt", flores("pt")[:900]),
}
MEASURED = {
    "news": ("en", flores("en")[950:982]),
    "documents": ("en", heldout("en")[400:432]),
    "samples of export": ("en", SENTENCES[:32]),
    "Portuguese news": ("pt", flores("pt")[950:982]),
    "Portuguese documents": ("pt", heldout("pt")[400:432]),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """It has both languages in one vocabulary."""
    return Package.open(ZOO).tokenizer()


@pytest.mark.parametrize("measured", MEASURED)
@pytest.mark.parametrize("calibrating", TEXTS)
def test_texts_of_a_language_are_alike_and_of_two_are_not(
    tokenizer: Tokenizer, calibrating: str, measured: str
) -> None:
    (language, texts), (other, samples) = TEXTS[calibrating], MEASURED[measured]
    found = likeness([tokenizer.encode(text) for text in texts], [tokenizer.encode(text) for text in samples])
    assert found > LEAST_LIKENESS + 0.1 if language == other else found < LEAST_LIKENESS - 0.04


def test_what_every_text_has_makes_none_alike() -> None:
    with pytest.raises(CalibrationError, match=r"of 2 texts .* of 1 samples: .* is 0\.00, and 0\.6"):
        check_likeness([(5, 0), (6, 0)], [(7, 8, 0)])
    check_likeness([(5, 0), (6, 0)], [(5, 6, 0)])


def test_8_bits_that_lose_too_much_by_references_are_refused(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint)
    tokenizer = checkpoint.open_tokenizer(tiny_checkpoint)
    texts, calibration = SENTENCES[:8], Calibration(SENTENCES[100:140], "0" * 64)
    most = most_tokens(checkpoint.config.max_positions)
    targets = translate(checkpoint.transformer, [shorten(tokenizer.encode(text), most) for text in texts], most)
    samples = Samples(texts, [tokenizer.decode(target) for target in targets])

    def few_bits(model: Transformer, pairs: list[Pair]) -> Recipe:
        """With weights of two bits."""
        return {
            name: replace(layer, weight=(np.rint(layer.weight / 127) * 127).astype(np.int8))
            for name, layer in make_recipe(model, pairs).items()
        }

    monkeypatch.setattr(quantize, "make_recipe", few_bits)
    monkeypatch.setattr(gate, "LEAST_EQUAL", 0.0)
    monkeypatch.setattr(bits, "LARGE_SHARE", 1.0)
    refused = r"8 bits lose \d+\.\d\d BLEU \(100\.00 to .*--most-bleu-loss is 0\.1\) .*chrF \(100\.00 to .* 8 samples"
    with pytest.raises(VerificationError, match=refused):
        quantize_model(checkpoint, tokenizer, calibration, samples, lambda said: None)
