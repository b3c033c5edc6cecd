"""export.shortlist: reads a text, aligns it by the model's own attention, and counts what each token becomes."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import MarianMTModel

from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.offline import decode
from export import __main__ as command
from export.command.arguments import BEST, FIRST, SAMPLES, parse
from export.inputs import InputError, adapt
from export.native.graphs import native_graphs
from export.shortlist.align import Aligner, Pair, align, aligners, attention, batches
from export.shortlist.count import choose_aligner, count_shortlist, split
from export.shortlist.table import Counts, ListSize, coverage
from export.shortlist.text import LEAST_LINES, read_text
from export.sources import Fetched
from export.tracing.trace import trace
from export.weights.save import save
from models.checkpoint import load_checkpoint
from models.package.derived import vocabulary
from models.package.folder import Package
from models.package.manifest import SHORTLIST
from models.package.shortlist import Shortlist, verify_checksum
from tests.exported import ZOO
from tests.models.test_transformer import config

TOKENS = 40
VOCABULARY = vocabulary(
    config(source_vocab_size=TOKENS, target_vocab_size=TOKENS, pad_id=39, end_id=2, decoder_start_id=39)
)
WORDS = ("the", "children", "were", "playing", "in", "a", "garden", "when", "it", "started", "to", "rain")


def text_file(file: Path, lines: Sequence[str]) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def sentences(count: int) -> list[str]:
    chance = np.random.default_rng(3)
    return [" ".join(chance.choice(WORDS, chance.integers(2, 9))) for _ in range(count)]


# Counting


def counted(*pairs: tuple[int, int]) -> Counts:
    counts = Counts(VOCABULARY)
    for pair in pairs:
        counts.add(np.array([pair]).T)
    return counts


def test_the_most_frequent_targets_of_each_source_are_kept(tmp_path: Path) -> None:
    """By hand: 5 becomes 30 thrice, 31 twice, 32 and 33 once; 7 becomes 31. What is allowed anyway takes no place."""
    counts = counted(*[(5, 30)] * 3, (5, 33), *[(5, 31)] * 2, (5, 32), *[(5, 1), (5, 2), (5, 5)] * 9, (7, 31), (9, 3))
    counts.shortlist(ListSize(first=4, best=3)).save(file := tmp_path / "lex.bin")
    verify_checksum(file)
    shortlist = Shortlist.load(file, VOCABULARY)
    assert (shortlist.first, shortlist.best) == (4, 3)
    assert shortlist.entries.tolist() == [30, 31, 32, 31]  # of 32 and 33, the more frequent one of the vocabulary
    assert shortlist.allowed((5,)).tolist() == [0, 1, 2, 3, 5, 30, 31, 32]
    assert shortlist.allowed((7, 9)).tolist() == [0, 1, 2, 3, 7, 9, 31]


def test_counts_do_not_depend_on_how_they_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    aligned = np.random.default_rng(5).integers(0, TOKENS, (2, 3000))
    at_once = Counts(VOCABULARY)
    at_once.add(aligned)
    monkeypatch.setattr("export.shortlist.table.WAITING", 100)
    in_parts = Counts(VOCABULARY)
    for part in np.array_split(aligned, 37, axis=1):
        in_parts.add(part)
    size = ListSize(3, 10)
    assert in_parts.shortlist(size).entries.tolist() == at_once.shortlist(size).entries.tolist()


def test_what_a_list_allows_is_measured() -> None:
    shortlist = counted((5, 30), (6, 31)).shortlist(ListSize(2, 4))
    found = coverage(shortlist, [((5, 2), (30, 1, 2)), ((5, 6, 2), (30, 33, 31, 2)), ((7, 2), (7, 8, 2))])
    assert found.tokens == pytest.approx(8 / 10)
    assert found.sentences == pytest.approx(1 / 3)
    assert found.allowed == 5  # 4, 7 and 4 tokens


# Alignment


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    chance = np.random.default_rng(11)

    def ids() -> list[int]:
        return [*chance.integers(3, 200, chance.integers(1, 20)).tolist(), 0]

    return [(ids(), ids()) for _ in range(40)]


def test_attention_is_that_of_transformers(tiny_checkpoint: Path, pairs: list[Pair]) -> None:
    model = load_checkpoint(tiny_checkpoint).transformer
    reference = MarianMTModel.from_pretrained(tiny_checkpoint, attn_implementation="eager").eval()
    source, target = pairs[0]
    fed = [model.config.decoder_start_id, *target]
    with torch.no_grad():
        found = attention(model, torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([target]))
        expected = reference(
            input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([fed]), output_attentions=True
        ).cross_attentions
    assert len(found) == len(expected) == model.config.decoder_layers
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)


def test_what_fills_up_a_batch_aligns_nothing(tiny_checkpoint: Path, pairs: list[Pair]) -> None:
    model = load_checkpoint(tiny_checkpoint).transformer
    every = aligners(model)
    assert len(every) == 2 * 4 * 2  # layers, three heads and their mean, at once or a step later
    together = [np.concatenate(found, 1) for found in zip(*align(model, pairs, every), strict=True)]
    order = [pair for batch in batches(pairs) for pair in batch]
    assert sorted(order) == sorted(pairs)
    for aligner, found in zip(every, together, strict=True):
        alone = np.concatenate([pair for one in order for [pair] in align(model, [one], [aligner])], 1)
        assert found.tolist() == alone.tolist(), aligner
        assert found[1].tolist() == [token for _, target in order for token in target]


def test_batches_are_no_larger_than_they_may_be(monkeypatch: pytest.MonkeyPatch, pairs: list[Pair]) -> None:
    monkeypatch.setattr("export.shortlist.align.BATCH_TOKENS", 50)
    found = list(batches(pairs))
    assert len(found) > 10
    assert all(len(batch) * max(max(map(len, pair)) for pair in batch) <= 50 for batch in found)


def test_the_aligner_that_says_most_is_chosen(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose heads look anywhere, but for one that looks where the token is that the target has."""
    model = load_checkpoint(tiny_checkpoint).transformer
    best = Aligner(1, 2, later=True)
    chance = np.random.default_rng(2)
    sources = [chance.permutation(np.arange(3, 60))[:7].tolist() for _ in range(180)]
    pairs = [([*source, 0], [*(token + 100 for token in source), 0]) for source in sources]

    def look(aligner: Aligner, weights: Sequence[torch.Tensor]) -> torch.Tensor:
        shape = weights[0].shape[0], weights[0].shape[2] - 1
        if aligner == best:
            return torch.arange(shape[1]).expand(shape)
        return torch.from_numpy(chance.integers(0, weights[0].shape[3], shape))

    monkeypatch.setattr(Aligner, "find", look)
    assert choose_aligner(model, pairs[:90], pairs[90:], first=3) == best
    assert str(best) == "head 2 of layer 1, a step later"


