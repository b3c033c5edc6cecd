"""Models of Marian NMT load as CTranslate2 loads them, in each of their forms; `test_firefox` has real ones."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ctranslate2 import Translator
from ctranslate2.converters import MarianConverter
from sentencepiece import SentencePieceProcessor
from torch import nn

from export import __main__ as export
from models.best_tokens import NEVER
from models.checkpoint import Checkpoint, load_checkpoint
from models.package.folder import Package, sha256
from models.tokenizers.sentencepiece_pair import SentencePiecePair, SentencePieceSpec
from tests.checkpoints import END, flores
from tests.models.checkpoint.marian.marian_nmt import (
    CONFIGURATION,
    PIECES,
    TARGET_PIECES,
    quantise,
    random_tensors,
    write_model,
)

ATTENTION: dict[str, Any] = {"transformer_decoder_autoreg": "self-attention", "dec_cell": "gru"}
TWO: dict[str, Any] = {"dim_vocabs": [PIECES, TARGET_PIECES], "tied_embeddings_all": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "one table": {},
    "swish, deep decoder": {"transformer_ffn_activation": "swish", "dec_depth": 3, "enc_depth": 1},
    "a table for each side": TWO | {"tied_embeddings": True},
    "three tables": TWO,
    "one for both sides, one for the output": {"tied_embeddings_all": False, "tied_embeddings_src": True},
    "no bias": {"output_omit_bias": True, "transformer_heads": 2},
}


class Peer:
    """CTranslate2, which reads the .npz by itself."""

    def __init__(self, folder: Path, vocabularies: Sequence[SentencePieceProcessor]) -> None:
        self._pieces = [[model.id_to_piece(index) for index in range(len(model))] for model in vocabularies]
        lists = [folder / "source.yml", folder / "target.yml"]
        for file, pieces in zip(lists, self._pieces, strict=True):
            file.write_text(
                "".join(f"{json.dumps(piece, ensure_ascii=False)}: {index}\n" for index, piece in enumerate(pieces)),
                "utf-8",
            )
        MarianConverter(str(folder / "model.npz"), list(map(str, lists))).convert(str(folder / "converted"))
        self._translator = Translator(str(folder / "converted"), compute_type="float32", intra_threads=1)

    def log_probs(self, source: Sequence[int], target: Sequence[int]) -> list[float]:
        """Of each target token. CTranslate2 adds the end token to both by itself."""
        pairs = zip(self._pieces, (source, target), strict=True)
        source_pieces, target_pieces = ([pieces[token] for token in ids] for pieces, ids in pairs)
        (result,) = self._translator.score_batch([source_pieces], [target_pieces])
        log_probs: list[float] = result.log_probs
        return log_probs


def as_ctranslate2_has_it(checkpoint: Checkpoint) -> None:
    """Gives a model the epsilon and the positions of CTranslate2, which are not Marian's."""
    for module in checkpoint.model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-5
    positions, width = checkpoint.transformer.source_positions.shape
    angles = torch.arange(positions).unsqueeze(1) * 10000.0 ** (-torch.arange(width // 2) / (width // 2))
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    with torch.no_grad():
        checkpoint.transformer.source_positions.copy_(table)
        checkpoint.transformer.target_positions.copy_(table)


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_log_probabilities_are_those_of_ctranslate2(tmp_path: Path, variant: dict[str, Any]) -> None:
    folder = write_model(tmp_path / "model", "npz", **(ATTENTION | variant))
    checkpoint = load_checkpoint(folder)
    as_ctranslate2_has_it(checkpoint)
    files = sorted(folder.glob("*.spm"))
    source_vocabulary, target_vocabulary = (SentencePieceProcessor(str(file)) for file in (files[0], files[-1]))
    peer = Peer(folder, (source_vocabulary, target_vocabulary))
    for pair in flores()[:12]:
        source, target = source_vocabulary.encode(pair[0]), target_vocabulary.encode(pair[1])
        begun = torch.tensor([[checkpoint.config.decoder_start_id, *target]])
        logits = checkpoint.model(torch.tensor([[*source, END]]), torch.tensor([len(source) + 1]), begun)[0]
        found = logits.log_softmax(dim=1)[range(len(target) + 1), [*target, END]]
        np.testing.assert_allclose(found.numpy(), peer.log_probs(source, target), atol=2e-4)


@pytest.mark.parametrize("form", ["float32", "float16", "intgemm8"])
def test_every_form_holds_the_same_weights(tmp_path: Path, form: str) -> None:
    expected = load_checkpoint(write_model(tmp_path / "npz", "npz")).model.state_dict()
    found = load_checkpoint(write_model(tmp_path / form, form)).model.state_dict()
    tolerance = {"float32": 0.0, "float16": 2**-10, "intgemm8": 0.01}[form]
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=tolerance, rtol=0)


def test_8_bits_are_divided_by_the_multiplier(tmp_path: Path) -> None:
    tensors = random_tensors(CONFIGURATION)
    model = load_checkpoint(write_model(tmp_path / "model", "intgemm8")).transformer
    matrix, table = tensors["decoder_l2_rnn_Wf"], tensors["Wemb"]
    _, numbers = quantise(matrix)
    assert torch.equal(model.get_parameter("decoder.1.recurrence.forget.weight"), torch.from_numpy(numbers).T)
    _, numbers = quantise(table)
    assert torch.equal(model.source_embedding[:PIECES], torch.from_numpy(numbers))


def test_what_marian_does_without_a_tensor(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(write_model(tmp_path / "model"))
    config, model = checkpoint.config, checkpoint.transformer
    assert (config.end_id, config.decoder_start_id, config.target_vocab_size) == (END, PIECES, PIECES + 1)
    assert not model.target_embedding[PIECES].any()
    assert model.output_bias[PIECES] == NEVER
    table = model.target_positions
    assert table.shape == (config.max_positions, 24)
    for position in (0, 1, 17, 300):
        for index in (0, 5, 11):
            angle = position * 10000.0 ** (-index / 11)
            expected = torch.tensor([math.sin(angle), math.cos(angle)])
            torch.testing.assert_close(table[position, [index, 12 + index]], expected)


def test_what_the_folder_says(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "students", **TWO)
    (folder / "LICENSE").write_text("MPL-2.0")
    (folder / "lex.50.50.enpt.s2t.bin").touch()
    checkpoint = load_checkpoint(folder)
    assert checkpoint.name == "students"
    assert (checkpoint.source_languages, checkpoint.target_languages) == (("en",), ("pt",))
    assert checkpoint.files.keys() == {"srcvocab.enpt.spm", "trgvocab.enpt.spm", "LICENSE"}
    assert checkpoint.shortlist == folder / "lex.50.50.enpt.s2t.bin"
    assert checkpoint.sha256 == sha256(folder / "model.enpt.intgemm.alphas.bin")
    assert checkpoint.sentencepiece.normalization["\u2019"] == "'"
    assert load_checkpoint(write_model(tmp_path / "npz", "npz")).source_languages == ()


def test_ids_are_those_of_sentencepiece(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", **TWO)
    tokenizer = SentencePiecePair.load(folder, load_checkpoint(folder).sentencepiece)
    source, target = (SentencePieceProcessor(str(folder / f"{side}vocab.enpt.spm")) for side in ("src", "trg"))
    replacements = str.maketrans({**tokenizer.spec.normalization})
    for english, portuguese in flores()[:50]:
        assert tokenizer.encode(english) == [*source.encode(english.translate(replacements)), END]
        ids = target.encode(portuguese)
        assert tokenizer.decode([*ids, END, TARGET_PIECES]) == target.decode(ids).strip()


def test_a_package_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_model(tmp_path / "trained", "npz", **(ATTENTION | TWO))
    command_line = [str(folder), "--out", str(tmp_path / "package"), "--verify-samples", "2"]
    assert export.main(command_line) == 2
    assert "the checkpoint does not say its source language: name it with --source-language" in capsys.readouterr().err
    assert export.main([*command_line, "--source-language", "en", "--target-language", "pt_BR"]) == 2
    assert "--target-language is 'pt_BR'" in capsys.readouterr().err
    languages = ["--source-language", "en", "--target-language", "pt", "--target-language", "pt-BR"]
    assert export.main([*command_line, *languages, "--keep-typography"]) == 0
    manifest = Package.open(tmp_path / "package").manifest
    assert (manifest.source_languages, manifest.target_languages) == (("en",), ("pt", "pt-BR"))
    assert isinstance(manifest.tokenizer, SentencePieceSpec) and manifest.tokenizer.normalization == {}
    assert [(agreement.reference, agreement.equal) for agreement in manifest.certificate.agreements] == [("pytorch", 2)]
