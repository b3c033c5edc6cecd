"""A tokenizer that transformers has -> the tokenizer.json of a package."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.checkpoint.contents import CheckpointError
from models.checkpoint.languages.tokens import language_tokens
from models.checkpoint.tokenizers.files import check_files, missing_file
from models.tokenizers.tokenizer_json import Affixes, TokenizerJsonSpec

PROBE = "a"
"""A text to see what is put around it."""
SPACE = "▁"
"""The piece of SentencePiece that is one."""


@dataclass(frozen=True)
class FastTokenizer:
    """What becomes of it in a package."""

    spec: TokenizerJsonSpec
    content: str
    """Of the file that the spec names."""
    largest_id: int
    """Of those that a model may be fed: see `largest_used`."""
    languages: dict[str, int] = field(default_factory=dict)
    """BCP-47 tag -> the token that names the language, for a tokenizer of many."""
    types: bool = False
    """transformers tells a model which of two texts a token is of."""


def read_fast_tokenizer(folder: Path, multilingual: bool = False) -> FastTokenizer:
    """The tokenizer of a checkpoint folder, whatever files it lies in.

    multilingual: control tokens name languages, and that of a source stands beside it

    Raises CheckpointError where transformers has no such tokenizer, or one in Python alone.
    """
    return fast_tokenizer(open_by_transformers(folder), folder, multilingual)


def open_by_transformers(folder: Path) -> Any:
    """Raises CheckpointError where transformers has no tokenizer there, or a file of it is damaged."""
    import transformers

    check_files(folder)
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # each of its tokenizers raises its own
        reason = missing_file(folder) or str(error).partition("\n")[0]
        raise CheckpointError(f"{folder}: transformers reads no tokenizer there: {reason}") from error


def fast_tokenizer(tokenizer: Any, folder: Path, multilingual: bool) -> FastTokenizer:
    """As `read_fast_tokenizer`, of what transformers has opened."""
    if not getattr(tokenizer, "is_fast", False):
        raise CheckpointError(
            f"{folder}: {type(tokenizer).__name__} is written in Python, and cannot be served; a folder with a "
            "tokenizer.json, or of SentencePiece files, can"
        )
    _check_files(tokenizer, folder)
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    content = with_unknown(backend.to_str(), tokenizer.unk_token)
    served = backend.from_str(content)
    spec = spec_of(served).model_copy(update={"cleans_up": cleans_up(tokenizer)})
    tokens = language_tokens(_control_tokens(backend)) if multilingual else {}
    spec = spec.model_copy(update={"source_affixes": {tag: _affixes_of(tokenizer, tokens[tag]) for tag in tokens}})
    languages = {tag: backend.token_to_id(token) for tag, token in tokens.items()}
    largest = max([largest_used(backend, spec), *languages.values()])
    types = "token_type_ids" in tokenizer.model_input_names
    return FastTokenizer(spec, content, largest, languages, types)


def cleans_up(tokenizer: Any) -> bool:
    """Whether spaces before punctuation are taken out of targets.

    Of byte-pair encoding transformers takes none, although most files of before version 5 say so, unless they insist.
    """
    insists = tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output
    has_pairs = type(tokenizer.backend_tokenizer.model).__name__ == "BPE"
    return bool(tokenizer.clean_up_tokenization_spaces and (insists or not has_pairs))


def _check_files(tokenizer: Any, folder: Path) -> None:
    """Raises CheckpointError where a vocabulary is missing: transformers makes one of the control tokens alone."""
    names = {kind: name for kind, name in tokenizer.vocab_files_names.items() if kind != "tokenizer_file"}
    missing = [name for name in names.values() if not (folder / name).is_file()]
    if missing and not (folder / "tokenizer.json").is_file():
        raise CheckpointError(
            f"{folder} has no tokenizer.json, and no {missing[0]} of which {type(tokenizer).__name__} makes one"
        )


def with_unknown(content: str, unknown: str | None) -> str:
    """A tokenizer.json whose model gives this token for what it lacks.

    Since version 5 transformers makes every T5's with the id 2, which is the end token of a MADLAD.
    Raises CheckpointError where no piece of the vocabulary is this token.
    """
    made = json.loads(content)
    pieces, given = made["model"].get("vocab"), made["model"].get("unk_id")
    if unknown is None or given is None or pieces[given][0] == unknown:
        return content
    place = next((place for place, (piece, _) in enumerate(pieces) if piece == unknown), None)
    if place is None:
        raise CheckpointError(
            f"the tokenizer's unk_token is {unknown!r}, which is none of its {len(pieces)} pieces: say in "
            "tokenizer_config.json which of them stands for what the vocabulary lacks"
        )
    made["model"]["unk_id"] = place
    return json.dumps(made, ensure_ascii=False)


def target_codes(tokenizer: FastTokenizer) -> dict[str, tuple[int, ...]]:
    """BCP-47 tag -> the tokens that, before a source, say what language it becomes: MADLAD's `<2pt>`.

    The piece of a space may stand before the code. Without those that transformers sees as other tokens.
    """
    from tokenizers import Tokenizer as Backend

    backend = Backend.from_str(tokenizer.content)
    ids = backend.get_vocab()
    codes = language_tokens(token for token in sorted(ids, key=lambda token: ids[token]) if token.startswith("<2"))
    alone, found = backend.encode(PROBE).ids, dict[str, tuple[int, ...]]()
    for tag, code in codes.items():
        around = backend.encode(f"{code} {PROBE}").ids
        before = tuple(around[: -len(alone)])
        if around[len(before) :] == alone and before in ((ids[code],), (ids.get(SPACE), ids[code])):
            found[tag] = before
    return found


def _control_tokens(backend: Any) -> list[str]:
    return [token.content for _, token in sorted(backend.get_added_tokens_decoder().items()) if token.special]


def spec_of(backend: Any) -> TokenizerJsonSpec:
    """What a tokenizer of the library `tokenizers` says of itself. Raises CheckpointError."""
    control = {token_id for token_id, token in backend.get_added_tokens_decoder().items() if token.special}
    model = json.loads(backend.to_str())["model"]
    unknown = model.get("unk_id") if model.get("unk_token") is None else backend.token_to_id(model["unk_token"])
    hidden = tuple(sorted(control | (set() if unknown is None else {unknown})))
    affixes = _affixes(backend)
    if unknown is None and not hidden:
        raise CheckpointError("the tokenizer has neither control tokens nor an unknown token; expected one at least")
    return TokenizerJsonSpec(affixes=affixes, unknown_id=hidden[0] if unknown is None else unknown, hidden_ids=hidden)


def largest_used(backend: Any, spec: TokenizerJsonSpec) -> int:
    """The largest id of a text or of what stands around one.

    Control tokens elsewhere are in no text (`TokenizerJson.encode_target`), so that models may lack them: the `<mask>`
    of bart-large-cnn has no row of its embedding.
    """
    texts = set(backend.get_vocab().values()) - set(spec.hidden_ids)
    affixes = [spec.affixes, *spec.source_affixes.values()]
    around = {token_id for one in affixes for token_id in (*one.prefix_ids, *one.suffix_ids, *one.between_ids)}
    return max({spec.unknown_id} | texts | around)


def _affixes_of(tokenizer: Any, language: str) -> Affixes:
    tokenizer.src_lang = language
    return _affixes(tokenizer.backend_tokenizer)


def _affixes(backend: Any) -> Affixes:
    """By the template that the tokenizer puts around a text."""
    inside, around = backend.encode(PROBE, add_special_tokens=False).ids, backend.encode(PROBE).ids
    for start in range(len(around) - len(inside) + 1):
        if around[start : start + len(inside)] == inside:
            return Affixes(prefix_ids=tuple(around[:start]), suffix_ids=tuple(around[start + len(inside) :]))
    raise CheckpointError(f"the tokenizer changes a text that it puts tokens around: {inside}, {around}")
