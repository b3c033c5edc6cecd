"""What encoders learn: hidden words and which sentence follows, or labels. Losses are sums over a batch's targets."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from training.data.batches import Batch
from training.data.text import Corpus
from training.encoders.config import Masking
from training.encoders.model import Encoder
from training.encoders.text import UNLABELLED, Vocabulary


class Pretraining(nn.Module):
    """Hidden words, and whether a sentence follows another (Devlin et al. 2019, section 3.1).

    A batch is of sentences and those that follow them, of which half are any of the corpus instead: those of a batch
    are of like length, which would say too much.
    """

    def __init__(self, model: Encoder, vocabulary: Vocabulary, masking: Masking, corpus: Corpus) -> None:
        super().__init__()
        self.model, self._vocabulary, self._masking, self._corpus = model, vocabulary, masking, corpus
        self.register_buffer("continues", torch.from_numpy(vocabulary.continues), persistent=False)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss, and the same to be shown: both means over what is asked for, times the targets' tokens."""
        device = batch.labels.device
        # The same words are hidden in every validation.
        draws = None if self.training else torch.Generator(device).manual_seed(0)
        ids, lengths, types, other = self.pairs(batch, draws)
        seen, hidden_ones = self.hide(ids, lengths, draws)
        loss = self.loss(seen, lengths, types, torch.where(hidden_ones, ids, UNLABELLED), other)
        total = loss * batch.is_token.sum()
        return total, total.detach()

    def loss(self, ids: Tensor, lengths: Tensor, types: Tensor, words: Tensor, other: Tensor) -> Tensor:
        """The sum of both means.

        words: what stood at hidden tokens, else UNLABELLED [texts, tokens]; other: 1 where the second sentence is any
        """
        hidden, asked = self.model.read(ids, lengths, types), words != UNLABELLED
        found = F.cross_entropy(self.model.words(hidden[asked]), words[asked], reduction="sum")
        return found / asked.sum().clamp(min=1) + F.cross_entropy(self.model.follows(hidden), other)

    def pairs(self, batch: Batch, draws: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """[CLS] A [SEP] B [SEP]: ids [texts, tokens], lengths, types of tokens, and 1 where B is of another A."""
        count, device = len(batch.labels), batch.labels.device
        changed = torch.rand(count, generator=draws, device=device) < 0.5
        drawn = torch.randint(len(self._corpus), (count,), generator=draws, device=device)
        vocabulary = self._vocabulary
        begin, end = (torch.tensor([token], device=device) for token in (vocabulary.cls_id, vocabulary.sep_id))
        texts, types = [], []
        for row, (other, place) in enumerate(zip(changed.tolist(), drawn.tolist(), strict=True)):
            second = batch.labels[row][batch.is_token[row]]
            if other:
                second = torch.from_numpy(self._corpus.target[place]).to(second)
            first = torch.cat([begin, batch.source_ids[row, : batch.source_lengths[row]], end])
            rest = torch.cat([second, end])
            texts.append(torch.cat([first, rest]))
            types.append(torch.cat([torch.zeros_like(first), torch.ones_like(rest)]))
        lengths = torch.tensor(list(map(len, texts)), device=device)
        ids = pad_sequence(texts, batch_first=True, padding_value=vocabulary.pad_id)
        return ids, lengths, pad_sequence(types, batch_first=True), changed.long()

    def hide(self, ids: Tensor, lengths: Tensor, draws: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """What the model sees of ids [texts, tokens], and which of them it is to find: whole words."""
        vocabulary, masking = self._vocabulary, self._masking
        continues: Tensor = self.get_buffer("continues")[ids]
        word = (~continues).cumsum(1) - 1
        shape, device = ids.shape, ids.device
        of_word, of_token = (torch.rand(shape, generator=draws, device=device) for _ in range(2))
        places = torch.arange(shape[1], device=device) < lengths.unsqueeze(1)
        special = (ids == vocabulary.cls_id) | (ids == vocabulary.sep_id)
        hidden = (of_word.gather(1, word) < masking.words) & places & ~special
        any_one = torch.randint(vocabulary.first_id, vocabulary.size, shape, generator=draws, device=device)
        seen = torch.where(of_token < masking.masked + masking.random, any_one, ids)
        seen = seen.masked_fill(of_token < masking.masked, vocabulary.mask_id)
        return torch.where(hidden, seen, ids), hidden


class Labels(nn.Module):
    """The label of a text, or of each word, which its first token has."""

    def __init__(self, model: Encoder, label_smoothing: float) -> None:
        super().__init__()
        self.model, self._smoothing = model, label_smoothing

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss, and the cross-entropy without smoothing."""
        logits, labels = self._logits(batch)
        loss, plain = (
            F.cross_entropy(logits, labels, ignore_index=UNLABELLED, reduction="sum", label_smoothing=smoothing)
            for smoothing in (self._smoothing, 0.0)
        )
        return loss, plain.detach()

    def right(self, batch: Batch) -> tuple[int, int]:
        """How many labels are the most probable ones, and how many there are."""
        logits, labels = self._logits(batch)
        asked = labels != UNLABELLED
        return int((logits.argmax(1)[asked] == labels[asked]).sum()), int(asked.sum())

    def _logits(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """[places, labels], and the labels [places]."""
        logits = self.model.labels(self.model.read(batch.source_ids, batch.source_lengths))
        labels = batch.labels.masked_fill(~batch.is_token, UNLABELLED)
        return logits.flatten(0, 1), labels.flatten()
