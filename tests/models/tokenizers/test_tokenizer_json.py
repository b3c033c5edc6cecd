"""Tokenizers of a tokenizer.json, against those of transformers."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from models.checkpoint.contents import CheckpointError
from models.checkpoint.tokenizers.fast import read_fast_tokenizer
from models.tokenizers.tokenizer import TextStream, Tokenizer, TokenizerError, clean_up, pieces
from models.tokenizers.tokenizer_json import Affixes, TokenizerJson, TokenizerJsonSpec
from tests.checkpoints import edit_json

PAGE = (Path(__file__).parents[2] / "data" / "flores-dev.en-pt.tsv").read_text(encoding="utf-8").split("\n")[:300]
MOST_TOKENS = 400
"""More than any of the vocabularies has."""
SCRIPTS = (
    "The house isn't red , is it ?",
    "Die Straße über den Fluß",
    "O coração não é só um órgão",
    "Живёт в лесу ёж",
    "Η θάλασσα είναι ήρεμη σήμερα",
    "שלום לכולם",
    "السلام عليكم ورحمة الله",
    "नमस्ते दुनिया",
    "আমি বাংলায় গান গাই",
    "வணக்கம் உலகம்",
    "ఎలా ఉన్నారు",
    "ສະບາຍດີ",
    "สวัสดีชาวโลก",
    "မင်္ဂလာပါ",
    "გამარჯობა მსოფლიო",
    "Բարեւ աշխարհ",
    "今天天气很好。",
    "東京は夜の七時",
    "안녕하세요 세계",
    "ሰላም ለዓለም",
    "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ",
    "👩‍👩‍👧‍👦 ﬁn … ½ \u00ad x\u0301",
)
TEXTS = 2000

Write = Callable[[Path], None]


def texts(count: int = TEXTS) -> list[str]:
    """Pieces of sentences of many scripts, with spaces of all kinds in between."""
    chance, words = random.Random(17), [word for text in SCRIPTS for word in text.split()]
    spaces = (" ", " ", " ", "  ", "\n", "\t", "")
    return [
        "".join(chance.choice(words) + chance.choice(spaces) for _ in range(chance.randint(1, 12)))
        for _ in range(count)
    ]


T5_CONTROL = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
"""The ids of control tokens; -1: there is none."""


def sentencepieces(
    folder: Path,
    name: str,
    symbols: Sequence[str] = (),
    control: Mapping[str, Any] = T5_CONTROL,
    **configuration: Any,
) -> None:
    page = folder / "page.txt"
    page.write_text("\n".join([*PAGE, *SCRIPTS]), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(page), model_prefix=str(folder / "pieces"), vocab_size=700, **control,
        character_coverage=0.99, minloglevel=2, user_defined_symbols=list(symbols),
    )  # fmt: skip
    (folder / "pieces.model").rename(folder / name)
    (folder / "tokenizer_config.json").write_text(json.dumps(configuration))


def t5(folder: Path) -> None:
    sentencepieces(folder, "spiece.model", tokenizer_class="T5Tokenizer")


def nllb(folder: Path) -> None:
    sentencepieces(folder, "sentencepiece.bpe.model", tokenizer_class="NllbTokenizer")
    fast = transformers.AutoTokenizer.from_pretrained(folder)
    fast.add_special_tokens({"extra_special_tokens": ["eng_Latn", "por_Latn"]})
    fast.save_pretrained(folder)


def mbart50(folder: Path) -> None:
    sentencepieces(folder, "sentencepiece.bpe.model", tokenizer_class="MBart50Tokenizer", src_lang="en_XX")


def mbart25(folder: Path) -> None:
    """As facebook/mbart-large-cc25 lies on the Hub."""
    sentencepieces(folder, "sentencepiece.bpe.model", tokenizer_class="MBartTokenizer", src_lang="en_XX")


def pegasus(folder: Path) -> None:
    sentencepieces(folder, "spiece.model", tokenizer_class="PegasusTokenizer")


def camembert(folder: Path) -> None:
    sentencepieces(folder, "sentencepiece.bpe.model", tokenizer_class="CamembertTokenizer")


def xlm_roberta(folder: Path) -> None:
    sentencepieces(folder, "sentencepiece.bpe.model", tokenizer_class="XLMRobertaTokenizer")


def bart(folder: Path) -> None:
    """Byte-level BPE."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(
        PAGE, trainers.BpeTrainer(vocab_size=600, special_tokens=special, initial_alphabet=alphabet)
    )
    trained.decoder = decoders.ByteLevel()
    trained.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    transformers.BartTokenizer(tokenizer_object=trained).save_pretrained(folder)


