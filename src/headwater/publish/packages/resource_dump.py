"""The Resource Dump of a set: which page is packed next, its packages, and the document that names them.

The packages of a page are made anew when enough of the page has changed, when a change has waited long enough, or when
they have grown old; a page that has none yet comes first. So a dump that is offered has packages of all pages that its
own packages' times know of: a resource on a page that came later was created after the `at` of the dump.

A resource that was deleted and came back on another page may be in packages of both while the first is not made anew;
both changes are later than the `at` of the dump, so that whoever goes on by them comes to the right state.

A resource whose octets are not the recorded ones is left out, and whoever scans is told to look at it: a change tells
of it then, which is later than the dump, or it is as it was after all. The page stays due until it is packed with it.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from headwater.catalog.content import Absence, ContentReader, NoContent
from headwater.catalog.interface import Page, Resource, SetSnapshot
from headwater.catalog.state import WITHDRAWN
from headwater.deletion_guard import FLOOR, needs_consent
from headwater.progress import Notice, Progress
from headwater.publish.added_links import EntryPlace
from headwater.publish.capabilities import RESOURCE_DUMP
from headwater.publish.packages.builder import ResourcePaths, entry_octets
from headwater.publish.packages.packer import DumpPacker, Made
from headwater.publish.packages.spool import SpooledPackage
from headwater.publish.plan import Refresh, completed_at
from headwater.publish.publication_state import (
    PagePackages,
    PublicationState,
    ResourceDumpState,
    ResourcePackage,
    fingerprint,
)
from headwater.publish.rendering import documents
from headwater.publish.rendering.renderer import PublicationJob, PublishContext
from headwater.publish.site import SetSettings, Site, capability_list_name, resource_package_names
from headwater.publish.store_writer import DocumentMark, StoreWriter
from headwater.spec.times import to_microseconds

RETRY_SECONDS: Final = 5.0
"""Packages without resources whose octets could not be had are made anew after so long, later the larger they are."""
_TELL_EVERY: Final = 500


class PackingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is due: a page to pack, or (None) only to offer the dump; `filled` are the pages that have resources.

    `at` is the newest time that the catalog has given when the page is read: it holds all changes up to then, and
    every later one has a later time. Where only what was left out is tried again, it is that of the packages: the same
    resources give the same packages.
    """

    page: Page | None
    filled: frozenset[int]
    at: dt.datetime


def next_packing(
    state: ResourceDumpState, snapshot: SetSnapshot, settings: SetSettings, now: dt.datetime, *, at_once: bool = False
) -> PackingPlan | None:
    """What is to be done next; None when nothing is due. With `at_once` what was left out is tried again now."""
    filled = frozenset(page.number for page in snapshot.pages if page.count)
    moment = snapshot.state.last_at or snapshot.state.opened_at
    assert moment is not None
    packed = {one.number: one for one in state.pages}
    for page in snapshot.pages:
        if page.count and page.number not in packed:
            return PackingPlan(page=page, filled=filled, at=moment)
    if not state.is_offered:
        return PackingPlan(page=None, filled=filled, at=moment)
    due: list[tuple[dt.datetime, int, PackingPlan]] = []
    for page in snapshot.pages:
        if (held := packed.get(page.number)) is None:
            continue
        if _is_due(page, held, settings, now):
            at = moment
        elif _is_retried(page, held, now, at_once=at_once):
            at = held.at
        else:
            continue
        due.append((held.completed, page.number, PackingPlan(page=page, filled=filled, at=at)))
    return min(due)[2] if due else None


def _is_due(page: Page, held: PagePackages, settings: SetSettings, now: dt.datetime) -> bool:
    age = _age(held, now)
    if age >= settings.renew_seconds:
        return True
    changed = page.touched - held.touched
    if changed <= 0:
        return False
    return not page.count or changed >= settings.dump_share * page.count or age >= settings.dump_seconds


def _is_retried(page: Page, held: PagePackages, now: dt.datetime, *, at_once: bool) -> bool:
    """Whether to look again for resources that were left out, and of which no change has told since: the more there is
    to pack again, the later."""
    if not held.left_out or page.touched != held.touched:
        return False
    octets = sum(one.octets for one in held.packages)
    return at_once or _age(held, now) >= RETRY_SECONDS + octets / 1_000_000


def _age(held: PagePackages, now: dt.datetime) -> float:
    """The seconds since they were packed; where the clock was set back, nothing waits until it has caught up."""
    return abs((now - (held.packed_at or held.completed)).total_seconds())


def with_page(state: ResourceDumpState, plan: PackingPlan, packed: PagePackages | None) -> ResourceDumpState:
    """The dump with what was packed in the place of what the page had; offered when no page is missing."""
    pages: Sequence[PagePackages] = state.pages
    if plan.page is not None:
        number = plan.page.number
        others = [one for one in pages if one.number != number]
        pages = sorted([*others, packed] if packed else others, key=lambda one: one.number)
    is_whole = plan.filled <= {one.number for one in pages} | ({plan.page.number} if plan.page else set())
    return msgspec.structs.replace(
        state, pages=tuple(pages), at=plan.at if not pages else state.at, is_offered=state.is_offered or is_whole
    )


