"""tokenizer.json, as a package has it, opened and used."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from models.tokenizers.tokenizer import TokenizerError
from models.tokenizers.tokenizer_json import Affixes, TokenizerJson, TokenizerJsonSpec
from tests.fuzz import Attempt

SPEC = TokenizerJsonSpec(affixes=Affixes(prefix_ids=(1,), suffix_ids=(2,)), unknown_id=0, hidden_ids=(1, 2))
TEXTS = ["A cat.", "", " the  CATS , e\u0301 \U0001f468", "<s>▁x\n"]


@contextmanager
def trying() -> Iterator[Attempt]:
    with TemporaryDirectory() as folder:
        yield lambda data: attempt(Path(folder), data)


def attempt(folder: Path, data: bytes) -> None:
    """It is refused, or it makes text of tokens."""
    (folder / SPEC.file).write_bytes(data)
    with suppress(TokenizerError):
        tokenizer = TokenizerJson.load(folder, SPEC)
        for text in TEXTS:
            ids = tokenizer.encode(text)
            assert len(tokenizer.spans(text)) == len(ids)
            tokenizer.decode(ids).encode()
        tokenizer.pieces()
