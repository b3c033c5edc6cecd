"""The output layer of a decoder graph that looks at all tokens in 8 bits, and computes exactly those that may be best.

x is what the output layer takes, m the mean of its weights, w - m = s v + d the rest of one, v in 7 bits, and
x = a (q - 128) + e with q in 8 bits. A logit is x w + b, and x m is in all logits of a row, so that

    x (w - m) + b  =  a s (q - 128) v + b  +  e (s v)  +  x d,

and by the Cauchy-Schwarz inequality a token's logit is within |e| |s v| + |x| |d| of its look. Tokens lie in blocks of
like |s v|, and a block's largest norms stand for those of its tokens. Candidates are the tokens with the highest upper
bounds. They are computed exactly, in fp32, and a row is `certain` where the k-th best of them is above the upper bound
of all others: then its tokens are those of the full product. The graph of logits computes the other rows whole.

Rounding adds to the bound: an fp32 sum of n products is, in any order, within n 2^-24 |x| |w| of the real one (Higham
2002, section 3.1). 7 bits and not 8, because processors without VNNI add two products of u8 and s8 in 16 bits:
2 * 255 * 63 fits in. ONNX Runtime leaves such weights in s8 there, see `engine.devices.session`.

A log-probability also wants the sum of all exp(logit): that of the looks, mended by the candidates that lead. Where the
rest is a large share of it, or the bound is wide, the row is computed whole too. This does not depend on k, and a
token's logit is one sum of its own in either graph: no score depends on what others in the batch ask for.

What is made of the weights is made of constants: ONNX Runtime computes it once, when it loads the graph.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.quantization.layers import SMALLEST, dequantize, product, quantize
from models.architectures.architecture import Architecture
from models.best_tokens import LANES, best_tokens, block_size
from models.config import ModelConfig, ModelShape
from models.layers import DecoderLayer
from models.norms import Norm
from models.package.declared.precision import AttentionKind, Precision
from models.package.signature import MAX_CANDIDATES
from models.transformer import Transformer

BASE, EACH = 12, 6
"""Candidates of a row: BASE, and EACH for every token that is wanted."""
SUMMED = 16
"""Candidates that mend the sum of a row, the first ones."""
MOST = BASE + EACH * MAX_CANDIDATES + 1
SPREAD = 4.0
"""Standard deviations of a norm's output that the 8 bits reach to. What is beyond is in the error of the row."""
LARGEST_WEIGHT, LARGEST_INPUT, ZERO_POINT = 63, 127, 128
REST = 0.05
"""Share of the sum that may be of looks."""
WIDE = 8.0
"""A bound above which looks say nothing of the sum."""
SLACK = 1.0001
"""Of norms, which are rounded themselves."""
MARGIN = 8
"""Tokens more than are wanted of a row that is computed whole: rounding decides nothing but the order of equals."""
LEAST_TOKENS = 4096
"""In a smaller vocabulary the full product is as fast."""
MOST_BYTES = 1 << 27
"""Of the output layer's weights: ONNX Runtime takes four times as many while it loads the graph."""
TOGETHER = 4096
"""Tokens of which the constants are made at once."""
WIDTH_MULTIPLE = 16
"""Rows of other widths begin where a register does not, and where they begin changes the order of their sums."""


def why_full(config: ModelShape, precision: Precision, attention: AttentionKind, shortlist: bool) -> str | None:
    """Why a decoder graph has the full output layer, if it must."""
    if precision != "fp32" or attention != "fused":
        return f"{precision} with {attention} attention has no other"
    if not isinstance(config, ModelConfig):
        return f"screens are of Transformers, and this is {config.architecture!r}"
    if shortlist:
        return "a shortlist leaves few tokens to look at"
    if config.target_vocab_size < LEAST_TOKENS:
        return f"{config.target_vocab_size} tokens are few (of {LEAST_TOKENS} a look in 8 bits is faster)"
    if (size := 4 * config.target_vocab_size * config.width) > MOST_BYTES:
        return f"its weights are {size:,} bytes (of more than {MOST_BYTES:,} to load a screened one takes much memory)"
    if config.width % WIDTH_MULTIPLE:
        return f"a width of {config.width} is no multiple of {WIDTH_MULTIPLE}"
    return None


