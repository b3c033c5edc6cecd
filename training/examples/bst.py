"""A behaviour sequence transformer (Chen et al. 2019): how likely somebody is to click, from what was clicked before.

python -m training.examples.click_log artifacts/clicks && python -m training.examples.bst artifacts/clicks

A text is a word for each click and one for what is shown, an item and how long ago it was: "i31@3d i7@1h i8@now".
A word's vector is made of embeddings of the item, its side features and the gap, which stands in place of a position.
Then come attention, a pooling and an MLP. `python -m export` makes a package of what is written that labels such texts.
"""

import argparse
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from torch.nn import functional as F

from training.data.files import new_folder
from training.encoders.config import EncoderShape
from training.encoders.cross_encoder import write_cross_encoder
from training.encoders.model import Encoder
from training.encoders.run import new_config
from training.encoders.text import CLS, SEP, SPECIAL, UNKNOWN, Vocabulary
from training.examples.click_log import REMEMBERED, Item, Shown, read

GAPS = {"now": 0, "10m": 600, "1h": 3600, "6h": 21_600, "1d": 86_400, "3d": 259_200, "1w": 604_800, "old": 1 << 40}
"""What a gap is called that is at most so many seconds long."""
ROOM = REMEMBERED + 3
"""Most words: the clicks, what is shown, [CLS] and [SEP]."""
HIDDEN = 64, 32
"""Of the MLP."""
NEW = 0.01
"""Share of the words in training that are unknown, as an item is that was not there yet."""
BATCH, EPOCHS, LEARNING_RATE, HELD_OUT = 256, 6, 3e-3, 0.2
SHAPE = EncoderShape(width=32, layers=1, heads=4, ffn=64, max_positions=ROOM)


Pooled = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Hidden states [texts, ROOM, width], 0 beside the mask [texts, ROOM, 1]; it; and scores as it -> [texts, pooled]."""


def attended(hidden: Tensor, mask: Tensor, scores: Tensor) -> Tensor:
    """A mean by learnt scores."""
    return (scores.masked_fill(~mask, -torch.inf).softmax(1) * hidden).sum(1)


def concatenated(hidden: Tensor, mask: Tensor, scores: Tensor) -> Tensor:
    """All of them, the last at the end."""
    places = torch.arange(ROOM) - (ROOM - mask.sum(1))
    found = hidden.gather(1, places.clamp(min=0).unsqueeze(2).expand_as(hidden))
    return (found * (places >= 0).unsqueeze(2)).flatten(1)


POOLINGS: dict[str, tuple[str, Pooled]] = {
    "sum": ("sum", lambda hidden, mask, _: hidden.sum(1)),
    "mean": ("mean", lambda hidden, mask, _: hidden.sum(1) / mask.sum(1)),
    "sum_sqrt": ("mean_sqrt_len_tokens", lambda hidden, mask, _: hidden.sum(1) / mask.sum(1).sqrt()),
    "max": ("max", lambda hidden, mask, _: hidden.masked_fill(~mask, -torch.inf).amax(1)),
    "concat": ("concat", concatenated),
    "attention": ("attention", attended),
}
"""By their names; first what a `pooling_mode` of sentence-transformers calls them."""


@dataclass(frozen=True)
class Clicks:
    """What was shown, as tokens."""

    ids: Tensor
    """[texts, ROOM]"""
    lengths: Tensor
    clicked: Tensor
    """0 or 1 [texts]"""

    def __getitem__(self, rows: Tensor) -> "Clicks":
        return Clicks(self.ids[rows], self.lengths[rows], self.clicked[rows])


def texts_of(log: Iterable[Shown]) -> list[tuple[str, bool]]:
    """A text for all that was shown, and whether it was clicked."""
    found = list[tuple[str, bool]]()
    for _, shown in groupby(log, key=lambda one: one.user):
        clicks = list[Shown]()
        for one in shown:
            before = [word(click.item, one.second - click.second) for click in clicks]
            found.append((" ".join([*before, f"{one.item.name}@now"]), one.clicked))
            if one.clicked:
                clicks = [*clicks[1 - REMEMBERED :], one]
    return found


def word(item: Item, seconds: int) -> str:
    """A click on an item so long ago."""
    names = list(GAPS)
    return f"{item.name}@{names[max(1, bisect_left(list(GAPS.values()), seconds))]}"


def words_of(items: Sequence[Item]) -> dict[str, Sequence[int]]:
    """Every word with its features, whose 0 is that of special ones: item, category, brand, price, gap."""
    words: dict[str, Sequence[int]] = {token: (index, 0, 0, 0, 0) for index, token in enumerate(SPECIAL)}
    for index, item in enumerate(items, len(SPECIAL)):
        for gap, name in enumerate(GAPS, 1):
            words[f"{item.name}@{name}"] = (index, item.category + 1, item.brand + 1, item.price + 1, gap)
    return words


def write_vocabulary(folder: Path, words: Iterable[str]) -> None:
    """A tokenizer.json for which what stands between spaces is a token."""
    ids = {one: index for index, one in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL))
    around = [(token, ids[token]) for token in (CLS, SEP)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{CLS} $A {SEP}", special_tokens=around)
    with new_folder(folder) as draft:
        tokenizer.save(str(draft / "tokenizer.json"))


def encode(texts: Sequence[tuple[str, bool]], vocabulary: Vocabulary) -> Clicks:
    """All texts."""
    ids = [torch.tensor(vocabulary.tokenizer.encode(text)) for text, _ in texts]
    padded = nn.utils.rnn.pad_sequence([*ids, torch.zeros(ROOM, dtype=torch.int64)], batch_first=True)[:-1]
    return Clicks(padded, torch.tensor(list(map(len, ids))), torch.tensor([float(clicked) for _, clicked in texts]))


class Bst(Encoder):
    """The model. Without `attends` it is the pooling and the MLP alone, over the same vectors of words."""

    def __init__(self, vocabulary: Vocabulary, features: Sequence[Sequence[int]], pooling: str, attends: bool) -> None:
        super().__init__(new_config(SHAPE, vocabulary), head=None)
        width = SHAPE.width
        self.attends, self.unknown_id = attends, vocabulary.tokenizer.spec.unknown_id
        self.pooling, self.pool = POOLINGS[pooling]
        self.register_buffer("features", torch.tensor(features), persistent=False)  # [words, kinds]
        sizes = (torch.tensor(features).amax(0) + 1).tolist()
        self.embeddings = nn.ModuleList(nn.Embedding(size, width) for size in sizes)
        self.together = nn.Sequential(nn.Linear(len(sizes) * width, width), nn.ReLU(), nn.Linear(width, width))
        self.scores = nn.Linear(width, 1)
        layers, pooled = list[nn.Module](), width * (ROOM if pooling == "concat" else 1)
        for size in HIDDEN:
            layers += [nn.Linear(pooled, size), nn.ReLU()]
            pooled = size
        self.mlp = nn.Sequential(*layers, nn.Linear(pooled, 1))
        nn.init.zeros_(self.source_positions)  # what the gaps say
        self.source_positions.requires_grad_(False)

    def table(self) -> Tensor:
        """The vectors of all words [words, width]."""
        kinds = self.get_buffer("features").unbind(1)
        embedded = [table(kind) for table, kind in zip(self.embeddings, kinds, strict=True)]
        found: Tensor = self.together(torch.cat(embedded, 1))
        return found

    def logits_of(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Of a click [texts], from ids [texts, ROOM]."""
        x = F.embedding(ids, self.table()).flatten(0, 1)
        hidden = self._encoded(x, lengths, ROOM, None, None) if self.attends else self.encoder_embedding_norm(x)
        mask = (torch.arange(ROOM) < lengths.unsqueeze(1)).unsqueeze(2)
        hidden = hidden.unflatten(0, ids.shape) * mask
        found: Tensor = self.mlp(self.pool(hidden, mask, self.scores(hidden)))
        return found.squeeze(1)


