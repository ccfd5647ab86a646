"""The object store: where documents and packages lie, each replaced as a whole, with its ETag, media type and mark.

An *object* is a name with octets. It has an identity form, and a gzip form beside it when its kind says so: two forms
of one state, never of two. A *mark* is a short note of the writer's own that is kept with the object and changes with
it. Nobody above a store knows how it keeps any of them. `tests/contract/store` is the suite that an implementation
has to pass.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager
from enum import Enum, auto
from typing import Protocol

import msgspec

from headwater.errors import StoreFault, UsageFault

MARK_OCTETS = 120
"""No mark is longer."""
RESERVED = ".headwater-"
"""No part of a name begins so: a store keeps files of its own under such names."""
BLOCK_OCTETS = 1 << 18

Mark = Callable[[], str]
"""Asked for the mark after the last octets: printable ASCII, MARK_OCTETS at most (`checked_mark`)."""


class BadName(UsageFault):
    """A document name could lead out of the folder or collide with the store's own files."""

    code = "HW-STO-10"


class CannotWrite(StoreFault):
    """The file system refused the operation: full, read-only, no permission."""

    code = "HW-STO-11"


class CannotRead(StoreFault):
    """A stored document cannot be read."""

    code = "HW-STO-12"


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
    None where it was put without one, or where nothing vouches for it. `version` is what `ObjectStore.version` says of
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
        ...

    def is_unchanged(self) -> bool:
        """Whether what was read is still of the state that was opened."""
        ...

    def close(self) -> None:
        """Give them up."""
        ...


class OpenObject(OpenOctets, Protocol):
    """One form of an object, which goes on giving the octets of its state whatever is put or deleted meanwhile."""

    @property
    def stored(self) -> StoredObject:
        """The object in this state."""
        ...

    @property
    def coding(self) -> Coding:
        """Which form it is."""
        ...

    @property
    def octets(self) -> int:
        """The size of this form."""
        ...

    def __enter__(self) -> OpenObject: ...

    def __exit__(self, *_error: object) -> None: ...


class ObjectWriter(Protocol):
    """Takes the octets of one object, in the way of a file that is written from its beginning to its end."""

    def write(self, data: bytes, /) -> int:
        """Append these octets; returns how many they are."""
        ...

    def flush(self) -> None:
        """No effect: nothing is visible before the end."""
        ...

    @property
    def result(self) -> PutResult:
        """What came of it, when all is written and the context has ended."""
        ...


class ObjectStore(Protocol):
    """A store of objects. Safe for several threads; one process at a time writes, any number read.

    Names are relative, of plain parts between slashes (`check_name`); all methods that take one raise BadName. What
    waits for a disk or a network raises CannotRead and CannotWrite.
    """

    def put(self, name: str, chunks: Iterable[bytes], kind: ObjectKind = XML, mark: Mark | None = None) -> PutResult:
        """Replace an object as a whole: readers find the old one or the new one.

        When it has these octets and this kind already, nothing changes, the mark neither. What `chunks` raises leaves
        everything as it was.
        """
        ...

    def writer(
        self, name: str, kind: ObjectKind = XML, mark: Mark | None = None
    ) -> AbstractContextManager[ObjectWriter]:
        """The same for whoever writes into a file: the object is put when the context ends without an exception."""
        ...

    def stat(self, name: str) -> StoredObject | None:
        """The object as it is, or None; what nothing vouches for is read to know its digest."""
        ...

    def version(self, name: str) -> Hashable | None:
        """A validator of the object's present state, or None where there is none: another state has another one.

        It costs next to nothing: it is asked for with each request, in the event loop. A store beyond a network says
        None rather than wait.
        """
        ...

    def noted_etag(self, name: str) -> str | None:
        """The ETag that was noted when the object was written, while it looks whole; nothing is read.

        None when it is not there, has been damaged, or when nothing was noted.
        """
        ...

    def mark(self, name: str) -> str | None:
        """The mark that the object was put with last; it may be told even when the object itself is damaged or lost."""
        ...

    def open(self, name: str, coding: Coding = Coding.IDENTITY) -> OpenObject | None:
        """The object in this form where it has one, else as it is; None when there is none."""
        ...

    def delete(self, name: str) -> None:
        """Remove the object in all its forms; no effect when there is none. Who has it open reads on."""
        ...

    def names(self, prefix: str = "") -> Iterator[str]:
        """The names of all objects that begin with `prefix`, each once."""
        ...

    def clean(self) -> int:
        """Remove what killed writers have left; returns how much that was. For whoever alone may write."""
        ...


def check_name(name: str) -> tuple[str, ...]:
    """The parts of a name. Raises BadName for one that could leave a folder or collide with a store's own files."""
    parts = tuple(name.split("/"))
    good = all(part not in ("", ".", "..") and not part.startswith(RESERVED) for part in parts)
    if not good or "\0" in name or "\\" in name or name.endswith(".gz") or not _is_text(name):
        raise BadName(f"not a document name: {name[:200]!r}")
    return parts


def checked_mark(text: str) -> str:
    """A mark that a store can keep. Raises ValueError for one that it cannot."""
    if len(text) > MARK_OCTETS or not text.isascii() or not text.isprintable() or text != text.strip():
        raise ValueError(f"not a mark: {text[:200]!a}")
    return text


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def octets_of(source: OpenOctets, start: int, end: int) -> Iterator[bytes]:
    """The octets from `start` to before `end`, in blocks; fewer when there are no more."""
    while start < end and (block := source.read(start, min(BLOCK_OCTETS, end - start))):
        start += len(block)
        yield block
