"""The cases of test_groups, and what transformers says of them, which is kept in tests/data.

transformers 5 has no diverse beam search any more, so it is version 4 that was asked. After a change of the cases, and
`pip install --target FOLDER transformers==4.49.0`, `PYTHONPATH=FOLDER python -m tests.engine.search.group_cases` asks
it again.
"""

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import MarianConfig, MarianMTModel

from models.decoding import Decoding
from models.package.folder import Package
from tests.checkpoints import ZOO, flores

RECORDED = Path(__file__).parents[2] / "data" / "transformers4.groups.json.gz"
END, PAD, VOCABULARY, SEEDS = 0, 36, 37, 4
OPTIONS = ("num_beams", "num_return_sequences", "max_new_tokens", "length_penalty", "early_stopping", "num_beam_groups")
Tokens = tuple[int, ...]
Answer = list[tuple[Tokens, float]]
"""Targets and their scores, best first."""


@dataclass(frozen=True)
class Case:
    """Of a model with random weights or, without a seed, of models/zoo/en-pt."""

    seed: int | None
    source: Tokens
    decoding: Decoding
    forced_end_id: int | None = END


@cache
def model_of(seed: int | None) -> MarianMTModel:
    """The random ones are in double precision, so that decoding with and without a cache gives the same numbers."""
    if seed is None:
        return MarianMTModel.from_pretrained(ZOO, local_files_only=True).eval()
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=64,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config).double().eval()
    chance = torch.Generator().manual_seed(seed)  # and not as a version of transformers begins
    with torch.no_grad():
        for name, weights in sorted(model.named_parameters()):
            if "embed_positions" not in name:
                weights.normal_(1.0 if "norm.weight" in name else 0.0, 0.2, generator=chance)
    model.final_logits_bias[0, END] = 1.0 + seed / 2
    model.register_forward_hook(lambda _, __, output: single(output))
    return model


def single(output: Any) -> Any:
    """With logits of single precision, as `generate` wants them."""
    output.logits = output.logits.float()
    return output


def cases() -> Iterator[Case]:
    """All groups and stopping rules, each with some model, source and length penalty; and real sentences."""
    chance = random.Random(7)
    shapes = [(beams, groups) for beams in (2, 3, 4, 6, 8) for groups in range(2, beams + 1) if beams % groups == 0]
    for (beams, groups), most, early_stopping in product(shapes, (1, 2, 7, 24) * 2, (False, True, "never")):
        source = (*(chance.randrange(1, PAD) for _ in range(chance.randrange(1, 9))), END)
        decoding = Decoding(
            num_beams=beams,
            num_return_sequences=chance.randint(1, beams),
            max_new_tokens=most,
            length_penalty=chance.choice((-0.5, 0.0, 1.0, 2.0)),
            early_stopping=early_stopping,  # type: ignore[arg-type]
            num_beam_groups=groups,
            diversity_penalty=chance.choice((0.25, 1.0, 5.0)),
        )
        yield Case(chance.randrange(SEEDS), source, decoding, chance.choice((None, END)))
    tokenizer = Package.open(ZOO).tokenizer()
    for text, (beams, groups), penalty in zip(
        [english for english, _ in flores()[::120]], [(4, 2), (4, 4), (6, 3), (8, 2)] * 2, [0.5, 1.0] * 4, strict=False
    ):
        decoding = Decoding(beams, beams, 40, num_beam_groups=groups, diversity_penalty=penalty)
        yield Case(None, tuple(tokenizer.encode(text)), decoding)


def recorded() -> dict[Case, Answer]:
    """What was said of each."""
    answers = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return {
        case: [(tuple(tokens), score) for tokens, score in answer]
        for case, answer in zip(cases(), answers, strict=True)
    }


def generate(case: Case) -> Answer:
    """Without those that only fill up, and without padding."""
    model, decoding = model_of(case.seed), case.decoding
    with torch.inference_mode():
        output = model.generate(
            torch.tensor([case.source]),
            **{name: getattr(decoding, name) for name in (*OPTIONS, "diversity_penalty")},
            forced_eos_token_id=case.forced_end_id,
            bad_words_ids=[[model.config.pad_token_id]],
            output_scores=True,
            return_dict_in_generate=True,
            do_sample=False,
        )
    pairs = zip(output.sequences[:, 1:].tolist(), output.sequences_scores.tolist(), strict=True)
    return [
        (tuple(token for token in row if token != model.config.pad_token_id), round(score, 6))
        for row, score in pairs
        if score > -1e8
    ]


def record() -> None:
    """Asks transformers for all."""
    assert transformers.__version__.startswith("4.")
    torch.set_num_threads(1)
    text = json.dumps([generate(case) for case in cases()], separators=(",", ":"))
    RECORDED.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    record()
