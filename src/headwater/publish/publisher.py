"""From the catalog to documents in the store: only what has changed, in an order that no reader can trip over.

One publication of a set, step by step:

1. The open segment is closed when its period is over.
2. Change Lists: closed segments, the open one, their index, the copy of the open one (`change_lists`).
3. Resource List: the pages that are due, then their index (`resource_lists`). Before a page becomes visible, the Change
   List says everything that the page shows: who reads the Resource List first and the Change List after it always ends
   in one state of the catalog.
4. Capability List, then Source Description and robots.txt: nothing is named before it exists (AMB-63).
5. Documents that nothing names any more are removed when their grace is over.
6. Bookkeeping, last. A run that is killed before is repeated by the next one, harmlessly.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import ClassVar

import msgspec

from headwater import notices
from headwater.catalog.books import Books, books_of_set
from headwater.catalog.interface import Catalog, SetState, UnknownSet
from headwater.errors import UsageFault
from headwater.progress import Listener, Notice, silent
from headwater.publish import plan
from headwater.publish.change_lists import ChangeLists
from headwater.publish.history_reset import HistoryReset, uri_fingerprint
from headwater.publish.integrity import IntegrityCheck
from headwater.publish.publication_state import PublicationState, decode_publication, encode_publication, fingerprint
from headwater.publish.rendering import documents
from headwater.publish.rendering.pool import RenderPool
from headwater.publish.resource_lists import ResourceLists
from headwater.publish.site import (
    DESCRIPTION_PARTS,
    ROBOTS,
    SOURCE_DESCRIPTION,
    SetSettings,
    Site,
    capability_list_name,
    change_segment_name,
    is_part_name,
    open_change_list_name,
    resource_list_name,
    resource_page_name,
    source_description_name,
    top_names,
)
from headwater.publish.store_writer import Store, StoreWriter
from headwater.spec.escape import escape


class NotReady(UsageFault):
    """The set is still being loaded: publishing it would show a part as if it were the whole."""

    code: ClassVar[str] = "HW-PUB-01"
    advice: ClassVar[str] = "Let the first scan end; the set is opened by it and can be published then."


class PublishResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one publication did: the documents that changed, how many were left as they were, the state they show."""

    name: str
    written: tuple[str, ...]
    removed: tuple[str, ...]
    kept: int
    seq: int
    at: dt.datetime
    pages_rendered: int
    pages_stale: int
    pages_left: int
    """What remains of a round of pages, or of a rotation: the next publication with pages goes on with it."""


