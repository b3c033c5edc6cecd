"""Questions to a server, and the answer that each gets alone."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.sentences import english
from dragoman.v1.decoding_pb2 import DecodingOptions
from dragoman.v1.encoding_pb2 import Embedding, EncodeRequest
from dragoman.v1.encoding_pb2_grpc import EncodingServiceStub
from dragoman.v1.translation_pb2 import TranslateRequest, Translation
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

if TYPE_CHECKING:  # gRPC's classes take no parameters at run time
    from grpc import aio

Answer = tuple[object, ...]
"""Text, score, tokens and end of every hypothesis; or the numbers of a vector."""
Metadata = tuple[tuple[str, str], ...]
ALONE_S = 60.0
"""How long an answer alone may take."""


@dataclass(frozen=True)
class Wanted:
    """What a call asks for of all its texts."""

    num_beams: int
    """As many hypotheses are wanted. 0: vectors."""
    max_new_tokens: int = 0

    @property
    def decoding(self) -> DecodingOptions:
        """As the API has it."""
        return DecodingOptions(
            num_beams=self.num_beams, num_return_sequences=self.num_beams, max_new_tokens=self.max_new_tokens
        )


Alone = Mapping[Wanted, Mapping[str, Answer]]
"""What each text is answered alone."""
WANTED = (Wanted(1, 6), Wanted(1, 24), Wanted(4, 8), Wanted(16, 6), Wanted(0))


def short_texts(count: int, seed: int) -> list[str]:
    """Pieces of sentences, of two to seven words."""
    draw = random.Random(seed)
    return [" ".join(sentence.split()[: draw.randint(2, 7)]) for sentence in english(count)]


def texts_of_all_lengths(count: int, seed: int) -> list[str]:
    """Most of them short, some sentences, and one in twenty of a hundred words and more."""
    draw, sentences = random.Random(seed), english(2 * count)
    long = [" ".join(" ".join(sentences[start:]).split()[: draw.randint(100, 250)]) for start in range(count // 20)]
    whole = sentences[count : count + count // 4]
    return [*short_texts(count - len(long) - len(whole), seed), *whole, *long]


async def answers_alone(channel: "aio.Channel", texts: Sequence[str], kinds: Sequence[Wanted] = WANTED) -> Alone:
    """Of every text, whatever is wanted of it, one after the other."""
    translations, encodings = TranslationServiceStub(channel), EncodingServiceStub(channel)
    found: dict[Wanted, dict[str, Answer]] = {wanted: {} for wanted in kinds}
    for wanted, answers in found.items():
        for text in dict.fromkeys(texts):
            if wanted.num_beams:
                asked = TranslateRequest(contents=[text], decoding=wanted.decoding, no_cache=True)
                response = await translations.Translate(asked, timeout=ALONE_S)
                answers[text] = hypotheses(response.translations[0])
            else:
                request = EncodeRequest(contents=[text])
                encoded = await encodings.Encode(request, timeout=ALONE_S)
                answers[text] = vector(encoded.embeddings[0])
    return found


def hypotheses(translation: Translation) -> Answer:
    """All that is said of them."""
    return tuple((each.text, each.score, each.tokens, each.finish_reason) for each in translation.hypotheses)


def vector(embedding: Embedding) -> Answer:
    """Its numbers."""
    return tuple(embedding.values)
