"""The sections of a report, each of its own function. None: there is nothing to show."""

from collections.abc import Iterable, Sequence
from math import exp, log2
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from numpy.typing import NDArray

from inspection.beams import draw_search
from inspection.drawing import heat_maps
from inspection.findings import Findings
from inspection.tree import best_path


def summary(findings: Findings) -> Element:
    """What was translated by what, and to what; or the labels that were found."""
    section, manifest = _section("Result"), findings.package.manifest
    if findings.root is None:
        SubElement(section, "p").text = f"{manifest.name}: {manifest.model.architecture}, an encoder alone."
        table = _table(section, ["of", "label", "probability"], [])
        for of, label in findings.classified:
            row = SubElement(table, "tr")
            for text in (of, label.name):
                SubElement(row, "td").text = text
            _bar(SubElement(row, "td"), f"{label.probability:.4f}", label.probability)
        return section
    _table(
        section,
        ["#", "translation", "score", "tokens", "ended by"],
        [
            [str(rank + 1), text, f"{one.score:.4f}", str(len(one.token_ids)), one.finish_reason.value]
            for rank, (one, text) in enumerate(zip(findings.hypotheses, findings.texts, strict=True))
        ],
    )
    said = f"{manifest.name}: {manifest.model.architecture}, {findings.wanted.beams} beams, {len(findings.steps)} steps"
    SubElement(section, "p").text = f"{said}. A score is sum(log p) / tokens^length_penalty."
    return section


def tokens(findings: Findings) -> Element:
    """Those of the text and of the best hypothesis, with the norms of their last states; the latter's probabilities."""
    section = _section("Tokens")
    _told(section, "Of the text, with the length (L2) of the encoder's last hidden state of each:")
    _norms(section, findings.source, findings.hidden)
    if not findings.hypotheses:
        return section
    _told(section, "Of the best translation, with the probability of each:")
    best = zip(findings.target, findings.hypotheses[0].log_probs, strict=True)
    _bars(section, [(label, exp(log_prob), f"{exp(log_prob):.3f}") for label, log_prob in best], 1.0)
    if findings.states is not None:
        text = "The same, with the length (L2) of what the decoder's last layer gave in the step that chose each:"
        _told(section, text)
        _norms(section, findings.target, findings.states)
    for name, states in findings.cells.items():
        _told(section, f"The same, with the length (L2) of {name} after that step:")
        _norms(section, findings.target[: len(states)], states)
    return section


def encoder_attention(findings: Findings) -> Element:
    """Where the text looks in itself."""
    section = _section("Encoder: where tokens of the text look in it")
    if (picture := encoder_maps(findings)) is None:
        return _told(section, "The package does not tell. Recurrent encoders have no attention.")
    return _shown(section, picture)


def target_attention(findings: Findings) -> Element | None:
    """Where the best translation looks in the text."""
    if findings.root is None:
        return None
    graphs = findings.package.manifest.graphs
    behind = " and in what was fed before" if graphs.reads_on else ""
    section = _section(f"Decoder: where tokens of the translation look in the text{behind}")
    if (picture := target_maps(findings)) is None:
        return _told(section, "The package does not tell: its model has no attention to the source, or it is older.")
    text = "Each row is the step that chose the token beside it, as it was found in the encoder's states."
    if graphs.reads_on:
        text = "Each row is the step that chose the token beside it. One stack reads both."
    elif graphs.vocabulary.continues:
        text = "Each row is the step that chose the token beside it: the last layer, the mean of its heads, "
        text += "at the tokens of the text alone. The package is older: export it again."
    _told(section, text)
    return _shown(section, picture)


def looking_back(findings: Findings) -> Element | None:
    """Where the best translation looks in itself."""
    if (picture := back_maps(findings)) is None:
        return None
    section = _section("Decoder: where tokens of the translation look in what was fed before")
    _told(section, "Each row is the step that chose the token beside it.")
    return _shown(section, picture)


def entropies(findings: Findings) -> Element | None:
    """How widely every head looks."""
    kinds = {
        "encoder": findings.source_attention,
        f"decoder to the text{_and_itself(findings)}": findings.target_attention,
        "decoder to itself": findings.looking_back,
    }
    there = {name: weights for name, weights in kinds.items() if weights is not None}
    if not there:
        return None
    section = _section("Entropy of every head")
    most = log2(max(weights.shape[3] for weights in there.values()))
    text = "In bits, the mean over the tokens that look. 0: at one token alone; "
    text += f"{log2(len(findings.source)):.2f}: at all of the text alike."
    SubElement(section, "p").text = text
    for name, weights in there.items():
        found = entropy(weights).mean(2)
        header = [name, *(f"head {head}" for head in range(found.shape[1]))]
        table = _table(section, header, [[f"layer {layer}"] for layer in range(len(found))])
        for row, of_heads in zip(table.findall("tr")[1:], found.tolist(), strict=True):
            for bits in of_heads:
                _bar(SubElement(row, "td"), f"{bits:.2f}", bits / most if most else 0.0)
    return section