class Publisher:
    """Publishes the sets of a site. Safe for several threads; one publication of a set at a time.

    With `keep_others`, sets that the site does not have and that were published into the same store before stay named
    by the Source Description and robots.txt: a tree may be made by several runs, each for one set. `may_write` is
    called before anything is put in its place, and raises when this process must not any more. `printers` print pages
    in processes of their own; their clock is the system's.
    """

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        site: Site,
        clock: Callable[[], dt.datetime],
        listener: Listener = silent,
        *,
        keep_others: bool = False,
        may_write: Callable[[], None] = lambda: None,
        printers: RenderPool | None = None,
    ) -> None:
        self._printers = printers or RenderPool(None)
        self._may_write = may_write
        self._keep_others = keep_others
        self._catalog = catalog
        self._store = store
        self._site = site
        self._clock = clock
        self._listener = listener
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._site_lock = threading.Lock()
        self._named: frozenset[str] | None = None
        self._published: set[str] = set()
        self._found = 0
        """So many of the first sets have been found to be published: what one publication costs is no matter of how
        many sets there are."""
        self._unnamed: set[str] = set()
        self._looked = False
        self._checked: set[str] = set()
        self._holdings = IntegrityCheck(store)
        self.breaks = HistoryReset(catalog, store, site, may_write)

    def begin(self) -> None:
        """Others may have published since: the next publication of each set looks at its documents again."""
        self._holdings.forget()
        self._checked.clear()

    def publish(
        self,
        name: str,
        at: dt.datetime,
        *,
        pages: bool = True,
        force_pages: bool = False,
        check: bool = False,
        newest: int | None = None,
    ) -> PublishResult:
        """Bring the documents of one set up to date with the catalog.

        `at` is a moment up to which the outside world is completely recorded. With `force_pages` every stale page is
        rendered; otherwise pages follow the set's settings. Without `pages`, those of a published set wait and count
        as left. Documents that others have removed or damaged are restored by the first publication of a process, and
        by those that `check` or force. With `newest`, any committed state that has this change is new enough: the one
        that the catalog remembers will do. Raises UnknownSet, NotReady, and the store's and the catalog's StoreFaults;
        after one of these the next call does what is left.
        """
        settings = self._site.settings(name)
        with self._locks[name]:
            check = check or force_pages or name not in self._checked
            books = books_of_set(self._catalog, name, newest if name in self._checked else None)
            result = self._publish(settings, books, at, pages=pages or force_pages, force=force_pages, check=check)
            self._checked.add(name)
            self._published.add(name)
        if check and not self._is_description_sound(name):
            self._named = None
        if self._named is None or name not in self._named:
            self._unnamed.add(name)
            if self._is_whole():
                self.publish_site()
        return result

    def rotate(self, name: str) -> dt.datetime | None:
        """When the set's rotation is due, close the open Change List and have all pages rendered anew (DIT-28, DIT-A1).

        Returns the closed list's `until`, else None. Publish next with it as `at`, once what happened before it is
        recorded: then the new Resource List begins where the closed Change List ends. Nothing is erased. The pages are
        noted first, so that a crash loses none of it.
        """
        if (settings := self._site.settings(name)).rotation_seconds is None:
            return None
        with self._locks[name]:
            books = self.breaks.mended(books_of_set(self._catalog, name))
            note, segments = decode_publication(books.state.notes), books.segments
            now = self._clock()
            if note.is_first or not segments or not plan.must_rotate(segments[-1], settings, now):
                return None
            pending = tuple(sorted({*note.pending, *note.listed}))
            self._catalog.note(name, encode_publication(msgspec.structs.replace(note, pending=pending)))
            return self._catalog.close_segment(name, now).until

    def publish_site(self) -> tuple[str, ...]:
        """Write the Source Description and robots.txt for the sets that are published; return the names that changed.

        `publish` calls it as soon as every set is published. A driver that will not wait for a set that fails calls
        `name_published`: a source that named only some of its sets without need would look as if it had no others.
        """
        with self._site_lock:
            unnamed = frozenset(self._unnamed)
            published = self._published_names()
            press = self._press()
            descriptions = list(documents.source_descriptions(self._site, published))
            for name, head, entries in descriptions:
                press.document(name, head, entries)
            top = self._store.get(SOURCE_DESCRIPTION)
            if top is not None and plan.is_over(top.modified, self._clock()):  # parts of what was a larger site
                press.sweep(DESCRIPTION_PARTS, {name for name, _head, _entries in descriptions})
            if self._owns_robots():
                press.blocks(ROBOTS, [documents.robots(self._site, published)])
            else:
                lines = documents.robots(self._site, published).decode().splitlines()
                missing = "; ".join(line for line in lines if line.startswith("Sitemap:"))
                self._listener(
                    Notice(notices.FOREIGN_ROBOTS, f"robots.txt is not ours and stays as it is; add to it: {missing}")
                )
            self._named = frozenset(published)
            self._unnamed -= unnamed & self._named
            return tuple(press.written)

    def name_published(self) -> None:
        """Name the sets that are published and not named yet, though others are not published."""
        if not self._looked and not self.is_site_published():  # what an earlier run has left
            self._unnamed.update(self._published_names())
        self._looked = True
        if self._unnamed:
            self.publish_site()

    def _owns_robots(self) -> bool:
        held = self._store.open(ROBOTS)
        if held is None:
            return True
        with held[1] as file:
            return file.readline(200).startswith(documents.ROBOTS_MARK.encode())

    def is_published(self, name: str, state: SetState | None = None) -> bool:
        """Whether the set may be shown: its documents are there, and the Source Description names it."""
        return self.has_documents(name, state) and (self._named is None or name in self._named)

    def is_known_published(self, name: str | None) -> bool:
        """Whether that is known of a set, or (None) of the Source Description, without asking the catalog."""
        if name is None:
            return self._named is not None
        return name in self._published and (self._named is None or name in self._named)

    def is_known_whole(self, name: str) -> bool:
        """Whether it is known, without asking the catalog, that all documents of the set are there."""
        return name in self._published

    def has_documents(self, name: str, state: SetState | None = None) -> bool:
        """Whether all documents of the set are in the store, in the shape that this site gives them.

        The catalog is asked for what it holds of the set, unless the caller knows that.
        """
        if name in self._published:
            return True
        try:
            return self._is_left(self._catalog.state(name) if state is None else state)
        except UnknownSet:
            return False

    def _is_left(self, state: SetState) -> bool:
        """Whether an earlier publication has left all documents of a set; then that is known from now on."""
        name = state.name
        if decode_publication(state.notes).fingerprint != fingerprint(self._site, self._site.settings(name)):
            return False
        if not all(self._store.is_sound(one) or self._holdings.is_complete(one) for one in top_names(name)):
            return False
        self._published.add(name)
        return True

    def is_site_published(self) -> bool:
        """Whether the Source Description in the store is one of this site."""
        if self._named is None and self._is_whole():
            press = self._press()
            names = self._published_names()
            if all(
                press.says(name, press.render(head, entries))
                for name, head, entries in documents.source_descriptions(self._site, names)
            ):
                self._named = frozenset(names)
        return self._named is not None

    def _is_description_sound(self, name: str) -> bool:
        """Whether what names this set is there; the publications of the others see to theirs."""
        names = {source_description_name(self._site, name), SOURCE_DESCRIPTION}
        return all(self._store.is_sound(name) for name in names) and self._store.get(ROBOTS) is not None

    def _published_names(self) -> tuple[str, ...]:
        """The sets to name; in an order that does not depend on which of them this run is about."""
        if len(self._published) < len(self._site.sets):
            mine = {one.name for one in self._site.sets} - self._published
            for state in self._catalog.sets():  # read once, however many of them are not published
                if state.name in mine:
                    self._is_left(state)
        names = [one.name for one in self._site.sets if one.name in self._published]
        return tuple(sorted([*names, *self._others()])) if self._keep_others else tuple(names)

    def _others(self) -> Iterator[str]:
        """Sets that earlier runs have published at the same base URL; its Capability List says which URL that was."""
        mine = {one.name for one in self._site.sets}
        for state in self._catalog.sets():
            if state.name in mine or decode_publication(state.notes).is_first:
                continue
            held = self._store.open(capability_list_name(state.name))
            if held is None:
                continue
            with held[1] as file:
                if escape(self._site.url(resource_list_name(state.name))).encode() in file.read():
                    yield state.name
                else:
                    text = f"the set {state.name!r} was published for another base URL: it is no longer named"
                    self._listener(Notice(notices.OTHER_BASE, text))

    def _press(self) -> StoreWriter:
        return StoreWriter(self._store, self._site.profile, self._may_write, self._holdings.etags)

    def _is_whole(self) -> bool:
        sets = self._site.sets
        while self._found < len(sets) and self.has_documents(sets[self._found].name):
            self._found += 1
        return len(self._published) == len(sets)

    def _publish(
        self, settings: SetSettings, books: Books, at: dt.datetime, *, pages: bool, force: bool, check: bool
    ) -> PublishResult:
        name = settings.name
        if books.state.opened_at is None:
            raise NotReady(f"the set {name!r} is not loaded yet")
        books = self.breaks.mended(books) if check else books
        state, note = books.state, decode_publication(books.state.notes)
        shape = fingerprint(self._site, settings)
        everything = note.fingerprint != shape or (check and self._is_torn(note, books))
        if everything:
            self._published.discard(name)  # until it is whole again
        now = self._clock()
        press = self._press()
        books = self._closed(books, settings, now)
        note, first = plan.retained(books, note, settings, now)
        changes = ChangeLists(
            self._catalog, press, self._site, name, note, self._holdings, first=first, everything=everything
        )
        changes.publish(books.segments)
        resources = ResourceLists(
            self._catalog, press, self._site, settings, self._clock, self._listener, self._printers
        )
        at = plan.true_at(at, state, note)
        wait = not (pages or everything)
        done = resources.publish(books.pages, note, at, changes.catch_up, everything=everything, force=force, wait=wait)
        if everything:
            press.document(capability_list_name(name), *documents.capability_list(self._site, settings))
        live = {capability_list_name(name), *changes.names, *done.names}
        forgotten = {change_segment_name(name, number) for number in range(note.open.first, first)}
        retired = self._retired(note, live, name, now, forgotten, sweep=everything)
        removed = plan.expired(retired, now)
        for gone in removed:
            self._store.remove(gone)
            self._holdings.etags.pop(gone, None)
        self._may_write()
        if done.rendered:
            self._catalog.rendered(name, done.rendered)
        noted = encode_publication(
            msgspec.structs.replace(
                done.note,
                fingerprint=shape,
                uris=uri_fingerprint(self._site, name),
                open=changes.open,
                retired=tuple(one for one in retired if one[0] not in removed),
            )
        )
        if done.note is not note or noted != state.notes:  # most looks find that nothing is to be done
            self._catalog.note(name, noted)
        return PublishResult(
            name=name,
            written=tuple(press.written),
            removed=removed,
            kept=len(live - set(press.written)),
            seq=changes.open.seq,
            at=done.note.at or at,
            pages_rendered=len(done.rendered),
            pages_stale=done.stale_count,
            pages_left=done.left + (wait and plan.must_rotate(changes.segments[-1], settings, now)),
        )

    def _closed(self, books: Books, settings: SetSettings, now: dt.datetime) -> Books:
        """The books once the open segment is closed, when its period is over."""
        if not plan.must_close(books.segments[-1], settings, now):
            return books
        self._catalog.close_segment(settings.name, now)
        return books_of_set(self._catalog, settings.name)

    def _is_torn(self, note: PublicationState, books: Books) -> bool:
        """Whether a document that was published is no longer in the store, or not as it was written."""
        name = books.state.name
        pages = [resource_page_name(name, number) for number in note.listed] if note.indexed else []
        tops = top_names(name)
        numbers = [one.number for one in books.segments] if note.open.indexed else []
        segments = [
            change_segment_name(name, number) for number in numbers if note.open.first <= number <= note.open.number
        ]
        names = (*tops, open_change_list_name(name), *pages, *segments)
        return not all(self._holdings.is_as_left(one) for one in names)

    def _retired(
        self, note: PublicationState, live: set[str], name: str, now: dt.datetime, forgotten: set[str], *, sweep: bool
    ) -> tuple[tuple[str, dt.datetime], ...]:
        """Documents that are no longer live, and since when. `sweep` looks for strays in the store itself as well."""
        known = dict(note.retired)
        before = {resource_page_name(name, number) for number in note.listed} if note.indexed else set()
        before |= forgotten
        if sweep:
            before |= {one for one in self._store.names(f"{name}/") if is_part_name(name, one)}
        known |= {one: now for one in before if one not in known}
        return tuple(sorted((one, since) for one, since in known.items() if one not in live))
