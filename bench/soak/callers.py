"""Callers with whom all goes wrong that may: they leave, hurry, read slowly. What they are told is compared."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc
from grpc import aio

from bench.soak.questions import Alone, Answer, Metadata, Wanted, hypotheses, vector
from dragoman.errors import from_rpc
from dragoman.v1.encoding_pb2 import EncodeRequest
from dragoman.v1.encoding_pb2_grpc import EncodingServiceStub
from dragoman.v1.translation_pb2 import StreamTranslateRequest, TranslateRequest
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

PATIENCE_S = 60.0
"""The longest deadline. A call that has no answer by then is one that nobody answers."""
DEADLINES_S = (PATIENCE_S,) * 5 + (0.002, 0.02, 0.2, 1.0)
LEAVES_AFTER_S = (None,) * 8 + (0.0, 0.001, 0.01, 0.05, 0.3, 1.0)
READS_AFTER_S = (0.0,) * 6 + (0.02, 0.1, 0.5)
"""How long a stream's reader does something else between two messages."""
RESTS_S = 0.05
"""After a refusal."""
NO_ANSWER = "no answer"
OF_ENGINES = ("ENGINE_FAILED", "QUARANTINED")
"""Ends of calls that an engine failed with, and that could not be tried again."""
BROKEN = ("INTERNAL", "UNKNOWN", "CANCELLED", "UNAVAILABLE", "NOT_FINITE", *OF_ENGINES, NO_ANSWER)
"""Ends of calls that there is no reason for while a server is well."""
SMALL_WINDOW = (("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0))
"""A client that takes little more than nothing before it reads."""
OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))


@dataclass
class Tally:
    """What became of calls."""

    ends: Counter[str] = field(default_factory=Counter)
    """"answered", "left", the reason of a refusal, or a status without one."""
    answers: int = 0
    """Texts whose answer was compared with that alone."""
    reused: int = 0
    """Of them, those that another call's work has answered."""
    wrong: list[str] = field(default_factory=list)
    """What was asked where it was another one."""

    @property
    def calls(self) -> int:
        """That have ended."""
        return self.ends.total()

    @property
    def broken(self) -> dict[str, int]:
        """Calls that ended as none may."""
        return {end: count for end in BROKEN if (count := self.ends[end])}


class Callers:
    """Of one server, on an event loop."""

    def __init__(
        self,
        target: str,
        alone: Alone,
        seed: int,
        callers: Sequence[Metadata] = ((),),
        most_contents: int = 8,
        no_cache: float = 0.5,
    ) -> None:
        """alone: the texts that are asked, and their answers. callers: the metadata of each, one of them a call.

        no_cache: how many of the calls are decoded for themselves
        """
        self.tally = Tally()
        self._target, self._alone, self._callers, self._most = target, alone, callers, most_contents
        self._kinds, self._no_cache, self._draw = list(alone), no_cache, random.Random(seed)

    async def run(self, together: int, over: Callable[[], bool]) -> None:
        """Keeps so many calls open, on a few connections, until it is over."""
        options = [OPTIONS, OPTIONS, (*OPTIONS, *SMALL_WINDOW)]
        channels = [aio.insecure_channel(self._target, each) for each in options]

        async def call_until_over() -> None:
            while not over():
                if self._draw.random() < 0.01:
                    async with aio.insecure_channel(self._target, OPTIONS) as channel:
                        await self._call(channel)
                else:
                    await self._call(self._draw.choice(channels))

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(together):
                    tasks.create_task(call_until_over())
        finally:
            for channel in channels:
                await channel.close()

    async def _call(self, channel: aio.Channel) -> None:
        draw, wanted = self._draw, self._draw.choice(self._kinds)
        deadline_s = draw.choice(DEADLINES_S)
        ask = draw.choice((self._translate, self._translate, self._stream)) if wanted.num_beams else self._encode
        try:
            async with asyncio.timeout(draw.choice(LEAVES_AFTER_S)):
                await ask(channel, wanted, deadline_s)
            end = "answered"
        except TimeoutError:
            end = "left"
        except grpc.RpcError as error:
            end = from_rpc(error).reason or error.code().name
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and deadline_s == PATIENCE_S:
                end = NO_ANSWER
            await asyncio.sleep(RESTS_S * draw.random())
        self.tally.ends[end] += 1

    async def _translate(self, channel: aio.Channel, wanted: Wanted, deadline_s: float) -> None:
        texts = self._texts(wanted)
        request = TranslateRequest(
            contents=texts, decoding=wanted.decoding, no_cache=self._draw.random() < self._no_cache
        )
        response = await TranslationServiceStub(channel).Translate(request, timeout=deadline_s, metadata=self._caller())
        self._compare(wanted, texts, list(map(hypotheses, response.translations)))
        self.tally.reused += sum(bool(each.reuse) for each in response.translations)

    async def _stream(self, channel: aio.Channel, wanted: Wanted, deadline_s: float) -> None:
        [text] = self._texts(wanted, 1)
        request = StreamTranslateRequest(
            content=text, decoding=wanted.decoding, no_cache=self._draw.random() < self._no_cache
        )
        pause_s, deltas, last = self._draw.choice(READS_AFTER_S), "", None
        messages = TranslationServiceStub(channel).StreamTranslate(request, timeout=deadline_s, metadata=self._caller())
        async for message in messages:
            if message.HasField("text_delta"):
                deltas += message.text_delta
            else:
                last = message.translation
            await asyncio.sleep(pause_s)
        self._compare(wanted, [text], [hypotheses(last)] if last else [])
        if last and deltas != last.hypotheses[0].text:
            self.tally.wrong.append(f"deltas of {text!r}, {wanted}: {deltas!r}")

    async def _encode(self, channel: aio.Channel, wanted: Wanted, deadline_s: float) -> None:
        texts = self._texts(wanted)
        response = await EncodingServiceStub(channel).Encode(
            EncodeRequest(contents=texts), timeout=deadline_s, metadata=self._caller()
        )
        self._compare(wanted, texts, list(map(vector, response.embeddings)))

    def _texts(self, wanted: Wanted, most: int | None = None) -> list[str]:
        count = most or self._draw.choice((1, 1, 2, self._most))
        return self._draw.choices(list(self._alone[wanted]), k=count)

    def _caller(self) -> Metadata:
        return self._draw.choice(self._callers)

    def _compare(self, wanted: Wanted, texts: Sequence[str], told: Sequence[Answer]) -> None:
        if len(texts) != len(told):
            self.tally.wrong.append(f"{len(told)} answers for {len(texts)} texts, {wanted}")
        for text, answer in zip(texts, told, strict=False):
            self.tally.answers += 1
            if answer != self._alone[wanted][text]:
                self.tally.wrong.append(f"{text!r}, {wanted}: {answer!r}")
