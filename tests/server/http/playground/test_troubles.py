"""The playground where something goes wrong, or takes long, or began anew."""

import re
from typing import TYPE_CHECKING

from tests.server.http.playground.translating import LONG, TEXT, playwright, translated

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route


def test_an_error_is_told(page: "Page") -> None:
    page.get_by_text("Options", exact=True).click()
    page.get_by_role("spinbutton", name=re.compile("^Length penalty")).fill("0.5")
    page.get_by_role("spinbutton", name=re.compile("^Beams")).fill("4")
    page.get_by_role("spinbutton", name=re.compile("^No repeated")).fill("3")
    page.get_by_label("Text", exact=True).fill("\u200b")
    page.get_by_label("Text", exact=True).press("Control+Enter")
    playwright.expect(page.locator("#told")).to_contain_text("(BLANK_CONTENT)")


def test_an_option_out_of_its_range_is_told(page: "Page") -> None:
    translated(page, TEXT)
    page.get_by_text("Options", exact=True).click()
    beams = page.get_by_role("spinbutton", name=re.compile("^Beams"))
    beams.fill("100")
    beams.press("Tab")
    playwright.expect(page.locator("#told")).to_have_text(re.compile(r"^Beams \(1 to 16\): .*16.*OPTION_OUT_OF_RANGE"))
    beams.fill("2")
    beams.press("Tab")
    playwright.expect(page.locator("#told")).to_contain_text("tokens became")


def test_nothing_of_the_request_before_is_seen_beside_an_error(page: "Page") -> None:
    translated(page, TEXT)
    page.get_by_label("Text", exact=True).fill("\u200b")
    playwright.expect(page.locator("#told")).to_contain_text("(BLANK_CONTENT)")
    playwright.expect(page.locator("#output")).to_have_text("")
    for part in ("#time", "#alignment", "#attention", "#as-call", "#copy"):
        playwright.expect(page.locator(part)).to_be_hidden()


def test_attention_that_is_refused_is_told_where_it_was_asked_for(page: "Page") -> None:
    translated(page, 3 * LONG)
    page.get_by_role("button", name="Show attention").click()
    playwright.expect(page.locator("#maps")).to_contain_text("(ATTENTION_TOO_LARGE)")


def test_a_translation_that_is_not_whole_is_not_swapped_in(page: "Page") -> None:
    translated(page, "Good morning.")
    page.route("**/v1/translate:stream", lambda route: None)  # an answer that does not come
    page.get_by_label("Text", exact=True).fill("Two dogs bark.")
    page.get_by_label("Text", exact=True).press("Control+Enter")
    playwright.expect(page.locator("#output")).to_have_attribute("aria-busy", "true")
    page.get_by_role("button", name="Swap").click()
    playwright.expect(page.get_by_label("Model")).to_have_value("pt-en")
    assert page.get_by_label("Text", exact=True).input_value() == "Two dogs bark."


def test_long_alternatives_do_not_stop_the_page(page: "Page") -> None:
    """What differs between 50,000 words and as many is 2.5 billion comparisons."""
    page.evaluate(
        """async () => {
            const { showAlternatives } = await import("/playground/results.js");
            const text = (word) => `${word} `.repeat(50_000);
            showAlternatives(document.getElementById("alternatives"), [{ text: text("um") }, { text: text("dois") }]);
        }"""
    )
    playwright.expect(page.locator("#alternatives thead")).to_contain_text("too long to show what differs")
    playwright.expect(page.locator("#alternatives tbody tr")).to_have_count(2)
    playwright.expect(page.locator("#alternatives mark")).to_have_count(0)


def test_a_server_that_begins_anew_counts_anew(page: "Page") -> None:
    """Its counters are below those of the one before."""
    counted, started = 1000, 1

    def metrics(route: "Route") -> None:
        nonlocal counted
        counted += 100
        route.fulfill(body=f"process_start_time_seconds {started}\ndragoman_target_tokens_total {counted}\n")

    page.route("**/metrics", metrics)
    playwright.expect(page.locator("#chart")).to_contain_text("Tokens a second")
    page.evaluate("() => { window.least = 0; }")
    page.evaluate(
        """() => new MutationObserver(() => {
            window.least = Math.min(window.least, ...document.getElementById("figures").textContent
                .match(/second(-?\\d+)/).slice(1).map(Number));
        }).observe(document.getElementById("figures"), {childList: true})"""
    )
    counted, started = 0, 2
    playwright.expect(page.locator("#figures")).to_contain_text("a second0")
    playwright.expect(page.locator("#figures")).not_to_contain_text("a second0")
    assert page.evaluate("() => window.least") == 0


def test_what_went_on_while_nobody_looked_is_not_of_the_last_five_minutes(page: "Page") -> None:
    fast, slow = 0, 0

    def metrics(route: "Route") -> None:
        name = 'dragoman_rpc_duration_seconds_bucket{code="OK",method="Translate",le='
        route.fulfill(body=f'{name}"1"}} {fast}\n{name}"100"}} {fast + slow}\n{name}"+Inf"}} {fast + slow}\n')

    page.route("**/metrics", metrics)
    page.clock.install()
    page.evaluate(
        """async () => {
            const { watchService } = await import("/playground/service.js");
            Object.defineProperty(document, "hidden", { get: () => window.away ?? false });
            document.body.append(document.createElement("p"), document.createElement("i"));
            watchService(document.querySelector("body > p"), document.querySelector("body > i"), () => "");
        }"""
    )
    figures = page.locator("body > p")
    playwright.expect(figures).to_contain_text("no calls")
    slow = 1000
    page.evaluate("() => { window.away = true; }")
    page.clock.fast_forward("01:00:00")
    page.evaluate("() => { window.away = false; }")
    with page.expect_response("**/metrics"):  # else "no calls" is what it said before it asked
        page.clock.run_for(2000)
    playwright.expect(figures).to_contain_text("no calls")
    fast = 10
    page.clock.run_for(2000)
    playwright.expect(figures).to_contain_text("p50, five minutes500.0 ms")
