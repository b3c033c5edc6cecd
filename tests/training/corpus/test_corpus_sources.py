"""Each kind of source on files made by hand, and the rules of cleaning."""

import bz2
import gzip
import zlib
from pathlib import Path

import polib
import pytest

from training.corpus.cleaning import PAIR_RULES, SENTENCE_RULES, clean, sentence_pairs, sentences
from training.corpus.errors import CorpusError
from training.corpus.sources.catalogs import catalogs, without_accelerators
from training.corpus.sources.descriptions import descriptions
from training.corpus.sources.manpages import manual_pages
from training.corpus.sources.markup import elements_by_id, pages, portuguese_pages
from training.corpus.sources.passages import Passage, Reader
from training.corpus.sources.plain import (
    backquoted,
    bilingual_dictionary,
    cookies,
    files,
    indented,
    prose,
    r_strings,
    wordnet_definitions,
    wordnet_examples,
)
from training.corpus.sources.wikipedia import articles


def write(file: Path, content: str | bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def texts(reader: Reader, root: Path) -> list[tuple[str | None, str | None]]:
    return [(passage.english, passage.portuguese) for passage in reader(root)]


def write_catalog(file: Path, messages: dict[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    catalog = polib.POFile()
    catalog.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    catalog += [polib.POEntry(msgid=source, msgstr=target) for source, target in messages.items()]
    catalog.save_as_mofile(str(file))


def test_catalogs_give_what_their_language_is_good_for(tmp_path: Path) -> None:
    locale = tmp_path / "game" / "usr/share/locale"
    write_catalog(locale / "pt_BR/LC_MESSAGES/game.mo", {"Save _As": "Salvar _como", "One.\n\nTwo.": "Um.\n\nDois."})
    write_catalog(locale / "pt/LC_MESSAGES/game.mo", {"File": "Ficheiro"})
    write_catalog(locale / "de/LC_MESSAGES/game.mo", {"Only German": "Nur deutsch"})
    write_catalog(locale / "fr/LC_MESSAGES/game.mo", {"Only French": "Seulement"})
    write_catalog(tmp_path / "game/usr/share/admin-pt_BR.mo", {"Blog": "Blogue"})
    assert set(texts(catalogs("game"), tmp_path)) == {
        ("Save As", "Salvar como"),
        ("One.", "Um."),
        ("Two.", "Dois."),
        (None, "Ficheiro"),
        ("Only German", None),
        ("Blog", "Blogue"),
    }


def test_both_forms_of_a_plural_are_pairs(tmp_path: Path) -> None:
    catalog = polib.POFile()
    catalog.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Plural-Forms": "nplurals=2; plural=(n > 1);"}
    catalog.append(polib.POEntry(msgid="a file", msgid_plural="files", msgstr_plural={0: "um arquivo", 1: "arquivos"}))
    file = tmp_path / "game/usr/share/locale/pt_BR/LC_MESSAGES/game.mo"
    file.parent.mkdir(parents=True)
    catalog.save_as_mofile(str(file))
    assert texts(catalogs("game"), tmp_path) == [("a file", "um arquivo"), ("files", "arquivos")]


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("_File", "File"),
        ("E&xit", "Exit"),
        ("Arquivo (_F)", "Arquivo"),
        ("R & B", "R & B"),
        ("snake_case", "snake_case"),
    ],
)
def test_accelerators_are_removed(message: str, plain: str) -> None:
    assert without_accelerators(message) == plain


def test_a_broken_catalog_is_named(tmp_path: Path) -> None:
    write(tmp_path / "game/usr/share/locale/pt_BR/LC_MESSAGES/game.mo", b"\xde\x12\x04\x95 and then nothing")
    with pytest.raises(CorpusError, match=r"game\.mo is no gettext catalog .*run again"):
        list(catalogs("game")(tmp_path))


def test_paragraphs_are_paired_by_id(tmp_path: Path) -> None:
    write(tmp_path / "en/a.html", '<p id="1">One</p><p id="2">Two <b>bold</b></p><p id="3" class="bascode">x = 1</p>')
    write(tmp_path / "pt/a.html", '<p id="2">Dois</p><p id="9">Nove</p><p id="1">Um</p>')
    assert set(texts(elements_by_id("en", "pt"), tmp_path)) == {
        ("One", "Um"),
        ("Two bold", "Dois"),
        (None, "Nove"),
    }


def test_pages_of_the_same_structure_are_paired(tmp_path: Path) -> None:
    mallard = '<page xmlns="http://projectmallard.org/1.0/"><title>{}</title><p>{}</p><screen><p/></screen></page>'
    write(tmp_path / "C/a.page", mallard.format("Sound", "Turn it\n down."))
    write(tmp_path / "pt_BR/a.page", mallard.format("Som", "Abaixe."))
    write(tmp_path / "C/b.page", mallard.format("Alone", "No translation."))
    assert texts(pages("C", "pt_BR", "*.page"), tmp_path) == [
        ("Sound", "Som"),
        ("Turn it down.", "Abaixe."),
        ("Alone", None),
        ("No translation.", None),
    ]


def test_only_long_runs_pair_pages_of_different_structure(tmp_path: Path) -> None:
    same = "".join(f"<p>line number {i}</p>" for i in range(12))
    write(tmp_path / "a.en.html", f"<h1>Title</h1>{same}<h2>More</h2>")
    write(tmp_path / "a.pt.html", f"<h1>Título</h1><h2>Outro</h2>{same}<p>Fim</p>")
    found = texts(pages(".", ".", "*.en.html", (".en.html", ".pt.html")), tmp_path)
    assert ("line number 3", "line number 3") in found
    assert {("Title", None), ("More", None), (None, "Título"), (None, "Outro"), (None, "Fim")} <= set(found)


def test_entities_of_docbook_stay_for_cleaning_to_see(tmp_path: Path) -> None:
    write(tmp_path / "en/a.docbook", "<sect1><para>Start &kstars; now.</para></sect1>")
    assert texts(pages("en", "pt", "*.docbook"), tmp_path) == [("Start &kstars; now.", None)]


def test_a_page_in_latin_1_is_read_as_it_declares(tmp_path: Path) -> None:
    page = '<html><head><meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1"></head><p>Não é.</p>'
    write(tmp_path / "pt/a.html", page.encode("latin-1"))
    assert texts(portuguese_pages("pt", "*.html"), tmp_path) == [(None, "Não é.")]


def test_manual_pages_are_paired_section_by_section(tmp_path: Path) -> None:
    english = (
        ".TH X 1\n.SH NAME\nx \\- a tool\n.SH TEXT\nIt has\n.BR two (1)\n\\fIfonts\\fP.\n.PP\nEnd.\n.nf\ncode\n.fi\n"
    )
    portuguese = ".TH X 1\n.SH NOME\nx \\- uma ferramenta\n.SH TEXTO\nSó um.\n"
    write(tmp_path / "man/usr/share/man/man1/x.1.gz", gzip.compress(english.encode()))
    write(tmp_path / "man-pt/usr/share/man/pt_BR/man1/x.1.gz", gzip.compress(portuguese.encode()))
    assert texts(manual_pages(("man",), ("man-pt",)), tmp_path) == [
        ("x - a tool", "x - uma ferramenta"),
        ("It has two(1) fonts.", None),
        ("End.", None),
    ]


def test_a_broken_manual_page_is_named(tmp_path: Path) -> None:
    write(tmp_path / "man/usr/share/man/man1/x.1.gz", gzip.compress(b"text" * 99)[:20])
    with pytest.raises(CorpusError, match=r"x\.1\.gz cannot be read"):
        list(manual_pages(("man",), ())(tmp_path))


def test_descriptions_are_paired_by_hash_and_paragraph(tmp_path: Path) -> None:
    stanza = "Package: x\nDescription-md5: {}\nDescription-{}: {}\n"
    english = stanza.format("a1", "en", "a game\n It is\n good.\n .\n  * fast\n  * small")
    other = stanza.format("b2", "en", "a tool\n It works.\n .\n Well.")
    write(tmp_path / "descriptions/en", f"{english}\n{other}\n{stanza.format('c3', 'en', 'alone')}")
    write(
        tmp_path / "descriptions/pt_BR", stanza.format("a1", "pt_BR", "um jogo\n É\n bom.\n .\n  * rápido\n  * pequeno")
    )
    write(tmp_path / "descriptions/pt", stanza.format("b2", "pt", "uma ferramenta\n Só um parágrafo."))
    assert [(p.english, p.portuguese) for p in descriptions(tmp_path) if p.english or p.portuguese] == [
        ("a game", "um jogo"),
        ("It is good.", "É bom."),
        ("* fast", "* rápido"),
        ("* small", "* pequeno"),
        ("a tool", "uma ferramenta"),
        ("It works.", None),
        ("Well.", None),
        ("alone", None),
    ]


def test_plain_texts() -> None:
    assert list(prose("First *one*,\nwith :ref:`a link <x>`.\n\n    code\n\n.. note::\n\nSecond.")) == [
        "First one,\nwith a link.",
        "Second.",
    ]
    assert list(indented("word\n\n   1. <theory> A {thing}.\n\n   More.")) == ["A thing.", "More."]
    assert list(cookies("Be brief.\n\t\t-- Anon\n%\nYes.")) == ["Be brief.", "Yes."]
    wordnet = """\
  1 licence
00 05 n 02 card_game 0 game 1 000 | a gloss; a note; "he dealt; the cards"; "Stop!"
01 00 s 01 elect(ip) 0 000 | "the president elect"
"""
    assert list(wordnet_examples(wordnet)) == ["He dealt; the cards.", "Stop!", "The president elect."]
    assert list(wordnet_definitions(wordnet)) == ["A gloss.", "A note.", "Card game: a gloss."]
    assert list(wordnet_definitions("02 00 a 01 galore(ip) 0 000 | in great numbers")) == [
        "In great numbers.",
        "Galore: in great numbers.",
    ]
    assert list(bilingual_dictionary("# no\nHaus {n} | Es geht. :: house | It is fine. [coll.]")) == [
        " house ",
        " It is fine. ",
    ]
    assert list(backquoted('mission "x"\n\t`A ship lands.`\n\t`Captain <last>!`')) == ["A ship lands."]


def test_files_of_one_language(tmp_path: Path) -> None:
    write(tmp_path / "box/good", "Sim.\n%\nNão.")
    write(tmp_path / "box/bad", "Ruim.")
    write(tmp_path / "box/good.dat", "index")
    reader = files("box", "*", cookies, "pt", leave_out="bad .dat")
    assert list(reader(tmp_path)) == [Passage("good", None, "Sim."), Passage("good", None, "Não.")]


def test_books_of_r(tmp_path: Path) -> None:
    def string(text: str) -> bytes:
        return b"\x00\x04\x00\x09" + len(text).to_bytes(4, "big") + text.encode()

    value = b"X\n" + string("It was") + string("late.") + string("") + string("End.")
    write(tmp_path / "r/Rdata.rdb", b"".join(len(value).to_bytes(4, "big") + zlib.compress(value) for _ in range(2)))
    assert [english for english, _ in texts(r_strings("r"), tmp_path)] == ["It was\nlate.", "End."] * 2
    write(tmp_path / "r/Rdata.rdb", b"\0\0\0\1nothing")
    with pytest.raises(CorpusError, match="R data is broken at byte 0"):
        texts(r_strings("r"), tmp_path)


def test_articles_of_a_dump_that_is_cut_off(tmp_path: Path) -> None:
    wikitext = "'''Rust''' is an [[iron oxide|oxide]].&lt;ref&gt;A book.&lt;/ref&gt;\n== See ==\n* [[Iron]]\n{{stub}}"
    page = "<page><title>{}</title><revision><text>{}</text></revision></page>"
    dump = f"<mediawiki>{page.format('Rust', wikitext)}{page.format('Talk:Rust', 'Hello.')}<page><title>Cut"
    write(tmp_path / "w/dump.bz2", bz2.compress(dump.encode()))
    assert list(articles("w", "*.bz2")(tmp_path)) == [Passage("Rust", "Rust is an oxide.", None)]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("<b>Bold</b>&nbsp;text", "Bold text"),
        ("  two\n lines ", "two lines"),
        ("- an item", "an item"),
        ("female^Elf", "Elf"),
        ("?plural:Elves", "Elves"),
        ("e\u0301 aqui", "é aqui"),
    ],
)
def test_text_becomes_plain(raw: str, text: str) -> None:
    assert clean(raw) == text


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("Open", "Open"), "both are the same"),
        (("Open", ""), "empty"),
        (("word " * 130, "palavra " * 90), "600 characters"),
        (("1 a", "1 o"), "two letters"),
        (("10 + 20 = 30 ok", "10 + 20 = 30 certo"), "is letters"),
        (("See http://x.org now", "Veja agora isto"), "address"),
        (("Start &kstars; now", "Inicie agora isto"), "address"),
        (("Open %s now", "Abra agora já"), "different slots for values"),
        (("Save As", "S_alvar como"), "underscore"),
        (("Yes", "Isto é uma frase muito mais comprida"), "lengths"),
    ],
)
def test_pairs_that_teach_nothing_are_left_out(pair: tuple[str, str], reason: str) -> None:
    assert reason in next(rule.reason for rule in PAIR_RULES if rule.applies(*pair))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Too short.", "words"),
        ("It has no end at all", "end"),
        ("and it begins in the middle.", "begin"),
        ("Write it to the file /etc/passwd/x now.", "address"),
        ("Call the value my_name in both files.", "markup"),
        ("There are %d files to be copied.", "a slot for a value"),
        ("In 1999 1998 1997 1996 1995 so.", "letters"),
    ],
)
def test_what_is_no_sentence_does_not_stand_alone(text: str, reason: str) -> None:
    assert reason in next(rule.reason for rule in SENTENCE_RULES if rule.applies(text))


