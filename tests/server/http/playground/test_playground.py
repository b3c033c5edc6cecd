"""The playground in a real Chromium, with a real server behind it."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints
from urllib.request import urlopen

import pytest

from models.decoding import Decoding
from tests.client.test_client_connection import free_target
from tests.server.http.playground.translating import LONG, TEXT, playwright, translated
from tests.server_process import ROOT, WAIT_S, eventually, server_process

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = ROOT / ".venv" / "chart" / "node_modules" / "axe-core" / "axe.min.js"
GRPCURL = Path(sys.prefix) / "clients" / "bin" / "grpcurl"
PAGE = ROOT / "server" / "http" / "page"
MOST_BYTES = 60_000


def test_text_appears_as_it_is_written(page: "Page") -> None:
    page.evaluate(
        """() => {
            window.seen = [];
            const output = document.getElementById('output');
            new MutationObserver(() => window.seen.push(output.textContent)).observe(output, {childList: true});
        }"""
    )
    whole = translated(page, LONG)
    seen = page.evaluate("() => window.seen")
    assert len(set(seen)) > 5
    assert all(whole.startswith(part) for part in seen)


def test_as_one_types_and_with_the_keyboard_alone(page: "Page") -> None:
    page.get_by_label("Text", exact=True).focus()
    page.keyboard.type("Good morning.")
    playwright.expect(page.locator("#output")).to_have_text("Bom dia.")
    page.keyboard.press("Shift+Tab")  # the language to translate into
    page.keyboard.press("Shift+Tab")
    playwright.expect(page.get_by_role("button", name="Swap")).to_be_focused()
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_label("Model")).to_have_value("pt-en")
    playwright.expect(page.locator("#output")).to_have_text("Good morning.")


def test_alternatives_and_time(page: "Page") -> None:
    page.get_by_text("Options", exact=True).click()
    page.get_by_role("spinbutton", name=re.compile("^Alternatives")).fill("3")
    best = translated(page, TEXT)
    rows = page.locator("#alternatives tbody tr")
    playwright.expect(rows).to_have_count(3)
    assert rows.first.locator("th").inner_text() == best
    assert rows.nth(1).locator("mark").count() > 0 and rows.first.locator("mark").count() == 0
    told = page.locator("#time .stack").get_attribute("aria-label")
    parts = [float(number) for number in re.findall(r"([\d.]+) ms", told or "")]
    [total] = re.findall(r"all ([\d.]+) ms", page.locator("#time .legend").inner_text())
    assert len(parts) == 5 and sum(parts) == pytest.approx(float(total), abs=0.05)


def test_the_bar_is_full_however_short_the_time(page: "Page") -> None:
    """Of an answer that was kept it is less than a millisecond."""
    translated(page, TEXT)
    shares = page.evaluate(
        """async () => {
            const { showTime } = await import("/playground/results.js");
            showTime(document.getElementById("time"), { tokenize: "0.0001s", detokenize: "0.0003s" });
            const bar = document.querySelector("#time .stack");
            return [...bar.children].map((part) => part.offsetWidth / bar.clientWidth);
        }"""
    )
    assert shares[0] == pytest.approx(0.25, abs=0.02) and sum(shares) == pytest.approx(1, abs=0.02)


def test_alignment_is_a_table(page: "Page") -> None:
    translated(page, "The red car is here.")
    cell = page.get_by_title(re.compile("^carro, car: "))
    assert float((cell.get_attribute("title") or "").rpartition(" ")[2]) > 0.5
    page.locator("#target-words").get_by_role("button", name="vermelho").focus()
    playwright.expect(page.locator("#source-words .partner")).to_have_text("red")


def test_every_head_of_every_layer_is_drawn(page: "Page") -> None:
    """Of the packages of the zoo: eight heads in two layers of the decoder and six of the encoder."""
    translated(page, "The red car is here.")
    page.get_by_role("button", name="Show attention").click()
    playwright.expect(page.locator("#maps canvas")).to_have_count(8 * (2 + 6))
    first = page.get_by_role("img", name="Translation to text, layer 1, head 1: 7 tokens look at 7")
    rows = first.evaluate(
        """(map) => {
            const {data} = map.getContext('2d').getImageData(0, 0, map.width, map.height);
            const share = (row) => [...Array(map.width).keys()].map((x) => data[4 * (row * map.width + x) + 3]);
            return [...Array(map.height).keys()].map((row) => share(row).reduce((a, b) => a + b) / 255);
        }"""
    )
    assert rows == pytest.approx([1.0] * 7, abs=0.05)


def test_alternatives_take_no_beams_from_a_model_that_has_more(page: "Page") -> None:
    found = page.evaluate(
        """async () => {
            const { makeOptions, readOptions } = await import("/playground/options.js");
            const [place, model] = [document.createElement("div"), { maxBeams: 16, defaultDecoding: { numBeams: 4 } }];
            const read = (numReturnSequences) => {
                makeOptions(place, model, { numReturnSequences });
                return readOptions(place).numBeams ?? null;
            };
            return [read(2), read(4), read(5)];
        }"""
    )
    assert found == [None, None, 5]


def test_a_text_of_several_sentences_is_taken_apart(page: "Page") -> None:
    assert (
        translated(page, "Good morning. The cat is here.\n\nGood morning.") == "Bom dia. O gato está aqui.\n\nBom dia."
    )
    assert "3 sentences" in page.locator("#told").inner_text()
    assert json.loads(page.locator("#calls pre").first.inner_text().split("'")[3])["segmentation"]


def test_what_has_no_score_shows_none(page: "Page") -> None:
    """Several sentences together, and a text that stays as it is, in which nothing was decoded."""
    page.get_by_text("Options", exact=True).click()
    page.get_by_role("spinbutton", name=re.compile("^Alternatives")).fill("2")
    translated(page, "Good morning. The cat is here.")
    assert "score" not in page.locator("#told").inner_text()
    assert page.locator("#alternatives tbody tr").first.locator("td").all_inner_texts()[:2] == ["", ""]
    page.get_by_label("Text", exact=True).fill("https://example.org/?a=b")
    playwright.expect(page.locator("#told")).to_have_text(re.compile("0 tokens became 0$"))


def test_a_sentence_over_the_limit_is_taken_apart(page: "Page") -> None:
    assert translated(page, "the cat sat on the mat, " * 100).count("gato") > 20
    assert "sentences" in page.locator("#told").inner_text()


def test_a_new_request_ends_the_one_before(page: "Page", address: str) -> None:
    def cancelled() -> float:
        with urlopen(f"{address}metrics", timeout=WAIT_S) as answer:
            lines = answer.read().decode().splitlines()
        name = "dragoman_rpc_duration_seconds_count{"
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name) and "CANCELLED" in line)

    before = cancelled()
    page.get_by_text("Options", exact=True).click()
    page.get_by_role("spinbutton", name=re.compile("^Beams")).fill("16")
    page.get_by_label("Text", exact=True).fill(LONG)
    page.get_by_label("Text", exact=True).press("Control+Enter")
    playwright.expect(page.locator("#output")).to_have_attribute("aria-busy", "true")
    page.get_by_label("Text", exact=True).fill("Good morning.")
    page.get_by_label("Text", exact=True).press("Control+Enter")
    playwright.expect(page.locator("#output")).to_have_text("Bom dia.")
    eventually(lambda: cancelled() > before)


def test_the_service_is_watched(page: "Page") -> None:
    translated(page, TEXT)
    playwright.expect(page.locator("#figures")).to_contain_text(re.compile(r"0 of \d+"))
    playwright.expect(page.locator("#chart svg")).to_have_attribute("aria-label", re.compile("^Tokens a second"))


def test_what_was_asked_is_there_as_a_call(page: "Page") -> None:
    """Each does as printed what the page did."""
    page.get_by_text("Options", exact=True).click()
    page.get_by_role("spinbutton", name=re.compile("^Alternatives")).fill("2")
    best = translated(page, 'It\'s a "cat".')
    curl, python, grpcurl = page.locator("#calls pre").all_inner_texts()
    by_curl = json.loads(ran("bash", "-c", f"{curl} --silent --noproxy '*'"))["translations"][0]["hypotheses"]
    by_python = ran(sys.executable, "-c", python).splitlines()
    assert [one["text"] for one in by_curl] == [line.partition(" ")[2] for line in by_python]
    assert by_curl[0]["text"] == best
    [target] = re.findall(r'Client\("([^"]+)"\)', python)
    assert grpcurl.endswith(f"{target} dragoman.v1.TranslationService/Translate")
    if GRPCURL.exists():
        told = json.loads(ran("bash", "-c", grpcurl.replace("grpcurl", str(GRPCURL), 1)))
        assert [one["text"] for one in told["translations"][0]["hypotheses"]] == [one["text"] for one in by_curl]


def ran(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=WAIT_S).stdout


def test_the_address_brings_back_what_was_asked(page: "Page") -> None:
    page.get_by_text("Options", exact=True).click()
    page.get_by_role("spinbutton", name=re.compile("^Length penalty")).fill("0")
    best = translated(page, "Two dogs bark.")
    page.reload()
    playwright.expect(page.locator("#output")).to_have_text(best)
    assert page.locator("input[name=lengthPenalty]").input_value() == "0"


def test_an_address_that_is_followed_on_the_page_is_asked(page: "Page") -> None:
    page.get_by_text("Options", exact=True).click()
    page.get_by_role("spinbutton", name=re.compile("^Length penalty")).fill("0")
    translated(page, "Two dogs bark.")
    page.evaluate("() => { location.hash = '#text=Bom+dia.&model=pt-en&numBeams=2'; }")
    playwright.expect(page.locator("#output")).to_have_text("Good morning.")
    assert page.get_by_label("Model").input_value() == "pt-en"
    assert page.locator("input[name=numBeams]").input_value() == "2"
    assert page.locator("input[name=lengthPenalty]").input_value() == ""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Where a server is that wants to know who calls, and a token for it."""
    port, (token, callers) = free_target().rpartition(":")[2], (tmp_path / "token", tmp_path / "callers.toml")
    made = ran(sys.executable, "-m", "server.identity", "ada", "--token-file", str(token))
    callers.write_text(made, encoding="utf-8")
    zoo = ROOT / "models" / "zoo"
    flags = ["--callers", callers, "--http-hosts", "dragoman.test", "--http-port", port]
    with server_process(zoo / "en-pt", "--package", zoo / "pt-en", *flags):
        yield f"http://dragoman.test:{port}/", token.read_text(encoding="utf-8").strip()


