"""`python -m bench.server.playground`: how soon the playground is seen, and how many bytes it has.

In a real Chromium, whose every visit is its first, from a server on loopback. See docs/benchmarks.md.
"""

import argparse
import shutil
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.flags.values import new_file, whole
from bench.measure import percentile
from bench.process import free_port, serving
from bench.server.faces import ZOO
from dragoman.quickstart import HOST

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

MOST_MS, MOST_BYTES = 200, 60_000
TEXT = "The red car of my brother is faster than the train to Lisbon."
WAIT_MS = 60_000
PICTURE: "ViewportSize" = {"width": 1100, "height": 1930}
PAINTS = "() => Object.fromEntries(performance.getEntriesByType('paint').map((one) => [one.name, one.startTime]))"
BYTES = """() => ['navigation', 'resource'].flatMap((kind) => performance.getEntriesByType(kind))
    .filter((one) => !/(ListModels|Translate|metrics|:stream)$/.test(one.name))
    .reduce((sum, one) => sum + one.encodedBodySize, 0)"""
"""Of the page's files, without what it asks the server for."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.server.playground", description=__doc__)
    parser.add_argument("--visits", type=whole, default=20, help="of which the middle one counts")
    parser.add_argument("--picture", type=new_file, help="draw the page, with an answer on it, into this PNG file")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        parser.error("there is no chromium; apt-get install chromium")
    port = free_port()
    options = ["--package", f"{ZOO / 'en-pt'},{ZOO / 'pt-en'}", "--http-port", str(port), "--log-level", "error"]
    with serving("server", options), sync_playwright() as driver:
        browser, address = (
            driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"]),
            f"http://{HOST}:{port}/",
        )
        if arguments.picture is not None:
            picture(browser, address, arguments.picture)
        else:
            measure(browser, address, arguments.visits)
        browser.close()


def measure(browser: "Browser", address: str, visits: int) -> None:
    """Prints when something, and when text, is there for the first time."""
    readings, size = list[dict[str, float]](), 0
    for _ in range(visits + 1):
        context = browser.new_context()
        page = opened(context.new_page(), address)
        readings.append(page.evaluate(PAINTS))
        size = page.evaluate(BYTES)
        context.close()
    for name in ("first-paint", "first-contentful-paint"):
        found = [one[name] for one in readings[1:]]  # the first one also starts a renderer
        told = f"{median(found):.0f} ms, 90 % of {visits} visits within {percentile(found, 90):.0f} ms"
        print(f"{name}: {told} (asked: {MOST_MS} ms)")
    print(f"files of the page: {size} bytes (asked: {MOST_BYTES})")


def picture(browser: "Browser", address: str, file: Path) -> None:
    """The page with a translation, three alternatives, alignment and heat maps, as far down as those of the decoder."""
    context = browser.new_context(viewport=PICTURE)
    page = opened(context.new_page(), address)
    page.get_by_text("Options", exact=True).click()
    page.get_by_role("spinbutton", name="Alternatives").first.fill("3")
    page.get_by_text("Options", exact=True).click()
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_label("Text", exact=True).press("Control+Enter")
    page.locator("#alternatives tbody tr").nth(2).wait_for()
    page.get_by_role("button", name="Show attention").click()
    page.locator("#maps canvas").last.wait_for()
    page.screenshot(path=file)
    context.close()


def opened(page: "Page", address: str) -> "Page":
    """The page, with its models there."""
    page.set_default_timeout(WAIT_MS)
    page.goto(address)
    page.locator("#output").wait_for()
    page.wait_for_load_state("networkidle")
    return page


if __name__ == "__main__":
    main()