def screenable(model: Architecture) -> Transformer:
    """What `why_full` lets through."""
    assert isinstance(model, Transformer)
    return model


class ScreenedOutput(nn.Module):
    """The last part of a screened decoder graph. Its buffers are what a look takes besides the model."""

    mean: Tensor
    steps: Tensor
    order: Tensor
    norms: Tensor
    rests: Tensor
    zero_point: Tensor

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.block = block_size(model.config.target_vocab_size, MOST)
        self.rounding = (model.config.width + 32) * 2.0**-24
        self.register_buffer("zero_point", torch.tensor(ZERO_POINT, dtype=torch.uint8))
        for name, numbers in _constants(model.output_weight.detach(), self.block).items():
            self.register_buffer(name, numbers)

    def forward(self, model: Transformer, x: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x: normalised hidden states [rows, width].

        Returns ids int64 and log-probabilities fp32 [rows, k], whether they are certain, bool [rows, 1], and the
        normaliser fp32 [rows, 1]: NaN where the row must be computed whole for it.
        """
        scale = _scale(model)
        quantized = quantize(x, scale, self.zero_point)
        looks = self._looks(model, quantized, scale)
        error, size = (_norm(v) for v in (x - dequantize(quantized, scale, self.zero_point), x))
        rounding = self.rounding * (size + error)
        bounds = (error * SLACK + rounding) * self.norms + size * SLACK * self.rests

        best = self._best_blocks(looks, bounds, BASE + EACH * k + 1)
        chosen = self._tokens_of(looks, best)
        upper, inside = (chosen + bounds.gather(1, best).unsqueeze(2)).flatten(1).topk(BASE + EACH * k + 1)
        beyond, inside = upper[:, -1:], inside[:, :-1]
        ids = F.embedding(best, self.order.unflatten(0, (-1, self.block))).flatten(1).gather(1, inside)
        ids = ids.clamp(max=model.config.target_vocab_size - 1)  # a row of NaN has any
        logits = exact_logits(model, x, ids)
        top, at = logits.topk(k)

        common = (x * self.mean).sum(1, keepdim=True)
        leading = chosen.flatten(1).gather(1, inside[:, :SUMMED])
        place = self._place(best, inside[:, :1])
        log_total, usable = _log_total(looks, place, leading, logits[:, :SUMMED] - common)
        usable = usable.logical_and(bounds.amax(1, keepdim=True) <= WIDE)
        normaliser = log_total + common
        biases = model.output_bias[: model.config.target_vocab_size].abs().max() * 2.0**-21
        unsure = rounding * _norm(self.mean.unsqueeze(0)) + biases
        certain = usable.logical_and(top[:, -1:] - common > beyond + unsure)
        return ids.gather(1, at), top - normaliser, certain, torch.where(usable, normaliser, torch.nan)

    def _looks(self, model: Transformer, quantized: Tensor, scale: Tensor) -> Tensor:
        """[rows, tokens] in the order of their norms.

        v is computed when the graph is loaded: a difference and a quotient of fp32, rounded to the nearest, which are
        the same everywhere.
        """
        centred = model.output_weight - self.mean
        weight = (centred / self.steps.unsqueeze(1)).round().to(torch.int8).index_select(0, self.order)
        scales, bias = (of.index_select(0, self.order) for of in (self.steps, model.output_bias))
        return product(quantized, weight, scale, scales, self.zero_point, bias)

    def _best_blocks(self, looks: Tensor, bounds: Tensor, count: int) -> Tensor:
        """Those with the highest upper bounds [rows, count], in which as many tokens with the highest ones lie."""
        highest: Tensor = looks.unflatten(1, (-1, self.block)).max(2).values + bounds
        return highest.topk(count).indices

    def _tokens_of(self, looks: Tensor, blocks: Tensor) -> Tensor:
        """The looks at the tokens of some blocks of each row [rows, blocks, block]."""
        rows = torch.arange(looks.shape[0], device=looks.device).unsqueeze(1) * len(self.norms)
        return F.embedding(blocks + rows, looks.view(-1, self.block))

    def _place(self, blocks: Tensor, inside: Tensor) -> Tensor:
        """Where tokens of the chosen blocks stand among all [rows, tokens].

        By way of fp32: a quotient of whole numbers exports as many nodes.
        """
        block = (inside.float() * (1 / self.block)).long()
        return blocks.gather(1, block) * self.block + inside - block * self.block


def exact_logits(model: Transformer, x: Tensor, ids: Tensor) -> Tensor:
    """Logits of some tokens of each row, each a sum of its own: the same bits wherever the token stands.

    x: [rows, width]; ids: [rows, tokens]. Returns fp32 [rows, tokens].
    """
    weights, biases = F.embedding(ids, model.output_weight), F.embedding(ids, model.output_bias.unsqueeze(1))
    return (weights * x.unsqueeze(1)).sum(2) + biases.squeeze(2)


class LogitsGraph(nn.Module):
    """What logits.onnx computes beside a screened decoder: rows whole."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model
        self.block = block_size(model.config.target_vocab_size, MAX_CANDIDATES + MARGIN)

    def forward(self, hidden: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """See models.package.signature."""
        k = ranks.shape[0]
        logits = F.linear(hidden, self.model.output_weight, self.model.output_bias)
        ids, log_probs = best_tokens(logits, k + MARGIN, self.block)
        exact = exact_logits(self.model, hidden, ids)
        top, at = exact.topk(k)
        normaliser = logits.gather(1, ids[:, :1]) - log_probs[:, :1]
        return ids.gather(1, at), top, normaliser, logits


def _log_total(looks: Tensor, place: Tensor, leading: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithm of the sum of all exp(logit), and whether it is near enough [rows, 1].

    place: [rows, 1], of the first of the leading looks; logits: of the same tokens as these
    """
    first = leading[:, :1]
    total = looks.softmax(1).gather(1, place).reciprocal()
    rest = (total - (leading - first).exp().sum(1, keepdim=True)).clamp(min=0)
    mended = rest + (logits - first).exp().sum(1, keepdim=True)
    # A row must fill registers of its own, see models.best_tokens.
    return mended.expand(-1, LANES).log()[:, :1] + first, rest <= REST * mended


def _scale(model: Transformer) -> Tensor:
    """Of x, which a norm gave."""
    last = model.decoder[-1]
    assert isinstance(last, DecoderLayer)
    norm = model.decoder_norm if model.config.has_last_norm else last.feed_forward.residual.norm
    assert isinstance(norm, Norm)
    bias = 0.0 if norm.bias is None else norm.bias.abs()
    return (norm.weight.abs() * SPREAD + bias).max().clamp(min=SMALLEST) / LARGEST_INPUT


def _constants(table: Tensor, block: int) -> dict[str, Tensor]:
    """m, s [tokens], the order of |s v], and the largest |s v| and |d| of each block: what a look takes besides v.

    Sums are of fp64, so that every processor gives the same fp32. Of a part of the table at a time: in fp64 all of it
    would take twice the memory of the model's largest weight, several times.
    """
    parts = table.split(TOGETHER)
    mean = (torch.stack([part.double().sum(0) for part in parts]).sum(0) / len(table)).float()
    steps, norms, rests = (torch.cat(of) for of in zip(*(_looked_at(part - mean) for part in parts), strict=True))
    order = norms.argsort(descending=True, stable=True)
    largest = (of[order].unflatten(0, (-1, block)).amax(1) for of in (norms, rests))
    return dict(zip(("mean", "steps", "order", "norms", "rests"), (mean, steps, order, *largest), strict=True))


def _looked_at(centred: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """s, |s v| and |d| of some tokens [tokens]. centred: their w - m."""
    steps = (centred.abs().amax(1) / LARGEST_WEIGHT).clamp(min=SMALLEST)
    looks = (centred / steps.unsqueeze(1)).round().double() * steps.double().unsqueeze(1)
    norms, rests = (of.norm(dim=1) * SLACK for of in (looks, centred.double() - looks))
    return steps, norms.float(), rests.float()


def _norm(x: Tensor) -> Tensor:
    """Of each row [rows, 1]."""
    return x.pow(2).sum(1, keepdim=True).sqrt()