class ResourceDumps:
    """The Resource Dump of one set during one publication: what was lost or has another shape is to be packed anew.

    Nothing is packed here, so that Change Lists never wait for packages.
    """

    def __init__(self, job: PublicationJob) -> None:
        self._job = job
        self._state = job.publication.resource_dump
        self.is_withdrawn = False
        """Whether packages hold what must not be shown any more: they go at once."""

    @staticmethod
    def published(name: str, publication: PublicationState) -> Iterator[str]:
        """The dump, or its index and parts, once it is offered; the packages with the copies of their manifests."""
        state = publication.resource_dump
        if state is not None and state.is_offered:
            packages = sum(len(page.packages) for page in state.pages)
            yield from documents.dump_part_names(name, RESOURCE_DUMP, packages)
        for page in () if state is None else state.pages:
            yield from package_names(name, page)

    def publish(self) -> None:
        """Write what is due."""
        job, before = self._job, self._state
        if not job.settings.dump:
            self._state = None
            return
        shape = f"{job.publication.generation} {fingerprint(job.context.site, job.settings)}"
        state = before
        if state is None or state.shape != shape:
            state = ResourceDumpState(shape=shape, at=job.at)
        if len(shown := self._without_withdrawn(state)) < len(state.pages):
            state = msgspec.structs.replace(state, pages=shown, is_offered=False)
            self.is_withdrawn = True
        if job.refresh is Refresh.ALL:
            pages = tuple(one for one in state.pages if self._is_sound(one))
            if len(pages) < len(state.pages):
                state = msgspec.structs.replace(state, pages=pages, is_offered=False)
            if state.is_offered:
                write_resource_dump(job.store_writer, job.context.site, job.name, state)
        self._state = state

    def _without_withdrawn(self, state: ResourceDumpState) -> tuple[PagePackages, ...]:
        """The pages whose packages hold nothing that the settings have taken out of the set since."""
        if not state.pages:
            return ()
        rows = self._job.context.catalog.rows_of(self._job.name, WITHDRAWN)
        newest = {int(row.key): row.rank for row in rows}
        return tuple(one for one in state.pages if to_microseconds(one.at) > newest.get(one.number, -1))

    def _is_sound(self, page: PagePackages) -> bool:
        names = package_names(self._job.name, page)
        return all(self._job.integrity.is_as_left(name) for name in names)

    def result(self, publication: PublicationState) -> PublicationState:
        """The state with the dump's."""
        return msgspec.structs.replace(publication, resource_dump=self._state)


class ResourceDumpPacker(DumpPacker[ResourceDumpState, PackingPlan]):
    """Packs the pages of Resource Dumps that are due."""

    folder = "resourcedump/"
    field = "resource_dump"
    renderer = ResourceDumps

    def __init__(
        self,
        context: PublishContext,
        locks: Mapping[str, Lock],
        etags: dict[str, str],
        spool: Path | None,
        contents: ContentReader | None,
    ) -> None:
        super().__init__(context, locks, etags, spool)
        self._contents = contents
        self._held_back: set[str] = set()
        """Sets of whose last page too much could not be had."""

    def _due(
        self, settings: SetSettings, snapshot: SetSnapshot, state: ResourceDumpState, *, at_once: bool
    ) -> PackingPlan | None:
        if self._contents is None or not settings.dump:
            return None
        return next_packing(state, snapshot, settings, self._context.clock(), at_once=at_once)

    def _make(
        self,
        settings: SetSettings,
        state: ResourceDumpState,
        due: PackingPlan,
        store_writer: StoreWriter,
        stop: Callable[[], None],
    ) -> Made[ResourceDumpState]:
        page, name = due.page, settings.name
        if page is None or not page.count:
            return Made(state=with_page(state, due, None))
        assert self._contents is not None

        def new_package() -> SpooledPackage[Resource]:
            place = EntryPlace.RESOURCE_DUMP_MANIFEST
            return SpooledPackage(self._context, settings, store_writer, self._spool, stop, place)

        packing = _PagePacking(self._context, settings, self._contents, store_writer.generation, new_package)
        packages = packing.pack(due, page)
        names = tuple(package_names(name, packages))
        if packing.is_mass(is_all=due.filled <= {page.number}):
            if name not in self._held_back:
                self._held_back.add(name)
                text = f"the Resource Dump stays as it is: {packages.left_out:,} resources of one page cannot be had"
                self._context.listener(Notice("HW-PUB-14", text, set_name=name))
            return Made(state=None, names=names)
        self._held_back.discard(name)
        return Made(state=with_page(state, due, packages), names=names, doubted=tuple(packing.doubted))

    def _write(
        self, store_writer: StoreWriter, settings: SetSettings, before: ResourceDumpState, state: ResourceDumpState
    ) -> None:
        """Write the dump once it is whole; from then on the Capability List names it."""
        site, name = self._context.site, settings.name
        if not state.is_offered:
            return
        write_resource_dump(store_writer, site, name, state)
        if not before.is_offered:
            content = documents.capability_list(site, settings, with_later=True)
            store_writer.document(capability_list_name(name), *content)