def next_tokens(findings: Findings) -> Element | None:
    """The distribution that each token of the best translation was chosen from."""
    if findings.root is None:
        return None
    section = _section("Next tokens")
    text = "At each step of the best translation the most probable tokens; bold is what it has. The rest is for others."
    SubElement(section, "p").text = text
    table = _table(section, ["step", "chosen", "most probable", *[""] * (findings.wanted.alternatives - 1), "rest"], [])
    for node in best_path(findings.root):
        row, parent = SubElement(table, "tr"), node.parent
        for text in (str(node.depth), findings.labels[node.token]):
            SubElement(row, "td").text = text
        if parent is None or parent.step is None:
            SubElement(row, "td").text = "forced"
            continue
        step, shown = findings.steps[parent.step], findings.wanted.alternatives
        probabilities = np.exp(step.log_probs[parent.row, :shown].astype(np.float64)).tolist()
        for token, probability in zip(step.token_ids[parent.row, :shown].tolist(), probabilities, strict=True):
            cell = SubElement(row, "td", {"class": "chosen"} if token == node.token else {})
            _bar(cell, f"{findings.labels[token]} {probability:.3f}", probability)
        SubElement(row, "td").text = f"{max(0.0, 1 - sum(probabilities)):.3f}"
    return section


def search(findings: Findings) -> Element | None:
    """Beam search as a tree."""
    if findings.root is None:
        return None
    section = _section("The search")
    _told(section, "A token, its probability and, under it, sum(log p) so far. ✕: no hypothesis went on from there.")
    return _shown(section, draw_search(findings.root, findings.labels))


SECTIONS = (summary, tokens, target_attention, looking_back, encoder_attention, entropies, next_tokens, search)
"""Of a report, in their order."""


def encoder_maps(findings: Findings) -> Element | None:
    """The picture of the section."""
    weights = findings.source_attention
    if weights is None:
        return None
    return _maps("Attention of the encoder", weights, findings.source, findings.source)


def target_maps(findings: Findings) -> Element | None:
    """The picture of the section."""
    weights = findings.target_attention
    if weights is None:
        return None
    target = findings.target[: weights.shape[2]]
    title = f"Attention of the decoder to the source{_and_itself(findings)}"
    return _maps(title, weights, target, findings.seen)


def back_maps(findings: Findings) -> Element | None:
    """The picture of the section."""
    weights = findings.looking_back
    if weights is None:
        return None
    target = findings.target[: weights.shape[2]]
    return _maps("Attention of the decoder to itself", weights, target, findings.fed)


def entropy(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of the last axis, in bits."""
    exact = weights.astype(np.float64)
    found: NDArray[np.float64] = -(exact * np.log2(np.where(exact > 0, exact, 1))).sum(-1)
    return found


def _and_itself(findings: Findings) -> str:
    return " and itself" if findings.package.manifest.graphs.reads_on else ""


def _maps(title: str, weights: NDArray[np.float32], rows: Sequence[str], columns: Sequence[str]) -> Element:
    """A map for every layer and head, and one for the mean of a layer's heads if there are several."""
    heads = weights.shape[1]
    if heads == 1:
        return heat_maps(title, weights, rows, columns, [""])
    names = [*(f"head {head}" for head in range(heads)), "mean"]
    return heat_maps(title, np.concatenate([weights, weights.mean(1, keepdims=True)], 1), rows, columns, names)


def _section(title: str) -> Element:
    section = Element("section")
    SubElement(section, "h2").text = title
    return section


def _told(section: Element, text: str) -> Element:
    SubElement(section, "p").text = text
    return section


def _shown(section: Element, picture: Element) -> Element:
    SubElement(section, "div", {"class": "wide"}).append(picture)
    return section


def _table(section: Element, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Element:
    table = SubElement(SubElement(section, "div", {"class": "wide"}), "table")
    for kind, cells in [("th", header), *(("td", row) for row in rows)]:
        row = SubElement(table, "tr")
        for cell in cells:
            SubElement(row, kind).text = cell
    return table


def _norms(section: Element, labels: Sequence[str], states: NDArray[np.float32]) -> None:
    """A line of tokens with the lengths of their states [tokens, width]."""
    norms = np.linalg.norm(states, axis=1)
    pairs = zip(labels, norms.tolist(), strict=True)
    _bars(section, [(label, norm, f"{norm:.2f}") for label, norm in pairs], float(norms.max()))


def _bars(section: Element, values: Iterable[tuple[str, float, str]], most: float) -> None:
    """A line of labels, each with a value and a bar."""
    line = SubElement(section, "div", {"class": "bars"})
    for label, value, text in values:
        box = SubElement(line, "span")
        SubElement(box, "b").text = label
        _bar(SubElement(box, "small"), text, value / most if most else 0.0)


def _bar(cell: Element, text: str, share: float) -> None:
    """Text before a bar of so much of the cell."""
    cell.text = text
    cell.set("style", f"--share: {100 * min(max(share, 0.0), 1.0):.1f}%")
