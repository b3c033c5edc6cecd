"""`python -m bench.options.texts [PACKAGE]`: what becomes of tags, of what is protected, and of the rest.

FLORES-200 dev, English to Portuguese, in this process. Tags and spans are put in at places that are drawn with a fixed
seed; where one pair of tags belongs in 200 translations was judged by reading (tests/data). See docs/benchmarks.md.
"""

import argparse
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import sacrebleu

from bench.flags.values import package_at, whole
from bench.pages.markdown import machine, table
from bench.sentences import DATA, flores
from dragoman.local import Translator

ZOO = Path(__file__).parent.parent.parent / "models" / "zoo" / "en-pt"
SENTENCES, SEED, PARAGRAPHS, PATIENCE_S = 997, 20, 200, 3600.0
PAGES = Path(__file__).parents[2] / "docs"
PARAGRAPH = re.compile(r"<p>(.*?)</p>", re.DOTALL)
SPANS = {
    "URL": "https://example.org/a/b?c=1",
    "e-mail address": "ana.silva@example.org",
    "{name}": "{user_name}",
    "%s": "%s",
    "emoji": "👩‍💻",
    "code": "`make run`",
}
TAGS = ("b", "i", "em", "strong", "span", "u")
TAG, BOLD = re.compile(r"<[^>]*>"), re.compile(r"<b>(.*?)</b>")


class Nesting(HTMLParser):
    """Whether tags are nested well."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.good, self._open = True, list[str]()
        self.feed(html)
        self.close()
        self.good &= not self._open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Opens it."""
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Closes the last one."""
        self.good &= bool(self._open) and self._open.pop() == tag


@dataclass(frozen=True)
class Judged:
    """A sentence with words in a tag, and where a reader says that the tag belongs."""

    html: str
    words: Sequence[str]
    """Any of these is right. Parts that stand apart have " + " between them."""
    translation: str
    """What was read."""


def with_span(text: str, span: str, chance: random.Random) -> str:
    """With a span between two words."""
    words = text.split()
    place = chance.randint(1, len(words) - 1)
    return " ".join((*words[:place], span, *words[place:]))


def with_tags(text: str, chance: random.Random) -> str:
    """With up to three pairs of tags around words, one maybe inside of another."""
    words = [escape(word, quote=False) for word in text.split()]
    for tag in chance.sample(TAGS, chance.randint(1, 3)):
        first = chance.randrange(len(words))
        last = min(len(words) - 1, first + chance.randint(0, 3))
        before = Nesting(" ".join(words[first : last + 1]))
        if before.good:
            words[first] = f"<{tag}>{words[first]}"
            words[last] = f"{words[last]}</{tag}>"
    return " ".join(words)


def judged() -> list[Judged]:
    """The list of tests/data."""
    rows = (line.split("\t") for line in (DATA / "inline-tags.en-pt.tsv").read_text(encoding="utf-8").splitlines())
    return [Judged(html, words.split(" | "), translation) for html, words, translation in rows]


def on_the_right_words(one: Judged, html: str) -> bool:
    """Whether the tag is on the words that it belongs on, all of them and no others."""
    inside = (unescape(TAG.sub("", part)).strip() for part in BOLD.findall(html))
    return " + ".join(inside).casefold() in [words.casefold() for words in one.words]


def paragraphs(folder: Path | None, chance: random.Random) -> list[str]:
    """Of a folder's HTML files, or of this repository's pages: those that are nested well, with tags in them."""
    from markdown_it import MarkdownIt

    if folder is None:
        render = MarkdownIt("commonmark").render
        pages = [render(page.read_text(encoding="utf-8")) for page in sorted(PAGES.glob("*.md"))]
    else:
        pages = [page.read_text(encoding="utf-8") for page in sorted(folder.rglob("*.html"))]
    found = (paragraph.replace("\n", " ") for page in pages for paragraph in PARAGRAPH.findall(page))
    marked_up = [paragraph for paragraph in found if "<" in paragraph and Nesting(paragraph).good]
    return chance.sample(marked_up, min(PARAGRAPHS, len(marked_up)))


def kept(pages: Sequence[str], found: Sequence[str]) -> int:
    """How many have all of their tags, with what is in them, nested well."""
    return sum(
        Nesting(html).good and not Counter(TAG.findall(page)) - Counter(TAG.findall(html))
        for page, html in zip(pages, found, strict=True)
    )


def bleu(texts: Sequence[str], references: Sequence[str]) -> str:
    """As a table has it."""
    return f"{sacrebleu.corpus_bleu(list(texts), [list(references)]).score:.2f}"


def measure(translator: Translator, sentences: int, folder: Path | None) -> list[list[str]]:
    """Rows of the table."""
    chance, sources, references = random.Random(SEED), flores("en")[:sentences], flores("pt")[:sentences]
    found = [one.text for one in translator.translate(sources, timeout_s=PATIENCE_S)]
    rows = [["sentences as they are", "", bleu(found, references)]]
    for name, span in SPANS.items():
        given = [with_span(source, span, chance) for source in sources]
        found = [one.text for one in translator.translate(given, segmentation="sentences", timeout_s=PATIENCE_S)]
        intact = sum(text.count(span) == 1 for text in found)
        without = [text.replace(f" {span}", "").replace(f"{span} ", "") for text in found]
        rows.append([f"with one {name} each", f"intact in {intact} of {sentences}", bleu(without, references)])
    pages = [with_tags(source, chance) for source in sources]
    found = [one.text for one in translator.translate(pages, format="html", timeout_s=PATIENCE_S)]
    told = f"all there, nested well, in {kept(pages, found)} of {sentences}"
    rest = [unescape(TAG.sub("", html)) for html in found]
    rows.append(["with 1 to 3 pairs of tags each", told, bleu(rest, references)])
    real = paragraphs(folder, chance)
    found = [one.text for one in translator.translate(real, format="html", timeout_s=PATIENCE_S)]
    rows.append(
        [
            f"paragraphs of {'docs' if folder is None else folder.name}",
            f"all there, nested well, in {kept(real, found)} of {len(real)}",
            "",
        ]
    )
    of_list = judged()
    found = [
        one.text for one in translator.translate([one.html for one in of_list], format="html", timeout_s=PATIENCE_S)
    ]
    read = [
        (one, html)
        for one, html in zip(of_list, found, strict=True)
        if unescape(TAG.sub("", html)).split() == one.translation.split()
    ]
    right = sum(on_the_right_words(one, html) for one, html in read)
    left_out = f" (of {len(of_list)}: others were translated otherwise than they were read)"
    told = f"on the right words in {right} of {len(read)}{left_out if len(read) < len(of_list) else ''}"
    rows.append(["one pair of tags, judged by reading", told, ""])
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.options.texts", description=__doc__)
    parser.add_argument(
        "package", nargs="?", type=package_at, default=ZOO, metavar="PACKAGE", help="of en-pt, that aligns"
    )
    parser.add_argument("--sentences", type=whole, default=SENTENCES, metavar="N", help=f"default: {SENTENCES}")
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="HTML files with paragraphs (default: our pages)")
    chosen = parser.parse_args()
    print(f"{machine()}\n", flush=True)
    with Translator(chosen.package) as translator:
        print(
            table(["texts", "what was put in", "BLEU of the rest"], measure(translator, chosen.sentences, chosen.pages))
        )


if __name__ == "__main__":
    main()
