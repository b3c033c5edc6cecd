"""Archives of files, as office formats are: read with care, and written with some of the files changed."""

import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO

from server.errors import DocumentBroken, DocumentTooLarge
from server.text.documents.document import Limits

MOST_FILES = 4096
ENCRYPTED = 0x1
KNOWN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Archive:
    """A zip file in memory. Nothing of it is ever written to a disk."""

    def __init__(self, data: bytes, what: str, limits: Limits) -> None:
        """what: the format, for errors. Raises DocumentBroken or DocumentTooLarge."""
        self._what = what
        try:
            self._zip = zipfile.ZipFile(BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError) as error:
            raise DocumentBroken(what, str(error)) from error
        files = self._zip.infolist()
        if len(files) > MOST_FILES:
            raise DocumentTooLarge("files", len(files), MOST_FILES)
        self.size = sum(one.file_size for one in files)
        """Bytes of all files, unpacked: none gives more than it says."""
        if self.size > limits.bytes:
            raise DocumentTooLarge("bytes, unpacked", self.size, limits.bytes, "make it smaller, or raise the limit")
        names = [one.filename for one in files]
        self.names = frozenset(names)
        if len(self.names) < len(names):
            raise DocumentBroken(what, "it has two files of one name")
        for one in files:
            if one.filename.startswith("/") or "\\" in one.orig_filename or ".." in one.filename.split("/"):
                raise DocumentBroken(what, f"a file in it is called {one.filename!r}, which leads out of it")
            if one.flag_bits & ENCRYPTED:
                raise DocumentBroken(what, "it is encrypted; take the password away first")
            if one.compress_type not in KNOWN:
                raise DocumentBroken(what, f"{one.filename!r} is compressed by method {one.compress_type}")

    def read(self, name: str) -> bytes:
        """A file. Raises DocumentBroken."""
        try:
            return self._zip.read(name)
        except KeyError as error:
            raise DocumentBroken(self._what, f"there is no {name} in it") from error
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError) as error:
            raise DocumentBroken(self._what, f"{name}: {error}") from error

    def check(self) -> None:
        """Raises DocumentBroken where a file cannot be read: not when all is translated, and not as a defect."""
        for name in self.names:
            self.read(name)

    def with_files(self, changed: Mapping[str, bytes]) -> bytes:
        """The archive with other files under these names; all the others, and the order, are as they were."""
        written = BytesIO()
        with zipfile.ZipFile(written, "w") as out:
            out.comment = self._zip.comment
            for one in self._zip.infolist():
                copy = zipfile.ZipInfo(one.filename, one.date_time)
                copy.compress_type, copy.external_attr, copy.create_system = (
                    one.compress_type,
                    one.external_attr,
                    one.create_system,
                )
                content = changed[one.filename] if one.filename in changed else self.read(one.filename)
                out.writestr(copy, content)
        return written.getvalue()
