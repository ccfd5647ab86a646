"""The Change Dump of a set: which changes are packed next, their packages, and the document that names them.

Packages follow the segments of the change log: the changes of a closed segment are one package, or several when it has
more than a package may; then the open segment's so far, which is made anew now and then. A package covers its times
half-open (AMB-11): it begins where the one before ends, and one that does not end with its segment ends a microsecond
after its last change, which the catalog gives to no other.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import ClassVar

import msgspec

from headwater.catalog.content import NoContent
from headwater.catalog.interface import Change, Metadata, Segment, SetSnapshot
from headwater.progress import Notice, Progress, of_set
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.capabilities import CHANGE_DUMP, Capability
from headwater.publish.packages.builder import PackageBuilder, bounds_of, entry_octets
from headwater.publish.packages.change_contents import KeptContents
from headwater.publish.packages.packer import DumpPacker, Made
from headwater.publish.packages.paths import file_name
from headwater.publish.packages.spool import PackageSpool, package_spool
from headwater.publish.patches import packed_patch
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import ChangeDumpState, ChangePackage, PublicationState
from headwater.publish.rendering import documents
from headwater.publish.rendering.renderer import PublicationJob, PublishContext, changes_between
from headwater.publish.site import SetSettings, Site, change_package_names
from headwater.publish.store_writer import DocumentMark, StoreWriter, render_document
from headwater.spec.records import ChangeKind, Entry, Link

UNKNOWN_TYPE = "application/octet-stream"
_PATCH_LINK_OCTETS = 300
"""What the link to a patch takes in a manifest, besides its address."""
_TELL_EVERY = 500
TICK = dt.timedelta(microseconds=1)


class PackagePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to pack: `first` to `last` of a segment, as far as they fit. `until` None: the segment is open."""

    segment: int
    first: int
    last: int
    from_: dt.datetime
    until: dt.datetime | None


def begun(segments: Sequence[Segment]) -> ChangeDumpState:
    """The Change Dump of a set that offers one from now on: it begins with the open segment."""
    return ChangeDumpState(first=segments[-1].first, from_=segments[-1].from_)


def kept(state: ChangeDumpState, segments: Sequence[Segment], first: int) -> ChangeDumpState:
    """The Change Dump without what is of segments before number `first`: they have left the Change Lists."""
    begin = next((one for one in segments if one.number >= first), segments[-1])
    if state.first >= begin.first and state.from_ >= begin.from_:
        return state
    packages = tuple(one for one in state.packages if one.segment >= begin.number)
    if packages:
        return msgspec.structs.replace(state, first=packages[0].first, from_=packages[0].from_, packages=packages)
    return ChangeDumpState(first=begin.first, from_=begin.from_)


def without_damaged(state: ChangeDumpState, damaged: Sequence[ChangePackage]) -> ChangeDumpState:
    """The Change Dump without packages that were lost or damaged: what follows the last of them stays.

    One that is not final is made anew.
    """
    lost = [one for one in damaged if one.is_final]
    if not lost:
        packages = tuple(one for one in state.packages if one not in damaged)
        return msgspec.structs.replace(state, packages=packages, packed_at=None) if damaged else state
    packages = tuple(one for one in state.packages if one.first > lost[-1].first and one not in damaged)
    return ChangeDumpState(first=lost[-1].last + 1, from_=lost[-1].until, packages=packages)


def begin_after(change: Change) -> ChangeDumpState:
    """The Change Dump that begins anew after a change whose octets cannot be had (RS-CDM-10)."""
    return ChangeDumpState(first=change.seq + 1, from_=change.at + TICK)


def next_package(
    state: ChangeDumpState, segments: Sequence[Segment], settings: SetSettings, now: dt.datetime, *, at_once: bool
) -> PackagePlan | None:
    """What is to be packed now; None when nothing is due. With `at_once` the open segment does not wait its time."""
    first, held = state.next_first, state.packages[len(state.final) :]
    for one in segments:
        if one.last < first:
            continue
        plan = PackagePlan(segment=one.number, first=first, last=one.last, from_=state.next_from, until=one.until)
        if one.until is not None:
            return plan
        is_known = bool(held) and held[-1].last == one.last
        is_full = one.last - first + 1 > settings.package_entries
        return plan if not is_known and (at_once or is_full or _is_time(state, settings, now)) else None
    return None


def _is_time(state: ChangeDumpState, settings: SetSettings, now: dt.datetime) -> bool:
    if state.packed_at is None:
        return True
    return abs((now - state.packed_at).total_seconds()) >= settings.change_dump_seconds  # the clock may be set back