def train(model: Bst, clicks: Clicks, epochs: int) -> None:
    """The learning rate rises, and falls to nothing."""
    steps = epochs * -(-len(clicks.ids) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.1)
    for _ in range(epochs):
        for rows in torch.randperm(len(clicks.ids)).split(BATCH):
            batch = clicks[rows]
            new = (torch.rand(batch.ids.shape) < NEW) & (batch.ids >= len(SPECIAL))
            logits = model.logits_of(batch.ids.masked_fill(new, model.unknown_id), batch.lengths)
            loss = F.binary_cross_entropy_with_logits(logits, batch.clicked)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def auc(model: Bst, clicks: Clicks) -> float:
    """How often of two texts the one that was clicked has the larger logit."""
    pairs = zip(clicks.ids.split(1024), clicks.lengths.split(1024), strict=True)
    logits = torch.cat([model.logits_of(*pair) for pair in pairs])
    ranks, positive = logits.argsort().argsort().double() + 1, clicks.clicked.bool()
    count = int(positive.sum())
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(ranks) - count)))


@torch.no_grad()
def write(folder: Path, model: Bst, vocabulary: Path) -> None:
    """Words have their vectors in one table, as BERT's have."""
    table = model.table()
    model.source_embedding[: len(table)] = table
    layers = [layer for layer in model.mlp if isinstance(layer, nn.Linear)]
    scores = model.scores if model.pooling == "attention" else None
    write_cross_encoder(folder, model, ("click",), vocabulary, model.pooling, layers, scores)


def main() -> None:
    """Trains one model, and writes it but where it is the pooling alone."""
    parser = argparse.ArgumentParser("python -m training.examples.bst", description=__doc__)
    parser.add_argument("log", type=Path, help="folder of click_log")
    parser.add_argument("--out", type=Path, default=Path("artifacts/bst"))
    parser.add_argument("--pooling", choices=POOLINGS, default="attention")
    parser.add_argument("--pooling-alone", action="store_true", help="no attention before it: what it is compared with")
    options = parser.parse_args()
    torch.manual_seed(1)
    try:
        items, log = read(options.log)
    except (OSError, ValueError, KeyError, TypeError) as error:  # no such file, or one with other columns or items
        parser.exit(2, f"error: {options.log} cannot be read as a click log: {error!r}; click_log writes one\n")
    texts, words = texts_of(log), words_of(items)
    write_vocabulary(options.out / "vocabulary", words)
    vocabulary = Vocabulary.load(options.out / "vocabulary")
    model = Bst(vocabulary, list(words.values()), options.pooling, not options.pooling_alone)
    held_out = int(HELD_OUT * len(texts))  # people of whom nothing is learnt, as a person's are together
    clicks, began = encode(texts[held_out:], vocabulary), time.process_time()
    train(model, clicks, EPOCHS)
    rate = EPOCHS * int(clicks.lengths.sum()) / (time.process_time() - began)
    found = auc(model, encode(texts[:held_out], vocabulary))
    print(f"{options.pooling}{' alone' if options.pooling_alone else ''}: AUC {found:.4f}, {rate:,.0f} tokens/s")
    if options.pooling_alone:
        return
    with new_folder(options.out / "model") as draft:
        write(draft, model, options.out / "vocabulary")
    (options.out / "held-out.txt").write_text("".join(f"{text}\n" for text, _ in texts[:held_out]))


if __name__ == "__main__":
    main()
