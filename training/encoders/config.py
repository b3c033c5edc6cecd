"""The file that describes the training of an encoder. Every key is checked, and an unknown one is refused."""

from typing import Literal

from pydantic import Field, model_validator

from models.config import Frozen
from training.config import MOST_PIECES, Layers, Named, Run, Size

Head = Literal["mlm", "text", "tokens"]


class EncoderData(Frozen):
    """Text, in files as the objective wants them (`training.encoders.text`)."""

    train: tuple[Named, ...] = Field(min_length=1)
    validation: Named
    max_tokens: int = Field(default=128, gt=8, lt=2**31)
    """Longest text, special tokens included. A pair of sentences is cut to it; a text with labels is refused."""


class WordPieces(Frozen):
    """A WordPiece vocabulary, trained on the training text."""

    size: int = Field(default=8000, gt=5, le=MOST_PIECES)
    """Special tokens included."""
    lowercase: bool = True
    """Case and accents are nothing to the model, as in bert-base-uncased."""


class EncoderShape(Frozen):
    """BERT's: norms after each sub-layer, learned positions, GELU."""

    width: Size = 256
    layers: Layers = 4
    heads: Size = 4
    ffn: Size = 1024
    max_positions: int = Field(default=512, gt=1)


class Masking(Frozen):
    """What is hidden of a text (Devlin et al. 2019, appendix A.1): always whole words."""

    words: float = Field(default=0.15, gt=0, lt=1)
    """Share of the words that are to be found again."""
    masked: float = Field(default=0.8, ge=0, le=1)
    """Share of their tokens in whose place is [MASK]."""
    random: float = Field(default=0.1, ge=0, le=1)
    """Share of their tokens in whose place is any other. The rest stay."""


class EncoderExperiment(Run):
    """All of it."""

    objective: Head
    """"mlm": to find hidden words, and whether a sentence follows another; "text": the label of a text; "tokens": the
    label of each word."""
    data: EncoderData
    vocabulary: WordPieces | None = None
    model: EncoderShape | None = None
    start: Named | None = None
    """A BERT folder of Hugging Face to begin with, instead of random weights."""
    masking: Masking = Masking()

    @model_validator(mode="after")
    def _consistent(self) -> "EncoderExperiment":
        scratch, start = (self.vocabulary is not None, self.model is not None), self.start is not None
        if scratch != (not start, not start):
            raise ValueError("give either both [vocabulary] and [model], or start")
        if self.validation.enough is not None:
            raise ValueError("validation.enough is the BLEU of translations; an encoder has none, see patience")
        unused = {f"training.{key}" for key in self.training.model_fields_set & {"scheduled_sampling", "ponder_price"}}
        unused |= {f"validation.{key}" for key in self.validation.model_fields_set & {"sentences", "num_beams"}}
        if self.objective != "mlm" and "masking" in self.model_fields_set:
            unused.add("masking")
        if self.objective == "mlm" and self.training.model_dump(exclude_unset=True).get("label_smoothing"):
            unused.add("training.label_smoothing")
        if unused:
            raise ValueError(f'an encoder with the objective "{self.objective}" has no {", ".join(sorted(unused))}')
        if self.masking.masked + self.masking.random > 1:
            raise ValueError(f"masking.masked {self.masking.masked} and random {self.masking.random} are more than 1")
        return self
