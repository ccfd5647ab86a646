"""Writes documents into a store, each with a mark of the history it belongs to; and the job that one publication is."""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import msgspec

from headwater.catalog.interface import Catalog, Change, SetSnapshot
from headwater.progress import Listener, silent
from headwater.publish import document_content
from headwater.publish.plan import Refresh, newest_at
from headwater.publish.publication_state import PublicationState, encode_publication
from headwater.publish.site import SetSettings, Site
from headwater.spec.records import Document, Entry
from headwater.spec.times import from_microseconds, to_microseconds
from headwater.spec.writer import DocumentWriter, Profile
from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import XML, Mark, ObjectKind, StoredObject, octets_of

ENTRIES_AT_ONCE = 1_000  # how many entries are turned into octets at a time: enough to be fast, little enough to hold


class DocumentMark(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept beside a document of a set, so that nobody has to read it again to know what it states.

    `generation` is the id of the history that the set's documents tell, `latest` the latest time that is stated.
    A Change List has the number and the begin of its segment (`number` is -1 in all others), its last change (`seq`;
    `changed` is None when it lists none), and whether it is closed. What is a resource itself, as the file of an RDF
    dataset, has the change that made it: `changed` is its `lastmod`.
    """

    generation: str
    latest: dt.datetime
    number: int = -1
    from_: dt.datetime | None = None
    seq: int = 0
    changed: dt.datetime | None = None
    is_closed: bool = False

    @property
    def lastmod(self) -> dt.datetime | None:
        """The `lastmod` of what is a resource; None for documents."""
        return self.changed if self.number == -1 else None

    def encode(self) -> str:
        """The mark as the store keeps it."""
        times = (None if one is None else to_microseconds(one) for one in (self.latest, self.from_, self.changed))
        fields = (self.generation, *times, self.number, self.seq, 0, int(self.is_closed))
        return " ".join("-" if field is None else str(field) for field in fields)


def decode_mark(text: str | None) -> DocumentMark | None:
    """The mark that `text` holds; None when there is none, or one that cannot be read."""
    try:
        generation, *fields = (text or "").split(" ")
        latest, from_, changed, number, seq, _, closed = (None if one == "-" else int(one) for one in fields)
        return DocumentMark(
            generation=generation,
            latest=from_microseconds(latest or 0),
            from_=None if from_ is None else from_microseconds(from_),
            changed=None if changed is None else from_microseconds(changed),
            number=-1 if number is None else number,
            seq=seq or 0,
            is_closed=bool(closed),
        )
    except (ValueError, OverflowError):
        return None


class PublishContext(msgspec.Struct, frozen=True):
    """What publications of all sets work with; from any thread.

    `may_write` is called before anything is put in its place, and raises when this process must not. `etags` are the
    digests of the documents that were put into the store, or found there first.
    """

    catalog: Catalog
    store: FolderStore
    site: Site
    clock: Callable[[], dt.datetime]
    listener: Listener = silent
    may_write: Callable[[], None] = lambda: None
    etags: dict[str, str] = {}

    def is_as_left(self, name: str) -> bool:
        """Whether a document is sound and the one that was left, as labels and sizes alone tell.

        It is another one when a process that slept through its turn has put there what it had in hand (HW-OWN-11).
        """
        etag = self.store.noted_etag(name)
        return etag is not None and self.etags.setdefault(name, etag) == etag


class StoreWriter:
    """Writes documents into the store; `written` are the names of those whose octets changed.

    `generation` is the id of the history that the documents tell, for their marks.
    """

    def __init__(self, context: PublishContext, generation: str = "") -> None:
        self._context = context
        self._store = context.store
        self.generation = generation
        self.profile = context.site.profile
        self.written: dict[str, None] = {}

    def document(self, name: str, head: Document, entries: Iterable[Entry]) -> StoredObject:
        """Write a document."""
        times = [one for one in (head.at, head.completed, head.from_, head.until) if one is not None]
        mark = DocumentMark(generation=self.generation, latest=max(times)) if times else None
        return self.blocks(name, render_document(head, entries, self.profile), None if mark is None else mark.encode)

    def documents(self, documents: Iterable[tuple[str, Document, Iterable[Entry]]]) -> None:
        """Write documents by their names, in this order."""
        for name, head, entries in documents:
            self.document(name, head, entries)

    def blocks(
        self, name: str, blocks: Iterable[bytes], mark: Mark | None = None, kind: ObjectKind = XML
    ) -> StoredObject:
        """Write a document that is octets already; `mark` is asked for after the last of them."""
        done = self._store.put(name, self._allowed(blocks), kind, mark)
        self._context.etags[name] = done.stored.etag
        if done.is_new:
            self.written[name] = None
        return done.stored

    def _allowed(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        yield from blocks
        self._context.may_write()  # the store puts the document in its place next

    def says(self, name: str, blocks: Iterable[bytes]) -> bool:
        """Whether the stored document says just this."""
        document = self._store.open(name)
        if document is None:
            return False
        with document:
            return b"".join(octets_of(document, 0, document.octets)) == b"".join(blocks)

    def copy(self, source: str, name: str) -> None:
        """Write under `name` what the document `source` says."""
        document = self._store.open(source)
        if document is None:
            raise FileNotFoundError(source)
        mark = document.stored.mark
        with document:
            self.blocks(name, octets_of(document, 0, document.octets), None if mark is None else lambda: mark)


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


def is_complete(store: FolderStore, name: str) -> bool:
    """Whether a document that nothing vouches for is whole: a crash fell between it and its gzip form.

    It is shown as it is, and written again by the next publication.
    """
    held = store.open(name)
    if held is None:
        return False
    with held:
        room = len(document_content.ENDINGS[0]) + 1
        return held.read(max(0, held.octets - room), room).rstrip().endswith(document_content.ENDINGS)


# What one publication of a set works with
#
# To publish a further kind of document takes rows in `publish.document_names`, and two functions for
# `publish.publisher`: what writes the documents and gives the state that the next publication finds, and what names
# them by that state.


class PublicationJob(msgspec.Struct, kw_only=True):
    """One publication of one set.

    `snapshot` is a committed state of the set in which everything is recorded that happened until `at`, `publication`
    what was published before. Segments before number `first` have left the index (retention). `noted` is the state of
    the publication that the catalog has.
    """

    context: PublishContext
    settings: SetSettings
    store_writer: StoreWriter
    refresh: Refresh
    snapshot: SetSnapshot
    publication: PublicationState
    at: dt.datetime
    now: dt.datetime
    first: int
    noted: bytes

    def note(self, publication: PublicationState) -> None:
        """Write a state of the publication down at once, for the next run should this one be killed."""
        if (notes := encode_publication(publication)) != self.noted:  # most looks find that nothing is to be done
            self.context.catalog.note(self.name, notes)
            self.noted = notes

    @property
    def name(self) -> str:
        """The set."""
        return self.settings.name

    @property
    def newest_at(self) -> dt.datetime:
        """The time of the snapshot: what it shows has happened until then, and every later change comes after it."""
        return newest_at(self.snapshot.state, self.publication)


_ROWS_AT_ONCE = 5_000


def changes_between(catalog: Catalog, name: str, after: int, last: int) -> Iterator[Change]:
    """The changes of a set that follow the number `after`, up to `last`. Raises the catalog's faults."""
    while after < last and (rows := catalog.changes(name, after, min(_ROWS_AT_ONCE, last - after))):
        yield from rows
        after = rows[-1].seq