def test_good_text_is_kept() -> None:
    assert not any(rule.applies("Open %s now.", "Abra %s agora.") for rule in PAIR_RULES)
    for sentence in (
        "“It rains again today,” he told her.",
        "Aproximadamente 20 % da população permanece.",
        "Élan is a word.",
    ):
        assert not any(rule.applies(sentence) for rule in SENTENCE_RULES), sentence


def test_sentences_end_where_they_end() -> None:
    text = 'He met Dr. Silva of J. Smith. "Why?" She left. It cost 3.5 dollars, e.g. Monday. (Yes.) No.'
    assert sentences(text) == [
        "He met Dr. Silva of J. Smith.",
        '"Why?"',
        "She left.",
        "It cost 3.5 dollars, e.g. Monday.",
        "(Yes.)",
        "No.",
    ]


def test_paragraphs_are_split_where_both_sides_have_as_many_sentences_of_fitting_length() -> None:
    assert list(sentence_pairs("One is here. Two too.", "Um está aqui. Dois também.")) == [
        ("One is here.", "Um está aqui."),
        ("Two too.", "Dois também."),
    ]
    assert list(sentence_pairs("One. Two.", "Um e dois.")) == [("One. Two.", "Um e dois.")]
    uneven = ("A. This is a very long sentence, much longer.", "Esta é uma frase muito longa, bem mais longa. B.")
    assert list(sentence_pairs(*uneven)) == [uneven]
