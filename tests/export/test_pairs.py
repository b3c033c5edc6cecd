"""Samples of a model of many languages are translated as requests are: told the languages of several pairs."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from export.verification.compare_tokens import Samples
from export.verification.pairs import PAIRS, sample_pairs, sample_rules
from export.verification.reference import greedy_tokens
from models.checkpoint import Checkpoint, load_checkpoint
from models.languages import lookup
from tests.checkpoints import flores
from tests.export.test_families_exported import MULTILINGUAL
from tests.models.families import write_family

TEXTS = [english[:40] for english, _ in flores()[:6]]
MOST = 12


@pytest.fixture(scope="module", params=MULTILINGUAL)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family, write, _ = MULTILINGUAL[request.param]
    made = write_family(tmp_path_factory.mktemp("pairs") / request.param, family)
    write(made)
    return made


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Checkpoint:
    return load_checkpoint(folder)


def test_pairs_are_from_all_over_the_list(checkpoint: Checkpoint) -> None:
    pairs = sample_pairs(checkpoint, 32)
    assert len(pairs) == 32
    known = len(checkpoint.target_languages)
    assert len(set(pairs)) == min(PAIRS, known)
    assert all(source != target for source, target in pairs)
    assert {lookup(tag, checkpoint.source_languages) for pair in pairs for tag in pair} == {*sum(pairs, ())}


def test_what_is_verified_is_what_a_request_gets(folder: Path, checkpoint: Checkpoint) -> None:
    samples = Samples(checkpoint, folder, MOST, TEXTS, 1.0)
    samples.ask_transformers(lambda _: None)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    pairs, found = sample_pairs(checkpoint, len(TEXTS)), set()
    rules = sample_rules(checkpoint, checkpoint.generation, pairs)
    for index, (_, target) in enumerate(pairs):
        told, source = checkpoint.languages[target], samples.sources[index]
        assert tokenizer.unk_token_id != (told.begin_id or told.start_id)
        language = {"forced_bos_token_id": told.begin_id, "decoder_start_token_id": told.start_id}
        given = {key: token for key, token in language.items() if token is not None}
        assert len(given) == 1
        with torch.no_grad():
            [output] = model.generate(
                torch.tensor([source]), num_beams=1, do_sample=False, max_new_tokens=MOST, min_length=0, **given
            )
        expected = tuple(output[1:].tolist())
        assert samples._of_transformers[1][index] == expected
        assert greedy_tokens(checkpoint.model, source, expected, samples._generation, None, rules[index]) == expected
        found.add(expected)
    assert len(found) > 1