def vocab_and_merges(folder: Path, **configuration: object) -> None:
    """The same as the authors of GPT-2 and RoBERTa kept it."""
    bart(folder)
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "".join(f"{' '.join(merge)}\n" for merge in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}")
    if configuration:
        (folder / "tokenizer_config.json").write_text(json.dumps(configuration))


def blenderbot(folder: Path) -> None:
    vocab_and_merges(folder, tokenizer_class="BlenderbotTokenizer")


def bert(folder: Path) -> None:
    """WordPiece, whose saved file truncates and pads, as MiniLM's does."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trained = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer = normalizers.BertNormalizer()
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trained.train_from_iterator([*PAGE, *SCRIPTS], trainers.WordPieceTrainer(vocab_size=700, special_tokens=special))
    trained.decoder = decoders.WordPiece()
    trained.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    trained.enable_truncation(8)
    trained.enable_padding(length=8)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained, unk_token="[UNK]", sep_token="[SEP]", cls_token="[CLS]", pad_token="[PAD]",
        mask_token="[MASK]", clean_up_tokenization_spaces=True,
    )  # fmt: skip
    fast.save_pretrained(folder)


def byte_fallback(folder: Path) -> None:
    """A token for each byte of what has no piece; bytes that follow each other are characters together, or none."""
    special, text = ["</s>", "<pad>", "<unk>"], "\n".join([*PAGE, *SCRIPTS[:3]])
    words = sorted({f"▁{word}" for word in text.split()})[:300]
    letters = sorted({"▁", *text} - {" ", "\n"})
    scored = [(piece, 0.0) for piece in (*special, *(f"<0x{byte:02X}>" for byte in range(256)))]
    scored += [(piece, -8.0) for piece in words] + [(letter, -4.0) for letter in letters if letter not in words]
    made = tokenizers.Tokenizer(models.Unigram(scored, unk_id=2, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 0)])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    fast.save_pretrained(folder)


FAMILIES: list[Write] = [
    *(t5, nllb, mbart25, mbart50, pegasus, xlm_roberta, camembert),
    *(bart, blenderbot, bert, byte_fallback),
]


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda write: write.__name__)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp(request.param.__name__)
    request.param(made)
    return made


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def ours(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenizerJson:
    return opened(folder, tmp_path_factory.mktemp("package"))


def opened(folder: Path, package: Path, multilingual: bool = False) -> TokenizerJson:
    found = read_fast_tokenizer(folder, multilingual)
    (package / found.spec.file).write_text(found.content, encoding="utf-8")
    return TokenizerJson.load(package, TokenizerJsonSpec.model_validate_json(found.spec.model_dump_json()))


def test_ids_are_those_of_transformers(ours: TokenizerJson, theirs: Any) -> None:
    asked = [*texts(), *PAGE]
    expected = theirs(asked, truncation=False, padding=False).input_ids
    assert [ours.encode(text) for text in asked] == expected
    assert len({token_id for ids in expected for token_id in ids}) > 200


def test_ids_of_targets_are_those_of_transformers_without_what_is_around_them(ours: TokenizerJson, theirs: Any) -> None:
    for text in ("", *texts(100)):
        assert ours.encode_target(text) == theirs(text, add_special_tokens=False).input_ids


def test_texts_are_those_of_transformers(ours: TokenizerJson, theirs: Any) -> None:
    chance = random.Random(5)
    found = [ours.encode(text) for text in texts(500)]
    found += [[chance.randrange(len(theirs)) for _ in range(chance.randint(0, 20))] for _ in range(500)]
    assert [ours.decode(ids) for ids in found] == [theirs.decode(ids, skip_special_tokens=True) for ids in found]


@pytest.mark.parametrize("insists", [False, True])
def test_byte_pairs_keep_their_spaces_unless_a_file_insists(insists: bool, tmp_path: Path) -> None:
    """As files that transformers 4 wrote, such as NLLB's, have it: French puts a space before a question mark."""
    for name in ("folder", "package"):
        (tmp_path / name).mkdir()
    bart(tmp_path / "folder")
    settings = {"clean_up_tokenization_spaces": True}
    settings |= {"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True} if insists else {}
    edit_json(tmp_path / "folder" / "tokenizer_config.json", **settings)
    ours = opened(tmp_path / "folder", tmp_path / "package")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    ids = ours.encode("Ça va ?")
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True) == ("Ça va?" if insists else "Ça va ?")


