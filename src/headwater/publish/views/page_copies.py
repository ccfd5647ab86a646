"""Makes lists out of the octets of pages, in another form: nothing is rendered twice, and unchanged pages are not read.

As long as all entries fit into one document there is one; else there is a document for each page, and an index.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Protocol

from headwater.catalog.interface import Catalog, SetState
from headwater.publish.capabilities import Capability, part_name
from headwater.publish.publication_state import PageViewState, ViewPart
from headwater.publish.rendering.renderer import PublicationJob
from headwater.publish.rendering.resource_lists import ShownPage
from headwater.publish.store_writer import DocumentMark
from headwater.spec.kinds import DOCUMENT_ENTRIES, DOCUMENT_OCTETS
from headwater.storage.objects.interface import ObjectStore, octets_of

_START, _END, _TAIL = b"<url>", b"</url>\n", b"</urlset>"
_HEAD_OCTETS = 65_536
"""What the head of a document may take more than that of a page."""


class PageNames:
    """The names of such a list's documents."""

    def __init__(self, capability: Capability, set_name: str) -> None:
        self._capability = capability
        self._folder = set_name
        self.top = f"{set_name}/{capability.top.name}"

    def part(self, number: int) -> str:
        """The name of one document of several."""
        return f"{self._folder}/{part_name(self._capability, number)}"

    def names(self, state: PageViewState) -> tuple[str, ...]:
        """The names of the documents that there are."""
        return (self.top, *(self.part(one.number) for one in state.parts if state.is_indexed))


class ViewForm(Protocol):
    """The form of such a list: names, heads, and what becomes of blocks of whole entries."""

    top: str

    def part(self, number: int) -> str:
        """The name of one document of several."""
        ...

    def head(self, at: dt.datetime, completed: dt.datetime, *, is_part: bool) -> bytes:
        """What precedes the entries."""
        ...

    def tail(self) -> bytes:
        """What follows them."""
        ...

    def entries(self, block: bytes) -> bytes:
        """Whole entries of a page in this form; none of them grows."""
        ...

    def index(self, parts: Sequence[ViewPart]) -> Iterable[bytes]:
        """The index of several documents."""
        ...


class PageCopies:
    """One such list during one publication; `before` is None when nothing of it counts as published."""

    def __init__(self, job: PublicationJob, form: ViewForm, before: PageViewState | None) -> None:
        self._job = job
        self._form = form
        self._before = before
        self._store = job.context.store

    def is_due(self, pages: Sequence[ShownPage]) -> bool:
        """Whether the pages are others than those that were copied."""
        if self._before is None:
            return True
        copied = {one.number: one.etag for one in self._before.parts}
        return copied != {page.number: self._etag(page.name) for page in pages}

    def write(self, pages: Sequence[ShownPage], *, renew: bool) -> PageViewState:
        """Copy the pages that have changed, all of them with `renew`; then the index (AMB-63).

        In one document all are copied. Raises FileNotFoundError for a page that is not there: others have removed it,
        and the next look at what is published restores it.
        """
        before = self._before
        copied = {} if before is None else {one.number: one for one in before.parts}
        parts = [self._part(page, copied.get(page.number), renew=renew) for page in pages]
        is_indexed = not self._fits(pages, parts)
        if is_indexed:
            was_indexed = before is not None and before.is_indexed
            for page, part in zip(pages, parts, strict=True):
                if not was_indexed or part is not copied.get(page.number):
                    self._document(self._form.part(page.number), [page], part.at, part.completed, is_part=True)
            self._job.store_writer.blocks(self._form.top, self._form.index(parts), self._mark(parts))
        else:
            at = min((part.at for part in parts), default=self._job.newest_at)
            completed = max((part.completed for part in parts), default=at)
            self._document(self._form.top, pages, at, max(at, completed), is_part=False)
        at = min((part.at for part in parts), default=self._job.newest_at)
        return PageViewState(parts=tuple(parts), is_indexed=is_indexed, seq=self._job.snapshot.state.last_seq, at=at)

    def _part(self, page: ShownPage, copied: ViewPart | None, *, renew: bool) -> ViewPart:
        """The page as it is copied: what it showed before, and what the list showed, it shows still."""
        etag, before = self._etag(page.name), self._before
        is_same = copied is not None and copied.etag == etag
        if copied is not None and is_same and not renew:
            return copied
        if copied is not None and is_same:
            entries = copied.entries
        else:
            entries = sum(block.count(_START) for block in self._entries(page.name))
        state = self._job.snapshot.state
        at = self._job.newest_at if page.is_fresh else page.at
        seq = state.last_seq if page.is_fresh else newest_change(self._job.context.catalog, state, at)
        if before is not None:
            at, seq = max(at, before.at), max(seq, before.shown)
        if copied is not None:
            at, seq = max(at, copied.at), max(seq, copied.seq)
        return ViewPart(
            number=page.number,
            etag=etag,
            entries=entries,
            seq=seq,
            at=at,
            completed=max(at, page.completed),
        )

    def _fits(self, pages: Sequence[ShownPage], parts: Sequence[ViewPart]) -> bool:
        """Whether all entries fit into one document (RS-LIM-01)."""
        stored = [self._store.stat(page.name) for page in pages]
        octets = sum(one.octets for one in stored if one is not None)
        return sum(part.entries for part in parts) <= DOCUMENT_ENTRIES and octets + _HEAD_OCTETS <= DOCUMENT_OCTETS

    def _document(
        self, name: str, pages: Sequence[ShownPage], at: dt.datetime, completed: dt.datetime, *, is_part: bool
    ) -> None:
        form = self._form

        def blocks() -> Iterator[bytes]:
            yield form.head(at, completed, is_part=is_part)
            for page in pages:
                for block in self._entries(page.name):
                    yield form.entries(block)
            yield form.tail()

        mark = DocumentMark(generation=self._job.store_writer.generation, latest=completed)
        self._job.store_writer.blocks(name, blocks(), mark.encode)

    def _mark(self, parts: Sequence[ViewPart]) -> Callable[[], str]:
        latest = max(part.completed for part in parts)
        return DocumentMark(generation=self._job.store_writer.generation, latest=latest).encode

    def _etag(self, name: str) -> str:
        etag = self._job.integrity.etags.get(name) or self._store.noted_etag(name)
        if etag is None:
            stored = self._store.stat(name)
            etag = "" if stored is None else stored.etag
        return etag

    def _entries(self, name: str) -> Iterator[bytes]:
        """The entries of a page in blocks, each of whole entries."""
        return page_entries(self._store, name)


def newest_change(catalog: Catalog, state: SetState, at: dt.datetime) -> int:
    """The number of the newest change at a moment; times never go back."""

    def time_of(number: int) -> dt.datetime:
        return catalog.changes(state.name, number - 1, 1)[0].at

    return bisect_right(range(1, state.last_seq + 1), at, key=time_of)


def page_entries(store: ObjectStore, name: str) -> Iterator[bytes]:
    """The entries of a stored list as octets, in blocks of whole entries. Raises FileNotFoundError."""
    document = store.open(name)
    if document is None:
        raise FileNotFoundError(name)
    with closing(document):
        held, is_begun = b"", False
        for block in octets_of(document, 0, document.octets):
            held += block
            if not is_begun:
                start = held.find(_START)  # in a value it would be escaped
                if start < 0:
                    continue
                held, is_begun = held[start:], True
            end = held.rfind(_END) + len(_END)
            if end >= len(_END):
                yield held[:end]
                held = held[end:]
    assert _TAIL in held, f"{name} is not a whole list"
