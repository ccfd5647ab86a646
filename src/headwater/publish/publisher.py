"""Publishes sets: writes the documents that have changed from the catalog into the store, in a safe order.

One publication of a set, step by step:

1. The open segment is closed when its period is over.
2. Documents are written, in this order: the files of an RDF dataset, archives, Change Lists (closed segments, the open
   one, their index, the copy of the open one), the Resource List (the pages that are due, then their index), dumps, the
   lists for old harvesters, the Sitemap. Before a page becomes visible, the Change List says everything that the page
   shows: who reads the Resource List first and the Change List after it always ends in one state of the catalog.
3. Capability List, then Source Description and robots.txt: nothing is named before it exists (AMB-63).
4. Documents that nothing names any more are removed when their grace is over.
5. The catalog notes what is published, last. A run that is killed before is repeated by the next one, harmlessly.
"""

import datetime as dt
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from headwater.catalog.content import ContentReader
from headwater.catalog.interface import WITHDRAWN, Catalog, SetSnapshot, ahead_seconds
from headwater.errors import UsageFault
from headwater.progress import Listener, Notice, silent
from headwater.publish import document_content, plan
from headwater.publish.archives import Archives, archive_names
from headwater.publish.change_dump import KeptContents, change_dump_names, pack_changes, publish_change_dump
from headwater.publish.change_lists import ChangeLists
from headwater.publish.dataset_documents import publish_dataset
from headwater.publish.document_names import SITEMAP
from headwater.publish.history_reset import HistoryReset
from headwater.publish.package_builder import Packing, PackResult
from headwater.publish.patches import PatchMaker
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import (
    PublicationState,
    decode_publication,
    encode_publication,
    fingerprint,
    offers,
    uri_fingerprint,
)
from headwater.publish.resource_dump import pack_resources, publish_resource_dump, resource_dump_names
from headwater.publish.resource_lists import ResourceLists
from headwater.publish.site import (
    SetSettings,
    Site,
    capability_list_name,
    change_list_name,
    change_segment_name,
    is_part_name,
    open_change_list_name,
    resource_list_name,
    resource_page_name,
)
from headwater.publish.site_documents import SiteDocuments
from headwater.publish.store_writer import PublicationJob, PublishContext, StoreWriter
from headwater.publish.whole_lists import ClassicLists, classic_names, list_names, publish_sitemap
from headwater.spec.times import to_microseconds
from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import CannotWrite
from headwater.storage.transaction import DatabaseFull
from headwater.versions.store import VersionStore

_RENEWED = (Refresh.REPAIR, Refresh.STALE, Refresh.ALL)


SOONEST_SECONDS: Final = 1.0  # between two publications of pages that wait, at the least


class PublishResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one publication did: the documents that changed, how many were left as they were, the state they show.

    The Change Lists begin with the segment `history`, whose first change is `history_first`; the last one is `seq`.
    """

    name: str
    written: tuple[str, ...]
    removed: tuple[str, ...]
    kept: int
    seq: int
    history: int
    history_first: int
    resources: int
    at: dt.datetime
    pages_rendered: int
    pages_stale: int
    pages_left: int  # the pages that are due and wait for a publication with pages
    due_in_seconds: float
    """After how long pages that do not show everything are due (`refresh_seconds`); infinite where none is so."""
    ahead_seconds: float = 0.0  # how far the times of changes lie ahead of the clock, which was set back


class PublisherOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a publisher shares its store with others, and where it has what from.

    With `keep_others`, sets that the site does not have and that were published into the same store before stay named
    by the Source Description and robots.txt: a tree may be made by several runs, each for one set. `may_write` is
    called before anything is put in its place, and raises when this process must not any more. `contents` has the
    octets for Resource Dumps, `change_contents` those for Change Dumps; they are packed in files in the folder `spool`,
    the state folder, where the files of RDF datasets are as well. Patches are made of `versions`. `written` is told of
    the documents of a set, or (None) of the site, that have changed and can be had now. With `forget`, documents that
    nothing names any more go at once.
    """

    keep_others: bool = False
    may_write: Callable[[], None] = lambda: None
    contents: ContentReader | None = None
    change_contents: KeptContents | None = None
    spool: Path | None = None
    versions: VersionStore | None = None
    written: Callable[[str | None, tuple[str, ...]], None] = lambda _name, _documents: None
    forget: bool = False


