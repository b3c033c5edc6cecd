"""How good a model is on text it has not learnt from."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import sacrebleu
import torch

from models.architectures.architecture import Architecture
from models.tokenizers.tokenizer import Tokenizer
from training.config import Validation
from training.data.batches import in_order, make_batch
from training.data.text import Corpus, TextPair
from training.decoding import TargetLimits, TracedModel
from training.objective.objective import Objective


@dataclass(frozen=True)
class Score:
    """Of one validation."""

    loss: float
    """What the objective shows, a mean over target tokens: cross-entropy in nats, or the error of matched logits."""
    bleu: float | None
    """sacrebleu with its default tokeniser (13a)."""

    @property
    def value(self) -> float:
        """Higher is better."""
        if not math.isfinite(self.loss):
            return -math.inf
        return -self.loss if self.bleu is None else self.bleu

    @property
    def measure(self) -> str:
        """What `value` is."""
        return "loss" if self.bleu is None else "BLEU"

    @property
    def values(self) -> dict[str, float]:
        """By name."""
        return {"loss": self.loss} | ({} if self.bleu is None else {"bleu": self.bleu})

    def __str__(self) -> str:
        return f"loss {self.loss:.3f}" + ("" if self.bleu is None else f", BLEU {self.bleu:.1f}")


class Scorer:
    """Scores the model of an experiment."""

    def __init__(
        self,
        objective: Objective,
        text: TextPair,
        corpus: Corpus,
        tokenizer: Tokenizer,
        settings: Validation,
        batch_tokens: int,
    ) -> None:
        """Raises TrainingError where a sentence fits no batch.

        corpus: the text, tokenised. batch_tokens: most tokens of a batch on either side
        """
        self._objective, self._text, self._corpus, self._tokenizer = objective, text, corpus, tokenizer
        self._settings, self._batches = settings, list(in_order(corpus, batch_tokens))
        self._traced: TracedModel | None = None

    def score(self) -> Score:
        """Scores the objective's model as it is now. What has no finite loss translates nothing."""
        loss = self._loss()
        translates = self._settings.sentences and math.isfinite(loss)
        return Score(loss, self._bleu(self._objective.model) if translates else None)

    @torch.no_grad()
    def _loss(self) -> float:
        objective, model = self._objective, self._objective.model
        device = model.source_embedding.device
        objective.eval()
        total = torch.zeros((), dtype=torch.float64)
        for rows in self._batches:
            _, shown = objective(make_batch(self._corpus, rows, model.config).to(device))
            total += shown.cpu()
        objective.train()
        return float(total) / int(self._corpus.target.lengths.sum())

    def _bleu(self, model: Architecture) -> float:
        count = self._settings.sentences
        self._traced = self._traced or TracedModel(model, self._tokenizer)
        sources = map(self._tokenizer.encode, self._text.source[:count])
        with self._traced.open(model, TargetLimits(self._settings.num_beams)) as engine:
            found = [translated.text for translated in engine.translate(sources)]
        return bleu(found, self._text.target[:count])


def bleu(translations: Iterable[str], references: Iterable[str]) -> float:
    """Of a corpus, 0 to 100."""
    score: float = sacrebleu.corpus_bleu(list(translations), [list(references)]).score
    return score
