"""Shows what export has made."""

from rich.table import Table

from export.tracing.graphs import EncoderGraphs, Graphs, histogram
from export.verification.compare_tokens import search_name
from models.package.manifest import Certificate, Manifest


def summary(manifest: Manifest, graphs: Graphs | EncoderGraphs, seconds: dict[str, float]) -> Table:
    """What the package holds, how near it is to its checkpoint, and how long that took."""
    table = Table(show_header=False, title=f"package {manifest.name}", title_justify="left")
    for name, entry in sorted(manifest.files.items()):
        table.add_row(name, size(entry.size_bytes))
    table.add_section()
    for name, model in graphs.models.items():
        counts = histogram(model)
        listed = ", ".join(f"{count} {kind.rpartition('.')[2]}" for kind, count in counts.most_common())
        table.add_row(f"{name}: nodes", f"{counts.total()}: {listed}")
    table.add_section()
    table.add_row("computes in", f"{manifest.graphs.precision.activations}, {manifest.graphs.attention} attention")
    table.add_row("output layer", manifest.graphs.output_layer)
    certify(table, "", manifest.certificate)
    if manifest.native_certificate is not None:
        certify(table, "native graphs ", manifest.native_certificate)
    table.add_section()
    table.add_row("seconds", ", ".join(f"{stage} {spent:.1f}" for stage, spent in seconds.items()))
    return table


def certify(table: Table, which: str, certificate: Certificate) -> None:
    """Adds what a certificate says."""
    table.add_row(f"{which}verified on", certificate.device)
    errors = [f"hidden states {certificate.encoder_error:.1e}"]
    if certificate.score_error is not None:
        errors.append(f"scores of targets {certificate.score_error:.1e}")
    if certificate.attention_error is not None:
        errors.append(f"attention {certificate.attention_error:.1e}")
    if certificate.steps:
        errors.append(f"log-probabilities {max(step.log_prob_error for step in certificate.steps):.1e}")
    table.add_row("largest errors", ", ".join(errors))
    if certificate.vectors is not None:
        found = certificate.vectors
        told = f"{found.sentences} sentences: hidden states within {found.hidden_error:.1e}, cosine {found.cosine:.7f}"
        table.add_row("vectors of transformers", told)
    if certificate.vector_quantization is not None:
        cost = certificate.vector_quantization
        wide = sum(layer.activation_bits > 8 for layer in cost.layers)
        told = f"cosine to fp32 {cost.cosine:.5f}, least {cost.least_cosine:.5f}; {wide} of {len(cost.layers)} layers"
        table.add_row("8 bits", f"{told} with more bits")
    for agreement in certificate.agreements:
        table.add_row(
            f"same tokens as {agreement.reference}, {search_name(agreement.num_beams)}",
            f"{agreement.equal} of {agreement.sentences} sentences",
        )


def size(size_bytes: int) -> str:
    """As people say it."""
    return f"{size_bytes / 1e6:.2f} MB" if size_bytes >= 1e5 else f"{size_bytes / 1e3:.1f} kB"
