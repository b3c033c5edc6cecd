"""The library of our own operators, for the native graphs of a package."""

from engine.errors import KernelsRefused
from kernels.library import Library, LibraryError, open_library
from models.package.declared.graphs import NativeGraphs
from models.package.graph_files import GraphFiles


def matching(graphs: GraphFiles) -> tuple[NativeGraphs, Library]:
    """Both. Raises KernelsRefused where the package has no graphs for the library, or the library is none for here."""
    native = graphs.spec.native
    if native is None:
        raise KernelsRefused(
            "the package has no graphs of them; export the checkpoint again, which says why where it makes none"
        )
    return native, library_of(native.operators)


def library_of(operators: int) -> Library:
    """The library, which has operators of this version. Raises KernelsRefused."""
    try:
        library = open_library()
    except LibraryError as error:
        raise KernelsRefused(str(error)) from error
    if library.operators < operators:
        raise KernelsRefused(
            f"the package wants operators of version {operators}, and the library has {library.operators}: make kernels"
        )
    return library
