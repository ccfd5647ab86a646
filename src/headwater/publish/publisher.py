"""Publishes sets: writes the documents that have changed from the catalog into the store, in a safe order.

One publication of a set, step by step:

1. The open segment is closed when its period is over.
2. Change Lists: closed segments, the open one, their index, the copy of the open one (`change_lists`).
3. Resource List: the pages that are due, then their index (`resource_lists`). Before a page becomes visible, the Change
   List says everything that the page shows: who reads the Resource List first and the Change List after it always ends
   in one state of the catalog.
4. Capability List, then Source Description and robots.txt: nothing is named before it exists (AMB-63).
5. Documents that nothing names any more are removed when their grace is over.
6. AllSnapshotsReader, last. A run that is killed before is repeated by the next one, harmlessly.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import ClassVar

import msgspec

from headwater.catalog.interface import Catalog, SetSnapshot
from headwater.catalog.set_snapshot import read_snapshot
from headwater.errors import UsageFault
from headwater.progress import Listener, silent
from headwater.publish import plan
from headwater.publish.change_lists import ChangeLists
from headwater.publish.history_reset import HistoryReset, uri_fingerprint
from headwater.publish.integrity import IntegrityCheck
from headwater.publish.publication_state import PublicationState, decode_publication, encode_publication, fingerprint
from headwater.publish.rendering import documents
from headwater.publish.rendering.pool import RenderPool
from headwater.publish.resource_lists import ResourceLists
from headwater.publish.site import (
    SetSettings,
    Site,
    capability_list_name,
    change_segment_name,
    is_part_name,
    open_change_list_name,
    resource_page_name,
    top_names,
)
from headwater.publish.site_documents import SiteDocuments
from headwater.publish.store_writer import Store, StoreWriter


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
    called before anything is put in its place, and raises when this process must not any more. The processes of
    `render_pool` render pages by the system's clock.
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
        render_pool: RenderPool | None = None,
    ) -> None:
        self._render_pool = render_pool or RenderPool(None)
        self._may_write = may_write
        self._catalog = catalog
        self._store = store
        self._site = site
        self._clock = clock
        self._listener = listener
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._checked: set[str] = set()
        self._integrity = IntegrityCheck(store)
        self.history = HistoryReset(catalog, store, site, may_write)
        self.site_documents = SiteDocuments(
            catalog,
            store,
            site,
            clock,
            listener,
            keep_others=keep_others,
            may_write=may_write,
            integrity=self._integrity,
        )

    def begin(self) -> None:
        """Others may have published since: the next publication of each set looks at its documents again."""
        self._integrity.forget()
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
            snapshot = read_snapshot(self._catalog, name, newest if name in self._checked else None)
            result = self._publish(settings, snapshot, at, pages=pages or force_pages, force=force_pages, check=check)
            self._checked.add(name)
        self.site_documents.set_published(name, check=check)
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
            snapshot = self.history.reset_if_due(read_snapshot(self._catalog, name))
            publication, segments = decode_publication(snapshot.state.notes), snapshot.segments
            now = self._clock()
            if publication.is_first or not segments or not plan.must_rotate(segments[-1], settings, now):
                return None
            pending = tuple(sorted({*publication.pending, *publication.listed}))
            self._catalog.note(name, encode_publication(msgspec.structs.replace(publication, pending=pending)))
            return self._catalog.close_segment(name, now).until

    def _publish(
        self, settings: SetSettings, snapshot: SetSnapshot, at: dt.datetime, *, pages: bool, force: bool, check: bool
    ) -> PublishResult:
        name = settings.name
        if snapshot.state.opened_at is None:
            raise NotReady(f"the set {name!r} is not loaded yet")
        snapshot = self.history.reset_if_due(snapshot) if check else snapshot
        state, publication = snapshot.state, decode_publication(snapshot.state.notes)
        publication = self.history.with_generation(name, publication)
        shape = fingerprint(self._site, settings)
        everything = publication.fingerprint != shape or (check and self._is_damaged(publication, snapshot))
        if everything:
            self.site_documents.set_incomplete(name)  # until it is whole again
        now = self._clock()
        store_writer = StoreWriter(
            self._store, self._site.profile, self._may_write, self._integrity.etags, publication.generation
        )
        snapshot = self._closed(snapshot, settings, now)
        publication, first = plan.retained(snapshot, publication, settings, now)
        changes = ChangeLists(
            self._catalog,
            store_writer,
            self._site,
            name,
            publication,
            self._integrity,
            first=first,
            everything=everything,
        )
        changes.publish(snapshot.segments)
        resources = ResourceLists(
            self._catalog, store_writer, self._site, settings, self._clock, self._listener, self._render_pool
        )
        at = plan.true_at(at, state, publication)
        wait = not (pages or everything)
        done = resources.publish(
            snapshot.pages, publication, at, changes.catch_up, everything=everything, force=force, wait=wait
        )
        if everything:
            store_writer.document(capability_list_name(name), *documents.capability_list(self._site, settings))
        live = {capability_list_name(name), *changes.names, *done.names}
        forgotten = {change_segment_name(name, number) for number in range(publication.open.first, first)}
        retired = self._retired(publication, live, name, now, forgotten, sweep=everything)
        removed = plan.expired(retired, now)
        for gone in removed:
            self._store.remove(gone)
            self._integrity.etags.pop(gone, None)
        self._may_write()
        if done.rendered:
            self._catalog.rendered(name, done.rendered)
        recorded = encode_publication(
            msgspec.structs.replace(
                done.publication,
                fingerprint=shape,
                base_url=self._site.base_url,
                uris=uri_fingerprint(self._site.base_url, self._site.resource_prefix(name)),
                open=changes.open,
                retired=tuple(one for one in retired if one[0] not in removed),
            )
        )
        if done.publication is not publication or recorded != state.notes:  # most looks find that nothing is to be done
            self._catalog.note(name, recorded)
        return PublishResult(
            name=name,
            written=tuple(store_writer.written),
            removed=removed,
            kept=len(live - set(store_writer.written)),
            seq=changes.open.seq,
            at=done.publication.at or at,
            pages_rendered=len(done.rendered),
            pages_stale=done.stale_count,
            pages_left=done.left + (wait and plan.must_rotate(changes.segments[-1], settings, now)),
        )

    def _closed(self, snapshot: SetSnapshot, settings: SetSettings, now: dt.datetime) -> SetSnapshot:
        """The snapshot once the open segment is closed, when its period is over."""
        if not plan.must_close(snapshot.segments[-1], settings, now):
            return snapshot
        self._catalog.close_segment(settings.name, now)
        return read_snapshot(self._catalog, settings.name)

    def _is_damaged(self, publication: PublicationState, snapshot: SetSnapshot) -> bool:
        """Whether a document that was published is no longer in the store, or not as it was written."""
        name = snapshot.state.name
        pages = [resource_page_name(name, number) for number in publication.listed] if publication.indexed else []
        tops = top_names(name)
        numbers = [one.number for one in snapshot.segments] if publication.open.indexed else []
        segments = [
            change_segment_name(name, number)
            for number in numbers
            if publication.open.first <= number <= publication.open.number
        ]
        names = (*tops, open_change_list_name(name), *pages, *segments)
        return not all(self._integrity.is_as_left(one) for one in names)

    def _retired(
        self,
        publication: PublicationState,
        live: set[str],
        name: str,
        now: dt.datetime,
        forgotten: set[str],
        *,
        sweep: bool,
    ) -> tuple[tuple[str, dt.datetime], ...]:
        """Documents that are no longer live, and since when. `sweep` looks for strays in the store itself as well."""
        known = dict(publication.retired)
        before = {resource_page_name(name, number) for number in publication.listed} if publication.indexed else set()
        before |= forgotten
        if sweep:
            before |= {one for one in self._store.names(f"{name}/") if is_part_name(name, one)}
        known |= {one: now for one in before if one not in known}
        return tuple(sorted((one, since) for one, since in known.items() if one not in live))
