"""Checks what export was given, before anything takes long."""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from engine.devices.machine import Machine
from engine.devices.selection import Wanted, select_device
from engine.devices.session import Device
from engine.devices.sizing import Load
from export.command.arguments import BEST, CALIBRATION, FIRST, Options
from export.languages import package_languages
from export.quantization.texts import Calibration, Loss, Samples
from export.shortlist.table import ListSize
from export.sources import Fetched
from export.verification.compare_tokens import ENGINE_ROWS
from export.verification.verify import most_tokens
from models import lines
from models.checkpoint import Checkpoint
from models.languages import WELL_FORMED, lookup
from models.package.declared.graphs import NAME_PATTERN
from models.package.derived import graphs_spec, vocabulary
from models.package.shortlist import Shortlist, is_shortlist, verify_checksum
from models.tokenizers.byte_tokenizer import ByteSpec
from models.tokenizers.moses_bpe import MosesSpec
from models.tokenizers.parlai_bpe import ParlaiSpec
from models.tokenizers.sentencepiece_pair import SentencePieceSpec
from models.tokenizers.spec import TokenizerSpec
from models.tokenizers.tokenizer_json import TokenizerJsonSpec

C = TypeVar("C")

LEAST_CALIBRATION, MOST_CALIBRATION = 32, 1000
"""Sentences. With fewer, no scale fits the next text; with more, none changes."""


class InputError(Exception):
    """An option that cannot be used."""


def lines_of(content: bytes, file: Path) -> list[str]:
    """All lines of what a text file has. Raises InputError."""
    try:
        return lines.lines_of(content, file)
    except lines.NoText as error:
        raise InputError(str(error)) from error


def sentences_of(content: bytes, file: Path) -> list[str]:
    """Those lines that are not empty, without spaces around them. Raises InputError."""
    return [line.strip() for line in lines_of(content, file) if line.strip()]


def read_samples(file: Path, count: int) -> list[str]:
    """The first `count` sentences of a file. Raises InputError."""
    texts = sentences_of(file.read_bytes(), file)
    if not 0 < count <= len(texts):
        told = f"ask for 1 to {len(texts)}, or give more of them with --samples" if texts else "at least 1 is needed"
        raise InputError(f"--verify-samples is {count}; {file} has {len(texts)} sentences: {told}")
    return texts[:count]


def read_quantizing_texts(options: Options, texts: Sequence[str]) -> tuple[Calibration, Samples] | None:
    """What 8 bits are calibrated on, and measured on: `texts`. None where the precision is another."""
    if options.precision != "int8":
        return None
    return read_calibration(options), Samples(texts, read_references(options), read_most_loss(options))


def read_calibration(options: Options) -> Calibration:
    """What 8 bits are calibrated on: at most MOST_CALIBRATION sentences. Raises InputError."""
    file = options.calibration or CALIBRATION
    content = file.read_bytes()  # once: a pipe, such as a shell's <(...), has nothing the second time
    texts = sentences_of(content, file)
    if len(texts) < LEAST_CALIBRATION:
        raise InputError(
            f"{file} has {len(texts)} sentences; to calibrate takes at least {LEAST_CALIBRATION} of the source "
            f"language: name a longer text with --calibration"
        )
    return Calibration(texts[:MOST_CALIBRATION], hashlib.sha256(content).hexdigest())


def read_references(options: Options) -> list[str]:
    """A translation of each of the samples; none where none are given. Raises InputError."""
    if options.references is None:
        return []
    file = options.references
    references = [line.strip() for line in lines_of(file.read_bytes(), file)]
    while references and not references[-1]:
        references.pop()
    if len(references) < options.verify_samples:
        raise InputError(f"{file} has {len(references)} translations; --verify-samples is {options.verify_samples}")
    compared = references[: options.verify_samples]
    if "" in compared:
        number = 1 + compared.index("")
        raise InputError(
            f"{file}, line {number} is empty; translate sentence {number} of the samples, or leave it out of both"
        )
    return compared


