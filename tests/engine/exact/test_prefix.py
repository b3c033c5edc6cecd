"""GPT-2, as transformers saves it: one stack that goes on with its source, in any batch as `generate` does alone."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from dragoman.local import Translator
from engine.cpu.decoder import CpuDecoder
from engine.devices.session import CPU, Device, DeviceError
from engine.loading.load import Limits, Loadable, load, open_decoder
from engine.logits.target_graphs import TargetGraphs
from engine.offline import decode
from engine.request import Hypothesis
from export.__main__ import main
from export.tracing.trace import trace
from export.verification.compare_numbers import encoder_error, stack_errors, step_errors
from export.weights.save import save
from inspection.findings import InspectionError, Wanted, inspect_search
from inspection.inspect import inspect
from inspection.page import report
from models.architectures.prefix.model import Prefix
from models.checkpoint import CheckpointError, load_checkpoint
from models.decoding import Decoding
from models.package.folder import Package
from models.package.graph_files import GraphFiles
from models.package.manifest import GenerationDefaults
from tests.checkpoints import edit_json, flores
from tests.models.without_cache import check_searches, some_sources
from training.config import Mixture
from training.data.batches import Batch
from training.objective.objective import Translation
from training.objective.unified import Unified

VOCABULARY, END, LONGEST = 300, 2, 64
TEXTS = [english for english, _ in flores()[100:200] if len(english) < 80][:6]
SHAPE: dict[str, Any] = {"n_embd": 48, "n_layer": 3, "n_head": 6, "n_inner": 72, "n_positions": 2 * LONGEST}


@dataclass
class Gpt2:
    folder: Path
    theirs: Any
    ours: Prefix
    package: Path
    graphs: GraphFiles

    def generate(self, source: tuple[int, ...], decoding: Decoding) -> Iterator[tuple[tuple[int, ...], float | None]]:
        """Targets, and with beams their scores."""
        output = self.theirs.generate(
            torch.tensor([source]),
            attention_mask=torch.ones(1, len(source)),
            num_beams=decoding.num_beams,
            num_return_sequences=decoding.num_return_sequences,
            max_new_tokens=decoding.max_new_tokens,
            pad_token_id=END,
            output_scores=True,
            return_dict_in_generate=True,
        )
        scores = output.sequences_scores.tolist() if decoding.num_beams > 1 else [None]
        for row, score in zip(output.sequences[:, len(source) :].tolist(), scores, strict=True):
            yield tuple(row[: row.index(END) + 1] if END in row else row), score


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Gpt2:
    """Of random weights, large enough for targets that vary."""
    torch.set_num_threads(1)
    torch.manual_seed(5)
    folder = tmp_path_factory.mktemp("gpt2")
    theirs = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, eos_token_id=END, bos_token_id=END, **SHAPE)).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if name.endswith(("wte.weight", "wpe.weight")):
                parameter.normal_(0, 0.35)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    theirs.save_pretrained(folder)
    write_tokenizer(folder)
    ours = load_checkpoint(folder).model
    assert isinstance(ours, Prefix)
    package = tmp_path_factory.mktemp("package") / "gpt2"
    samples = package.with_name("samples.txt")
    samples.write_text("\n".join(TEXTS))
    languages = "--source-language", "en", "--target-language", "en"
    arguments = ["--out", str(package), "--samples", str(samples), "--verify-samples", "4", "--quiet"]
    assert main([str(folder), *languages, *arguments]) == 0
    return Gpt2(folder, theirs, ours, package, Package.open(package).graphs())


def write_tokenizer(folder: Path) -> None:
    """GPT-2's kind: byte-level BPE, and nothing around a text. Trained here."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["!", "?", "<|endoftext|>"], show_progress=False
    )
    backend.train_from_iterator([english for english, _ in flores()[:100]], trainer)
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>").save_pretrained(folder)


def test_searches_find_what_generate_finds_and_what_each_finds_alone(gpt2: Gpt2) -> None:
    """Greedily and with beams, tokens and scores; sources of any length beside, which join and leave."""
    model, seen = Loadable(gpt2.graphs, GenerationDefaults()), list[Hypothesis]()
    decodings = [Decoding(max_new_tokens=40), Decoding(4, 4, 40)]
    requests = [(source, decoding) for source in some_sources(gpt2.ours.config) for decoding in decodings]
    with load(model, CPU, Limits(rows=9, workers=1)) as runner:
        answers = list(decode(runner, model.rules, requests))
        for request, answer in zip(requests, answers, strict=True):
            assert next(decode(runner, model.rules, [request])).hypotheses == answer.hypotheses  # to the last bit
    for (source, decoding), answer in zip(requests, answers, strict=True):
        expected = gpt2.generate(source, decoding)
        for one, (tokens, score) in zip(answer.hypotheses, expected, strict=True):
            assert one.token_ids == tokens
            assert score is None or one.score == pytest.approx(score, abs=1e-4)
            seen.append(one)
    assert len({one.token_ids for one in seen}) > 40 and len({token for one in seen for token in one.token_ids}) > 20


