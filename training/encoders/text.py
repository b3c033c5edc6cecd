"""Text for encoders -> token ids, and the labels of what has some.

mlm      a sentence on each line, in the order of the text; an empty line between two documents
text     LABEL<TAB>TEXT on each line
tokens   WORD<TAB>LABEL on each line; an empty line between two sentences (CoNLL)
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from models.checkpoint.tokenizers.fast import spec_of
from models.tokenizers.tokenizer import TokenizerError
from models.tokenizers.tokenizer_json import TokenizerJson, load_backend
from training.data.files import new_folder
from training.data.text import Corpus, pack, read_lines
from training.encoders.config import WordPieces
from training.errors import TrainingError

PAD, UNKNOWN, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUING = "##"
"""What a piece begins with that goes on with a word."""
UNLABELLED = -100
"""The label of tokens that nothing is asked of."""

Encoded = tuple[Sequence[int], Sequence[int]]
"""What is read, and what is to be found: ids of a sentence and of the next one, or of a text and of its labels."""


@dataclass(frozen=True)
class Vocabulary:
    """WordPieces, and the special ones among them."""

    tokenizer: TokenizerJson
    continues: NDArray[np.bool_]
    """Whether a piece goes on with a word [pieces]."""
    pad_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    first_id: int = len(SPECIAL)
    """Of what may stand in the place of a hidden token: any but the special ones."""

    @property
    def size(self) -> int:
        return len(self.continues)

    @classmethod
    def load(cls, folder: Path) -> "Vocabulary":
        """Raises TrainingError where it is not BERT's kind."""
        try:
            backend = load_backend(folder / "tokenizer.json")
        except TokenizerError as error:
            raise TrainingError(f"{folder}: {error}") from error
        ids = backend.get_vocab()
        if missing := [token for token in SPECIAL if token not in ids]:
            raise TrainingError(f"{folder}/tokenizer.json has no {missing[0]}; a WordPiece vocabulary of BERT's has")
        continues = np.zeros(1 + max(ids.values()), np.bool_)
        continues[[number for piece, number in ids.items() if piece.startswith(CONTINUING)]] = True
        tokenizer = TokenizerJson(spec_of(backend), backend)
        return cls(tokenizer, continues, ids[PAD], ids[CLS], ids[SEP], ids[MASK])


def train_vocabulary(folder: Path, settings: WordPieces, lines: Iterable[str]) -> None:
    """Writes a tokenizer.json, and what transformers wants beside it. Raises TrainingError where it is too small."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=settings.lowercase)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.size,
        special_tokens=list(SPECIAL),
        continuing_subword_prefix=CONTINUING,
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    if (made := tokenizer.get_vocab_size()) > settings.size:
        raise TrainingError(
            f"a vocabulary of {settings.size} pieces cannot be trained: special tokens and the text's characters alone "
            f"are {made}. Raise vocabulary.size to that"
        )
    around = [(token, tokenizer.token_to_id(token)) for token in (CLS, SEP)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}", pair=f"{CLS} $A {SEP} $B:1 {SEP}:1", special_tokens=around
    )
    with new_folder(folder) as draft:
        tokenizer.save(str(draft / "tokenizer.json"))


def check_vocabulary(folder: Path, vocabulary: Vocabulary, asked: WordPieces) -> None:
    """Raises TrainingError where a run's vocabulary cannot be the one that the experiment asks for."""
    normalizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))["normalizer"]
    made, wanted = (vocabulary.size, normalizer["lowercase"]), (asked.size, asked.lowercase)
    if made[0] > wanted[0] or made[1] != wanted[1]:  # of little text come fewer pieces than were asked for
        was, now = (f"size = {size} and lowercase = {str(lower).lower()}" for size, lower in (made, wanted))
        raise TrainingError(
            f"{folder} was made with {was}; [vocabulary] asks for {now} now. Choose another output folder for another "
            "vocabulary, or put the experiment back as it was"
        )


def sentence_pairs(file: Path, vocabulary: Vocabulary, most: int) -> Iterator[Encoded]:
    """Each sentence of a document and the next one, cut so that both fit. Raises TrainingError."""
    half = (most - 3) // 2  # of what is left by [CLS] and two [SEP]
    for filled, lines in groupby(read_lines(file), key=lambda line: bool(line.strip())):
        if filled:
            ids = [found[:half] for line in lines if (found := vocabulary.tokenizer.encode_target(line))]
            yield from pairwise(ids)


def labelled_texts(file: Path) -> Iterator[tuple[str, str]]:
    """Labels and texts. Raises TrainingError."""
    for number, line in enumerate(read_lines(file), 1):
        label, tab, text = line.partition("\t")
        if not (tab and label.strip() and text.strip()):
            raise TrainingError(f"{file}, line {number} is {line[:80]!r}; expected a label, a tab and a text")
        yield label.strip(), text


def labelled_words(file: Path) -> Iterator[list[tuple[str, str]]]:
    """The words of each sentence, with their labels. Raises TrainingError, also where a line has more columns."""
    sentence: list[tuple[str, str]] = []
    for number, line in enumerate([*read_lines(file), ""], 1):
        columns = [column.strip() for column in line.strip().split("\t")]
        if line.strip() and not (len(columns) == 2 and all(columns)):
            raise TrainingError(f"{file}, line {number} is {line[:80]!r}; expected a word, a tab and a label")
        if line.strip():
            sentence.append((columns[0], columns[1]))
        elif sentence:
            yield sentence
            sentence = []


def encode_text(text: str, label: int, vocabulary: Vocabulary) -> Encoded:
    """A text with what belongs around it, and its label."""
    return vocabulary.tokenizer.encode(text), [label]


def encode_words(sentence: Iterable[tuple[str, int]], vocabulary: Vocabulary) -> Encoded:
    """The same of words, of which the first token has the label (Devlin et al. 2019, section 5.3)."""
    ids, labels = [vocabulary.cls_id], [UNLABELLED]
    for word, label in sentence:
        found = vocabulary.tokenizer.encode_target(word)
        ids += found
        labels += [label, *[UNLABELLED] * (len(found) - 1)] if found else []
    return [*ids, vocabulary.sep_id], [*labels, UNLABELLED]


def corpus(encoded: Iterable[Encoded], where: str) -> Corpus:
    """All of it. Raises TrainingError where it is nothing."""
    source, target = [], []
    for read, found in encoded:
        source.append(np.array(read, np.int32))
        target.append(np.array(found, np.int32))
    if not source:
        raise TrainingError(f"{where} has nothing to learn from: see docs/training.md for what its lines are")
    return Corpus(pack(source), pack(target))
