"""server.translation.resolver: what is kept of what options stand for, seen by what the engine is asked."""

import asyncio

from engine.request import Translate
from models.decoding import Options
from server.translation.translator import Translator
from tests.server.translation.engine import ROUTE, Engine, copy, deliver


async def asked(translator: Translator, engine: Engine, options: Options) -> Translate:
    """What a call with these options asks of the engine."""
    before = len(engine.requests)
    call = asyncio.create_task(translator.translate(["A cat."], ROUTE, options, no_cache=True))
    request = (await engine.submitted(before + 1))[-1]
    assert isinstance(request, Translate)
    deliver(request, copy(request))
    await call
    return request


async def test_what_options_stand_for_is_found_once(translator: Translator, engine: Engine) -> None:
    first, again, other = [
        await asked(translator, engine, Options(num_beams=2, max_new_tokens=most)) for most in (9, 9, 8)
    ]
    assert first.decoding is again.decoding
    assert (first.decoding.max_new_tokens, other.decoding.max_new_tokens) == (9, 8)


async def test_a_seed_that_nobody_chose_is_drawn_for_every_call(translator: Translator, engine: Engine) -> None:
    requests = [await asked(translator, engine, Options(num_beams=1, do_sample=True)) for _ in range(3)]
    assert len({request.decoding.seed for request in requests}) == 3
