"""`python -m inspection PACKAGE TEXT`: a page that shows what a package does with a text. See docs/inspection.md."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dragoman.command.flags.parsing import Outspoken, answered

PROG, DONE, WRONG = "python -m inspection", 0, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, or 2 where there is nothing to show: one line on standard error says why."""
    args = _parser().parse_args(arguments)
    # Not before: `--help` and a slip need none of it.
    from engine.devices.session import DeviceError
    from engine.errors import EngineError
    from inspection.findings import InspectionError, Wanted
    from inspection.inspect import inspect
    from inspection.page import pictures, report
    from models.package.checked import PackageError
    from models.tokenizers.tokenizer import TokenizerError

    wanted = Wanted(
        args.text,
        args.source_language,
        args.target_language,
        args.beams,
        args.alternatives,
        args.max_new_tokens,
        args.length_penalty,
    )
    try:
        findings = inspect(args.package, wanted)
        files = [(args.out, report(findings))]
        if args.pictures is not None:
            _make(args.pictures)
            files += [(args.pictures / name, picture) for name, picture in pictures(findings).items()]
        _write(files)
    except (InspectionError, PackageError, TokenizerError, DeviceError, EngineError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return WRONG
    return DONE


def _make(folder: Path) -> None:
    """Raises InspectionError."""
    from inspection.findings import InspectionError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InspectionError(f"{folder} cannot be a folder ({error.strerror}); give --pictures another") from error


def _write(files: Sequence[tuple[Path, str]]) -> None:
    """Raises InspectionError."""
    from inspection.findings import InspectionError

    page, *pictures = (file for file, _ in files)
    if page.resolve() in [picture.resolve() for picture in pictures]:
        raise InspectionError(f"{page} would be the page and a picture of it; give --out another name")
    for file, content in files:
        try:
            file.write_text(content, encoding="utf-8")
        except OSError as error:
            raise InspectionError(f"{file} cannot be written ({error.strerror}); give another") from error
        print(file)


def _parser() -> argparse.ArgumentParser:
    parser = Outspoken(prog=PROG, description="Shows what a package does with a text, as an HTML page.")
    parser.add_argument("package", type=_path, metavar="PACKAGE", help="folder of a package")
    parser.add_argument("text", type=_text, metavar="TEXT", help="to translate")
    parser.add_argument("--out", type=_page, default=Path("inspection.html"), help="the page (default: %(default)s)")
    parser.add_argument("--pictures", type=_path, metavar="FOLDER", help="the page's pictures too, as SVG files")
    parser.add_argument("--beams", type=_count, default=4, help="of the search; 1: greedy (default: %(default)s)")
    parser.add_argument(
        "--alternatives", type=_count, default=8, help="next tokens shown at each step (default: %(default)s)"
    )
    parser.add_argument("--max-new-tokens", type=_count, help="most tokens of a translation (default: the package's)")
    parser.add_argument("--length-penalty", type=float, help="of the search (default: the package's)")
    parser.add_argument("--source-language", default="", metavar="TAG", help="for models of several languages")
    parser.add_argument("--target-language", default="", metavar="TAG", help="the same")
    return parser


def _path(text: str) -> Path:
    """An empty one would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; leave it out")
    return Path(text)


def _text(text: str) -> str:
    """A server refuses a blank one."""
    if not text or text.isspace():
        raise argparse.ArgumentTypeError(f"none of its {len(text)} characters is visible; give one with some to read")
    return text


def _page(text: str) -> Path:
    if text == "-":
        raise argparse.ArgumentTypeError("- would be a file of this name; /dev/stdout is standard output")
    return _path(text)


def _count(text: str) -> int:
    if not text.isdecimal() or (count := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number above 0")
    return count


if __name__ == "__main__":
    sys.exit(answered(main, PROG, failed=WRONG))