@pytest.mark.parametrize("beams", [1, 3])
def test_a_package_goes_on_with_a_text_as_generate_does(beams: int, gpt2: Gpt2) -> None:
    """Exported as users do, and served: all hypotheses, as texts."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(gpt2.folder)
    with Translator(gpt2.package, workers=1) as translator:
        found = translator.translate(TEXTS, num_beams=beams, num_return_sequences=beams, max_new_tokens=20)
    for text, translation in zip(TEXTS, found, strict=True):
        ids = tuple(tokenizer(text)["input_ids"])
        expected = [tokenizer.decode(tokens, True) for tokens, _ in gpt2.generate(ids, Decoding(beams, beams, 20))]
        assert [hypothesis.text for hypothesis in translation.hypotheses] == expected


@torch.no_grad()
def looked(theirs: Any, read: list[int], mask: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Where every head of transformers looks [layers, heads, tokens, tokens], and what its last layer gives [tokens,
    width]. mask: what is added to the scores."""
    states = list[torch.Tensor]()
    hook = theirs.transformer.h[-1].register_forward_hook(lambda *given: states.append(given[2]))
    theirs.set_attn_implementation("eager")
    found = theirs(torch.tensor([read]), attention_mask=mask, output_attentions=True)
    theirs.set_attn_implementation("sdpa")
    hook.remove()
    return torch.cat(found.attentions), states[0].view(len(read), -1)


def test_inspection_refuses_a_text_without_tokens(gpt2: Gpt2) -> None:
    with pytest.raises(InspectionError, match="the text has no tokens"):
        inspect(gpt2.package, Wanted(""))


def test_inspection_shows_where_every_head_looks_in_the_prompt_and_behind_it(gpt2: Gpt2) -> None:
    findings = inspect(gpt2.package, Wanted(TEXTS[0], beams=2, max_new_tokens=8))
    source = PreTrainedTokenizerFast.from_pretrained(gpt2.folder)(TEXTS[0])["input_ids"]
    last = len(source) - 1
    layers, states = looked(gpt2.theirs, [*source, *findings.hypotheses[0].token_ids[:-1]])
    assert findings.source_attention is not None and findings.target_attention is not None
    assert findings.states is not None
    np.testing.assert_allclose(findings.source_attention, layers[:, :, : last + 1, : last + 1], atol=1e-4)
    np.testing.assert_allclose(findings.target_attention, layers[:, :, last:], atol=1e-4)
    np.testing.assert_allclose(findings.states, states[last:], atol=1e-3)
    assert [*findings.source, *findings.target[:-1]] == findings.seen
    page = report(findings)
    assert page.count("<image ") == 2 * SHAPE["n_layer"] * (SHAPE["n_head"] + 1)
    for norm in np.linalg.norm(findings.states, axis=1):
        assert f">{norm:.2f}<" in page
    assert "export it again" not in page


@torch.no_grad()
def test_an_older_package_shows_the_last_layer_at_the_prompt(gpt2: Gpt2) -> None:
    """And says that it is older."""
    package = Package.open(gpt2.package)
    graphs = package.manifest.graphs.model_copy(update={"source_attention": None})
    older = replace(package, manifest=package.manifest.model_copy(update={"graphs": graphs}))
    findings = inspect_search(older, Wanted(TEXTS[0], beams=1, max_new_tokens=8))
    source = PreTrainedTokenizerFast.from_pretrained(gpt2.folder)(TEXTS[0])["input_ids"]
    layers, _ = looked(gpt2.theirs, [*source, *findings.hypotheses[0].token_ids[:-1]])
    steps = layers[-1, :, len(source) - 1 :, : len(source)]
    assert findings.target_attention is not None and findings.states is None
    expected = (steps / steps.sum(-1, keepdim=True)).mean(0)
    np.testing.assert_allclose(findings.target_attention[0, 0], expected, atol=1e-4)
    assert "export it again" in report(findings)


@torch.no_grad()
def test_unilm_tells_where_every_head_looks(gpt2: Gpt2, tmp_path: Path) -> None:
    """As transformers does with a mask of four dimensions; and after the last layer there is what decodes."""
    both = Prefix(gpt2.ours.config.model_copy(update={"source_mask": "both"})).eval()
    both.load_state_dict(gpt2.ours.state_dict())
    graphs = save(trace(both, scoring=True), tmp_path)
    assert max(stack_errors(both, graphs, CPU)) < 1e-4
    given = TargetGraphs(graphs, CPU)
    for source, fed in [
        ([5, 9, 11, 30, 8], [40, 41, 3]),
        ([7], [8, 9]),
        ([*range(20, 20 + LONGEST)], [*range(200, 240)]),
        ([4], []),
    ]:
        found = given.read_on(source, fed)
        layers, states = looked(gpt2.theirs, [*source, *fed], prefix_mask(len(source), len(fed)))
        assert found is not None
        np.testing.assert_allclose(found.attention, layers, atol=1e-4)
        np.testing.assert_allclose(found.states, states, atol=1e-3)
        np.testing.assert_allclose(
            given.source_attention(source), layers[:, :, : len(source), : len(source)], atol=1e-4
        )
        lengths, target = torch.tensor([len(source)]), torch.tensor([[source[-1], *fed]])
        _, starts = both.encode_source(torch.tensor([source]), lengths)
        [expected] = both.decode_target(starts, lengths, target)
        np.testing.assert_allclose(found.states[len(source) - 1 :], expected, atol=1e-3)


