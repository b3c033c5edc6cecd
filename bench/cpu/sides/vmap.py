"""Mozilla's lexical shortlist as a vocabulary mapping of CTranslate2, for a checkpoint with Mozilla's vocabulary."""

import json
from pathlib import Path

from models.package.declared.graphs import Vocabulary
from models.package.shortlist import Shortlist


def write_vmap(lexicon: Path, checkpoint: Path, file: Path) -> None:
    """Writes a line for each source token: the token, a tab, and what it may become. The first line is for all.

    Raises ShortlistError where the shortlist is not for the checkpoint's vocabulary.
    """
    ids = json.loads((checkpoint / "vocab.json").read_text(encoding="utf-8"))
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    pieces = {index: piece for piece, index in ids.items()}
    size = config["vocab_size"]
    vocabulary = Vocabulary(
        source_size=size,
        target_size=size,
        shared=True,
        pad_id=config["pad_token_id"],
        end_id=config["eos_token_id"],
        start_id=config["decoder_start_token_id"],
    )
    shortlist = Shortlist.load(lexicon, vocabulary)
    lines = ["\t" + " ".join(pieces[index] for index in range(shortlist.first))]
    for token in range(len(shortlist.offsets) - 1):
        listed = shortlist.entries[shortlist.offsets[token] : shortlist.offsets[token + 1]]
        lines.append(f"{pieces[token]}\t{' '.join(dict.fromkeys([pieces[token], *(pieces[i] for i in listed)]))}")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
