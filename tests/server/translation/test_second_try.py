"""What holds for a translation holds for the second one that `retry_on_guard` makes of it."""

import asyncio

from models.decoding import Options
from server.translation.translator import Translator
from tests.server.translation.engine import ROUTE, Engine, deliver
from tests.server.translation.test_translator import looping


async def test_no_cache_holds_for_both(translator: Translator, engine: Engine) -> None:
    options = Options(retry_on_guard=True)
    calls = asyncio.gather(*(translator.translate(["Two dogs bark."], ROUTE, options, True) for _ in range(2)))
    for first in await engine.submitted(2):
        deliver(first, looping(first))
    for second in (await engine.submitted(4))[2:]:
        deliver(second, looping(second))
    assert [translation.retried for [translation] in await calls] == [True, True]
