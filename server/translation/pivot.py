"""Translation by way of a third language: what one model writes, another one reads."""

from collections.abc import Sequence
from dataclasses import replace

from models.decoding import Options
from server.catalog.catalog import Pivot
from server.errors import OptionsConflict
from server.translation.answer import Leg, Translation
from server.translation.options import Route, check_route
from server.translation.translator import Translator


async def translate_by_way(
    way: Pivot[Translator],
    contents: Sequence[str],
    route: Route,
    options: Options,
    no_cache: bool = False,
    prompt: str | None = None,
) -> list[Translation]:
    """Translates every content twice; results are in their order. Raises ServerError.

    options, prompt: of the second translation. The first takes the best hypothesis that its model gives by itself.
    """
    for option, told in (("with_alignment", ", and no tags or formats inside of sentences"), ("with_attention", "")):
        if options.get(option):
            out = f"translate twice and have what it gives of both, or send no {option}{told}"
            raise OptionsConflict(option, True, "pivot", True, out)
    there, on = Route(route.source_language, way.between), Route(way.between, route.target_language)
    await way.second.check(on, options, prompt)
    firsts = await way.first.translate(contents, there, {}, no_cache)
    texts = [one.hypotheses[0].text for one in firsts]
    seconds = await way.second.translate(texts, on, options, no_cache, prompt, goes_on=True)
    return [_joined(way, there, on, *pair) for pair in zip(firsts, seconds, strict=True)]


def _joined(way: Pivot[Translator], there: Route, on: Route, first: Translation, second: Translation) -> Translation:
    return replace(
        second,
        hypotheses=tuple(replace(one, score=0.0, log_prob=0.0) for one in second.hypotheses),
        source_tokens=first.source_tokens,
        timings=first.timings + second.timings,
        guards=tuple(dict.fromkeys((*first.guards, *second.guards))),
        legs=(_leg(way.first, there, first), _leg(way.second, on, second)),
    )


def _leg(translator: Translator, route: Route, translation: Translation) -> Leg:
    known = check_route(route, translator.model)
    return Leg(
        translator.model.name,
        known.source_language,
        known.target_language,
        translation.source_tokens,
        translation.timings,
    )