# The text


def test_texts_of_all_kinds(tmp_path: Path) -> None:
    sources, targets = sentences(LEAST_LINES), [line.upper() for line in sentences(LEAST_LINES)]
    two = [text_file(tmp_path / "a.en", sources), text_file(tmp_path / "a.pt", targets)]
    tabs = text_file(tmp_path / "a.tsv", [f"{a}\t{b}" for a, b in zip(sources, targets, strict=True)])
    assert read_text(two) == read_text([tabs])
    assert read_text([tabs]).targets == targets
    assert read_text(two[:1]).sources == sources
    assert read_text(two[:1]).targets is None
    numbers = [*sources[:-1], "it is 0.5"]
    assert read_text([text_file(tmp_path / "numbers", numbers)]).sources == numbers


def lines(count: int, tail: str = "") -> list[str]:
    return [f"a line{tail}"] * count


BAD_TEXT: dict[str, tuple[list[list[str]], str]] = {
    "empty": ([[]], "a0 is empty; a shortlist takes at least 100 lines"),
    "one line": ([lines(1)], "a0 has 1 lines; a shortlist takes at least 100"),
    "unaligned": ([lines(120), lines(119)], "a0 has 120 lines and .*a1 has 119; line n of one must be the translation"),
    "three": ([lines(120)] * 3, "--shortlist is given 3 times"),
    "a list in text": (
        [["o the 0.5", "casa house 1e-05"] * 60],
        "a0 has two words and a probability on each line, which",
    ),
    "an empty line": ([lines(120), [*lines(118), " ", "x"]], "a1, line 119 is empty"),
    "an empty side": ([[*lines(100, "\tx"), "y\t"]], "a0, line 101 is empty"),
    "a line without a tab": ([[*lines(100, "\tx"), "y"]], "a0, line 101 has 1 columns; line 1 has 2"),
    "too many columns": ([lines(100, "\tx\ty")], "a0, line 1 has 3 columns"),
}