def read_most_loss(options: Options) -> Loss:
    """What 8 bits may cost by the references. Raises InputError where that is no number from 0 to 100."""
    bleu, chrf = options.most_bleu_loss, options.most_chrf_loss
    for name, most in (("bleu", bleu), ("chrf", chrf)):
        if most is not None and not 0 <= most <= 100:
            raise InputError(f"--most-{name}-loss is {most}; expected 0 to 100")
    return Loss(Loss.bleu if bleu is None else bleu, Loss.chrf if chrf is None else chrf)


def adapt(checkpoint: Checkpoint, fetched: Fetched, options: Options) -> Checkpoint:
    """The checkpoint, as its source and the options have it. Raises InputError."""
    source, target = package_languages(checkpoint, fetched, options)
    return replace(
        checkpoint,
        name=fetched.name,
        pinned=fetched.pinned,
        source_languages=check_languages("source", source, checkpoint.source_languages),
        target_languages=check_languages("target", target, checkpoint.target_languages),
        languages=choose_codes(checkpoint.languages, target),
        tokenizer=adapt_tokenizer(checkpoint.tokenizer, source, target, options.keep_typography),
        prompts=check_prompts(named_prompts(options.task), checkpoint, fetched.folder),
        in_transformers=checkpoint.in_transformers and options.verify == "transformers",
        shortlist=_shortlist_file(options, checkpoint.shortlist),
    )


def _shortlist_file(options: Options, own: Path | None) -> Path | None:
    """A list that is there: the checkpoint's own, or that of --shortlist, unless that is text to count one over.

    Raises InputError where one that is there is to have another size.
    """
    if options.no_shortlist or options.shortlist is None:
        return None if options.no_shortlist else own
    first, *others = options.shortlist
    # What is no file, as a shell's <(...), is text: a look at how it begins would take that from it.
    if others or not first.is_file() or not is_shortlist(first):
        return None
    for name, size in (("first", options.shortlist_first), ("best", options.shortlist_best)):
        if size is not None:
            way = "leave it out, or give the text that a list is to be made of"
            raise InputError(
                f"--shortlist-{name} is {size}, and {first} is a list already, which stays as it is: {way}"
            )
    return first


def named_prompts(prefixes: Sequence[str]) -> dict[str, str]:
    """The prefixes of tasks by their words: "summarize: " is called "summarize". Raises InputError."""
    prompts: dict[str, str] = {}
    for prefix in prefixes:
        name = prefix.strip().rstrip(":").rstrip()
        if not name:
            raise InputError(f"--task is {prefix!r}, which has no words to call it by")
        if not prefix.isprintable():
            raise InputError(f"--task is {prefix!r}, in which not every character is printable")
        if name in prompts:
            raise InputError(f"--task {name!r} is given twice")
        prompts[name] = prefix
    return prompts


def check_prompts(prompts: dict[str, str], checkpoint: Checkpoint, folder: Path) -> dict[str, str]:
    """The same, if a text fits beside each. Raises InputError or TokenizerError."""
    tokenizer = checkpoint.open_tokenizer(folder) if prompts else None
    most = checkpoint.config.max_positions
    for name, prefix in prompts.items():
        assert tokenizer is not None
        if (tokens := len(tokenizer.encode(prefix))) >= most:
            raise InputError(f"--task {name!r} has {tokens} tokens; the model takes {most}, with the text: shorten it")
    return prompts