_DEFAULT_OPTIONS = PublisherOptions()


class Publisher:
    """Publishes the sets of a site. Safe for several threads; one publication of a set at a time."""

    def __init__(
        self,
        catalog: Catalog,
        store: FolderStore,
        site: Site,
        clock: Callable[[], dt.datetime],
        listener: Listener = silent,
        options: PublisherOptions = _DEFAULT_OPTIONS,
    ) -> None:
        self._context = PublishContext(catalog, store, site, clock, listener, options.may_write)
        self._options = options
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._checked: set[str] = set()
        self._packing = Packing(self._context, options, self._locks, set())
        versions = options.versions if any(one.patch for one in site.sets) else None
        self.patch_maker = PatchMaker(self._context, versions) if versions is not None else None
        self.history = HistoryReset(self._context)
        self.site_documents = SiteDocuments(self._context, options)

    def begin(self) -> None:
        """Others may have published since: the next publication of each set looks at its documents again."""
        self._context.etags.clear()  # what is there now counts as left
        self._checked.clear()

    def publish(
        self, name: str, at: dt.datetime, refresh: Refresh = Refresh.DUE, *, looked_at: dt.datetime | None = None
    ) -> PublishResult:
        """Bring the documents of one set up to date with the catalog.

        `at` is a moment up to which the outside world is completely recorded, `looked_at` (None: as before) when that
        was last looked at by the clock, which may have been set back since `at` was given. The first publication of a
        process repairs what others have removed or damaged, however little it is to `refresh`. Raises UnknownSet,
        UsageFault, and the store's and the catalog's StoreFaults; after one of these the next call does what is left.
        """
        settings = self._context.site.settings(name)
        with self._locks[name]:
            is_checked = name in self._checked
            check = refresh in _RENEWED or not is_checked
            snapshot = self._context.catalog.snapshot_of(name)
            job = self._job(settings, snapshot, at, refresh, check=check)
            try:
                result = self._publish(job, check=check, looked_at=looked_at)
            except (CannotWrite, DatabaseFull):
                self._make_room(job)
                raise
            self._checked.add(name)
        self.site_documents.set_published(name, check=check)
        if result.written:
            self._options.written(name, result.written)
        return result

    def pack_resources(self, name: str, *, stop: Callable[[], None] = lambda: None) -> PackResult:
        """Make the packages of the page of the set's Resource Dump that is due, and name them.

        Publications of the set go on meanwhile, but for the moment in which the packages are named; `stop` raises to
        end early. Call it after `publish`, until nothing is done. Raises the store's and the catalog's StoreFaults,
        OSError: it is packed again then.
        """
        return pack_resources(self._packing, self._context.site.settings(name), stop=stop)

    def pack_changes(self, name: str, *, at_once: bool = False, stop: Callable[[], None] = lambda: None) -> PackResult:
        """Make the package of the set's Change Dump that is due, and name it, as `pack_resources` does.

        With `at_once` the open segment's package does not wait its time. Raises also the versions' StoreFaults.
        """
        return pack_changes(self._packing, self._context.site.settings(name), at_once=at_once, stop=stop)

    def reset_history(self, name: str, *, is_asked: bool = False) -> None:
        """Let the published history begin anew where it cannot be continued, or that is asked for.

        Before the outside world is looked at.
        """
        with self._locks[name]:
            self.history.reset_if_due(self._context.catalog.snapshot_of(name), is_asked=is_asked)

    def rotate(self, name: str) -> dt.datetime | None:
        """When the set's rotation is due, close the open Change List and have all pages rendered anew (DIT-28, DIT-A1).

        Returns the closed list's `until`, else None. Publish next with it as `at`, once what happened before it is
        recorded: then the new Resource List begins where the closed Change List ends. Nothing is erased. The pages are
        noted first, so that a crash loses none of it.
        """
        if (settings := self._context.site.settings(name)).rotation_seconds is None:
            return None
        with self._locks[name]:
            snapshot = self.history.reset_if_due(self._context.catalog.snapshot_of(name))
            publication, segments = decode_publication(snapshot.state.notes), snapshot.segments
            now = self._context.clock()
            if publication.is_first or not segments:
                return None
            if not plan.is_period_over(segments[-1], settings.rotation_seconds, now):
                return None
            pending = tuple(sorted({*publication.pending, *publication.listed}))
            publication = msgspec.structs.replace(publication, pending=pending)
            self._context.catalog.note(name, encode_publication(publication))
            return self._context.catalog.close_segment(name, now).until

    def _publish(self, job: PublicationJob, *, check: bool, looked_at: dt.datetime | None) -> PublishResult:
        if job.refresh is Refresh.ALL:
            self.site_documents.set_incomplete(job.name)  # until it is whole again
        settings, site, before = job.settings, job.context.site, job.publication
        changes = ChangeLists(job, self.patch_maker)
        pages = ResourceLists(job, changes.publish)
        state = self._options.spool if settings.dataset else None
        dataset, patches = publish_dataset(job, state) if state is not None else ((), [])
        archives = Archives(job) if settings.archive or before.archive is not None else None
        archive = archives.publish() if archives is not None else None
        changes.publish(job.snapshot.segments)
        pages.publish()
        resource_dump, is_withdrawn = publish_resource_dump(job) if settings.dump else (None, False)
        publication = msgspec.structs.replace(
            before,
            offers=offers(settings),
            dataset=dataset,
            archive=archive,
            resource_dump=resource_dump,
            change_dump=publish_change_dump(job) if settings.change_dump else None,
            classic=ClassicLists(job, pages).publish() if settings.classic else None,
            sitemap=publish_sitemap(job, pages) if settings.sitemap else None,
        )
        publication = pages.result(changes.result(publication))
        live = {*published_names(job.name, publication), *patches, *changes.patches()}
        if check or is_withdrawn or job.refresh is Refresh.ALL:  # something else may be offered than before
            with_later = publication.resource_dump is not None and publication.resource_dump.is_offered
            content = document_content.capability_list(site, settings, with_later=with_later)
            job.store_writer.document(capability_list_name(job.name), *content)
        known = {*published_names(job.name, before), *(archives.dropped if archives else ()), *changes.dropped}
        if job.refresh is Refresh.ALL:  # strays
            known |= {one for one in job.context.store.names(f"{job.name}/") if is_part_name(job.name, one)}
        packages = set(job.context.store.names(f"{job.name}/resourcedump/")) if is_withdrawn else set[str]()
        known |= packages
        retired = plan.with_retired(before, known, live, job.now)
        forget = self._options.forget
        over = [one for one, since in retired if forget or one in packages or plan.is_over(since, job.now)]
        removed = self._remove(over)
        left = dict(retired) | dict.fromkeys(over, job.now)  # what cannot be removed is tried again after a grace
        for name in removed:
            del left[name]
        publication = msgspec.structs.replace(
            publication,
            retired=tuple(left.items()),
            fingerprint=fingerprint(site, settings),
            base_url=site.base_url,
            uris=uri_fingerprint(site.base_url, site.resource_prefix(job.name)),
        )
        job.context.may_write()
        if pages.rendered:
            job.context.catalog.rendered(job.name, pages.rendered)
        job.note(publication.with_look(looked_at))
        if (before.sitemap and before.sitemap.parts) != (publication.sitemap and publication.sitemap.parts):
            self.site_documents.is_outdated = True
        stale, last_at = pages.stale, job.snapshot.state.last_at
        return PublishResult(
            name=job.name,
            written=tuple(job.store_writer.written),
            removed=removed,
            kept=len(live - set(job.store_writer.written)),
            seq=publication.open.seq,
            history=publication.history,
            history_first=next(one.first for one in job.snapshot.segments if one.number >= publication.history),
            resources=job.snapshot.state.count,
            at=publication.at or job.at,
            pages_rendered=len(pages.rendered),
            pages_stale=stale,
            pages_left=pages.left,
            due_in_seconds=max(SOONEST_SECONDS, settings.refresh_seconds) if stale else math.inf,
            ahead_seconds=ahead_seconds(last_at, job.now) if last_at is not None and last_at > job.now else 0.0,
        )

    def _job(
        self, settings: SetSettings, snapshot: SetSnapshot, at: dt.datetime, refresh: Refresh, *, check: bool
    ) -> PublicationJob:
        """What is to be published of the set of a snapshot; its open segment is closed when that is due."""
        if snapshot.state.opened_at is None:
            raise UsageFault(f"the set {settings.name!r} is not loaded yet", code="HW-PUB-01")
        context, now = self._context, self._context.clock()
        snapshot = self.history.reset_if_due(snapshot) if check else snapshot
        publication = self.history.with_generation(settings.name, decode_publication(snapshot.state.notes))
        is_other = publication.fingerprint != fingerprint(context.site, settings)
        is_other = is_other or settings.archive == (publication.archive is None)  # what is current links to archives
        if is_other or (check and not all(map(context.is_as_left, published_names(settings.name, publication)))):
            refresh = Refresh.ALL
        elif refresh not in (Refresh.ALL, Refresh.CHANGES) and _shows_withdrawn(context.catalog, snapshot):
            refresh = Refresh.STALE
        at = plan.true_at(at, snapshot.state, publication)
        newest = snapshot.segments[-1]
        # A Change Dump begins with a segment of which there are no changes whose octets were not kept.
        begins_dump = settings.change_dump and publication.change_dump is None and newest.last >= newest.first
        if begins_dump or plan.is_period_over(newest, settings.segment_seconds, now):
            context.catalog.close_segment(settings.name, now)
            snapshot = context.catalog.snapshot_of(settings.name)
        first = plan.first_retained(snapshot.segments, snapshot.pages, publication, settings, now)
        return PublicationJob(
            context=context,
            settings=settings,
            store_writer=StoreWriter(context, publication.generation),
            refresh=refresh,
            snapshot=snapshot,
            publication=publication,
            at=at,
            now=now,
            first=first,
            noted=snapshot.state.notes,
        )

    def _make_room(self, job: PublicationJob) -> None:
        """Remove what is to go now, although the publication has failed: a full disk would be full for ever.

        What was written again since it was retired stays: documents of the attempt that failed may name it.
        """
        over = {name: since for name, since in job.publication.retired if plan.is_over(since, job.now)}
        stored = [one for name in over if (one := job.context.store.stat(name)) is not None]
        self._remove(one.name for one in stored if one.modified <= over[one.name])

    def _remove(self, names: Iterable[str]) -> tuple[str, ...]:
        """Remove documents, and tell which are gone: one that cannot be removed stops nothing."""
        self._context.may_write()
        removed = []
        for name in names:
            try:
                self._context.store.delete(name)
            except CannotWrite as fault:
                text = f"an outdated document cannot be removed: {fault.what}"
                self._context.listener(Notice(fault.code, text, fault.where))
            else:
                removed.append(name)
            self._context.etags.pop(name, None)
        return tuple(removed)


