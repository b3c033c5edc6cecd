"""Marian checkpoints with random weights, made by transformers, and SentencePiece models trained here."""

import io
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from transformers import MarianConfig, MarianMTModel

ROOT = Path(__file__).parents[1]
ZOO = ROOT / "models" / "zoo" / "en-pt"
FLORES = Path(__file__).parent / "data" / "flores-dev.en-pt.tsv"

CODES = (">>pt<<", ">>spa<<", ">>zho_Hant<<", ">>ca@valencia<<")
"""Of target languages. The last is no language tag."""
END, UNKNOWN = 0, 1
TABLES = ("shared.weight", "embed_tokens.weight", "lm_head.weight")
"""The tensors with a row for each token."""


@cache
def flores() -> list[tuple[str, str]]:
    """English and Portuguese sentences."""
    rows = [line.split("\t") for line in FLORES.read_text(encoding="utf-8").splitlines()]
    return [(english, portuguese) for english, portuguese in rows]


@cache
def sentencepiece_model(side: int = 0, pieces: int = 211, byte_fallback: bool = False, end: int = END) -> bytes:
    """A SentencePiece model of one side of FLORES, with the ids of Marian: end 0, unknown 1."""
    writer = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([pair[side] for pair in flores()]),
        model_writer=writer,
        vocab_size=pieces + 256 * byte_fallback,
        byte_fallback=byte_fallback,
        character_coverage=0.98,
        eos_id=end,
        unk_id=UNKNOWN,
        bos_id=-1,
        pad_id=-1,
        minloglevel=2,
    )
    return writer.getvalue()


def vocabulary(model: bytes, codes: Sequence[str] = ()) -> dict[str, int]:
    """Piece -> id, as vocab.json has it: the pieces of a SentencePiece model, codes of languages, and padding."""
    processor = SentencePieceProcessor(model_proto=model)
    pieces = [processor.id_to_piece(index) for index in range(processor.get_piece_size())]
    return {piece: index for index, piece in enumerate([*pieces, *codes, "<pad>"])}


def write_tokenizer(
    folder: Path, source: bytes, target: bytes, separate: bool, codes: Sequence[str] = ()
) -> tuple[int, int]:
    """Writes the tokenizer's files. Returns the sizes of the source and the target vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    source_ids, target_ids = vocabulary(source, codes), vocabulary(target, () if separate else codes)
    write_json(folder / "vocab.json", source_ids)
    if separate:
        write_json(folder / "target_vocab.json", target_ids)
    settings = {"source_lang": "en", "target_lang": "pt", "separate_vocabs": separate, "eos_token": "</s>"}
    write_json(folder / "tokenizer_config.json", settings)
    return len(source_ids), len(target_ids)


def write_checkpoint(
    folder: Path, separate: bool = False, seed: int = 7, codes: Sequence[str] = (), **config: object
) -> Path:
    """Writes a random MarianMTModel, with its tokenizer.

    separate: each side has a vocabulary and an embedding of its own, and so has the output. codes: tokens that name
    target languages. `config` changes keys of config.json.
    """
    source = sentencepiece_model()
    target = sentencepiece_model(side=1, pieces=187) if separate else source
    source_size, target_size = write_tokenizer(folder, source, target, separate, codes)
    pad = target_size - 1
    settings: dict[str, object] = {
        "vocab_size": source_size,
        "decoder_vocab_size": target_size,
        "d_model": 48,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 80,
        "max_position_embeddings": 80,
        "activation_function": "swish",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": not separate,
        "tie_word_embeddings": not separate,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": END,
        "forced_eos_token_id": END,
    }
    model = random_model(MarianConfig(**(settings | config)), seed)
    model.generation_config.max_length = 61
    model.generation_config.bad_words_ids = [[pad]]
    model.save_pretrained(folder)
    return folder


def random_model(config: MarianConfig, seed: int) -> MarianMTModel:
    """Random weights, large enough for targets that vary, and end.

    The signs of the norms differ, or else a tied output would find each token most like itself and repeat it for ever.
    """
    torch.manual_seed(seed)
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                weight += torch.randn_like(weight) * (0.5 if name.endswith(TABLES) else 0.15)
            if name.endswith("norm.weight"):
                weight *= torch.randn_like(weight).sign()
        model.final_logits_bias += torch.randn_like(model.final_logits_bias) * 0.1
        model.final_logits_bias[0, END] += 6
    return model


def write_json(file: Path, content: object) -> None:
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def edit_json(file: Path, **changes: object) -> None:
    """Changes keys of a JSON object; None removes one."""
    content = json.loads(file.read_text(encoding="utf-8")) | changes
    write_json(file, {key: value for key, value in content.items() if value is not None})
