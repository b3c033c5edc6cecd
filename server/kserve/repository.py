"""The models of this protocol: of each of ours up to three, because a model has one set of tensors."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from models.encoding import Pooling
from server.catalog.catalog import Catalog
from server.errors import ModelNotFound
from server.kserve.tensors import BYTES, FP32, INT32, Declared
from server.translation.encoding.embeddings import EncodingOptions, resolve_encoding
from server.translation.translator import Translator

VERSION = "1"
"""Of every model."""
TEXT = Declared("text", BYTES, (1,))
"""The input of every model."""
TRANSLATION, SCORE = Declared("translation", BYTES, (-1,)), Declared("score", FP32, (-1,))
TOKENS, FINISH_REASON = Declared("tokens", INT32, (-1,)), Declared("finish_reason", BYTES, (-1,))
TEXT_DELTA = Declared("text_delta", BYTES, (1,))
EMBEDDING = "embedding"


class Task(Enum):
    """What a model does; the value follows our own model's name."""

    TRANSLATE = ""
    STREAM = ".stream"
    ENCODE = ".encode"


@dataclass(frozen=True, slots=True)
class Entry:
    """A model of this protocol."""

    name: str
    task: Task
    translator: Translator

    @property
    def decoupled(self) -> bool:
        """A request may have any number of responses."""
        return self.task is Task.STREAM

    @property
    def max_batch_size(self) -> int:
        """Texts of a request, at most."""
        return 1 if self.decoupled else self.translator.model.max_contents

    @property
    def outputs(self) -> tuple[Declared, ...]:
        """All that it gives."""
        match self.task:
            case Task.TRANSLATE:
                return TRANSLATION, SCORE, TOKENS, FINISH_REASON
            case Task.STREAM:
                return TEXT_DELTA, TRANSLATION, SCORE
            case Task.ENCODE:
                return (Declared(EMBEDDING, FP32, (self._width,)),)

    def encoding(self, chosen: EncodingOptions) -> EncodingOptions:
        """The same, with one vector for each text, whatever the model does."""
        if Pooling.NONE in self.translator.model.encoding.poolings:
            return replace(chosen, poolings=(Pooling.MEAN,))
        return chosen

    @property
    def _width(self) -> int:
        model = self.translator.model
        [*_, width] = resolve_encoding(self.encoding(EncodingOptions()), model).shape(1, model.width)
        return width


class Repository:
    """All of them."""

    def __init__(self, models: Catalog[Translator]) -> None:
        self._models = models

    @property
    def _entries(self) -> dict[str, Entry]:
        """By name, of what is served now: another version may take a model's place."""
        # Our own names last: one of them may be that of another model's task.
        return {
            entry.name: entry
            for task in (Task.ENCODE, Task.STREAM, Task.TRANSLATE)
            for entry in (Entry(one.model.name + task.value, task, one) for one in self._models if _does(one, task))
        }

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def find(self, name: str, version: str, field: str = "name") -> Entry:
        """Raises ModelNotFound. `version`: empty is any; `field`: the one of the request that has the name."""
        entries = self._entries
        if name not in entries:
            raise ModelNotFound(field, name, list(entries))
        if version not in ("", VERSION):
            raise ModelNotFound(f"{field.removesuffix('name')}version", f"{name}/{version}", [f"{name}/{VERSION}"])
        return entries[name]


def _does(translator: Translator, task: Task) -> bool:
    return task is Task.ENCODE or translator.model.decoder_layers > 0
