"""A model to one of 8 bits: translate, calibrate, measure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from export.quantization.calibrate import Pair
from export.quantization.make import make_recipe
from export.quantization.model import QuantizedTransformer, native_model, standard_model
from export.quantization.recipe import Recipe
from export.quantization.texts import Calibration, Loss, Samples, check_likeness
from export.quantization.translations.gate import Gate
from export.quantization.translations.translate import translate
from export.tell import Tell
from export.verification.compare_tokens import shorten
from export.verification.verify import VerificationError, most_tokens
from models.checkpoint import Checkpoint
from models.package.manifest import Quality, Quantization
from models.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class Quantized:
    """What a model has become."""

    model: QuantizedTransformer
    """As graphs of standard operators compute it."""
    recipe: Recipe
    """What native graphs are made by."""
    report: Quantization


def quantize_model(
    checkpoint: Checkpoint, tokenizer: Tokenizer, calibration: Calibration, samples: Samples, tell: Tell
) -> Quantized:
    """Every linear layer that bears it in 8 bits.

    Raises:
        CalibrationError: it would be calibrated on text of another language than the samples'.
        VerificationError: it costs more by the references than it may.
    """
    model = checkpoint.transformer
    tell(f"translations of {len(calibration.texts)} sentences to calibrate on")
    calibrating, measured = (_sources(checkpoint, tokenizer, texts) for texts in (calibration.texts, samples.texts))
    check_likeness(calibrating, measured)
    recipe = make_recipe(model, _translations(checkpoint, calibrating))
    tell(f"translations of {len(samples.texts)} sentences to measure on")
    pairs = _translations(checkpoint, measured)
    recipe, found = Gate(model, pairs).hold(recipe, tell)
    report = Quantization(
        calibration_sha256=calibration.sha256,
        calibration_sentences=len(calibration.texts),
        sentences=len(pairs),
        equal=found.equal,
        drift=found.drift,
        layers=found.layers,
    )
    if samples.references:
        tell("scores by the references")
        sources = [source for source, _ in pairs]
        ours = translate(native_model(model, recipe), sources, most_tokens(checkpoint.config.max_positions))
        theirs = [target for _, target in pairs]
        fp32, int8 = (
            score([tokenizer.decode(target) for target in targets], samples.references) for targets in (theirs, ours)
        )
        report = report.model_copy(update={"fp32": fp32, "int8": int8})
        check_loss(fp32, int8, samples)
    return Quantized(standard_model(model, recipe), recipe, report)


def score(translations: Sequence[str], references: Sequence[str]) -> Quality:
    """By sacrebleu, with its defaults. Raises ModuleNotFoundError where it is not installed."""
    import sacrebleu  # not among what export requires

    return Quality(
        bleu=sacrebleu.corpus_bleu(translations, [references]).score,
        chrf=sacrebleu.corpus_chrf(translations, [references]).score,
    )


def check_loss(fp32: Quality, int8: Quality, samples: Samples) -> None:
    """Raises VerificationError where 8 bits cost more than they may."""
    loss, most = Loss(fp32.bleu - int8.bleu, fp32.chrf - int8.chrf), samples.most_loss
    if loss.bleu > most.bleu or loss.chrf > most.chrf:
        raise VerificationError(
            f"8 bits lose {loss.bleu:.2f} BLEU ({fp32.bleu:.2f} to {int8.bleu:.2f}; --most-bleu-loss is {most.bleu:g}) "
            f"and {loss.chrf:.2f} chrF ({fp32.chrf:.2f} to {int8.chrf:.2f}; --most-chrf-loss is {most.chrf:g}) on "
            f"{len(samples.texts)} samples. Measure on more of them (--verify-samples): of few, one word is more than "
            "that. Calibrate on text like them (--calibration), or allow more"
        )


def _sources(checkpoint: Checkpoint, tokenizer: Tokenizer, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Token ids of each text."""
    most = most_tokens(checkpoint.config.max_positions)
    return [
        shorten(tokenizer.encode(text, language), most)
        for text, language in zip(texts, cycle(checkpoint.target_languages))
    ]


def _translations(checkpoint: Checkpoint, sources: Sequence[tuple[int, ...]]) -> list[Pair]:
    """By fp32, greedily."""
    most = most_tokens(checkpoint.config.max_positions)
    return list(zip(sources, translate(checkpoint.transformer, sources, most), strict=True))