def prefix_mask(source: int, behind: int) -> torch.Tensor:
    """UniLM's: a token sees all of the source, itself and what is before it [1, 1, tokens, tokens]."""
    seen = torch.ones(source + behind, source + behind, dtype=torch.bool).tril()
    seen[:source, :source] = True
    return torch.zeros(1, 1, *seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)


def test_graphs_compute_what_the_teacher_forced_pass_does(gpt2: Gpt2) -> None:
    assert encoder_error(gpt2.ours, gpt2.graphs, CPU) < 1e-4
    with closing(CpuDecoder(gpt2.graphs, LONGEST, LONGEST)) as decoder:
        for step in step_errors(gpt2.ours, decoder, LONGEST, 8, ragged=True):
            assert step.log_prob_error < 1e-4


@torch.no_grad()
def test_a_prefix_mask_lets_the_source_see_all_of_it(gpt2: Gpt2) -> None:
    """The same weights, against transformers with a mask of four dimensions."""
    source, target = [5, 9, 11, 30, 8], [8, 40, 41, 3]
    mask = prefix_mask(len(source), len(target) - 1)
    theirs = gpt2.theirs(torch.tensor([source + target[1:]]), attention_mask=mask).logits[0, len(source) - 1 :]
    both = Prefix(gpt2.ours.config.model_copy(update={"source_mask": "both"})).eval()
    both.load_state_dict(gpt2.ours.state_dict())
    padded = torch.tensor([[*source, 7, 7], [4] * 7])
    ours = both(padded, torch.tensor([len(source), 7]), torch.tensor([target, target]))
    np.testing.assert_allclose(ours[0], theirs, atol=1e-4)
    causal = gpt2.ours(padded, torch.tensor([len(source), 7]), torch.tensor([target, target]))
    assert (causal[0] - ours[0]).abs().max() > 0.1


def test_unilm_is_served_in_any_batch(gpt2: Gpt2, tmp_path: Path) -> None:
    """Greedily and with beams: PyTorch's tokens and scores without a cache, and to the last bit what each has alone."""
    both = Prefix(gpt2.ours.config.model_copy(update={"source_mask": "both"})).eval()
    both.load_state_dict(gpt2.ours.state_dict())
    graphs = save(trace(both), tmp_path)
    assert encoder_error(both, graphs, CPU) < 1e-4
    with closing(CpuDecoder(graphs, LONGEST, LONGEST)) as decoder:
        for step in step_errors(both, decoder, LONGEST, 8, ragged=True):
            assert step.log_prob_error < 1e-4
        check_searches(decoder, both)


@torch.no_grad()
def test_a_mixture_adds_the_loss_of_a_language_model(gpt2: Gpt2) -> None:
    """That of transformers over the same targets; and a cloze test, which hides some of the source."""
    lengths, inputs = [6, 4], torch.tensor([[END, 5, 9, 11, 30, 8], [END, 40, 41, 3, 7, 7]])
    labels = torch.tensor([[5, 9, 11, 30, 8, END], [40, 41, 3, END, 7, 7]])
    is_token = torch.arange(6) < torch.tensor(lengths).unsqueeze(1)
    batch = Batch(np.arange(2), labels, torch.tensor(lengths), inputs, labels, is_token)
    model = load_checkpoint(gpt2.folder).model.train()
    assert isinstance(model, Prefix)
    translation, plain = Translation(model, 0.0)(batch)
    loss, same = Unified(model, 0.0, Mixture(causal=0.5)).train()(batch)
    theirs = gpt2.theirs(inputs).logits.transpose(1, 2)
    expected = torch.nn.functional.cross_entropy(theirs, labels, reduction="none")[is_token].sum()
    assert (loss - translation).item() == pytest.approx(0.5 * expected.item(), rel=1e-4)
    assert same.item() == plain.item()
    torch.manual_seed(1)
    cloze, _ = Unified(model, 0.0, Mixture(cloze=1.0, hidden=0.5)).train()(batch)
    assert cloze.item() > translation.item() + 1
    assert Unified(model, 0.0, Mixture(causal=1.0, cloze=1.0)).eval()(batch)[0].item() == translation.item()


def test_what_cannot_be_is_refused(gpt2: Gpt2, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="runs on the CPU only"):
        open_decoder(Loadable(gpt2.graphs, GenerationDefaults()), Device("cuda"))
    for file in gpt2.folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    edit_json(tmp_path / "config.json", scale_attn_by_inverse_layer_idx=True)
    with pytest.raises(CheckpointError, match="scale_attn_by_inverse_layer_idx"):
        load_checkpoint(tmp_path)
