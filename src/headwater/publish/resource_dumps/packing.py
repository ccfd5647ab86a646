"""Makes the packages of a page of resources, and manifests that state just what was packed (RS-RDM-01 … RS-RDM-07)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import groupby
from pathlib import Path

import msgspec

from headwater.catalog.content import (
    Absence,
    ContentChanged,
    ContentReader,
    NoContent,
    OpenContent,
    recorded_blocks,
    recorded_octets,
)
from headwater.catalog.entry_size import weight
from headwater.catalog.interface import Catalog, Page, Resource
from headwater.deletion_guard import FLOOR, needs_consent
from headwater.packages.zip_writer import PackedMember
from headwater.progress import Listener, Progress, silent
from headwater.publish.links.added_links import AddedLinks
from headwater.publish.links.link_sources import EntryPlace
from headwater.publish.publication_state import PagePackages, ResourcePackage
from headwater.publish.rendering import documents
from headwater.publish.rendering.package_spool import SMALL_OCTETS, PackageSpool, package_spool, spool_file
from headwater.publish.resource_dumps.dump_plan import PackingPlan
from headwater.publish.resource_dumps.member_batches import (
    MadeBatch,
    MemberMaker,
    PageCutter,
    PlannedMember,
)
from headwater.publish.site import Site, resource_package_names
from headwater.publish.store_writer import DocumentMark, StoreWriter, render_document
from headwater.spec.records import Entry

PHASE = "packing"
SPOOLS = 3
"""Packages of which something is on the disk: one is put into the store, one is packed, the next is begun."""
_ESCAPED = 6
"""A character of a path becomes so many octets at most when it is escaped."""
MOST_MISSING = 100
"""Of so many resources that were left out of a page it is looked later whether they can be had."""


class PagePacking(msgspec.Struct, frozen=True, kw_only=True):
    """With what the packages of a page are made. `spool` is the folder of the spool; `stop` raises to end early."""

    site: Site
    name: str
    catalog: Catalog
    contents: ContentReader
    store_writer: StoreWriter
    spool: Path | None = None
    stop: Callable[[], None] = lambda: None
    listener: Listener = silent


class PackedPage(msgspec.Struct, frozen=True):
    """What came of packing a page.

    `unsettled` are resources that were left out because they are not as they were recorded: URI and number of the last
    change. Who has only the dump comes to know of them by a later change; if none is recorded, they must be packed.
    `missing` are the URIs of some of all that were left out. `is_mass`: so much that should be here cannot be had that
    the packages must not be named.
    """

    packages: PagePackages
    unsettled: tuple[tuple[str, int], ...] = ()
    missing: tuple[str, ...] = ()
    is_mass: bool = False


class _Unreadable(Exception):
    """A resource cannot be read: no fault of the spool."""


def pack_page(packing: PagePacking, plan: PackingPlan, page: Page) -> PackedPage:
    """Make the packages of a page and put them, with copies of their manifests, into the store; nothing names them yet.

    A resource whose octets cannot be read, or are not the recorded ones, is left out. Raises OSError of the spool, the
    store's and the catalog's faults; the packages are then made again the next time.
    """
    rows = list(packing.catalog.page(packing.name, page.number))
    name, site = packing.name, packing.site
    cutter = PageCutter(name, site.settings(name), site.resource_prefix(name), packing.contents)
    packed, puts = _Tally(packing, len(rows)), list[Future[ResourcePackage]]()
    with (
        ExitStack() as files,
        ThreadPoolExecutor(1, thread_name_prefix="headwater-packing") as pool,
    ):
        maker = MemberMaker([files.enter_context(spool_file(packing.spool)) for _ in range(SPOOLS)], packing.stop)
        made = maker.made(cutter.batches(rows), cutter.processes_for(rows))
        batches = files.enter_context(closing(made))
        for (_part, file), some in groupby(batches, lambda one: (one.batch.part, one.file)):
            with ExitStack() as held:
                if file is not None:
                    held.callback(maker.give_back, file)
                spool = held.enter_context(package_spool(packing.spool, packing.stop, file))
                members = _Members(packing, spool, packed)
                for one in some:
                    members.take(one)
                if members.packed:
                    if puts:
                        puts[-1].result()  # one at a time: a fault is seen soon, and the disk holds few spools at most
                    puts.append(pool.submit(_put, packing, plan, (held.pop_all(), spool), members, len(puts)))
    packages = tuple(put.result() for put in puts)
    done = PagePackages(
        number=page.number,
        touched=page.touched,
        at=plan.at,
        completed=plan.at,
        left_out=packed.left_out,
        packages=packages,
    )
    absent, here = packed.left_out - packed.elsewhere, packed.total - packed.elsewhere
    is_mass = _is_mass(absent, here, is_all=plan.filled <= {page.number})
    return PackedPage(done, tuple(packed.unsettled), tuple(packed.missing), is_mass)


def _is_mass(absent: int, held: int, *, is_all: bool) -> bool:
    """Whether so many of the resources of a page cannot be had as would be held back if they were deleted (DST-F9).

    A disk that is not mounted looks so. A few never count, unless they are all that the set has.
    """
    return (absent > FLOOR or is_all) and needs_consent(absent, held)


def _put(
    packing: PagePacking, plan: PackingPlan, spooled: tuple[ExitStack, PackageSpool], members: _Members, part: int
) -> ResourcePackage:
    """Finish a package, in a thread: digests and files need no interpreter, so the next is packed meanwhile."""
    held, spool = spooled
    with held:
        return _finished(packing, plan, spool, members, part)


def _finished(
    packing: PagePacking, plan: PackingPlan, spool: PackageSpool, members: _Members, part: int
) -> ResourcePackage:
    assert plan.page is not None
    head = documents.resource_dump_manifest(packing.site, packing.name, plan.at)
    manifest = b"".join(render_document(head, members.linked_entries(), packing.site.profile))
    names = functools.partial(resource_package_names, packing.name, plan.page.number, part)
    # Packages never change: caches keep them for good.
    mark = DocumentMark(generation=packing.store_writer.generation, latest=plan.at, is_closed=True)
    done = spool.put(packing.store_writer, manifest, names, mark.encode)
    return ResourcePackage(entries=len(members.packed), octets=done.octets, hash=done.hash)


class _Tally:
    """What came of the resources of a page so far."""

    def __init__(self, packing: PagePacking, total: int) -> None:
        self.total = total
        self.left_out = self.elsewhere = 0
        self.missing: list[str] = []
        self.unsettled: list[tuple[str, int]] = []
        self._seen = 0
        self._listener = packing.listener

    def leave_out(self, row: Resource) -> None:
        """The octets of this one cannot be had."""
        self.left_out += 1
        if len(self.missing) < MOST_MISSING:
            self.missing.append(row.uri)

    def see(self, count: int) -> None:
        """So many more were looked at: say how far it has got."""
        self._seen += count
        self._listener(Progress(PHASE, self._seen, self.total))


class _Members:
    """The members of one package on their way into the spool, and what their entries are made of."""

    def __init__(self, packing: PagePacking, spool: PackageSpool, tally: _Tally) -> None:
        self.packed: list[tuple[Resource, str, int]] = []
        """Each with its path and its length."""
        self._packing = packing
        self._spool = spool
        self._tally = tally

    def take(self, made: MadeBatch) -> None:
        """Pack a batch, of which some members are made and the others are not."""
        ready: list[PackedMember] = []
        place, planned = made.place, made.batch.members
        for one, member in zip(planned, made.members, strict=True):
            if member is not None:
                assert one.file is not None
                ready.append(member)
                self._enter(one, one.file[1][0])
                continue
            place = self._spool.append(ready, place)
            ready = []
            if not self._add(one):
                self._tally.leave_out(one.row)
        self._spool.append(ready, place)
        self._tally.see(len(planned))

    def _enter(self, planned: PlannedMember, length: int) -> None:
        self.packed.append((planned.row, planned.path, length))

    def linked_entries(self) -> Iterator[Entry]:
        """The entries of the manifest, with the links that the set's rules add."""
        site, name = self._packing.site, self._packing.name
        prefix = site.resource_prefix(name)
        for row, (_row, path, length) in zip(self._linked(), self.packed, strict=True):
            yield documents.packed_entry(row, prefix, path, length)

    def _linked(self) -> Iterator[Resource]:
        packing = self._packing
        added = AddedLinks(packing.site, packing.site.settings(packing.name), packing.catalog)
        weights = 0
        if added.is_on:
            weights = sum(weight(row.uri, row.metadata) + _ESCAPED * len(path) for row, path, _length in self.packed)
        rows = (row for row, _path, _length in self.packed)
        return added.to(rows, EntryPlace.RESOURCE_DUMP_MANIFEST, added.room(weights, len(self.packed)))

    def _add(self, planned: PlannedMember) -> bool:
        """Pack what was not made of a file, whatever it is; False when it cannot be had."""
        row = planned.row
        content = self._packing.contents.open(self._packing.name, row)
        if isinstance(content, NoContent):
            if content.why in (Absence.CHANGED, Absence.GONE):
                self._remember(row)
            self._tally.elsewhere += content.why is Absence.ELSEWHERE
            return False
        try:
            self._pack(planned, content)
        except ContentChanged:
            self._remember(row)
            return False
        except _Unreadable:
            return False
        finally:
            content.close()
        return True

    def _pack(self, planned: PlannedMember, content: OpenContent) -> None:
        name, stated, length = planned.path[1:], planned.row.metadata, content.octets
        if length <= SMALL_OCTETS:
            try:
                octets = recorded_octets(content, stated)
            except OSError as cause:
                raise _Unreadable from cause
            self._spool.add_whole(name, octets, stated.type)
        elif not self._spool.add(name, _readable(recorded_blocks(content, stated)), length, stated.type):
            raise ContentChanged
        self._enter(planned, length)

    def _remember(self, row: Resource) -> None:
        self._tally.unsettled.append((row.uri, row.seq))


def _readable(blocks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from blocks
    except OSError as cause:
        raise _Unreadable from cause