def package(plan: PackagePlan, last: Change, octets: int, sha256: str) -> ChangePackage:
    """The package that was made by a plan and holds the changes up to `last`."""
    is_cut = last.seq < plan.last
    until = plan.until if plan.until is not None and not is_cut else end_after(last)
    return ChangePackage(
        segment=plan.segment,
        first=plan.first,
        last=last.seq,
        from_=plan.from_,
        until=until,
        octets=octets,
        hash=sha256,
        is_final=is_cut or plan.until is not None,
    )


def end_after(change: Change) -> dt.datetime:
    """The end of a package whose last change this is: no other change has that time or an earlier one."""
    return change.at + TICK


def with_package(state: ChangeDumpState, one: ChangePackage, now: dt.datetime) -> ChangeDumpState:
    """The Change Dump with one more package, which takes the place of the one that was not final."""
    return msgspec.structs.replace(state, packages=(*state.final, one), packed_at=now)


class ChangeDumpPacker(DumpPacker[ChangeDumpState, PackagePlan]):
    """Packs the changes of Change Dumps that are due."""

    folder = "changedump/"
    field = "change_dump"

    def __init__(
        self,
        context: PublishContext,
        locks: Mapping[str, Lock],
        etags: dict[str, str],
        spool: Path | None,
        contents: KeptContents | None,
    ) -> None:
        super().__init__(context, locks, etags, spool)
        self._contents = contents

    def _due(
        self, settings: SetSettings, snapshot: SetSnapshot, state: ChangeDumpState, *, at_once: bool
    ) -> PackagePlan | None:
        if self._contents is None or not settings.change_dump:
            return None
        return next_package(state, snapshot.segments, settings, self._context.clock(), at_once=at_once)

    def _make(
        self,
        settings: SetSettings,
        state: ChangeDumpState,
        due: PackagePlan,
        store_writer: StoreWriter,
        stop: Callable[[], None],
    ) -> Made[ChangeDumpState]:
        """Make the package; a dump begins anew after a first change whose octets cannot be had (RS-CDM-10)."""
        context, name = self._context, settings.name
        assert self._contents is not None
        with package_spool(self._spool, stop) as spool:
            members = _Members(context, settings, self._contents, spool)
            for change in changes_between(context.catalog, name, due.first - 1, due.last):
                stop()
                if not members.take(change):
                    break
                if len(members.packed) % _TELL_EVERY == 0:
                    of_set(context.listener, name)(Progress("packing", len(members.packed), due.last - due.first + 1))
            if not members.packed:
                text = f"the octets of change {change.seq:,} cannot be had: Change Dumps begin anew after it"
                context.listener(Notice("HW-PUB-13", text, f"{name}: {change.uri[:200]}"))
                return Made(state=begin_after(change))
            one = package(due, members.packed[-1][0], 0, "")
            head = documents.change_dump_manifest(context.site, name, one.from_, one.until)
            manifest = b"".join(render_document(head, members.entries(), context.site.profile))
            names = functools.partial(change_package_names, name, one.segment)
            done = spool.put(members.builder.zip, manifest, store_writer, names, _mark(store_writer.generation, one))
        one = msgspec.structs.replace(one, octets=done.octets, hash=done.hash)
        return Made(state=with_package(state, one, context.clock()), names=names(one.hash))

    def _is_offered(self, state: ChangeDumpState) -> bool:
        """Never: a package is waited for."""
        return False

    def _names(self, name: str, state: ChangeDumpState) -> Iterable[str]:
        return change_dump_names(name, state)

    def _write(
        self, store_writer: StoreWriter, settings: SetSettings, before: ChangeDumpState, state: ChangeDumpState
    ) -> None:
        write_change_dump(store_writer, self._context.site, settings.name, state)


