"""server.text.texts: whole texts through a model that the test plays, and through a real one in this process."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from dragoman.local import Translator
from engine.request import FinishReason, Timings
from models.decoding import Options
from server.errors import HtmlTooLong, TooManyContents
from server.text.protected import Term
from server.text.texts import MOST_HTML, Shape, Texts
from server.translation.answer import Translation
from server.translation.sharing.waiting import Reuse
from server.translation.targets import TargetText
from tests.server_process import ROOT
from tests.serving import MODEL

PLAIN = Shape()


def said(*texts: str) -> Translation:
    """Translations of a sentence, the best first."""
    timings = Timings(1.0, 2.0, 3.0, 4, 5.0)
    targets = (TargetText(text, -0.5 - rank, 3, FinishReason.END_TOKEN) for rank, text in enumerate(texts))
    return Translation(tuple(targets), 2, timings, Reuse.NONE)


class Played:
    """A model's sentences: what it was asked for, and what it answers."""

    def __init__(self, answer: Callable[[str], Sequence[str]] = lambda content: [content.upper()]) -> None:
        self.asked: list[list[str]] = []
        self._answer = answer

    async def ask(self, contents: Sequence[str], options: Options) -> list[Translation]:
        self.asked.append(list(contents))
        return [said(*self._answer(content)) for content in contents]

    def texts(self, most: int = 8, most_characters: int = 100) -> Texts:
        model = replace(MODEL, max_contents=most)
        return Texts(model, "", lambda text: len(text) <= most_characters, self.ask)


async def translated(played: Played, text: str, shape: Shape = PLAIN) -> str:
    [translation] = await played.texts().translate([text], shape, {})
    return translation.hypotheses[0].text


async def test_sentences_are_asked_for_and_all_between_them_is_kept() -> None:
    played = Played()
    text = "  One day.  Two \n\n\tThree! \n"
    assert await translated(played, text) == "  ONE DAY.  TWO \n\n\tTHREE! \n"
    assert played.asked == [["One day.", "Two", "Three!"]]


async def test_where_sentences_stand() -> None:
    played = Played(lambda content: [f"{content.upper()}!!"])
    text = "One.  Two.\nThree."
    [translation] = await played.texts().translate([text], Shape(), {})
    [best] = translation.hypotheses
    pairs = [(text[slice(*one.source)], best.text[slice(*one.target)]) for one in translation.sentences]
    assert pairs == [("One.", "ONE.!!"), ("Two.", "TWO.!!"), ("Three.", "THREE.!!")]
    assert (best.score, best.tokens, translation.source_tokens) == (0.0, 9, 6)
    assert translation.timings == Timings(3.0, 6.0, 9.0, 12, 5.0)


async def test_a_text_of_one_sentence_has_its_score() -> None:
    [translation] = await Played().texts().translate(["One."], Shape(), {})
    assert translation.hypotheses[0].score == translation.sentences[0].score == -0.5


async def test_what_a_model_loses_is_put_between_the_parts() -> None:
    """First it is asked with placeholders; where one is lost or doubled, for what is between them."""
    played = Played(lambda content: [content.replace("Q77", "Q78 Q78") if "both" in content else content])
    assert await translated(played, "Ask {a} and {b}. See both: {a}, {b}!") == "Ask {a} and {b}. See both: {a}, {b}!"
    assert played.asked == [["Ask Q77 and Q78.", "See both: Q77, Q78!"], ["See both:"]]


async def test_a_text_without_words_is_not_asked_for() -> None:
    played = Played()
    for text in ("", " \n", "😀 {name}\n", "https://example.com", "-----\n!!!", "😀" * 300_000):
        assert await translated(played, text) == text
    assert await translated(played, "<br><p>&nbsp;</p>", Shape(html=True)) == "<br><p>&nbsp;</p>"
    assert not any(played.asked)


async def test_the_nth_best_text_has_the_nth_best_sentences() -> None:
    played = Played(lambda content: [content + "1", content + "2"] if len(content) < 5 else [content + "1"])
    [translation] = await played.texts().translate(["One. Three."], Shape(), {})
    assert [one.text for one in translation.hypotheses] == ["One.1 Three.1", "One.2 Three.1"]


async def test_many_sentences_go_in_windows_and_long_ones_in_parts() -> None:
    played = Played()
    await played.texts(most=3).translate(["One. Two. Three.", "Four. Five."], Shape(), {})
    assert [len(window) for window in played.asked] == [3, 2]
    played = Played()
    assert await played.texts(most_characters=9).translate(["one two three"], Shape(), {})
    assert played.asked == [["one two", "three"]]


