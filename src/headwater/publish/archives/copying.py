"""Copies stored documents into an archive: a head of their own, and the entries as the octets that they were."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.catalog.interface import Change, Segment
from headwater.publish.rendering.documents import change_entries
from headwater.publish.rendering.renderer import PublicationJob
from headwater.publish.store_writer import decode_mark, render_entries
from headwater.spec.reader import Reader
from headwater.spec.records import Document
from headwater.spec.writer import DocumentWriter
from headwater.storage.objects.interface import ObjectStore, OpenOctets, octets_of

_HEAD_OCTETS = 1 << 16
_ROWS = 5_000
_ENTRY, _END = b"<url>", b"</urlset>"


def head_of_page(store: ObjectStore, name: str, etag: str) -> Document | None:
    """The head of a stored Resource List in the state `etag`; None when it is in another one by now."""
    held = store.open(name)
    if held is None:
        return None
    with held:
        if held.stored.etag != etag:
            return None
        reader = Reader()
        reader.feed(held.read(0, _HEAD_OCTETS))
        return reader.document


def page_of(writer: DocumentWriter, page: OpenOctets) -> Iterator[bytes]:
    """The Resource List `page` with another head; its entries and its end are taken over."""
    start = page.read(0, _HEAD_OCTETS)
    place = start.find(_ENTRY)
    place = start.find(_END) if place < 0 else place
    yield writer.head()
    yield from octets_of(page, place, 1 << 62)


def copied_change_list(job: PublicationJob, segment: Segment, source: str, head: Document) -> Iterator[bytes]:
    """A closed Change List with another head: as it is stored, or, where that is lost, as the catalog has it."""
    writer = job.store_writer.writer(head)
    mark, etag = decode_mark(job.context.store.mark(source)), job.context.store.noted_etag(source)
    is_known = mark is not None and mark.is_closed and mark.number == segment.number and mark.head_octets > 0
    with job.store_writer.version(source, etag or "") as held:
        yield writer.head()
        if held is not None and is_known and mark is not None:
            yield from octets_of(held, mark.head_octets, held.octets)
            return
    prefix = job.context.site.resource_prefix(job.name)
    yield from render_entries(writer, change_entries(_rows(job, segment), prefix, job.context.site.profile))
    yield writer.tail()


def _rows(job: PublicationJob, segment: Segment) -> Iterator[Change]:
    after = segment.first - 1
    while after < segment.last:
        rows = job.context.catalog.changes(job.name, after, min(_ROWS, segment.last - after))
        if not rows:
            return
        yield from rows
        after = rows[-1].seq