class _Members:
    """The members of one package: the octets that each change has left, in order."""

    def __init__(
        self, context: PublishContext, settings: SetSettings, contents: KeptContents, spool: PackageSpool
    ) -> None:
        self.builder = PackageBuilder(bounds_of(settings))
        self.packed: list[tuple[Change, str | None, Link | None]] = []
        """Each with the path of its octets and the link to its patch."""
        self._context = context
        self._settings = settings
        self._contents = contents
        self._spool = spool

    def take(self, change: Change) -> bool:
        """Pack a change; False where the package is full before it, or its octets cannot be had."""
        path, octets = None, 0
        if change.change is not ChangeKind.DELETED:
            path = f"/changes/{change.seq:010d}/{file_name(change.uri)}"
            octets = change.metadata.length or 0
        entry = entry_octets(change, path or "")
        if self.packed and not self.builder.has_room(octets, entry):
            return False
        if path is not None:
            content = self._contents.open(self._settings.name, change)
            if isinstance(content, NoContent):
                return False
            octets = content.octets
            if self._spool.take(self.builder.zip, self.builder.member(path[1:], content, change.metadata)) is not None:
                return False
        self.builder.count(octets, entry)
        self.packed.append((change, path, self._packed_patch(change)))
        return True

    def _packed_patch(self, change: Change) -> Link | None:
        """The link to the patch of a change, which is packed as well: in a manifest it has a path (RS-CDM-11)."""
        context, name = self._context, self._settings.name
        if change.change is not ChangeKind.UPDATED or not self._settings.patch:
            return None
        if (found := packed_patch(context.catalog, context.store, name, change)) is None:
            return None
        patch, octets = found
        path = f"patches/{change.seq:010d}.{patch.suffix}"
        stated = Metadata(type=patch.media_type, length=len(octets))
        self._spool.take(self.builder.zip, self.builder.member(path, octets, stated))
        link = patch.link(context.site, name, change)
        self.builder.count(len(octets), len(link.href) + _PATCH_LINK_OCTETS)
        self.builder.entries -= 1
        return msgspec.structs.replace(link, path=f"/{path}")

    def entries(self) -> Iterator[Entry]:
        """The entries of the manifest, with the links that the set's rules add."""
        site, name = self._context.site, self._settings.name
        added = AddedLinks(site, self._settings, self._context.catalog)
        room = added.room(self.builder.manifest_octets, len(self.packed))
        changes = (change for change, _path, _patch in self.packed)
        rows = added.to(changes, EntryPlace.CHANGE_DUMP_MANIFEST, room)
        entries = documents.change_entries(rows, site.resource_prefix(name), site.profile)
        for entry, (_change, path, patch) in zip(entries, self.packed, strict=True):
            if path is None:
                yield entry
                continue
            linked = entry.links if patch is None else (*entry.links, patch)
            # RS-CDM-07: every bitstream has a type
            yield msgspec.structs.replace(entry, path=path, type=entry.type or UNKNOWN_TYPE, links=linked)


def _mark(generation: str, one: ChangePackage) -> Callable[[], str]:
    """What is kept with a package: it never changes, so that caches keep it for good."""
    mark = DocumentMark(
        generation=generation,
        latest=one.until,
        number=one.segment,
        from_=one.from_,
        seq=one.last,
        changed=None,
        is_closed=True,
    )
    return mark.encode


class ChangeDumps:
    """The Change Dump of one set during one publication: what has left the Change Lists leaves it, too.

    Nothing is packed here, so that Change Lists never wait for packages.
    """

    capabilities: ClassVar[tuple[Capability, ...]] = (CHANGE_DUMP,)

    def __init__(self, job: PublicationJob) -> None:
        self._job = job
        self._state = job.publication.change_dump

    @staticmethod
    def published(name: str, publication: PublicationState) -> Iterator[str]:
        """The Change Dump, or its index and the parts, and the packages with the copies of their manifests."""
        if publication.change_dump is not None:
            yield from change_dump_names(name, publication.change_dump)

    def publish(self) -> None:
        """Write what is due."""
        job, before = self._job, self._state
        if not job.settings.change_dump:
            self._state = None
            return
        segments = job.snapshot.segments
        state = before or begun(segments)
        state = kept(state, segments, max(job.first, job.publication.history))
        if job.refresh is Refresh.ALL:
            state = without_damaged(state, [one for one in state.packages if not self._is_sound(one)])
        if state != before or job.refresh is Refresh.ALL:
            write_change_dump(job.store_writer, job.context.site, job.name, state)
        self._state = state

    def _is_sound(self, one: ChangePackage) -> bool:
        names = change_package_names(self._job.name, one.segment, one.hash)
        return all(self._job.integrity.is_as_left(name) for name in names)

    def result(self, publication: PublicationState) -> PublicationState:
        """The state with the dump's."""
        return msgspec.structs.replace(publication, change_dump=self._state)


def change_dump_names(name: str, state: ChangeDumpState) -> Iterator[str]:
    """The documents and packages of a set's Change Dump."""
    yield from documents.change_dump_names(name, state)
    for one in state.packages:
        yield from change_package_names(name, one.segment, one.hash)


def write_change_dump(store_writer: StoreWriter, site: Site, name: str, state: ChangeDumpState) -> None:
    """Write the documents that name the packages: parts first, then their index (AMB-63)."""
    for document, head, entries in documents.change_dumps(site, name, state):
        store_writer.document(document, head, entries)
