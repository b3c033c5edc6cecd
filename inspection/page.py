"""The report: one HTML file without scripts, which takes nothing from anywhere, for light and dark screens."""

from xml.etree.ElementTree import Element, SubElement, tostring

from inspection.beams import draw_search
from inspection.drawing import STYLE
from inspection.findings import Findings
from inspection.sections import SECTIONS, back_maps, encoder_maps, target_maps

PAGE_STYLE = """
:root { color-scheme: light dark; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 110rem; padding: 0 1.5rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { border: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
th, td { padding: 0.15rem 0.5rem; text-align: left; }
[style] { background: linear-gradient(to right, rgb(47 127 214 / 35%) var(--share, 0%), transparent var(--share, 0%)); }
svg image { background: none; }
.chosen { font-weight: 700; }
.bars { display: flex; flex-wrap: wrap; gap: 0.3rem; }
.bars span { display: inline-flex; flex-direction: column; min-width: 3.5rem; }
blockquote { border-left: 3px solid rgb(47 127 214); margin: 0; padding-left: 0.8rem; }
"""


def report(findings: Findings) -> str:
    """The page."""
    html = Element("html", {"lang": "en"})
    head = SubElement(html, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width"})
    title = f"{findings.package.manifest.name}: one text"
    SubElement(head, "title").text = title
    SubElement(head, "style").text = PAGE_STYLE + STYLE
    body = SubElement(html, "body")
    SubElement(body, "h1").text = title
    SubElement(body, "blockquote").text = findings.wanted.text
    for section in SECTIONS:
        if (shown := section(findings)) is not None:
            body.append(shown)
    return "<!doctype html>\n" + tostring(html, "unicode", method="html")


def pictures(findings: Findings) -> dict[str, str]:
    """Those of the page as SVG files, by their names."""
    drawn = {
        "encoder": encoder_maps(findings),
        "decoder": target_maps(findings),
        "looking_back": back_maps(findings),
        "search": None if findings.root is None else draw_search(findings.root, findings.labels),
    }
    return {f"{name}.svg": as_file(picture) for name, picture in drawn.items() if picture is not None}


def as_file(picture: Element) -> str:
    """A picture that stands alone."""
    style = Element("style")
    style.text = STYLE
    picture.insert(0, style)
    return tostring(picture, "unicode") + "\n"
