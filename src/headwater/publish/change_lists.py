"""Writes the Change Lists of one set: every change once, in order, closed lists never again.

The open list grows at its end. What it says already is taken over as octets from the stored document, so that a change
costs the writing of the document and not the rendering of its 50,000 entries; the stored document is trusted only
while its digest is the one that was noted.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import msgspec

from headwater.catalog.interface import Catalog, Change, Segment
from headwater.catalog.set_snapshot import read_snapshot
from headwater.publish.integrity import IntegrityCheck
from headwater.publish.plan import ChangePlan, plan_changes
from headwater.publish.publication_state import OpenList, PublicationState
from headwater.publish.rendering import documents
from headwater.publish.site import Site, change_list_name, change_segment_name, open_change_list_name
from headwater.publish.store_writer import DocumentMark, StoreWriter, read_range, render_entries

_ROWS_AT_ONCE = 5_000


class ChangeLists:
    """The Change Lists of one set during one publication. `publish` may be called again to catch up.

    Segments before number `first` have left the index (retention) and are not written any more. What `everything`
    writes again are not the closed ones that are as they were left: they say for good what they said (RS-TIME-09).
    """

    def __init__(
        self,
        catalog: Catalog,
        store_writer: StoreWriter,
        site: Site,
        name: str,
        publication: PublicationState,
        integrity: IntegrityCheck,
        *,
        first: int,
        everything: bool,
    ) -> None:
        self._catalog = catalog
        self._store_writer = store_writer
        self._site = site
        self._name = name
        self._prefix = site.resource_prefix(name)
        self._first = first
        self._closed_before = publication.open.number
        self._integrity = integrity
        self.open = OpenList() if everything else publication.open
        """The open list as it is in the store."""
        self.segments: Sequence[Segment] = ()
        """As they were published last."""
        self.names: tuple[str, ...] = ()
        """All documents that the set's Change Lists consist of."""

    def catch_up(self) -> None:
        """Write what is due by now."""
        self.publish(read_snapshot(self._catalog, self._name).segments)

    def publish(self, segments: Sequence[Segment]) -> None:
        """Write what is due: closed segments, the open one, their index, and the copy of the open one (AMB-63)."""
        self.segments = segments
        plan = plan_changes(segments, self.open, self._first)
        for segment in plan.closed:
            name = change_segment_name(self._name, segment.number)
            if segment.number >= self._closed_before or not self._integrity.is_as_left(name):
                self._write(segment, name, plan)
        if plan.write_open:
            open_name = change_segment_name(self._name, plan.open.number) if plan.indexed else self._top
            self._write(plan.open, open_name, plan)
        if plan.write_index:
            self._store_writer.document(self._top, *documents.change_list_index(self._site, self._name, plan.named))
        if plan.write_open:
            self._store_writer.copy(self.open.name, open_change_list_name(self._name))
        self.open = msgspec.structs.replace(self.open, first=self._first)
        numbered = [change_segment_name(self._name, one.number) for one in plan.named]
        self.names = (self._top, open_change_list_name(self._name), *numbered)

    @property
    def _top(self) -> str:
        return change_list_name(self._name)

    def _write(self, segment: Segment, name: str, plan: ChangePlan) -> None:
        """Write one segment's document, taking over what the stored open list says of it already."""
        writer = self._store_writer.writer(documents.change_list(self._site, self._name, segment, indexed=plan.indexed))
        head, tail = writer.head(), writer.tail()
        before = self.open if self.open.number == segment.number else OpenList()
        changed: dt.datetime | None = None

        def rows(after: int) -> Iterator[Change]:
            nonlocal changed
            for row in self._rows(after, segment.last):
                changed = row.at
                yield row

        def blocks(taken: tuple[BinaryIO, int] | None) -> Iterator[bytes]:
            nonlocal changed
            yield head
            if taken is not None:
                changed = before.changed
                yield from read_range(taken[0], before.head_octets, taken[1] - before.tail_octets)
            new = rows(segment.first - 1 if taken is None else before.seq)
            yield from render_entries(writer, documents.change_entries(new, self._prefix, self._site.profile))
            yield tail

        def mark() -> str:
            return DocumentMark(
                generation=self._store_writer.generation,
                latest=segment.until or changed or segment.from_,
                number=segment.number,
                from_=segment.from_,
                seq=segment.last,
                changed=changed,
                head_octets=len(head),
                is_closed=segment.until is not None,
            ).encode()

        with self._store_writer.version(before.name, before.etag) as taken:
            stored = self._store_writer.blocks(name, blocks(taken), mark)
        if segment.until is None:
            self.open = OpenList(
                number=segment.number,
                indexed=plan.indexed,
                name=name,
                etag=stored.etag,
                head_octets=len(head),
                tail_octets=len(tail),
                seq=segment.last,
                changed=changed,
            )

    def _rows(self, after: int, last: int) -> Iterator[Change]:
        while after < last:
            rows = self._catalog.changes(self._name, after, min(_ROWS_AT_ONCE, last - after))
            if not rows:
                return
            yield from rows
            after = rows[-1].seq