def adapt_tokenizer(
    spec: TokenizerSpec, sources: Sequence[str], targets: Sequence[str], keeps_typography: bool
) -> TokenizerSpec:
    """The tokenizer for these languages alone. Raises InputError."""
    match spec:
        case SentencePieceSpec():
            ids = choose_codes(spec.source_ids, sources, "source")
            update: dict[str, object] = {"target_codes": choose_codes(spec.target_codes, targets), "source_ids": ids}
            return spec.model_copy(update=update | ({"normalization": {}} if keeps_typography else {}))
        case TokenizerJsonSpec():
            affixes = choose_codes(spec.source_affixes, sources, "source")
            update = {"target_codes": choose_codes(spec.target_codes, targets), "source_affixes": affixes}
            return spec.model_copy(update=update)
        case ByteSpec() | MosesSpec() | ParlaiSpec():
            return spec


def check_languages(side: str, tags: Sequence[str], known: Sequence[str] = ()) -> tuple[str, ...]:
    """At least one, each a well-formed tag that comes once. Raises InputError.

    known: those of the checkpoint
    """
    if not tags:
        raise InputError(
            f"the checkpoint does not say its {side} language: name it with --{side}-language, like en or pt-BR"
        )
    for tag in tags:
        if not WELL_FORMED.fullmatch(tag):
            meant = lookup(tag, known)
            expected = "expected one like en or pt-BR" if meant is None else f"the checkpoint's for it is {meant}"
            raise InputError(f"--{side}-language is {tag!r}, which is no language tag; {expected}")
    for tag, times in Counter(tag.lower() for tag in tags).items():
        if times > 1:  # of one language no request has to say which, of the same twice each would
            raise InputError(f"the {side} language {tag!r} is named {times} times; once is enough")
    return tuple(tags)


def choose_codes(codes: Mapping[str, C], tags: Sequence[str], side: str = "target") -> dict[str, C]:
    """The codes of one side's languages, for a checkpoint that has codes. Raises InputError where one has none."""
    missing = [tag for tag in tags if codes and tag not in codes]
    if missing:
        meant = lookup(missing[0], tuple(codes))
        nearest = "" if meant is None else f"; the nearest is {meant}"
        raise InputError(f"--{side}-language is {missing[0]!r}; the checkpoint has {', '.join(codes)}{nearest}")
    return {tag: codes[tag] for tag in tags if tag in codes}


def open_shortlist(checkpoint: Checkpoint) -> Shortlist | None:
    """Loads the shortlist, if there is one. Raises ShortlistError where it is damaged, or another model's."""
    if checkpoint.shortlist is None:
        return None
    verify_checksum(checkpoint.shortlist)
    return Shortlist.load(checkpoint.shortlist, vocabulary(checkpoint.config))


def check_list_size(options: Options, checkpoint: Checkpoint) -> ListSize:
    """How long the lists of a shortlist are to be. Raises InputError."""
    first = FIRST if options.shortlist_first is None else options.shortlist_first
    best = BEST if options.shortlist_best is None else options.shortlist_best
    most = checkpoint.config.target_vocab_size
    for name, size, least in (("first", first, 0), ("best", best, 1)):
        if not least <= size <= most:
            raise InputError(f"--shortlist-{name} is {size}; expected {least} to {most}, the tokens of the vocabulary")
    return ListSize(first, best)


def check_name(name: str) -> str:
    """A name that fits into requests and file names. Raises InputError."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise InputError(f"{name!r} cannot be the model's name; give one of letters, digits, '.', '_', '-' with --name")
    return name


def open_device(options: Options, checkpoint: Checkpoint) -> Device:
    """What runs the graphs to verify them. Raises InputError or DeviceError."""
    if options.precision == "bf16" and options.device == "cpu":
        raise InputError(
            "ONNX Runtime's CPU provider does not run bf16, so nothing could verify the graphs here: export on a CUDA "
            "machine with --device cuda, or with --precision fp16"
        )
    shortlist = checkpoint.shortlist is not None or options.shortlist is not None
    tokens = most_tokens(checkpoint.config.max_positions)
    spec = graphs_spec(checkpoint.config, options.precision, options.attention, shortlist)
    device, _ = select_device(Wanted(options.device), Load(spec, ENGINE_ROWS, tokens, tokens), Machine())
    return device
