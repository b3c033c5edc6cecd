"""The three ways through the model agree; the model agrees with PyTorch's own and Hugging Face's Transformers."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from models.best_tokens import best_tokens, block_size, padded_size
from models.config import ModelConfig
from models.transformer import Transformer

CONFIG = ModelConfig(
    source_vocab_size=131,
    target_vocab_size=131,
    width=48,
    encoder_layers=2,
    decoder_layers=2,
    encoder_heads=3,
    decoder_heads=3,
    encoder_ffn=64,
    decoder_ffn=80,
    max_positions=64,
    pad_id=130,
    end_id=0,
    decoder_start_id=130,
)


def config(**changes: object) -> ModelConfig:
    return ModelConfig.model_validate(CONFIG.model_dump() | changes)


T5: dict[str, Any] = {
    "norm": "pre",
    "norm_kind": "rms",
    "bias": False,
    "positions": "none",
    "relative": "shared",
    "scale_scores": False,
}
VARIANTS = {
    "plain": config(),
    "pre-norm, learned positions, untied output": config(norm="pre", positions="learned", tie_output=False),
    "swish, scaled embeddings, one layer": config(
        activation="swish", scale_embedding=True, encoder_layers=1, decoder_layers=1
    ),
    "two vocabularies, no output bias": config(
        share_embeddings=False, source_vocab_size=99, output_bias=False, activation="gelu"
    ),
    "recurrent": config(decoder_cell="ssru"),
    "recurrent, pre-norm": config(decoder_cell="ssru", norm="pre", decoder_layers=3),
    "deep encoder, different heads": config(encoder_layers=4, decoder_layers=1, encoder_heads=2, decoder_heads=6),
}
"""As Marian has them."""
FAMILIES = {
    "relative positions, as T5": config(**T5),
    "a table for each layer, gated, heads of their own size": config(
        **T5 | {"relative": "per_layer", "gated": True, "activation": "gelu_tanh", "head_dim": 24, "tie_output": False}
    ),
    "embeddings normalised, as BART": config(encoder_embedding_norm="sum", decoder_embedding_norm="sum"),
    "tokens normalised, as Blenderbot": config(
        norm="pre", encoder_embedding_norm="sum", decoder_embedding_norm="tokens", positions="learned"
    ),
}
"""As others have them."""
EVERY = VARIANTS | FAMILIES


def random_model(config: ModelConfig) -> Transformer:
    torch.manual_seed(7)
    model = Transformer(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1 and name != "output_bias":  # biases and norms, which start as zeros and ones
                weight.add_(torch.randn_like(weight), alpha=0.1)
            if "relative" in name:
                weight.add_(torch.randn_like(weight))
        if config.output_bias:
            model.output_bias[: config.target_vocab_size] += torch.randn(config.target_vocab_size)
    return model


def test_a_seed_gives_the_same_weights_wherever_they_lie_in_memory() -> None:
    shape = config(share_embeddings=False, tie_output=False)
    first, *others = [random_model(shape).state_dict() for _ in range(12)]  # all are kept, so that no two lie together
    for other in others:
        assert all(torch.equal(weight, other[name]) for name, weight in first.items())


def random_batch(config: ModelConfig, lengths: list[int], target: int) -> tuple[Tensor, Tensor, Tensor]:
    source = torch.randint(1, config.source_vocab_size - 1, (len(lengths), max(lengths)))
    return source, torch.tensor(lengths), torch.randint(1, config.target_vocab_size - 1, (len(lengths), target))


def decode_stepwise(model: Transformer, source: Tensor, lengths: Tensor, target: Tensor, capacity: int) -> Tensor:
    """Feeds `target` token by token. Returns logits [sentences, target, vocabulary]."""
    config, rows = model.config, torch.arange(len(target))
    cross = model.cross_keys_values(model.encode(source, lengths))
    last = [tensor[rows, :, lengths - 1].flatten(1).unsqueeze(1) for tensor in cross]
    past = [torch.full((len(target), config.decoder_heads, capacity, config.decoder_head_dim), 9.0) for _ in cross]
    if config.decoder_cell == "ssru":
        past = [torch.zeros(len(target), config.width) for _ in model.decoder]
    logits = []
    for position in range(target.shape[1]):
        positions = torch.full((len(target),), position, dtype=torch.int32)
        total, source_total = torch.tensor(position + 1), lengths.max()
        hidden, _, present = model.decode_step(
            target[:, position], positions, total, (lengths - 1).int(), source_total, past, cross, last
        )
        past = present[: len(past)]
        logits.append(model.logits(hidden)[:, : config.target_vocab_size])
    return torch.stack(logits, dim=1)


@pytest.mark.parametrize("config", EVERY.values(), ids=EVERY)
def test_decode_step_agrees_with_teacher_forced_pass(config: ModelConfig) -> None:
    model = random_model(config)
    source, lengths, target = random_batch(config, [9, 5, 1], 12)
    with torch.no_grad():
        forced = model(source, lengths, target)
        stepwise = decode_stepwise(model, source, lengths, target, capacity=20)
    assert forced.std() > 0.3, "logits too flat to tell anything"
    torch.testing.assert_close(stepwise, forced, atol=1e-5, rtol=0)


@pytest.mark.parametrize("config", EVERY.values(), ids=EVERY)
def test_padding_does_not_matter(config: ModelConfig) -> None:
    model = random_model(config)
    source, lengths, target = random_batch(config, [9, 5], 6)
    with torch.no_grad():
        together = model(source, lengths, target)
        alone = model(source[1:, :5], lengths[1:], target[1:])
    torch.testing.assert_close(together[1:], alone, atol=1e-5, rtol=0)


def test_gradients_in_bf16_are_those_of_fp32_rounded() -> None:
    model = random_model(CONFIG)
    batch = random_batch(CONFIG, [9, 5], 6)

    def gradients(enabled: bool) -> dict[str, Tensor]:
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled):
            logits = model(*batch)
        logits.float()[..., : CONFIG.pad_id].log_softmax(-1)[..., 1].sum().backward()
        return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}

    exact, rounded = gradients(enabled=False), gradients(enabled=True)
    assert exact.keys() == rounded.keys()
    for name, gradient in exact.items():
        off = (rounded[name] - gradient).norm() / gradient.norm()
        assert 0 < off < 0.05, f"{name}: {off:.3f}"


def test_pre_norm_is_pytorchs() -> None:
    config = VARIANTS["pre-norm, learned positions, untied output"]
    model = random_model(config)
    theirs = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(
            config.width, config.encoder_heads, config.encoder_ffn, 0.0, batch_first=True, norm_first=True
        ),
        config.encoder_layers,
        norm=torch.nn.LayerNorm(config.width),
        enable_nested_tensor=False,
    ).eval()
    renamed = {}
    for index in range(config.encoder_layers):
        ours, prefix = f"encoder.{index}.", f"layers.{index}."
        for old, new in {
            "attention.qkv.weight": "self_attn.in_proj_weight",
            "attention.qkv.bias": "self_attn.in_proj_bias",
            "attention.out": "self_attn.out_proj",
            "attention.residual.norm": "norm1",
            "feed_forward.up": "linear1",
            "feed_forward.down": "linear2",
            "feed_forward.residual.norm": "norm2",
        }.items():
            for name, weight in model.state_dict().items():
                if name.startswith(ours + old):
                    renamed[prefix + new + name.removeprefix(ours + old)] = weight
    renamed |= {f"norm.{part}": model.state_dict()[f"encoder_norm.{part}"] for part in ("weight", "bias")}
    theirs.load_state_dict(renamed, strict=True)
    source, lengths, _ = random_batch(config, [9, 5], 1)
    with torch.no_grad():
        memory = model.encode(source, lengths)
        embedded = model.source_embedding[source] + model.source_positions[:9]
        expected = theirs(embedded, src_key_padding_mask=torch.arange(9) >= lengths.unsqueeze(1))
    for row, length in enumerate(lengths):
        torch.testing.assert_close(memory[row, :length], expected[row, :length], atol=1e-5, rtol=0)


def test_gradients_reach_every_weight() -> None:
    for config in VARIANTS.values():
        model = random_model(config)
        source, lengths, target = random_batch(config, [9, 5], 6)
        model(source, lengths, target).log_softmax(2)[:, :, 3].sum().backward()
        without = [name for name, weight in model.named_parameters() if weight.requires_grad and weight.grad is None]
        assert without == []


@pytest.mark.parametrize(("vocabulary", "k"), list(product((37, 131, 1000, 32_001), (1, 8, 33))))
def test_best_tokens_are_topk_of_log_softmax(vocabulary: int, k: int) -> None:
    torch.manual_seed(3)
    logits = torch.full((5, padded_size(vocabulary)), -1e4)
    logits[:, :vocabulary] = torch.randn(5, vocabulary) * 3
    ids, log_probs = best_tokens(logits, k, block_size(vocabulary))
    expected = logits[:, :vocabulary].log_softmax(1).topk(k)
    assert torch.equal(ids, expected.indices)
    torch.testing.assert_close(log_probs, expected.values, atol=1e-5, rtol=0)


def test_inconsistent_config_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match="width 48 is not a multiple of 5 heads"):
        config(encoder_heads=5)
    with pytest.raises(ValueError, match="source has 99 tokens, target 131"):
        config(source_vocab_size=99)
