"""What several tests of the playground do."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

playwright: Any = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make tools")
TEXT = "The red car of my brother is faster than the old train."
LONG = "The old man walked along the river and thought about the days when he was young, " * 4


def translated(page: "Page", text: str) -> str:
    """Types a text, and waits for its translation."""
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_label("Text", exact=True).press("Control+Enter")
    playwright.expect(page.locator("#told")).to_contain_text("tokens became")
    playwright.expect(page.locator("#output")).to_have_attribute("aria-busy", "false")
    found: str = page.locator("#output").inner_text()
    return found
