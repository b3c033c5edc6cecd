"""A tiny BART and a tiny T5 that translate number words: weights with structure, unlike random ones.

`python -m tests.models.number_words` trains both again, in some minutes, and writes tests/data/number-words. Each word
is a token, and so is each sign; the vocabulary is that of the corpus, in alphabetical order.
"""

import random
import re
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from training.examples.number_words import Pair, make_pairs

FOLDER = Path(__file__).parents[1] / "data" / "number-words"
PAIRS, HELD_OUT, SEED = 20_000, 200, 5
STEPS, BATCH, RATE, WARM = 1000, 96, 3e-3, 100
START, PAD, END = 0, 1, 2
FIRST = 3
"""The id of the first word."""
TOKEN = re.compile(r"\w+|[^\w\s]")

Ids = tuple[int, ...]


def corpus() -> tuple[list[Pair], dict[str, int]]:
    """The pairs, those for validation first, and the ids of their words."""
    pairs = make_pairs(PAIRS, SEED)
    words = sorted({word for pair in pairs for text in pair for word in TOKEN.findall(text)})
    return pairs, {word: FIRST + index for index, word in enumerate(words)}


def encode(text: str, ids: dict[str, int]) -> Ids:
    """The end token included."""
    return (*(ids[word] for word in TOKEN.findall(text)), END)


def make(words: int) -> dict[str, PreTrainedModel]:
    """Models for so many words, untrained."""
    ids: dict[str, Any] = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": START}
    bart = BartConfig(
        **ids, vocab_size=FIRST + words, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3,
        decoder_attention_heads=3, encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=48, dropout=0.0,
        scale_embedding=True, bos_token_id=START, forced_eos_token_id=None,
    )  # fmt: skip
    t5 = T5Config(
        **ids, vocab_size=FIRST + words, d_model=48, d_kv=16, d_ff=96, num_layers=2, num_heads=3, dropout_rate=0.0,
        relative_attention_num_buckets=12, relative_attention_max_distance=30, feed_forward_proj="gated-gelu",
    )  # fmt: skip
    return {"bart": BartForConditionalGeneration(bart), "t5": T5ForConditionalGeneration(t5)}


def train(model: PreTrainedModel, pairs: list[tuple[Ids, Ids]]) -> None:
    """Cross-entropy, Adam, a rate that warms up and falls off linearly."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / WARM, (STEPS - step) / STEPS))
    chance = random.Random(SEED)
    for step in range(STEPS):
        sources, targets = zip(*chance.sample(pairs, BATCH), strict=True)
        source, target = padded(sources, PAD), padded(targets, -100)
        loss = model(input_ids=source, attention_mask=(source != PAD).long(), labels=target).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 250 == 0:
            print(f"step {step}, loss {float(loss):.4f}", flush=True)


def padded(rows: tuple[Ids, ...], filler: int) -> torch.Tensor:
    """[rows, longest]"""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows])


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    pairs, ids = corpus()
    encoded = [(encode(source, ids), encode(target, ids)) for source, target in pairs[HELD_OUT:]]
    for name, model in make(len(ids)).items():
        train(model.train(), encoded)
        model.eval().half().save_pretrained(FOLDER / name)


if __name__ == "__main__":
    main()
