"""Says which library was built, and which instructions it takes here."""

import sys

from kernels.library import LibraryError, open_library


def main() -> int:
    try:
        library = open_library()
    except LibraryError as error:
        print(f"Plain ONNX Runtime is used: {error}")
        return 1
    print(f"{library.path}: operators of version {library.operators}, {library.isa}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