def test_a_page_of_another_machine_that_wants_a_token(browser: "Browser", guarded: tuple[str, str]) -> None:
    """By plain HTTP it has no clipboard of its own; what the address said holds once there is a token."""
    address, token = guarded
    page, wrong = browser.new_page(), list[str]()
    page.set_default_timeout(WAIT_S * 1000)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(f"{address}#model=pt-en&numBeams=2")
    playwright.expect(page.locator("#told")).to_contain_text("(NO_CREDENTIALS)")
    page.get_by_role("button", name="Swap").click()
    page.get_by_label("Text", exact=True).fill("Bom dia.")
    page.get_by_label("Text", exact=True).press("Control+Enter")
    playwright.expect(page.locator("#told")).to_contain_text("(NO_CREDENTIALS)")
    page.get_by_label("Token").fill(token)
    page.get_by_label("Token").press("Tab")
    playwright.expect(page.locator("#output")).to_have_text("Good morning.")
    assert page.get_by_label("Model").input_value() == "pt-en"
    assert page.locator("input[name=numBeams]").input_value() == "2"
    page.get_by_role("button", name="Copy", exact=True).click()
    playwright.expect(page.locator("#copy")).to_have_text("Copied")
    playwright.expect(page.locator("#copy")).to_be_focused()
    page.get_by_label("Text", exact=True).fill("")
    page.get_by_label("Text", exact=True).press("Control+v")
    assert page.get_by_label("Text", exact=True).input_value() == "Good morning."
    assert wrong == []


