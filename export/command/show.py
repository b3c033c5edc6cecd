"""Says what a package is: `dragoman show PACKAGE`; without one, which there are. It needs no torch."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from dragoman.command.flags.parsing import Outspoken
from models.decoding import Decoding
from models.package.checked import PackageError
from models.package.folder import Package
from models.package.home import find, home, local
from models.package.manifest import Certificate, Manifest

NOTICES = ("LICENSE", "LICENCE", "NOTICE")
LONGEST_LINE = 80


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 where there is no such package, or one that is not whole."""
    parser = Outspoken("dragoman show", description="Says what a package is, and checks its files.")
    parser.add_argument("package", nargs="?", help="its folder, or its name in $DRAGOMAN_HOME; none: list those")
    name: str | None = parser.parse_args(arguments).package
    try:
        folders = list(local()) if name is None else [find(name)]
    except (PackageError, OSError) as error:
        return _fail(error)
    if not folders:
        print(f"no packages in {home()}; dragoman pull fetches one")
    return max((_show(folder, _line if name is None else _describe) for folder in folders), default=0)


def _show(folder: Path, lines: Callable[[Package], Iterable[str]]) -> int:
    """One that is not whole keeps none of the others from being listed."""
    try:
        text = "\n".join(lines(Package.open(folder)))
    except (PackageError, OSError) as error:
        return _fail(error)
    print(text)
    return 0


def _fail(error: Exception) -> int:
    print(f"error: {error}", file=sys.stderr)
    return 2


def _line(package: Package) -> Iterator[str]:
    folder, manifest = package.folder, package.manifest
    yield f"{folder.name:<32}{_languages(manifest):<24}{_megabytes(manifest):>8.1f} MB  {folder}"


def _describe(package: Package) -> Iterator[str]:
    manifest, graphs = package.manifest, package.manifest.graphs
    rows = {
        "model": manifest.name,
        "folder": str(package.folder),
        "sha256": package.sha256,
        "languages": _languages(manifest),
        "checkpoint": manifest.checkpoint.pinned or manifest.checkpoint.name,
        "architecture": _architecture(manifest),
        "precision": f"{graphs.precision.weights}, computes in {graphs.precision.activations}",
        "size": f"{_megabytes(manifest):.1f} MB in {len(manifest.files)} files, which are whole",
        "licence": licence(package.folder),
        "prompts": ", ".join(manifest.prompts) or "none",
        "defaults": _defaults(manifest.generation.decoding()),
        "made by": ", ".join(f"{tool} {version}" for tool, version in manifest.tools.items()),
        **_certified("verified", manifest.certificate),
    }
    if manifest.native_certificate is not None:
        rows |= _certified("native graphs", manifest.native_certificate)
    yield from (f"{name:<14}{told}" for name, told in rows.items())


def licence(folder: Path) -> str:
    """How the licence that came with the checkpoint begins, and which files have it."""
    files = sorted(file for file in folder.iterdir() if file.name.startswith(NOTICES))
    if not files:
        return "none came with the checkpoint: its authors know"
    lines = files[0].read_text(encoding="utf-8", errors="replace").split("\n")
    begin = next((line.strip() for line in lines if line.strip()), "")
    return f"{begin[:LONGEST_LINE]} ({', '.join(file.name for file in files)})"


def _languages(manifest: Manifest) -> str:
    sources, targets = (", ".join(tags) for tags in (manifest.source_languages, manifest.target_languages))
    return f"{sources or '?'} -> {targets}" if targets else f"{sources or '?'} (vectors)"


def _megabytes(manifest: Manifest) -> float:
    return sum(entry.size_bytes for entry in manifest.files.values()) / 1e6


def _architecture(manifest: Manifest) -> str:
    model = manifest.model
    layers = f"{model.encoder_layers} + {model.decoder_layers} layers of width {model.width}"
    return f"{model.architecture}, {layers}, {model.target_vocab_size} target tokens"


def _defaults(decoding: Decoding) -> str:
    """What the model has otherwise than everybody."""
    usual = Decoding()
    own = {one.name: getattr(decoding, one.name) for one in fields(Decoding)}
    told = [f"{name} {value}" for name, value in own.items() if value != getattr(usual, name)]
    return ", ".join(told) or "as documented"


def _certified(which: str, certificate: Certificate) -> dict[str, str]:
    told = [f"on {certificate.device}", f"hidden states within {certificate.encoder_error:.1e}"]
    for one in certificate.agreements:
        told.append(f"{one.equal} of {one.sentences} sentences as {one.reference} ({one.num_beams} beams)")
    return {which: ", ".join(told)}


if __name__ == "__main__":
    sys.exit(main())
