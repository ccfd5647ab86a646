"""Makes the packages of a page of resources, and manifests that state just what was packed (RS-RDM-01 … RS-RDM-07)."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
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
from headwater.progress import Listener, Progress, silent
from headwater.publish.publication_state import PagePackages, ResourcePackage
from headwater.publish.rendering import documents
from headwater.publish.rendering.package_spool import MANIFEST_OCTETS, SMALL_OCTETS, PackageSpool, package_spool
from headwater.publish.rendering.resource_paths import ResourcePaths
from headwater.publish.resource_dumps.dump_plan import PackingPlan
from headwater.publish.site import Site, resource_package_names
from headwater.publish.store_writer import DocumentMark, StoreWriter, render_document
from headwater.spec.records import Entry

PHASE = "packing"
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
    rows = deque(packing.catalog.page(packing.name, page.number))
    total, left_out, elsewhere, puts = len(rows), 0, 0, list[Future[ResourcePackage]]()
    unsettled: list[tuple[str, int]] = []
    missing: list[str] = []
    with ThreadPoolExecutor(1, thread_name_prefix="headwater-packing") as pool:
        while rows:
            with ExitStack() as held:
                spool = held.enter_context(package_spool(packing.spool, packing.stop))
                members = _Members(packing, spool)
                members.take(rows, lambda: packing.listener(Progress(PHASE, total - len(rows), total)))
                left_out += members.left_out
                elsewhere += members.elsewhere
                unsettled += members.unsettled
                missing += members.missing[: MOST_MISSING - len(missing)]
                if members.entries:
                    if puts:
                        puts[-1].result()  # one at a time: a fault is seen soon, and the disk holds two spools at most
                    puts.append(pool.submit(_put, packing, plan, (held.pop_all(), spool), members, len(puts)))
    packages = tuple(put.result() for put in puts)
    done = PagePackages(
        number=page.number,
        touched=page.touched,
        at=plan.at,
        completed=plan.at,
        left_out=left_out,
        packages=packages,
    )
    is_mass = _is_mass(left_out - elsewhere, total - elsewhere, is_all=plan.filled <= {page.number})
    return PackedPage(done, tuple(unsettled), tuple(missing), is_mass)


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
    manifest = b"".join(render_document(head, members.entries, packing.site.profile))
    names = functools.partial(resource_package_names, packing.name, plan.page.number, part)
    # Packages never change: caches keep them for good.
    mark = DocumentMark(generation=packing.store_writer.generation, latest=plan.at, is_closed=True)
    done = spool.put(packing.store_writer, manifest, names, mark.encode)
    return ResourcePackage(entries=len(members.entries), octets=done.octets, hash=done.hash)


class _Members:
    """The members of one package on their way into the spool, and their entries."""

    def __init__(self, packing: PagePacking, spool: PackageSpool) -> None:
        self.entries: list[Entry] = []
        self.left_out = self.elsewhere = 0
        self.missing: list[str] = []
        self.unsettled: list[tuple[str, int]] = []
        self._packing = packing
        self._settings = packing.site.settings(packing.name)
        self._prefix = packing.site.resource_prefix(packing.name)
        self._spool = spool
        self._paths = ResourcePaths()
        self._octets = self._manifest_octets = 0

    def take(self, rows: deque[Resource], tell: Callable[[], None]) -> None:
        """Pack rows from the left until the package is full."""
        while rows and not self._is_full(rows[0]):
            row = rows.popleft()
            if not self._add(row):
                self.left_out += 1
                if len(self.missing) < MOST_MISSING:
                    self.missing.append(row.uri)
            if len(rows) % 500 == 0:
                tell()

    def _is_full(self, row: Resource) -> bool:
        settings, octets = self._settings, row.metadata.length or 0
        if not self.entries:
            return False
        return (
            len(self.entries) >= settings.package_entries
            or self._octets + octets > settings.package_octets
            or self._manifest_octets > MANIFEST_OCTETS
        )

    def _add(self, row: Resource) -> bool:
        content = self._packing.contents.open(self._packing.name, row)
        if isinstance(content, NoContent):
            if content.why in (Absence.CHANGED, Absence.GONE):
                self._remember(row)
            self.elsewhere += content.why is Absence.ELSEWHERE
            return False
        try:
            return self._pack(row, content)
        except ContentChanged:
            self._remember(row)
            return False
        except _Unreadable:
            return False
        finally:
            content.close()

    def _pack(self, row: Resource, content: OpenContent) -> bool:
        path, stated = self._paths.take(row.uri), row.metadata
        length = content.octets
        if length <= SMALL_OCTETS:
            try:
                octets = recorded_octets(content, stated)
            except OSError as cause:
                raise _Unreadable from cause
            self._spool.add_whole(path[1:], octets, stated.type)
        elif not self._spool.add(path[1:], _readable(recorded_blocks(content, stated)), length, stated.type):
            raise ContentChanged
        self.entries.append(documents.packed_entry(row, self._prefix, path, length))
        self._octets += length
        self._manifest_octets += weight(row.uri, stated) + len(self._prefix) + 6 * len(path)
        return True

    def _remember(self, row: Resource) -> None:
        self.unsettled.append((row.uri, row.seq))


def _readable(blocks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from blocks
    except OSError as cause:
        raise _Unreadable from cause