async def test_placeholders_that_a_sentence_has_no_room_for_part_it() -> None:
    """It fits as it is, and they are longer than what they stand for."""
    played = Played()
    emoji = "😀" * 40
    assert await translated(played, f"I like {emoji} a lot. So do I.") == f"I LIKE {emoji} A LOT. SO DO I."
    assert played.asked == [["I like", "a lot.", "So do I."]]


async def test_terms_are_said_as_the_glossary_has_them() -> None:
    shape = Shape(glossary=(Term("New Car", "Carro Novo"), Term("Bob", "Bob", case_sensitive=True)))
    assert await translated(Played(), "Bob has a new car. bob", shape) == "Bob HAS A Carro Novo. BOB"


async def test_what_cannot_be() -> None:
    texts = Played().texts(most=2)
    with pytest.raises(TooManyContents):
        await texts.translate(["a"] * 3, Shape(), {})
    with pytest.raises(HtmlTooLong, match=f"contents\\[1\\] has {MOST_HTML + 1} characters of HTML; a text may have"):
        await texts.translate(["a", "b" * (MOST_HTML + 1)], Shape(html=True), {})


@pytest.fixture(scope="module")
def real() -> Iterator[Translator]:
    with Translator(ROOT / "models" / "zoo" / "en-pt", workers=1) as translator:
        yield translator


@pytest.mark.parametrize(
    ("html", "target"),
    [
        (
            "<p>The <b>red car</b> of my brother.</p>\n"
            '<p>We know the <strong>real name</strong> of this <a href="y">Portuguese writer</a>.</p>',
            "<p>O <b>carro vermelho</b> do meu irmão.</p>\n"
            '<p>Conhecemos o <strong>verdadeiro nome</strong> deste <a href="y">escritor português</a>.</p>',
        ),
        (
            'Use <code>pip install x</code> to install <span class="notranslate">Foo Bar</span> today.',
            'Use o <code>pip install x</code> para instalar o <span class="notranslate">Foo Bar</span> hoje.',
        ),
    ],
)
def test_tags_are_around_the_words_that_come_from_theirs(real: Translator, html: str, target: str) -> None:
    assert real.translate(html, format="html").text == target


def test_a_long_text_is_its_sentences_and_each_is_as_alone(real: Translator) -> None:
    sentences = ["The red car is here.", "Two dogs bark.", "It rains in Lisbon."] * 8
    text = real.translate(" ".join(sentences), segmentation="sentences", num_beams=2)
    assert [one.source.end - one.source.begin for one in text.sentences] == list(map(len, sentences))
    alone = real.translate(sentences, num_beams=2)
    assert text.text == " ".join(one.text for one in alone)
    assert [one.score for one in text.sentences] == [one.score for one in alone]


def test_spans_are_protected(real: Translator) -> None:
    text = "Please visit https://example.com/a?b=c. I have %d cats 😀 and {name} has `code`."
    target = real.translate(text, segmentation="sentences").text
    for span in ("https://example.com/a?b=c", "%d", "😀", "{name}", "`code`"):
        assert target.count(span) == 1


@pytest.mark.parametrize(
    ("text", "answers", "said"),
    [
        (  # a sentence of Chinese, divided
            "我们去了北京，又去了上海；都很累。",
            {"我们去了北京，又去了上海；": "We went to Beijing; then to Shanghai", "都很累。": "All were tired."},
            "We went to Beijing; then to Shanghai All were tired.",
        ),
        ("你好。再见。", {"你好。": "Hello.", "再见。": "Bye."}, "Hello. Bye."),
        ("你好。再见。", {"你好。": "こんにちは。", "再见。": "またね。"}, "こんにちは。またね。"),
        ("One. Two! Three.", {"One.": "一。", "Two!": "「二」", "Three.": "3。"}, "一。「二」 3。"),
        ("One. Two.", {"One.": "หนึ่ง", "Two.": "สอง"}, "หนึ่ง สอง"),  # Thai has spaces between sentences
        ("One. Two.", {"One.": "하나.", "Two.": "둘."}, "하나. 둘."),
        ("One.  Two.\nOne.", {"One.": "一。", "Two.": "二。"}, "一。  二。\n一。"),  # who writes two means them
    ],
)
async def test_spaces_between_sentences_are_those_of_the_target(text: str, answers: dict[str, str], said: str) -> None:
    played = Played(lambda content: [answers[content]])
    model = replace(MODEL, source_languages=("zh",) if "。" in text else ("en",))
    texts = Texts(model, "", lambda content: len(content) <= 13, played.ask)
    [translation] = await texts.translate([text], PLAIN, {})
    assert translation.hypotheses[0].text == said
    for sentence in translation.sentences:
        assert said[slice(*sentence.target)] == answers[text[slice(*sentence.source)]]
