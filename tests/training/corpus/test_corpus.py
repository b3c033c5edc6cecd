"""The corpus as a whole: packages in, texts out, and nothing in them that models are scored with."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from tests.checkpoints import ROOT
from tests.training.corpus.test_corpus_sources import write, write_catalog
from training.config import Experiment, read_experiment
from training.corpus import __main__ as command
from training.corpus import building, check, checking, choose
from training.corpus.errors import CorpusError
from training.corpus.held_out import Excluded, is_held_out, listed
from training.corpus.sources.all_sources import SOURCES
from training.corpus.sources.packages import VERSION, Apt, refuse_missing, unpack_deb, unpacked_version

DATA = Path("tests/data")
FLORES = [line.split("\t") for line in (DATA / "flores-dev.en-pt.tsv").read_text("utf-8").splitlines()]
HELD_OUT = [line.split("\t")[2:] for line in (DATA / "heldout.en-pt.tsv").read_text("utf-8").splitlines()]

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")


def make_deb(folder: Path, name: str) -> Path:
    """A package of the files in a folder."""
    write(
        folder / "DEBIAN/control",
        f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: A <a@b.c>\nDescription: a\n",
    )
    file = folder.with_name(f"{name}_1_all.deb")
    subprocess.run(["dpkg-deb", "--build", folder, file], check=True, capture_output=True)
    return file


def disguised(sentence: str) -> str:
    return f"  {sentence.upper().replace(' ', '   ').replace(',', ' ')} "


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the real builder makes of small packages with good text, held-out documents, and disguised sentences."""
    folder = tmp_path_factory.mktemp("corpus")
    campaigns = "usr/share/games/wesnoth/1.16/translations/locale/pt_BR/LC_MESSAGES"
    secret = "The old king never told anybody where he hid his crown."
    catalog = {
        "The wizard crossed the river at night.": "O mago atravessou o rio à noite.",
        secret: "O velho rei nunca contou a ninguém onde escondeu sua coroa.",
    }
    write_catalog(folder / "sof" / campaigns / "wesnoth-sof.mo", catalog | {"Attack now!": "Ataque agora!"})
    other = dict(
        [
            ("The elves rest under the tall trees.", "Os elfos descansam sob as árvores altas."),
            (f"Listen to this. {secret.upper()}", "Escute isto. Ele contou."),
            ("Attack now!", "Ataque agora!"),
            *((disguised(english), portuguese) for english, portuguese in FLORES[:20]),
            *((english[:30], disguised(portuguese)) for english, portuguese in FLORES[20:40]),
            *((disguised(english), portuguese) for english, portuguese in HELD_OUT[:20]),
        ]
    )
    write_catalog(folder / "data" / campaigns / "wesnoth.mo", other)
    page = "<page><p>{}</p></page>"
    for language, text in (("C", "The red panel shows the weather."), ("pt_BR", "O painel vermelho mostra o tempo.")):
        write(folder / f"gnome/usr/share/help/{language}/gnome-help/b.page", page.format(text))
        write(folder / f"gnome/usr/share/help/{language}/gnome-help/about.page", page.format(f"{text} {text}"))
    packages = {"wesnoth-1.16-sof": "sof", "wesnoth-1.16-data": "data", "gnome-user-docs": "gnome"}
    root = folder / "packages"
    for name, content in packages.items():
        unpack_deb(make_deb(folder / content, name), "1", root)
    stanza = "Package: x\nDescription-md5: {}\nDescription-{}: short\n {}\n\n"
    english = ("It plays the music of birds.", "It draws maps of the moon.", disguised(FLORES[50][0]).strip())
    portuguese = ("Toca a música dos pássaros.", "Desenha mapas da lua.", FLORES[50][1])
    for language, sentences in (("en", english), ("pt_BR", portuguese)):
        text = "".join(
            stanza.format(key, language, s) for key, s in zip(("1a80", "1a81", "1a82"), sentences, strict=True)
        )
        write(root / "descriptions" / language, text)
    write(root / "descriptions/pt", "")
    out = folder / "out"
    versions = dict.fromkeys(packages, "1")
    building.build(SOURCES, root, out, list(listed(DATA)), versions, Console(quiet=True))
    return out


