"""Four architectures of history in one server: tokens and scores of PyTorch's passes without a cache."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from dragoman import Client, Hypothesis, InvalidArgument
from export.__main__ import main
from inspection.findings import Wanted
from inspection.inspect import inspect
from inspection.page import report
from models.architectures.architecture import Architecture
from models.architectures.recurrent.config import RecurrentConfig
from models.architectures.recurrent.tensors import target_tensors
from models.checkpoint import load_checkpoint
from models.checkpoint.described.reader import DESCRIPTION
from models.checkpoint.described.writer import WEIGHTS, write_described
from models.package.folder import Package
from models.tokenizers.sentencepiece_pair import SentencePieceSpec
from tests.checkpoints import END, UNKNOWN, sentencepiece_model, write_tokenizer
from tests.kernels.conftest import library
from tests.models.recurrent.shapes import LUONG, random_model, shape
from tests.models.test_prefix import random_prefix
from tests.models.test_universal import HALTING, model_of
from tests.models.without_cache import PrefixDecoder, search
from tests.server_process import server_process

__all__ = ["library"]

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("library")]
TEXTS = ["A", "The cat sleeps, and two dogs bark.", "Where?", "She bought a glass.", "It is ten to two and cold here."]
BEAMS = (1, 3)


def models(tokens: int) -> dict[str, Architecture]:
    """By their names, with random weights and one layer where it shows nothing to have more."""
    ids = {"source_vocab_size": tokens, "target_vocab_size": tokens, "pad_id": tokens - 1}
    small = ids | {"decoder_start_id": tokens - 1, "encoder_layers": 1, "decoder_layers": 1}
    return {
        "luong": random_model(shape(cell="lstm", score="general", **LUONG, **small)),
        "universal": model_of(HALTING.model_copy(update=ids | {"decoder_start_id": tokens - 1})),
        "unilm": random_prefix(**ids),
        "gru": random_model(shape(**small)),
    }


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Architecture]]:
    """Exported as users do, and the model as its checkpoint has it, in fp16."""
    folder = tmp_path_factory.mktemp("history")
    pieces = sentencepiece_model()
    tokens, _ = write_tokenizer(folder / "tokenizer", pieces, pieces, separate=False)
    spec = SentencePieceSpec(end_id=END, unknown_id=UNKNOWN, hidden_ids=(END, tokens - 1))
    (folder / "samples.txt").write_text("\n".join(TEXTS))
    options = ["--samples", str(folder / "samples.txt"), "--verify-samples", "2", "--quiet"]
    found = dict[str, tuple[Path, Architecture]]()
    for name, model in models(tokens).items():
        write_described(folder / name, model, spec, folder / "tokenizer", ("en", "pt"))
        if name == "universal":
            add_pooling(folder / name, model)
        package = folder / "packages" / name
        assert main([str(folder / name), "--out", str(package), "--name", name, *options]) == 0
        found[name] = package, load_checkpoint(folder / name).model
    return found


def add_pooling(folder: Path, model: Architecture) -> None:
    """Weights that pool, beside those that translate."""
    tensors = load_file(folder / WEIGHTS)
    save_file(tensors | {"pool.weight": torch.randn(1, model.config.width)}, folder / WEIGHTS, {"format": "pt"})
    with (folder / DESCRIPTION).open("a", encoding="utf-8") as file:
        file.write('encoding = { poolings = ["attention"], scores = "pool" }\n')


@pytest.fixture(scope="module")
def client(packages: Mapping[str, tuple[Path, Architecture]]) -> Iterator[Client]:
    first, *rest = [package for package, _ in packages.values()]
    more = [argument for package in rest for argument in ("--package", package)]
    with server_process(first, *more) as server, Client(server.target) as client:
        yield client


def test_one_server_answers_for_all_as_pytorch_does(
    client: Client, packages: Mapping[str, tuple[Path, Architecture]]
) -> None:
    """Greedily and with beams, of all models at once."""
    assert Package.open(packages["gru"][0]).manifest.native_certificate is not None
    asked = list(product(packages, BEAMS))
    with ThreadPoolExecutor(len(asked)) as callers:
        together = dict(zip(asked, callers.map(lambda one: ask(client, *one), asked), strict=True))
    for name, (folder, model) in packages.items():
        tokenizer = Package.open(folder).tokenizer()
        sources = [tuple(tokenizer.encode(text)) for text in TEXTS]
        expected = search(PrefixDecoder(model), model.config, sources)
        for beams, (source, index) in product(BEAMS, zip(sources, range(len(TEXTS)), strict=True)):
            theirs = expected[source, beams].hypotheses
            for ours, other in zip(together[name, beams][index], theirs, strict=True):
                assert tuple(token.id for token in ours.target_tokens) == other.token_ids, (name, beams)
                assert ours.score == pytest.approx(other.score, abs=1e-4)
        answers = {hypothesis.text for beams in BEAMS for answer in together[name, beams] for hypothesis in answer}
        assert len(answers) > len(TEXTS), "answers that are all alike show little"


@torch.no_grad()
def test_vectors_are_pooled_by_the_checkpoints_own_weights(
    client: Client, packages: Mapping[str, tuple[Path, Architecture]]
) -> None:
    folder, model = packages["universal"]
    tokenizer = Package.open(folder).tokenizer()
    weight = load_file(folder.parent.with_name("universal") / WEIGHTS)["pool.weight"]
    found = client.encode(TEXTS, model="universal")
    assert [client.encode(text, model="universal").values for text in TEXTS] == [one.values for one in found]
    for text, one in zip(TEXTS, found, strict=True):
        source = torch.tensor([tokenizer.encode(text)])
        [hidden] = model.encode_source(source, torch.tensor([source.shape[1]]))[0]
        expected = ((hidden @ weight.T).softmax(0) * hidden).sum(0)
        np.testing.assert_allclose(np.array(one.values), expected.numpy(), atol=1e-4)
    with pytest.raises(InvalidArgument, match="has no weights; it has none, cls, "):
        client.encode("A", model="gru", poolings=["attention"])


@pytest.mark.parametrize("beams", BEAMS)
def test_each_text_alone_has_the_same_bits(beams: int, client: Client, packages: Mapping[str, object]) -> None:
    for name in packages:
        alone = [ask(client, name, beams, [text])[0] for text in TEXTS]
        assert ask(client, name, beams) == alone, name


def ask(client: Client, name: str, beams: int, texts: list[str] = TEXTS) -> list[tuple[Hypothesis, ...]]:
    """As `search` decodes."""
    found = client.translate(
        texts,
        model=name,
        num_beams=beams,
        num_return_sequences=beams,
        max_new_tokens=12,
        length_penalty=1.0,
        with_tokens=True,
        no_cache=True,
    )
    return [translation.hypotheses for translation in found]


@pytest.mark.parametrize("name", ["gru", "luong"])
def test_a_report_has_the_states_of_a_recurrent_decoder(
    name: str, packages: Mapping[str, tuple[Path, Architecture]]
) -> None:
    """Those of PyTorch's steps along the best translation."""
    folder, model = packages[name]
    assert isinstance(model.config, RecurrentConfig)
    findings = inspect(folder, Wanted(TEXTS[1], beams=3, max_new_tokens=12))
    source = torch.tensor([Package.open(folder).tokenizer().encode(TEXTS[1])])
    fed = [findings.tree.token, *findings.hypotheses[0].token_ids[:-1]]
    assert len(fed) > 3
    expected = states_of(model, model.config, source, fed)
    assert findings.cells.keys() == expected.keys()
    page = report(findings)
    for state, found in findings.cells.items():
        np.testing.assert_allclose(found, expected[state][: len(found)], atol=2e-4)
        assert len(found) >= len(fed) - 1, "only a last token that had to come is chosen by no step"
        for norm in np.linalg.norm(found, axis=1):
            assert f">{norm:.2f}<" in page


@torch.no_grad()
def states_of(
    model: Architecture, config: RecurrentConfig, source: torch.Tensor, fed: Sequence[int]
) -> dict[str, NDArray[np.float32]]:
    """After each of the tokens [tokens, width], by the names of their cache tensors."""
    length = torch.tensor([source.shape[1]])
    _, starts = model.encode_source(source, length)
    states, cross = starts[: len(config.states)], starts[len(config.states) :]
    states += [torch.zeros(1, config.width)] if config.input_feeding else []
    last = [tensor[:, :, -1].flatten(1).unsqueeze(1) for tensor in cross]
    after = []
    for position, token in enumerate(fed):
        at = torch.tensor([position], dtype=torch.int32), torch.tensor(position + 1)
        _, _, present = model.decode_step(
            torch.tensor([token]), *at, (length - 1).int(), length.max(), states, cross, last
        )
        states = list(present[: len(states)])
        after.append([state[0].numpy() for state in states])
    names = [tensor.past for tensor in target_tensors(config, "fp32")]
    return {name: np.stack([each[index] for each in after]) for index, name in enumerate(names)}