def _shows_withdrawn(catalog: Catalog, snapshot: SetSnapshot) -> bool:
    """Whether a page lists what the settings have taken out of the set since it was rendered."""
    stale = {one.number: to_microseconds(one.at) for one in snapshot.pages if one.touched > one.rendered and one.at}
    rows = catalog.rows_of(snapshot.state.name, WITHDRAWN) if stale else ()
    return any(row.rank >= stale.get(int(row.key), row.rank + 1) for row in rows)


def published_names(name: str, publication: PublicationState) -> Iterator[str]:
    """The documents of a set that were published."""
    yield capability_list_name(name)
    yield from publication.dataset
    if publication.archive is not None:
        yield from archive_names(name, publication.archive, publication.offers)
    yield from (change_list_name(name), open_change_list_name(name))
    if publication.open.indexed:
        numbers = range(publication.open.first, publication.open.number + 1)
        yield from (change_segment_name(name, number) for number in numbers)
    yield resource_list_name(name)
    if publication.indexed:
        yield from (resource_page_name(name, number) for number in publication.listed)
    if publication.resource_dump is not None:
        yield from resource_dump_names(name, publication.resource_dump)
    if publication.change_dump is not None:
        yield from change_dump_names(name, publication.change_dump)
    if publication.classic is not None:
        yield from classic_names(name, publication.classic)
    if publication.sitemap is not None:
        yield from list_names(name, SITEMAP, publication.sitemap)