def test_control_tokens_in_a_text_are_none(ours: TokenizerJson, theirs: Any) -> None:
    special, spec = set(theirs.all_special_ids) - {theirs.unk_token_id}, ours.spec
    for token in theirs.all_special_tokens:
        if token != theirs.unk_token:
            text = f"a {token} b"
            assert special & set(theirs(text, add_special_tokens=False).input_ids)
            ids = ours.encode(text)
            assert not special & set(ids[len(spec.affixes.prefix_ids) : len(ids) - len(spec.affixes.suffix_ids)])


def test_streamed_texts_are_the_decoded_ones(ours: TokenizerJson) -> None:
    for text in (*SCRIPTS, *PAGE[:20]):
        ids, stream = ours.encode(text), TextStream(ours)
        assert "".join([*(stream.push([token_id]) for token_id in ids), stream.finish(ids)]) == ours.decode(ids)


@given(data=st.data())
def test_any_tokens_stream_to_their_text(ours: TokenizerJson, data: st.DataObject) -> None:
    check_stream(ours, data)


def check_stream(ours: Tokenizer, data: st.DataObject) -> None:
    """Whatever a model says, in whatever pieces it comes, and texts of any characters."""
    tokens = st.lists(st.integers(0, MOST_TOKENS), max_size=25)
    ids = data.draw(tokens | st.text(max_size=15).map(ours.encode_target))
    stream, deltas, start = TextStream(ours), list[str](), 0
    while start < len(ids):
        size = data.draw(st.integers(1, 4))
        deltas.append(stream.push(ids[start : start + size]))
        start += size
    assert "".join([*deltas, stream.finish(ids)]) == ours.decode(ids)


def test_pieces_put_together_are_the_text(ours: TokenizerJson) -> None:
    added = ours.pieces()
    for text in (*SCRIPTS, *texts(100)):
        ids = ours.encode_target(text)
        together = b"".join(added[token_id] for token_id in ids).decode()
        assert (clean_up(together) if ours.spec.cleans_up else together).strip() == ours.decode(ids).strip()


def test_every_token_adds_its_part(ours: TokenizerJson) -> None:
    for text in (*SCRIPTS, *texts(100)):
        ids = ours.encode_target(text)
        whole, added = ours.decode(ids), list(pieces(ours, ids[2:], ids[:2]))
        assert all(whole.startswith(piece, begin) for piece, begin in added)
        if added:
            assert whole[: added[0][1]] + "".join(piece for piece, _ in added) == whole


