"""Our package in 8 bits with the shortlist that CTranslate2 has as its vocabulary mapping."""

from pathlib import Path

from export import __main__ as export


def make_shortlisted(checkpoint: Path, lexicon: Path | None, target: Path) -> None:
    """Exports it, which takes minutes, where there is a list and no package yet."""
    if lexicon is None or target.exists():
        return
    print(f"exporting {target}, once", flush=True)
    options = ["--precision", "int8", "--shortlist", str(lexicon), "--name", target.name]
    if export.main([str(checkpoint), "--out", str(target), "--quiet", *options]) != 0:
        raise SystemExit(f"{target} could not be exported")
