"""A folder of a family that transformers saved, tokenizer included, becomes a package that translates."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from tokenizers.decoders import ByteLevel
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BlenderbotSmallConfig,
    BlenderbotSmallForConditionalGeneration,
    ByT5Tokenizer,
    FSMTConfig,
    FSMTForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    PLBartConfig,
    PLBartForConditionalGeneration,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from engine.batch.running_batch import RunningBatch
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load, open_decoder
from engine.observer import Unobserved
from engine.offline import decode
from engine.request import Event, Finished, Hypothesis, Translate
from engine.targets import language_rules
from export import __main__ as command
from export.verification.reference import TransformersModel
from models.checkpoint import CheckpointError, load_checkpoint
from models.decoding import Decoding
from models.package.folder import Package
from models.package.manifest import Manifest
from tests.checkpoints import edit_json, flores
from tests.models.families import (
    BART_LIKE,
    SHAPE,
    T5_LIKE,
    T5_SHAPE,
    TWO_VOCABULARIES,
    VOCABULARY,
    Family,
    write_family,
)
from tests.models.tokenizers.test_madlad import CODES, madlad
from tests.models.tokenizers.test_python_tokenizers import blenderbot_small, fsmt, m2m100, plbart
from tests.models.tokenizers.test_tokenizer_json import mbart25, mbart50, nllb
from tests.oracles import until_end

pytestmark = pytest.mark.timeout(300)
"""An export alone takes a minute and a half on a busy machine."""
CONTROL = ("<s>", "<pad>", "</s>", "<unk>")


def write_tokenizer(folder: Path, pieces: int) -> None:
    """BART's kind: byte-level BPE, and <s> and </s> around a text. Trained here."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=pieces, special_tokens=list(CONTROL), show_progress=False)
    backend.train_from_iterator([english for english, _ in flores()[:200]], trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.save_pretrained(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_family(tmp_path / "bart", BART_LIKE["bart, as for summaries"])
    write_tokenizer(folder, VOCABULARY)
    return folder


def check_agreed(manifest: Manifest) -> None:
    """Its tokens are those of PyTorch, and of transformers."""
    agreements = manifest.certificate.agreements
    assert {agreement.reference for agreement in agreements} == {"pytorch", "transformers"}
    assert all(agreement.equal == agreement.sentences for agreement in agreements)


def test_becomes_a_package(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "package"
    (folder / "README.md").write_text("---\nlanguage:\n- en\n---\n# Summaries\n", encoding="utf-8")
    arguments = ["--verify-samples=3", "--output-layer=full"]
    arguments += ["--task", "summarize: ", "--task", "translate English to German: "]
    assert command.main([str(folder), "--out", str(out), *arguments]) == 0
    manifest = Package.open(out).manifest
    check_agreed(manifest)
    assert manifest.generation.forced_begin_id == 0
    assert manifest.source_languages == manifest.target_languages == ("en",), "of the model card"
    names = ["summarize", "translate English to German"]
    assert manifest.prompts == {name: f"{name}: " for name in names}
    assert manifest.prompt == "summarize"
    tokenizer = Package.open(out).tokenizer()
    ids = tokenizer.encode("It started to rain.")
    assert (ids[0], ids[-1]) == (0, 2)
    assert tokenizer.decode(ids) == "It started to rain."


def test_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    write_tokenizer(folder, VOCABULARY + 30)
    with pytest.raises(CheckpointError, match=f"has token {VOCABULARY + 29}; the model has {VOCABULARY} tokens"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("file", "changes", "said"),
    [
        ("generation_config.json", {"suppress_tokens": [2]}, "Every token in `forced_eos_token_id`"),
        ("generation_config.json", {"cache_implementation": "paper"}, "Invalid `cache_implementation` "),
        ("config.json", {"_attn_implementation": "paper"}, "Specified `attn_implementation"),
    ],
)
def test_what_transformers_refuses_is_told(folder: Path, file: str, changes: dict[str, object], said: str) -> None:
    """A package may do without; there is nothing to hold it to."""
    edit_json(folder / file, **changes)
    load_checkpoint(folder)
    with pytest.raises(CheckpointError, match=f"{folder}: transformers does not open the model: {said}.*; mend what"):
        TransformersModel(folder)


@pytest.mark.parametrize("family", [BART_LIKE["bart"], BART_LIKE["pegasus"], T5_LIKE["t5"]])
def test_control_tokens_may_be_beyond_the_vocabulary(family: Family, tmp_path: Path) -> None:
    """No text has them, as `<mask>` of bart-large-cnn. Another token there is one of another model."""
    write_tokenizer(write_family(tmp_path, family), VOCABULARY)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    tokenizer.save_pretrained(tmp_path)
    assert tokenizer.mask_token_id == VOCABULARY
    found = load_checkpoint(tmp_path).open_tokenizer(tmp_path)
    assert max(found.encode("A <mask> of <mask>.")) < VOCABULARY
    tokenizer.add_tokens("cat")
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=f"has token {VOCABULARY + 1}; the model has {VOCABULARY} tokens"):
        load_checkpoint(tmp_path)


MANY = SHAPE | {"vocab_size": 780, "encoder_layers": 1, "decoder_layers": 1}
MULTILINGUAL: dict[str, tuple[Family, Callable[[Path], None], dict[str, str]]] = {
    "nllb": (
        Family(lambda: M2M100ForConditionalGeneration(M2M100Config(**MANY)), end_bias=3.0),
        nllb,
        {"en": "eng_Latn", "pt": "por_Latn"},
    ),
    "mbart-50": (
        Family(lambda: MBartForConditionalGeneration(MBartConfig(**MANY, decoder_start_token_id=2)), end_bias=3.0),
        mbart50,
        {"en": "en_XX", "pt": "pt_XX", "zh": "zh_CN"},
    ),
    "mbart-25": (
        Family(lambda: MBartForConditionalGeneration(MBartConfig(**MANY)), end_bias=3.0),
        mbart25,
        {"en": "en_XX", "ro": "ro_RO", "zh": "zh_CN"},
    ),
    "plbart": (
        Family(lambda: PLBartForConditionalGeneration(PLBartConfig(**MANY | {"vocab_size": 730})), end_bias=3.0),
        plbart,
        {"en": "en_XX", "x-java": "java", "x-python": "python"},
    ),
    "m2m100": (
        Family(lambda: M2M100ForConditionalGeneration(M2M100Config(**MANY | {"vocab_size": 800})), end_bias=3.0),
        m2m100,
        {"en": "en", "nso": "ns", "pt": "pt"},
    ),
}


@pytest.mark.parametrize("name", MULTILINGUAL)
def test_many_languages_at_once_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Rows from and to all of them stand in one running batch; `generate` is asked for each pair alone."""
    family, write, codes = MULTILINGUAL[name]
    folder, out = write_family(tmp_path / "checkpoint", family), tmp_path / "package"
    write(folder)
    assert command.main([str(folder), "--out", str(out), "--verify-samples=2"]) == 0
    package = Package.open(out)
    check_agreed(package.manifest)
    assert set(codes) <= set(package.manifest.target_languages)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    ours, asked, expected = package.tokenizer(), list[Asked](), list[list[tuple[int, ...]]]()
    for source, target in itertools.permutations(codes, 2):
        ids = ours.encode("It started to rain.", target, source)
        tokenizer.src_lang = codes[source]
        assert ids == tokenizer("It started to rain.").input_ids
        written = f"__{codes[target]}__" if name in ("m2m100", "plbart") else codes[target]
        told = "decoder_start_token_id" if name in ("mbart-25", "plbart") else "forced_bos_token_id"
        language = {told: tokenizer.convert_tokens_to_ids(written)}
        for decoding in SEARCHES:
            beams = decoding.num_beams
            found = model.generate(
                torch.tensor([ids]), **language, num_beams=beams, num_return_sequences=beams, do_sample=False,
                max_new_tokens=20,
            )  # fmt: skip
            asked.append((tuple(ids), target, decoding))
            expected.append([until_end(row, model.config.eos_token_id) for row in found[:, 1:].tolist()])
    answers = decoded_together(package, asked)
    assert [[hypothesis.token_ids for hypothesis in answer] for answer in answers] == expected
    assert len({targets[0] for targets in expected}) >= len(codes)


Asked = tuple[tuple[int, ...], str, Decoding]
"""The ids of a source, its target language and a search."""
SEARCHES = (Decoding(max_new_tokens=20), Decoding(num_beams=4, num_return_sequences=4, max_new_tokens=20))


def decoded_together(package: Package, asked: Sequence[Asked]) -> list[tuple[Hypothesis, ...]]:
    """The answers to all, whose rows take their steps side by side in one running batch."""
    loadable, told = Loadable.of(package), [list[Event]() for _ in asked]
    rules = language_rules(loadable.rules, package.manifest.languages)
    requests = [
        Translate(ids, events.append, decoding=decoding, rules=rules[target])
        for (ids, target, decoding), events in zip(asked, told, strict=True)
    ]
    with closing(open_decoder(loadable, CPU, kernels="off")) as decoder:
        batch = RunningBatch(decoder, sum(request.rows for request in requests), Unobserved(), worker=0)
        batch.admit(requests)
        while not batch.idle:
            batch.step()
        batch.answers.deliver()
    answers = []
    for [event] in told:
        assert isinstance(event, Finished), event
        answers.append(event.hypotheses)
    return answers


def test_a_model_of_moses_words_becomes_a_package(tmp_path: Path) -> None:
    sizes = TWO_VOCABULARIES | {"src_vocab_size": 700, "tgt_vocab_size": 690, "encoder_layers": 1, "decoder_layers": 1}
    family = Family(lambda: FSMTForConditionalGeneration(FSMTConfig(**sizes)))
    folder, out = write_family(tmp_path / "checkpoint", family), tmp_path / "package"
    fsmt(folder)
    assert command.main([str(folder), "--out", str(out), "--verify-samples=2"]) == 0
    package = Package.open(out)
    manifest = package.manifest
    assert (manifest.source_languages, manifest.target_languages) == (("en",), ("de",))
    assert all(agreement.equal == agreement.sentences for agreement in manifest.certificate.agreements)
    ours, theirs = package.tokenizer(), AutoTokenizer.from_pretrained(folder)
    assert ours.encode("It's 3 o'clock.") == theirs("It's 3 o'clock.").input_ids


def test_a_blenderbot_small_becomes_a_package(tmp_path: Path) -> None:
    """Nothing ends its sources, as in transformers, whose tokens certify the package."""
    sizes = SHAPE | {"vocab_size": 700, "encoder_layers": 1, "decoder_layers": 1}
    family = Family(lambda: BlenderbotSmallForConditionalGeneration(BlenderbotSmallConfig(**sizes)), end_bias=5.0)
    folder, out = write_family(tmp_path / "checkpoint", family), tmp_path / "package"
    blenderbot_small(folder)
    assert command.main([str(folder), "--out", str(out), "--verify-samples=2"]) == 0
    package = Package.open(out)
    check_agreed(package.manifest)
    text = "It's 3 o'clock."
    assert package.tokenizer().encode(text) == AutoTokenizer.from_pretrained(folder)(text).input_ids


def test_target_language_is_not_guessed(tmp_path: Path) -> None:
    folder = write_family(tmp_path, BART_LIKE["mbart-50"])
    write_tokenizer(folder, VOCABULARY)
    edit_json(folder / "generation_config.json", forced_bos_token_id=None)
    with pytest.raises(CheckpointError, match="forced_bos_token_id is missing; to a mbart model it says the target"):
        load_checkpoint(folder)


def test_an_mbart50_says_what_its_decoder_is_fed(tmp_path: Path) -> None:
    """The language of its sources stands before them, so that its targets do not start with theirs."""
    folder = write_family(tmp_path, Family(lambda: MBartForConditionalGeneration(MBartConfig(**MANY))))
    mbart50(folder)
    with pytest.raises(CheckpointError, match="decoder_start_token_id is missing"):
        load_checkpoint(folder)


LARGE = T5_SHAPE | {"vocab_size": 820, "num_layers": 1, "num_decoder_layers": 1}
CALM = {"relative": 1.0, "shared": 0.35, "": 0.1}
"""Scores without a scale magnify roundings, and a certificate is strict."""
MADLAD_CONFIG = {
    "eos_token_id": 2,
    "pad_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False,
}
MADLAD = Family(lambda: T5ForConditionalGeneration(T5Config(**LARGE | MADLAD_CONFIG)), spread=CALM, own_output=True)
BYT5 = Family(lambda: T5ForConditionalGeneration(T5Config(**T5_SHAPE | {"vocab_size": 384})), spread=CALM)


def test_madlad_becomes_a_package(tmp_path: Path) -> None:
    folder, out = write_family(tmp_path / "checkpoint", MADLAD), tmp_path / "package"
    madlad(folder)
    assert command.main([str(folder), "--out", str(out), "--verify-samples=2", "--output-layer=full"]) == 0
    package = Package.open(out)
    assert package.manifest.target_languages == (*CODES,)
    config = package.manifest.model
    assert (config.decoder_start_id, config.pad_id, config.end_id, config.tie_output) == (0, 1, 2, False)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    ours, loadable = package.tokenizer(), Loadable.of(package)
    with load(loadable, CPU, Limits(4, 1)) as runner:
        for target in package.manifest.target_languages:
            ids = ours.encode("It started to rain.", target)
            assert ids == tokenizer(f"{CODES[target]} It started to rain.").input_ids
            for penalty in (1.0, 1.3):  # which is for whole rows; queries are wider than the model
                wishes = Decoding(max_new_tokens=20, repetition_penalty=penalty)
                with torch.no_grad():
                    expected = model.generate(
                        torch.tensor([ids]), num_beams=1, do_sample=False, max_new_tokens=20, repetition_penalty=penalty
                    )
                [answer] = decode(runner, loadable.rules, [(tuple(ids), wishes)])
                assert [*answer.hypotheses[0].token_ids] == expected[0, 1:].tolist()


def test_byt5_needs_no_files_of_a_tokenizer(tmp_path: Path) -> None:
    write_family(tmp_path, BYT5)
    edit_json(tmp_path / "config.json", tokenizer_class="ByT5Tokenizer")
    checkpoint = load_checkpoint(tmp_path)
    tokenizer = checkpoint.open_tokenizer(tmp_path)
    for text in ("It started to rain.", "Começou a chover, 雨が降り始めた。"):
        assert tokenizer.encode(text) == ByT5Tokenizer()(text).input_ids
        assert tokenizer.decode(tokenizer.encode(text)) == text