def lines(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines()


@needs_dpkg
def test_good_text_is_in_the_corpus(built: Path) -> None:
    pairs = set(zip(lines(built / "pairs.en"), lines(built / "pairs.pt"), strict=True))
    assert ("The elves rest under the tall trees.", "Os elfos descansam sob as árvores altas.") in pairs
    assert ("It draws maps of the moon.", "Desenha mapas da lua.") in pairs
    assert ("Attack now!", "Ataque agora!") in pairs  # too short to be told from a set phrase
    assert "It draws maps of the moon." in lines(built / "mono.en")
    assert "Os elfos descansam sob as árvores altas." in lines(built / "mono.pt")


@needs_dpkg
def test_nothing_excluded_is_in_the_corpus(built: Path) -> None:
    """Said twice: by the command that checks, and by looking for the letters themselves."""
    assert check.main([str(built)]) == 0
    everything = "\n".join(
        "".join(filter(str.isalnum, line.casefold())) for name in checking.TEXTS for line in lines(built / name)
    )
    for sentence in [text for pair in [*FLORES, *HELD_OUT] for text in pair]:
        assert "".join(filter(str.isalnum, sentence.casefold())) not in everything
    for planted in ("oldkingnever", "wizardcrossed", "musicofbirds", "músicadospássaros", "redpanelshows"):
        assert planted not in everything
    assert "elvesrest" in everything


@needs_dpkg
@pytest.mark.parametrize(
    ("file", "line", "finding"),
    [
        ("pairs.en", disguised(FLORES[3][0]), "pairs.en, line 1 is excluded: "),
        ("mono.pt", f"E mais: {FLORES[3][1]}", "mono.pt, line 1 is excluded: "),
        ("mono.en", "the OLD king never told anybody where he hid his crown", "mono.en, line 1 is excluded: "),
        (
            "pairs.origins",
            "Wesnoth\twesnoth-sof.mo",
            "pairs.pt, line 1 is of a held-out document, wesnoth-sof.mo of Wesnoth: ",
        ),
    ],
)
def test_the_check_finds_what_must_not_be_there(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, line: str, finding: str
) -> None:
    spoilt = shutil.copytree(built, tmp_path / "out")
    (spoilt / file).write_text("\n".join([line, *lines(built / file)[1:]]) + "\n", encoding="utf-8")
    assert check.main([str(spoilt)]) == 1
    assert finding in capsys.readouterr().out


@needs_dpkg
def test_a_corpus_that_is_not_whole_cannot_be_checked(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = shutil.copytree(built, tmp_path / "out")
    (cut / "mono.en.origins").write_text("one\tline\n", encoding="utf-8")
    assert check.main([str(cut)]) == 2
    assert "mono.en.origins has 1; build the corpus again" in capsys.readouterr().err
    (cut / "held_out.txt").unlink()
    assert check.main([str(cut)]) == 2
    assert "held_out.txt cannot be read" in capsys.readouterr().err


@needs_dpkg
def test_the_same_packages_make_the_same_bytes(built: Path, tmp_path: Path) -> None:
    again = tmp_path / "out"
    root = built.parent / "packages"
    versions = dict.fromkeys(("wesnoth-1.16-sof", "wesnoth-1.16-data", "gnome-user-docs"), "1")
    building.build(SOURCES, root, again, list(listed(DATA)), versions, Console(quiet=True))
    assert {file.name: file.read_bytes() for file in again.iterdir()} == {
        file.name: file.read_bytes() for file in built.iterdir()
    }


@needs_dpkg
def test_the_card_names_every_source_and_what_is_missing(built: Path) -> None:
    card = (built / "README.md").read_text("utf-8")
    for source in SOURCES:
        assert f"| {source.name} | {source.licence} | " in card
    assert "gnome-user-docs 1 |" in card
    assert "libreoffice-help-en-us (MISSING)" in card
    assert f"| `pairs.en` | {len(lines(built / 'pairs.en'))} |" in card


@needs_dpkg
def test_a_broken_package_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "tool_1_all.deb"
    file.write_bytes(b"!<arch>\nbroken")
    with pytest.raises(CorpusError, match=r"tool_1_all\.deb cannot be unpacked \(.*\); delete it and run again"):
        unpack_deb(file, "1", tmp_path / "packages")
    assert unpacked_version(tmp_path / "packages", "tool") is None
    assert not list((tmp_path / "packages").iterdir())


@needs_dpkg
def test_an_unpacked_package_has_its_version(tmp_path: Path) -> None:
    write(tmp_path / "tool/usr/share/doc/a", "text")
    unpack_deb(make_deb(tmp_path / "tool", "tool"), "1:2", tmp_path / "packages")
    assert (tmp_path / "packages/tool/usr/share/doc/a").read_text() == "text"
    assert (
        (tmp_path / "packages/tool" / VERSION).read_text() == unpacked_version(tmp_path / "packages", "tool") == "1:2"
    )


def test_missing_packages_are_named() -> None:
    with pytest.raises(CorpusError, match=r"knows 1 of 3 packages; it lacks b, c\..*--skip-missing"):
        refuse_missing(["a", "b", "c"], {"a": "1"})


def test_without_apt_the_message_says_where_it_can_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CorpusError, match=r"apt-get is not here; build the corpus on Debian"):
        Apt(tmp_path / "apt").update()


def test_what_apt_says_of_a_dead_network_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "apt-get"
    script.write_text("#!/bin/sh\necho 'W: a warning' >&2; echo 'E: Failed to fetch http://x/y' >&2; exit 100\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(CorpusError, match=r"^apt cannot get its lists: E: Failed to fetch http://x/y$"):
        Apt(tmp_path / "apt").update()
    assert not (tmp_path / "apt/updated").exists()


def test_without_the_sentences_to_leave_out_nothing_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(tmp_path / "out"), "--held-out", str(tmp_path)]) == 2
    assert "heldout.en-pt.tsv cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_list_without_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "heldout.en-pt.tsv").write_text("only one column\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"heldout\.en-pt\.tsv, line 1 has no tab"):
        list(listed(tmp_path))


