"""The playground, open in a real Chromium, with a real server behind it."""

import re
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.client.test_client_connection import free_target
from tests.server_process import ROOT, WAIT_S, server_process

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="package")
def address() -> Iterator[str]:
    port = free_target().rpartition(":")[2]
    zoo = ROOT / "models" / "zoo"
    with server_process(zoo / "en-pt", "--package", zoo / "pt-en", "--http-port", port, "--cache-mb", 0):
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="package")
def browser() -> "Iterator[Browser]":
    playwright: Any = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make tools")
    playwright.expect.set_options(timeout=WAIT_S * 1000)
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as driver:
        names = "--host-resolver-rules=MAP dragoman.test 127.0.0.1"
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", names])
        yield browser
        browser.close()


@pytest.fixture(params=[{}])
def page(browser: "Browser", address: str, request: pytest.FixtureRequest) -> "Iterator[Page]":
    """The playground, open. Whatever a test does, the console has no errors, and nothing goes elsewhere."""
    context = browser.new_context(**request.param)
    context.set_default_timeout(WAIT_S * 1000)
    page, wrong = context.new_page(), list[str]()

    def told(message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    def asked(request: "Request") -> None:
        if not request.url.startswith((address, "data:")):
            wrong.append(request.url)

    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", told)
    page.on("request", asked)
    page.goto(address)
    from playwright.sync_api import expect  # it may not be installed: then there is no browser

    expect(page.get_by_label("Model")).to_have_value("en-pt")
    yield page
    context.close()
    assert [one for one in wrong if not re.search(r"status of (400|413) ", one)] == []
