"""What is kept in an object store: documents and packages, replaced as a whole, with an ETag, a media type and a mark.

An *object* is a name with octets. It has an identity form, and a gzip form beside it when its kind says so: two forms
of one state, never of two. A *mark* is a short note of the writer's own that is kept with the object and changes with
it. Nobody above a store knows how it keeps any of them. Names are relative, of plain parts between slashes.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Hashable, Iterator
from enum import Enum, auto
from io import FileIO
from typing import ClassVar, Protocol

import msgspec

from headwater.errors import StoreFault, UsageFault

MARK_OCTETS = 120  # no mark is longer
RESERVED = ".headwater-"  # no part of a name begins so: a store keeps files of its own under such names
BLOCK_OCTETS = 1 << 18

Mark = Callable[[], str]
"""Asked for the mark after the last octets: printable ASCII, MARK_OCTETS at most (`checked_mark`)."""


class CannotWrite(StoreFault):
    """The file system refused the operation: full, read-only, no permission."""

    code = "HW-STO-11"


class Coding(Enum):
    """A form of an object: as it is, or compressed."""

    IDENTITY = auto()
    GZIP = auto()


class ObjectKind(msgspec.Struct, frozen=True):
    """What an object is besides its octets: its media type, and whether it has a gzip form."""

    media_type: str
    has_gzip: bool


XML = ObjectKind("application/xml; charset=utf-8", has_gzip=True)
TEXT = ObjectKind("text/plain; charset=utf-8", has_gzip=True)
ZIP = ObjectKind("application/zip", has_gzip=False)


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object in one state.

    `etag` is a digest (hex) of the octets as they are: the same for both forms, changed when a single octet changes.
    `gzip_octets` is the size of the gzip form, None when there is none of exactly these octets. `is_vouched`: what was
    noted when the object was written says that it has these octets; without, somebody may have cut it off. `mark` is
    None where it was put without one, or where nothing vouches for it. `version` is what `FolderStore.version` says of
    this state.
    """

    name: str
    octets: int
    etag: str
    modified: dt.datetime
    media_type: str
    version: Hashable
    gzip_octets: int | None = None
    is_vouched: bool = False
    mark: str | None = None


class PutResult(msgspec.Struct, frozen=True):
    """What came of a `put`; `is_new`: whether the octets are others than before."""

    stored: StoredObject
    is_new: bool


class OpenOctets(Protocol):
    """Octets that can be read from any place, of one state; whoever has opened them closes them."""

    def read(self, start: int, octets: int) -> bytes:
        """Up to so many octets from `start`; fewer at the end, none beyond it."""

    def is_unchanged(self) -> bool:
        """Whether what was read is still of the state that was opened."""

    def close(self) -> None:
        """Give them up."""


class OpenObject(msgspec.Struct, frozen=True):
    """One form of an object as an open file, which gives the octets of its state whatever is put or deleted meanwhile.

    `octets` is the size of this form.
    """

    _file: FileIO
    stored: StoredObject
    coding: Coding
    octets: int
    is_vouched: ClassVar[bool] = False  # only its digest tells whether it is still what was put

    def read(self, start: int, octets: int) -> bytes:
        """Up to so many octets from `start`."""
        try:
            return os.pread(self._file.fileno(), octets, start)
        except OSError as cause:
            what = f"cannot read the document: {cause.strerror}"
            raise StoreFault(what, code="HW-STO-12", where=self.stored.name) from cause

    def is_unchanged(self) -> bool:
        """Always: a file of ours is replaced, never written again."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> OpenObject:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def check_name(name: str) -> tuple[str, ...]:
    """The parts of a name. Raises UsageFault for one that could leave a folder or collide with a store's files."""
    parts = tuple(name.split("/"))
    good = all(part not in ("", ".", "..") and not part.startswith(RESERVED) for part in parts)
    is_text = not any("\ud800" <= character <= "\udfff" for character in name)
    if not good or "\0" in name or "\\" in name or name.endswith(".gz") or not is_text:
        raise UsageFault(f"not a document name: {name[:200]!r}", code="HW-STO-10")
    return parts


def checked_mark(text: str) -> str:
    """A mark that a store can keep. Raises ValueError for one that it cannot."""
    if len(text) > MARK_OCTETS or not text.isascii() or not text.isprintable() or text != text.strip():
        raise ValueError(f"not a mark: {text[:200]!a}")
    return text


def octets_of(source: OpenOctets, start: int, end: int) -> Iterator[bytes]:
    """The octets from `start` to before `end`, in blocks; fewer when there are no more."""
    while start < end and (block := source.read(start, min(BLOCK_OCTETS, end - start))):
        start += len(block)
        yield block