@pytest.mark.parametrize(("texts", "said"), BAD_TEXT.values(), ids=BAD_TEXT.keys())
def test_bad_text_is_refused(tmp_path: Path, texts: list[list[str]], said: str) -> None:
    files = [text_file(tmp_path / f"a{number}", text) for number, text in enumerate(texts)]
    with pytest.raises(InputError, match=said):
        read_text(files)


def test_text_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff\xfe" * 200)
    with pytest.raises(InputError, match="a is not UTF-8"):
        read_text([tmp_path / "a"])


def test_every_nth_pair_is_held_back() -> None:
    every: list[Pair] = [((number,), (number,)) for number in range(45)]
    held_back, others = split(every)
    assert [source[0] for source, _ in held_back] == [0, 10, 20, 30, 40]
    assert sorted([*held_back, *others]) == every
    assert len(split(every * 1000)[0]) == 1000


# The command line


def decode_greedily(model: Loadable, sources: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    decoding = replace(model.generation.decoding(), num_beams=1, num_return_sequences=1)
    with load(model, CPU, Limits(rows=16)) as runner:
        asked = ((tuple(source), decoding) for source in sources)
        return [answer.hypotheses[0].token_ids for answer in decode(runner, model.rules, asked)]


def export(*arguments: object) -> int:
    return command.main([str(argument) for argument in arguments])


@pytest.mark.timeout(600)
def test_a_package_with_a_shortlist_of_its_own(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counted over the random model's own translations, the list allows most of what it says of the same text."""
    target, text = tmp_path / "package", text_file(tmp_path / "text.en", sentences(150))
    arguments = [tiny_checkpoint, "--out", target, "--verify-samples", 3, "--shortlist", text]
    assert export(*arguments, "--shortlist-first", 12, "--shortlist-best", 20) == 0
    shown = capsys.readouterr().err
    assert "150 of 150 lines translated" in shown
    assert re.search(r"150 pairs aligned by .* of layer \d", shown)
    assert re.search(r"allowed \d\d\.\d\d% of the target tokens of 15 pairs", shown)
    package = Package.open(target)
    shortlist = package.graphs().shortlist
    assert shortlist is not None
    assert (shortlist.first, shortlist.best) == (12, 20)
    assert np.diff(shortlist.offsets).max() <= 20
    assert len(shortlist.entries) > 20
    verify_checksum(target / SHORTLIST)
    assert [agreement.equal for agreement in package.manifest.certificate.agreements[:1]] == [3]


@pytest.mark.timeout(900)
def test_the_zoo_says_of_the_text_what_it_said_without_a_list(tmp_path: Path) -> None:
    """A list of its own translations of 100 sentences allows these translations."""
    checkpoint, texts, told = load_checkpoint(ZOO), SAMPLES.read_text(encoding="utf-8").splitlines()[:100], list[str]()
    text = read_text([text_file(tmp_path / "text", texts)])
    shortlist, _ = count_shortlist(checkpoint, ZOO, text, ListSize(FIRST, BEST), "fused", told.append)
    assert any("100 of 100 lines translated" in line for line in told)
    model, tokenizer = checkpoint.transformer, checkpoint.open_tokenizer(ZOO)
    files = save(trace(model, shortlist=True).with_native(native_graphs(model, shortlist=True)), tmp_path)
    listed = Loadable(replace(files, shortlist=shortlist), checkpoint.generation)
    sources = [tokenizer.encode(text) for text in texts]
    assert np.mean([len(shortlist.allowed(source)) for source in sources]) < 400
    free, bound = (decode_greedily(one, sources) for one in (Loadable.of(Package.open(ZOO)), listed))
    assert coverage(shortlist, list(zip(sources, free, strict=True))).tokens > 0.999
    assert sum(a == b for a, b in zip(free, bound, strict=True)) >= 99


def test_a_list_that_there_is_already_is_taken(tmp_path: Path) -> None:
    """One of --shortlist goes before the checkpoint's own; text is yet to be counted over."""
    checkpoint, lists, text = load_checkpoint(ZOO), tmp_path / "lex.bin", text_file(tmp_path / "text", ["a"])
    counted((5, 30)).shortlist(ListSize(4, 3)).save(lists)
    fetched = Fetched(ZOO, "en-pt")
    for given, taken in (([lists], lists), ([text], None), ([lists, lists], None)):
        options = parse([str(ZOO), *(f"--shortlist={file}" for file in given)])
        assert adapt(replace(checkpoint, shortlist=ZOO), fetched, options).shortlist == taken
    for option, size in (("first", FIRST), ("best", 9)):
        options = parse([str(ZOO), f"--shortlist={lists}", f"--shortlist-{option}={size}"])
        told = f"--shortlist-{option} is {size}, and {re.escape(str(lists))} is a list already, which stays as it is"
        with pytest.raises(InputError, match=told):
            adapt(checkpoint, fetched, options)


def test_text_from_a_pipe_is_counted_from_its_beginning(tmp_path: Path) -> None:
    """A shell's <(...) is one: what was looked at to tell a list from text would be missing."""
    checkpoint, sources = load_checkpoint(ZOO), sentences(LEAST_LINES)
    reader, writer = os.pipe()
    os.write(writer, "\n".join(["\ufeff" + sources[0], *sources[1:]]).encode())
    os.close(writer)
    options = parse([str(ZOO), f"--shortlist=/dev/fd/{reader}"])
    try:
        assert adapt(checkpoint, Fetched(ZOO, "en-pt"), options).shortlist is None
        assert options.shortlist is not None and read_text(options.shortlist).sources == sources
    finally:
        os.close(reader)


def test_text_of_another_script_is_refused(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = text_file(tmp_path / "text", ["\u0434\u043e\u0436\u0434\u044c \u0438\u0434\u0451\u0442"] * 120)
    assert export(tiny_checkpoint, "--out", tmp_path / "package", "--shortlist", text) == 2
    shown = capsys.readouterr().err
    assert re.search(r"does not know \d+ of the \d+ source tokens .*; at most 5% is accepted", shown)
    assert not (tmp_path / "package").exists()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--shortlist", SAMPLES, "--shortlist-best", 0), "--shortlist-best is 0; expected 1 to "),
        (("--shortlist", SAMPLES, "--shortlist-first", 40_000), "--shortlist-first is 40000; expected 0 to "),
        (("--shortlist", "nowhere.txt"), "nowhere.txt"),
    ],
)
def test_bad_options_are_refused(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: tuple[object, ...], said: str
) -> None:
    assert export(tiny_checkpoint, "--out", tmp_path / "package", *option) == 2
    assert said in capsys.readouterr().err
