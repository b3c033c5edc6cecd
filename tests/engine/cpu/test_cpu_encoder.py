"""engine.cpu.encoder and engine.cpu.packs: an encoder alone, against PyTorch, and every sentence alone."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from queue import Queue

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.cpu.encoder import CpuEncoder
from engine.cpu.packs import PACK_TOKENS, PADDING, encode_packed, packs
from engine.devices.session import CPU, Device, DeviceError
from engine.loading.load import Limits, Loadable, load, open_decoder
from engine.request import Encode, Encoded
from models.config import Rotary
from models.package.graph_files import GraphFiles
from models.package.manifest import GenerationDefaults
from models.transformer import Transformer
from tests.fakes import WAIT_S
from tests.models.encoders import CONFIG, random_encoder, saved

LONGEST = CONFIG.max_positions


@dataclass(frozen=True)
class Served:
    model: Transformer
    files: GraphFiles
    encoder: CpuEncoder


ROTARY = Rotary(base=160000.0, local_base=10000.0, window=3, local_layers=(1,))
POSITIONS: dict[str, dict[str, object]] = {
    "absolute": {},
    "relative": {"relative": "shared"},
    "rotary": {"positions": "none", "rotary": ROTARY, "norm": "pre", "first_norm": False, "gated": True},
}


@pytest.fixture(scope="module", params=POSITIONS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """With absolute positions alone, with relative ones besides, as an MPNet has, and built as a ModernBERT."""
    model = random_encoder(CONFIG.model_copy(update=POSITIONS[request.param]))
    files = saved(model, tmp_path_factory.mktemp("encoder"))
    return Served(model, files, CpuEncoder(files, LONGEST))


def random_texts(count: int, seed: int = 3) -> list[tuple[int, ...]]:
    chance = random.Random(seed)
    return [tuple(chance.choices(range(97), k=chance.randint(1, LONGEST))) for _ in range(count)]


@torch.no_grad()
def test_hidden_states_are_those_of_pytorch(served: Served) -> None:
    texts = random_texts(30)
    for text, found in zip(texts, served.encoder.encode(texts), strict=True):
        expected = served.model.encode(torch.tensor([text]), torch.tensor([len(text)]))[0]
        np.testing.assert_allclose(found.hidden(), expected.numpy(), atol=1e-5, rtol=0)
        assert found.computed_tokens == len(text)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_text_alone_and_in_any_pack_has_the_same_bits(served: Served, seed: int) -> None:
    texts = random_texts(40, seed)
    together = [source.hidden().tobytes() for source in served.encoder.encode(texts)]
    assert together == [served.encoder.encode([text])[0].hidden().tobytes() for text in texts]
    fewer = [source.hidden().tobytes() for source in served.encoder.encode(texts[::-3])]
    assert fewer == together[::-3]


@pytest.mark.parametrize(("width", "most"), [(40, 8), (768, 7)])
def test_packs_have_every_text_once_and_padding_that_costs_little(width: int, most: int) -> None:
    """Wider models have fewer packs: what is not padding costs more there."""
    chance = random.Random(4)
    lengths = [chance.randint(1, 60) for _ in range(100)]
    cut = list(packs(lengths, width))
    assert sorted(index for pack in cut for index in pack) == list(range(100))
    for pack in cut:
        tokens = [lengths[index] for index in pack]
        assert sum(tokens) <= PACK_TOKENS
        assert (max(tokens) * len(tokens) - sum(tokens)) * max(tokens) <= PADDING * 6 * width * sum(tokens)
    assert len(cut) <= most
    assert list(packs([PACK_TOKENS + 1, 3], width)) == [[1], [0]]
    assert list(packs([], width)) == []


def test_where_packing_changes_bits_each_text_is_encoded_alone(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs = list[int]()

    def noisy(
        session: object, sources: Sequence[Sequence[int]], width: int, spec: object
    ) -> Iterator[tuple[int, NDArray[np.floating]]]:
        runs.append(len(sources))
        for index, hidden in encode_packed(served.encoder._session, sources, width):
            yield index, hidden + np.float32(len(sources) > 1)

    monkeypatch.setattr("engine.cpu.encoder.encode_packed", noisy)
    encoder = CpuEncoder(served.files, LONGEST)
    assert "each is encoded alone" in caplog.text
    runs.clear()
    texts = random_texts(5)
    alone = [hidden for text in texts for _, hidden in encode_packed(served.encoder._session, [text], 40)]
    assert [source.hidden().tobytes() for source in encoder.encode(texts)] == [hidden.tobytes() for hidden in alone]
    assert runs == [1] * 5


def test_it_runs_as_an_engine(served: Served) -> None:
    text, events = random_texts(1)[0], Queue[object]()
    loadable = Loadable(served.files, GenerationDefaults())
    with load(loadable, CPU, Limits(rows=2, workers=1)) as runner:
        runner.submit(Encode(text, events.put))
        answer = events.get(timeout=WAIT_S)
    assert isinstance(answer, Encoded)
    assert answer.vectors.data.tobytes() == served.encoder.encode([text])[0].hidden().mean(axis=0).tobytes()


def test_what_it_cannot_do_is_said(served: Served) -> None:
    loadable = Loadable(served.files, GenerationDefaults())
    with pytest.raises(DeviceError, match="encoder alone, which runs on the CPU only"):
        open_decoder(loadable, Device("cuda"))
    with pytest.raises(DeviceError, match="kernels are required: the package has no graphs of them; export"):
        open_decoder(loadable, CPU, kernels="required")
