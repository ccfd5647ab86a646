"""Writes documents into a store, and remembers which of them have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Protocol

from headwater.spec.records import Document, Entry
from headwater.spec.writer import DocumentWriter, Profile

if TYPE_CHECKING:
    from headwater.storage.folder_store import StoredDocument

ENTRIES_AT_ONCE = 1_000
"""How many entries are turned into octets at a time: enough to be fast, little enough to hold."""

_BLOCK = 1 << 18


class Store(Protocol):
    """What publishing needs of a store (`headwater.storage.folder_store.FolderStore` is one)."""

    def write(self, name: str, chunks: Iterable[bytes]) -> StoredDocument:
        """Replace a document as a whole; touch nothing when it says this already."""
        ...

    def get(self, name: str) -> StoredDocument | None:
        """What is known of a document, or None."""
        ...

    def is_sound(self, name: str) -> bool:
        """Whether the document is there and looks whole, told without reading it."""
        ...

    def labelled_etag(self, name: str) -> str | None:
        """The digest of a sound document, told without reading it; None when it is not sound."""
        ...

    def open(self, name: str, *, coded: bool = False) -> tuple[StoredDocument, BinaryIO] | None:
        """The document with a file that goes on giving its octets whatever is published meanwhile."""
        ...

    def remove(self, name: str) -> None:
        """Remove a document; no effect when there is none."""
        ...

    def names(self, prefix: str = "") -> Iterator[str]:
        """All documents whose names begin with `prefix`."""
        ...


class StoreWriter:
    """Writes documents of one profile into a store; `written` are the names of those whose octets changed.

    `etags` is told the digests of all that were written or found to say this already.
    """

    def __init__(
        self,
        store: Store,
        profile: Profile,
        may_write: Callable[[], None] = lambda: None,
        etags: dict[str, str] | None = None,
    ) -> None:
        self._may_write = may_write
        self._store = store
        self.profile = profile
        self.written: dict[str, None] = {}
        self._etags = {} if etags is None else etags

    def writer(self, head: Document) -> DocumentWriter:
        """The writer of one document in this writer's profile."""
        return DocumentWriter(head, self.profile)

    def document(self, name: str, head: Document, entries: Iterable[Entry]) -> StoredDocument:
        """Write a document."""
        return self.blocks(name, self.render(head, entries))

    def render(self, head: Document, entries: Iterable[Entry]) -> Iterator[bytes]:
        """A whole document as octets, in blocks."""
        return render_document(head, entries, self.profile)

    def blocks(self, name: str, blocks: Iterable[bytes]) -> StoredDocument:
        """Write a document that is octets already."""
        stored = self._store.write(name, self._allowed(blocks))
        self._etags[name] = stored.etag
        if stored.written:
            self.written[name] = None
        return stored

    def _allowed(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        yield from blocks
        self._may_write()  # the store puts the document in its place next

    def says(self, name: str, blocks: Iterable[bytes]) -> bool:
        """Whether the stored document says just this."""
        held = self._store.open(name)
        if held is None:
            return False
        with held[1] as file:
            return file.read() == b"".join(blocks)

    def sweep(self, prefix: str, live: set[str]) -> None:
        """Remove the documents whose names begin with `prefix`, but for those that are `live`."""
        for name in set(self._store.names(prefix)) - live:
            self._may_write()
            self._store.remove(name)

    def copy(self, source: str, name: str) -> None:
        """Write under `name` what the document `source` says."""
        held = self._store.open(source)
        if held is None:
            raise FileNotFoundError(source)
        with held[1] as file:
            self.blocks(name, read_range(file, 0, held[0].octets))

    @contextmanager
    def version(self, name: str, etag: str) -> Iterator[tuple[BinaryIO, int] | None]:
        """The stored document as an open file and its size, while it still is the one with this `etag`; else None."""
        held = self._store.open(name) if etag else None
        if held is None:
            yield None
            return
        with held[1] as file:
            yield (file, held[0].octets) if held[0].etag == etag else None


def render_document(head: Document, entries: Iterable[Entry], profile: Profile) -> Iterator[bytes]:
    """A whole document as octets, in blocks."""
    writer = DocumentWriter(head, profile)
    yield writer.head()
    yield from render_entries(writer, entries)
    yield writer.tail()


def render_entries(writer: DocumentWriter, entries: Iterable[Entry]) -> Iterator[bytes]:
    """Entries as octets, in blocks."""
    source = iter(entries)
    while batch := list(islice(source, ENTRIES_AT_ONCE)):
        yield writer.entries(batch)


def read_range(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """The octets of `file` from `start` to before `end`, in blocks."""
    file.seek(start)
    while start < end and (block := file.read(min(_BLOCK, end - start))):
        start += len(block)
        yield block