def test_no_token_is_late_where_spaces_are_taken_out() -> None:
    words = ["[END]", "[UNK]", "do", "n't", "go", ",", "'", "s", "now"]
    backend = tokenizers.Tokenizer(models.WordPiece({word: place for place, word in enumerate(words)}))
    backend.decoder = decoders.WordPiece(cleanup=False)
    spec = TokenizerJsonSpec(affixes=Affixes(), unknown_id=1, hidden_ids=(0,), cleans_up=True)
    cleaning = TokenizerJson(spec, backend)
    added = pieces(cleaning, [*map(words.index, ("do", "n't", "go", ",", "now", "[END]"))])
    assert list(added) == [("do", 0), ("n't", 2), (" go", 5), (",", 8), (" now", 9), ("", 13)]
    # A mark that joins two words does so with the second one.
    assert [piece for piece, _ in pieces(cleaning, [*map(words.index, ("go", "'", "s"))])] == ["go", "", "'s"]


def test_a_source_has_the_tokens_of_its_language(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "package").mkdir()
    nllb(tmp_path / "checkpoint")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "checkpoint", src_lang="por_Latn")
    ours = opened(tmp_path / "checkpoint", tmp_path / "package", multilingual=True)
    assert ours.encode("O gato dorme", source_language="pt") == theirs("O gato dorme").input_ids
    assert ours.encode("O gato dorme", source_language="en") != theirs("O gato dorme").input_ids
    found = read_fast_tokenizer(tmp_path / "checkpoint", multilingual=True).languages
    assert found == {tag: theirs.convert_tokens_to_ids(code) for tag, code in (("en", "eng_Latn"), ("pt", "por_Latn"))}


def test_the_language_of_an_mbart25_stands_behind_a_source(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "package").mkdir()
    mbart25(tmp_path / "checkpoint")
    ours = opened(tmp_path / "checkpoint", tmp_path / "package", multilingual=True)
    for tag, code in (("en", "en_XX"), ("ro", "ro_RO"), ("zh", "zh_CN")):
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "checkpoint", src_lang=code)
        expected = theirs("O gato dorme").input_ids
        assert ours.encode("O gato dorme", source_language=tag) == expected
        assert expected[-2:] == [theirs.eos_token_id, theirs.convert_tokens_to_ids(code)]
    assert len(ours.spec.source_affixes) == 25


def test_the_code_of_a_target_language_comes_before_the_text(ours: TokenizerJson, folder: Path) -> None:
    spec = ours.spec.model_copy(update={"target_codes": {"pt": (9,)}})
    found = read_fast_tokenizer(folder)
    coded = TokenizerJson(spec, tokenizers.Tokenizer.from_str(found.content))
    start = len(spec.affixes.prefix_ids)
    plain, named = ours.encode("The house"), coded.encode("The house", "pt")
    assert named == [*plain[:start], 9, *plain[start:]] and coded.encode("The house", "fr") == plain


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1, 2]", b"\xff\xfe", b'{"version": "1.0", "model": {}}'])
def test_a_damaged_file_is_named(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json (is not a tokenizer|cannot be read)"):
        TokenizerJson.load(tmp_path, TokenizerJsonSpec(affixes=Affixes(), unknown_id=0, hidden_ids=()))


def test_a_tokenizer_of_another_model_is_refused(ours: TokenizerJson, folder: Path, tmp_path: Path) -> None:
    found = read_fast_tokenizer(folder)
    (tmp_path / "tokenizer.json").write_text(found.content, encoding="utf-8")
    size = 1 + max(tokenizers.Tokenizer.from_str(found.content).get_vocab().values())
    wrong = found.spec.model_copy(update={"affixes": Affixes(suffix_ids=(size,))})
    with pytest.raises(TokenizerError, match=f"has ids up to {size - 1}, and the manifest names {size}"):
        TokenizerJson.load(tmp_path, wrong)


def test_a_tokenizer_in_python_is_refused(tmp_path: Path) -> None:
    transformers.ByT5Tokenizer().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=f"{tmp_path}: ByT5Tokenizer is written in Python"):
        read_fast_tokenizer(tmp_path)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="transformers reads no tokenizer there"):
        read_fast_tokenizer(tmp_path)