@pytest.mark.parametrize("page", [{"viewport": {"width": 320, "height": 800}, "color_scheme": "dark"}], indirect=True)
def test_a_small_screen_does_not_scroll_sideways(page: "Page") -> None:
    translated(page, TEXT)
    playwright.expect(page.locator("#figures")).to_contain_text(re.compile(r"0 of \d+"))
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 320


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: make tools")
@pytest.mark.parametrize(
    "page", [{"color_scheme": scheme, "bypass_csp": True} for scheme in ("light", "dark")], indirect=True
)
def test_everybody_can_use_it(page: "Page") -> None:
    """axe has nothing to say. It is put in past the page's own policy, which lets no other script in."""
    page.get_by_text("Options", exact=True).click()
    page.get_by_role("spinbutton", name=re.compile("^Alternatives")).fill("2")
    translated(page, TEXT)
    playwright.expect(page.locator("#chart svg")).to_have_count(1)
    page.add_script_tag(path=AXE)
    found = page.evaluate("async () => (await axe.run()).violations.map((one) => [one.id, one.nodes[0].html])")
    assert found == []


@pytest.mark.parametrize(
    ("control", "option"), [("lengthPenalty", "length_penalty"), ("noRepeatNgramSize", "no_repeat_ngram_size")]
)
def test_a_control_has_the_range_of_its_option(control: str, option: str) -> None:
    """Those of others are the model's."""
    [bounds] = get_type_hints(Decoding, include_extras=True)[option].__metadata__
    text = (PAGE / "playground" / "options.js").read_text(encoding="utf-8")
    [found] = re.findall(rf'name: "{control}".* min: (-?\d+), max: \(\) => (\d+),', text)
    assert tuple(map(float, found)) == (bounds.least, bounds.most)


def test_the_page_is_small_and_has_nothing_inline() -> None:
    files = [file for file in PAGE.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"\sstyle=|\son\w+=\"|innerHTML|https?://(?!www\.w3\.org)", text), file