def test_the_documents_of_the_held_out_list_are_held_out() -> None:
    names = {
        "mo:wesnoth-1.16-*": "Wesnoth",
        "mallard:gnome-user-docs": "GNOME help",
        "ddtp:Translation-pt_BR": "package descriptions",
    }
    assert set(names.values()) <= {source.name for source in SOURCES}
    for line in lines(DATA / "heldout.en-pt.tsv"):
        source, document, _, _ = line.split("\t")
        assert is_held_out(names[source], document), line
    assert not is_held_out("Wesnoth", "wesnoth-dm.mo")


@pytest.mark.parametrize(
    "spelling",
    ["The cat sat, on the mat!", "THE CAT  SAT ON\tTHE MAT", "TheCatSatOnTheMat.", "We saw: “the cat sat on the mat”."],
)
def test_a_sentence_is_recognised_however_it_is_written(spelling: str) -> None:
    assert spelling in Excluded(["The cat sat on the mat."])


def test_other_sentences_are_not() -> None:
    excluded = Excluded(["The cat sat on the mat.", "Yes.", "..."])
    assert len(excluded) == 2
    assert "The cat sat on the hat." not in excluded
    assert "Yes, of course." not in excluded
    assert "..." not in excluded


def corpus_to_choose_from(folder: Path, sentences: int) -> Path:
    """Half Wikipedia, half kernel documentation, and pairs that are too short, too long and right."""
    origins = ("Wikipedia, a few articles\tx", "Linux kernel documentation\ty")
    write(folder / "mono.en", "".join(f"Sentence {n} has five words.\nShort.\n" for n in range(sentences)))
    write(folder / "mono.en.origins", "".join(f"{origins[n % 2]}\n{origins[0]}\n" for n in range(sentences)))
    pairs = [
        ("Go", "Vá já daqui"),
        ("a " * 61, "Uma frase de cinco palavras"),
        *[("It is so.", "É assim mesmo.")] * 310,
    ]
    for side, language in enumerate(("en", "pt")):
        write(folder / f"pairs.{language}", "".join(f"{pair[side]}\n" for pair in pairs))
    return folder


def test_the_text_of_the_zoo_is_prose_first_and_the_same_each_time(tmp_path: Path) -> None:
    corpus = corpus_to_choose_from(tmp_path, 1000)
    arguments = [str(corpus), str(tmp_path / "out"), "--teacher", "200", "--student", "350"]
    assert choose.main(arguments) == 0
    out = {file.name: lines(file) for file in (tmp_path / "out").iterdir()}
    chosen = out["teacher.en"] + out["student.en"]
    numbers = [int(line.split()[1]) for line in chosen]
    assert (len(out["teacher.en"]), len(out["student.en"]), len(set(chosen))) == (200, 350, 550)
    assert sum(number % 2 for number in numbers) < 0.25 * len(numbers)  # of the kernel's, 15 of 100
    assert [number for number in numbers if number % 2 == 0] == list(range(0, max(numbers) + 1, 2))
    assert (len(out["valid.en"]), out["train.pt"]) == (300, ["É assim mesmo."] * 10)
    assert choose.main(arguments) == 0
    assert {file.name: lines(file) for file in (tmp_path / "out").iterdir()} == out


def test_what_validates_is_not_translated_to_learn_from(tmp_path: Path) -> None:
    corpus = corpus_to_choose_from(tmp_path, 1000)
    assert choose.main([str(corpus), str(tmp_path / "out"), "--teacher", "5", "--student", "5"]) == 0
    first = lines(tmp_path / "out" / "teacher.en")[0]
    for name, text in (("pairs.en", first.upper()), ("pairs.pt", "A primeira frase tem cinco palavras.")):
        write(corpus / name, "\n".join([text, *lines(corpus / name)]) + "\n")
    assert choose.main([str(corpus), str(tmp_path / "out"), "--teacher", "5", "--student", "5"]) == 0
    out = {name: lines(tmp_path / "out" / f"{name}.en") for name in ("teacher", "student", "valid")}
    assert out["valid"][0] == first.upper()
    assert first not in out["teacher"] + out["student"]


def test_too_small_a_corpus_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert choose.main([str(corpus_to_choose_from(tmp_path, 1000)), str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    needed = f"{choose.TEACHER + choose.STUDENT:,}"
    assert re.search(rf"has \d+ sentences to choose; {needed} are needed\. Lower --teacher or --student", error)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("recipe", sorted((ROOT / "training/recipes").glob("*.toml")), ids=lambda file: file.stem)
def test_the_recipes_of_the_zoo_read_what_the_commands_write(recipe: Path) -> None:
    experiment = read_experiment(recipe, Experiment)
    source, target = recipe.stem.split("-")
    texts = [*experiment.data.train, experiment.data.validation]
    names = ["by-teacher", "by-student", "train", "valid"]
    assert [text.source.name for text in texts] == [f"{name}.{source}" for name in names]
    assert [text.target.name for text in texts] == [f"{name}.{target}" for name in names]
    assert experiment.output == Path("artifacts/zoo") / recipe.stem
