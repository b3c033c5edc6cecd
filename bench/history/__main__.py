"""`python -m bench.history`: a recurrent package with attention beside a loop in PyTorch over the same weights.

A GRU that attends to its source (Bahdanau et al. 2015), 32 sentences at a time, greedily, in turns, by the clock or by
processor time. `--cores N`: N workers, and N threads of PyTorch, which may be slower than one: see both.
`--packages PACKAGE ... --text FILE` translates a text by packages of several systems instead, in the same way. See
docs/history.md.
"""

import argparse
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.nn.utils.rnn import pad_sequence

from bench.history.serving import REPEATS, ROWS, Took, serve
from bench.machine.noise import instructions
from bench.measure import alternate, processor_seconds, seconds
from bench.pages.markdown import machine, table
from engine.devices.session import CPU
from engine.loading.load import Limits, Loadable, load
from engine.offline import decode
from engine.runner import Runner
from engine.targets import TargetRules
from export.tracing.trace import trace
from export.weights.save import save
from models.architectures.recurrent.config import RecurrentConfig
from models.architectures.recurrent.model import Recurrent
from models.architectures.recurrent.source_attention import softmax_look
from models.decoding import Decoding
from models.package.manifest import GenerationDefaults

SOURCE, TARGET = (8, 40), 40
"""Least and most tokens of a source, the end token included; tokens of every target."""
VOCABULARY = 8000

Sources = Sequence[tuple[int, ...]]


def shape(width: int) -> RecurrentConfig:
    """One layer on each side."""
    return RecurrentConfig(
        architecture="recurrent",
        source_vocab_size=VOCABULARY,
        target_vocab_size=VOCABULARY,
        width=width,
        encoder_layers=1,
        decoder_layers=1,
        max_positions=128,
        scale_embedding=True,
        pad_id=VOCABULARY - 1,
        end_id=0,
        decoder_start_id=VOCABULARY - 1,
    )


def some_sources() -> Sources:
    """Of many lengths."""
    chance = random.Random(1)
    lengths = [chance.randint(*SOURCE) for _ in range(ROWS)]
    return [(*chance.choices(range(1, VOCABULARY - 1), k=length - 1), 0) for length in lengths]


@torch.inference_mode()
def by_pytorch(model: Recurrent, sources: Sources) -> torch.Tensor:
    """The tokens of a loop over whole batches, which stops after TARGET tokens [sentences, TARGET]."""
    lengths = torch.tensor([len(source) for source in sources])
    ids = pad_sequence([torch.tensor(source) for source in sources], batch_first=True)
    _, starts = model.encode_source(ids, lengths)
    keys, values = starts[-2:]
    look, states = softmax_look(keys, values, lengths, model.config.score_scale), starts[:-2]
    fed, found = torch.full((len(sources),), model.config.decoder_start_id), list[torch.Tensor]()
    for position in range(TARGET):
        at = (lengths - 1).clamp(max=position)
        readout, _, states = model.step(fed, states, keys, lengths.max(), look, at)
        logits = model.logits(readout)
        logits[:, model.config.end_id] = -torch.inf  # as our side has it, whose targets have so many tokens at least
        fed = logits.argmax(1)
        found.append(fed)
    return torch.stack(found, 1)


def by_package(runner: Runner, rules: TargetRules, sources: Sources) -> torch.Tensor:
    """The same of an engine, whose workers share the sentences."""
    decoding = Decoding(min_new_tokens=TARGET, max_new_tokens=TARGET)
    answers = decode(runner, rules, [(source, decoding) for source in sources])
    return torch.tensor([answer.hypotheses[0].token_ids for answer in answers])


def compare(width: int, cores: int, folder: Path, took: Took) -> list[str]:
    """A row of the table."""
    torch.manual_seed(1)
    model, sources = Recurrent(shape(width)).eval(), some_sources()
    loadable = Loadable(save(trace(model), folder), GenerationDefaults(max_new_tokens=TARGET))
    with load(loadable, CPU, Limits(rows=ROWS, workers=cores)) as runner:
        work = {
            "package": partial(by_package, runner, loadable.rules, sources),
            "pytorch": partial(by_pytorch, model, sources),
        }
        equal = (work["package"]() == work["pytorch"]()).all(1)
        series = alternate({name: partial(took, side) for name, side in work.items()}, REPEATS)
    pairs = zip(series["pytorch"].values, series["package"].values, strict=True)
    ratios = sorted(theirs / ours for theirs, ours in pairs)
    tokens = ROWS * TARGET
    return [
        str(width),
        *(f"{tokens / series[name].median:,.0f}" for name in work),
        f"{ratios[len(ratios) // 2]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        f"{int(equal.sum())} of {ROWS}",
    ]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.history", description=__doc__)
    parser.add_argument("--widths", nargs="+", type=int, default=[128, 256, 512], help="of the models")
    parser.add_argument("--cores", type=int, default=1, help="of both sides, without --packages (default: %(default)s)")
    parser.add_argument("--packages", nargs="+", type=Path, default=[], help="of several systems")
    parser.add_argument("--text", type=Path, help="of as many lines as are to be translated")
    parser.add_argument(
        "--processor-time", action="store_true", help="instead of the clock, on a machine with other work"
    )
    options = parser.parse_args()
    took = processor_seconds if options.processor_time else seconds
    torch.set_num_threads(options.cores)
    print(f"{machine()}, {instructions()}\n", flush=True)
    if options.packages:
        texts = options.text.read_text(encoding="utf-8").splitlines()
        found = zip(options.packages, serve(options.packages, texts, took), strict=True)
        rows = [
            [
                folder.name,
                f"{served.tokens:,}",
                f"{served.tokens_per_second:,.0f}",
                f"{len(texts) / served.seconds:,.0f}",
            ]
            for folder, served in found
        ]
        print(table(["package", "target tokens", "tokens/s", "texts/s"], rows))
        return
    header = ["width", "package, tokens/s", "PyTorch, tokens/s", "ratio, median and range", "equal targets"]
    rows = list[list[str]]()
    for width in options.widths:
        with TemporaryDirectory() as folder:
            rows.append(compare(width, options.cores, Path(folder), took))
    print(table(header, rows))


if __name__ == "__main__":
    main()
