"""Models as Marian NMT itself writes them, among them the students that Firefox and Bergamot translate with.

The reference is src/models/transformer.h of https://github.com/browsermt/marian-dev.
"""

from pathlib import Path

import torch
from sentencepiece import SentencePieceProcessor
from torch import Tensor

from models.best_tokens import NEVER
from models.checkpoint.contents import Checkpoint, CheckpointError
from models.checkpoint.files.pointers import check_fetched
from models.checkpoint.files.reading import TensorFile, notices, parse
from models.checkpoint.files.renames import fill
from models.checkpoint.files.weights import check_size
from models.checkpoint.marian_nmt.configuration import MAX_POSITIONS, MarianNmtConfig, model_config
from models.checkpoint.marian_nmt.file import CONFIGURATION, read_marian_file
from models.checkpoint.marian_nmt.folder import MarianFolder, read_folder
from models.checkpoint.marian_nmt.renames import renames
from models.checkpoint.tokenizers.case import check_case
from models.config import ModelConfig
from models.package.folder import sha256
from models.package.manifest import GenerationDefaults
from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec, load_sentencepiece
from models.tokenizers.tokenizer import TokenizerError
from models.tokenizers.typography import normalization_table
from models.transformer import Transformer


def load(folder: Path) -> Checkpoint:
    """Reads a folder with one model, its vocabulary and, if there is one, its shortlist. Raises CheckpointError.

    The languages are those that the model's name tells, if it does.
    """
    files = read_folder(folder)
    check_fetched(files.model, *files.vocabularies, *([] if files.shortlist is None else [files.shortlist]))
    content, tensors = read_marian_file(files.model)
    label = f"{files.model}: {CONFIGURATION}"
    marian = parse(MarianNmtConfig, content, label)
    source, target = (
        load_vocabulary(file, size) for file, size in zip(files.vocabularies, marian.dim_vocabs, strict=True)
    )
    config = model_config(marian, target.eos_id(), label)
    check_size(config, files.model)
    tokenizer = tokenizer_spec(files, source, config)
    return Checkpoint(
        name=folder.resolve().name,
        config=config,
        model=load_model(marian, config, tensors).eval(),
        tokenizer=tokenizer,
        generation=GenerationDefaults(max_new_tokens=MAX_POSITIONS),
        source_languages=files.languages[:1],
        target_languages=files.languages[1:],
        files={name: folder / name for name in tokenizer.files} | notices(folder),
        sha256=sha256(files.model),
        in_transformers=False,
        shortlist=files.shortlist,
    )


def load_vocabulary(file: Path, size: int) -> SentencePieceProcessor:
    """Reads a vocabulary, whose ids are the model's. Raises CheckpointError."""
    try:
        vocabulary = load_sentencepiece(file)
    except TokenizerError as error:
        raise CheckpointError(f"{file.parent}: {error}") from error
    check_case(file.read_bytes(), file)
    if vocabulary.get_piece_size() != size:
        raise CheckpointError(f"{file} has {vocabulary.get_piece_size()} pieces; the model has {size} (dim-vocabs)")
    if vocabulary.eos_id() < 0:
        raise CheckpointError(f"{file} has no end token (</s>), which Marian's vocabularies have")
    return vocabulary


def tokenizer_spec(files: MarianFolder, source: SentencePieceProcessor, config: ModelConfig) -> SentencePieceSpec:
    """Which files the tokenizer is, and which characters they need replaced."""
    source_file, target_file = files.vocabularies
    spec = SentencePieceSpec(
        source_model=source_file.name,
        target_model=target_file.name,
        vocabulary=None,
        end_id=source.eos_id(),
        unknown_id=source.unk_id(),
        hidden_ids=(config.end_id, config.decoder_start_id),
    )
    table = normalization_table(SentencePiecePair.load(source_file.parent, spec))
    return spec.model_copy(update={"normalization": table})


def load_model(marian: MarianNmtConfig, config: ModelConfig, tensors: TensorFile) -> Transformer:
    """Builds the Transformer and puts the weights into it."""
    model = Transformer(config)
    fill(model, renames(marian), {}, tensors)
    finish(model)
    return model


@torch.no_grad()
def finish(model: Transformer) -> None:
    """What Marian does without a tensor: its positions, and a decoder that starts from nothing.

    That becomes a token after the last of each vocabulary, with an embedding of zeros, which is never produced.
    """
    config = model.config
    model.source_embedding[config.pad_id] = 0
    model.target_embedding[config.decoder_start_id] = 0
    model.output_weight[config.decoder_start_id] = 0
    model.output_bias[config.decoder_start_id] = NEVER
    for table in (model.source_positions, model.target_positions):
        table.copy_(position_signal(*table.shape))


def position_signal(positions: int, width: int) -> Tensor:
    """Marian's sinusoids [positions, width].

    They are those of `models.transformer`, but the frequencies reach their end, 1/10000, one dimension earlier.
    """
    half = width // 2
    frequency = torch.pow(10000.0, -torch.arange(half, dtype=torch.float64) / (half - 1))
    angle = torch.arange(positions, dtype=torch.float64).unsqueeze(1) * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()