class _PagePacking:
    """The packing of one page of resources (RS-RDM-01 … RS-RDM-07)."""

    def __init__(
        self,
        context: PublishContext,
        settings: SetSettings,
        contents: ContentReader,
        generation: str,
        new_package: Callable[[], SpooledPackage[Resource]],
    ) -> None:
        self.doubted: list[str] = []
        """The URIs of resources that are not as they were recorded."""
        self._context = context
        self._name = settings.name
        self._contents = contents
        self._generation = generation
        self._new_package = new_package
        self._total = self._seen = self._left_out = self._elsewhere = 0

    def is_mass(self, *, is_all: bool) -> bool:
        """Whether so many of the resources cannot be had as would be held back if they were deleted (DST-F9).

        A disk that is not mounted looks so. A few never count, unless they are all that the set has.
        """
        return (self._left_out > FLOOR or is_all) and needs_consent(self._left_out, self._total - self._elsewhere)

    def pack(self, plan: PackingPlan, page: Page) -> PagePackages:
        """Make the packages of a page and put them, with copies of their manifests, into the store.

        A resource whose octets cannot be read, or are not the recorded ones, is left out. Raises OSError of the spool,
        the store's and the catalog's faults; the packages are then made again the next time.
        """
        context, name = self._context, self._name
        listed = list(context.catalog.page(name, page.number))
        self._total = len(listed)
        packages: list[ResourcePackage] = []
        package, paths = self._new_package(), ResourcePaths()

        def finish() -> None:
            with closing(package):
                if package.packed:
                    packages.append(self._put(package, plan, page.number, len(packages)))

        try:
            for row in listed:
                content = self._contents.open(name, row)
                if isinstance(content, NoContent):
                    self._see(row, content.why)
                    continue
                octets, path = content.octets, paths.take(row.uri)
                if not package.builder.reserve(octets, entry_octets(row, path)):
                    try:
                        finish()
                        package, paths = self._new_package(), ResourcePaths()
                    except BaseException:
                        content.close()
                        raise
                    path = paths.take(row.uri)
                    package.builder.reserve(octets, entry_octets(row, path))
                why = package.take(path, content, row.metadata)
                if why is None:
                    package.packed.append((row, {"path": path, "length": octets}, ()))
                self._see(row, why)
            finish()
        finally:
            package.close()
        now = context.clock()
        return PagePackages(
            number=page.number,
            touched=page.touched,
            at=plan.at,
            completed=completed_at(plan.at, now, context.catalog.state(name)),
            left_out=self._left_out,
            packages=tuple(packages),
            packed_at=now,
        )

    def _see(self, row: Resource, why: Absence | None) -> None:
        """Count a resource that was packed, or left out for a reason."""
        self._seen += 1
        self._left_out += why not in (None, Absence.ELSEWHERE)
        self._elsewhere += why is Absence.ELSEWHERE
        if why in (Absence.CHANGED, Absence.GONE):
            self.doubted.append(row.uri)
        if self._seen % _TELL_EVERY == 0 or self._seen == self._total:
            self._context.listener(Progress("packing", self._seen, self._total))

    def _put(self, package: SpooledPackage[Resource], plan: PackingPlan, number: int, part: int) -> ResourcePackage:
        site, name = self._context.site, self._name
        octets, sha256 = package.put(
            documents.resource_dump_manifest(site, name, plan.at),
            lambda rows: documents.resource_entries(rows, site.resource_prefix(name)),
            functools.partial(resource_package_names, name, number, part),
            DocumentMark(generation=self._generation, latest=plan.at, is_closed=True),  # packages never change
        )
        return ResourcePackage(entries=len(package.packed), octets=octets, hash=sha256)


def package_names(name: str, page: PagePackages) -> Iterator[str]:
    """The names of a page's packages and of the copies of their manifests."""
    for part, one in enumerate(page.packages):
        yield from resource_package_names(name, page.number, part, one.hash)


def write_resource_dump(store_writer: StoreWriter, site: Site, name: str, state: ResourceDumpState) -> None:
    """Write the documents that name the packages: parts first, then their index (AMB-63)."""
    head, packages = documents.resource_dump(site, name, state)
    for document in documents.dump_documents(site, name, RESOURCE_DUMP, head, packages):
        store_writer.document(*document)
