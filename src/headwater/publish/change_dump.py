"""The Change Dump of a set: which changes are packed next, their packages, and the document that names them.

Packages follow the segments of the change log: the changes of a closed segment are one package, or several when it has
more than a package may; then the open segment's so far, which is made anew now and then. A package covers its times
half-open (AMB-11): it begins where the one before ends, and one that does not end with its segment ends a microsecond
after its last change, which the catalog gives to no other.

The octets of changes are those of versions that are kept, or of the resource while it is as the change has left it.
Which versions are needed follows from that: those of changes that are in no final package yet, of patches to come, of
histories. The next patch of a resource starts from the version that it has now.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import msgspec

from headwater.catalog.content import Absence, ContentReader, NoContent, OpenContent, strongest_digest
from headwater.catalog.interface import Catalog, Change, Metadata, Segment
from headwater.progress import Notice, Progress, of_set
from headwater.publish import document_content
from headwater.publish.added_links import EntryPlace
from headwater.publish.document_names import CHANGE_DUMP
from headwater.publish.package_builder import (
    NOTHING_PACKED,
    Packing,
    PackResult,
    SpooledPackage,
    entry_octets,
    file_name,
)
from headwater.publish.patches import patches_of
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import ChangeDumpState, ChangePackage, decode_publication
from headwater.publish.site import SetSettings, change_dump_name, change_package_names
from headwater.publish.store_writer import PublicationJob, changes_between
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, sha256_of
from headwater.spec.times import MICROSECOND
from headwater.versions.history import History, has_history
from headwater.versions.predecessors import Predecessors
from headwater.versions.retention import DigestSet, needed_digests
from headwater.versions.store import VersionStore

UNKNOWN_TYPE = "application/octet-stream"
_PATCH_LINK_OCTETS = 300  # what the link to a patch takes in a manifest, besides its address
_TELL_EVERY = 500
MOST_PACKAGES = 20_000
"""So many stand in a Change Dump, which is one document even where each has the longest URLs (RS-LIM-01)."""


class PackagePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to pack: `first` to `last` of a segment, as far as they fit. `until` None: the segment is open."""

    segment: int
    first: int
    last: int
    from_: dt.datetime
    until: dt.datetime | None


def kept(state: ChangeDumpState, segments: Sequence[Segment], first: int) -> ChangeDumpState:
    """The Change Dump without what is of segments before number `first`: they have left the Change Lists.

    Of more than MOST_PACKAGES the oldest leave it, too.
    """
    begin = next((one for one in segments if one.number >= first), segments[-1])
    packages = tuple(one for one in state.packages[-MOST_PACKAGES:] if one.segment >= begin.number)
    if packages:
        return msgspec.structs.replace(state, first=packages[0].first, from_=packages[0].from_, packages=packages)
    is_later = state.first >= begin.first and state.from_ >= begin.from_
    return state if is_later else ChangeDumpState(first=begin.first, from_=begin.from_)


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
        is_time = (
            state.packed_at is None
            or abs((now - state.packed_at).total_seconds()) >= settings.change_dump_seconds  # the clock may be set back
        )
        return plan if not is_known and (at_once or is_full or is_time) else None
    return None


def change_dump_names(name: str, state: ChangeDumpState) -> Iterator[str]:
    """The Change Dump, and the packages with the copies of their manifests."""
    yield change_dump_name(name)
    for one in state.packages:
        yield from change_package_names(name, one.segment, one.hash)


def publish_change_dump(job: PublicationJob) -> ChangeDumpState:
    """Take out of the Change Dump what has left the Change Lists; the new state.

    One of which a package was lost or damaged begins anew after all that is packed for good. Nothing is packed here, so
    that Change Lists never wait for packages.
    """
    before, segments = job.publication.change_dump, job.snapshot.segments
    state = before or ChangeDumpState(first=segments[-1].first, from_=segments[-1].from_)
    if job.refresh is Refresh.ALL:
        names = [name for one in state.packages for name in change_package_names(job.name, one.segment, one.hash)]
        if not all(map(job.context.is_as_left, names)):
            state = ChangeDumpState(first=state.next_first, from_=state.next_from)
    state = kept(state, segments, max(job.first, job.publication.history))
    if state != before or job.refresh is Refresh.ALL:
        job.store_writer.document(*document_content.change_dump(job.context.site, job.name, state))
    return state


def pack_changes(packing: Packing, settings: SetSettings, *, at_once: bool, stop: Callable[[], None]) -> PackResult:
    """Make the package of the set's Change Dump that is due, and name it (`Publisher.pack_changes`)."""
    contents, found = packing.options.change_contents, packing.look(settings) if settings.change_dump else None
    before = None if found is None else found[1].change_dump
    if contents is None or found is None or before is None:
        return NOTHING_PACKED
    (snapshot, publication), context, name = found, packing.context, settings.name
    due = next_package(before, snapshot.segments, settings, context.clock(), at_once=at_once)
    if due is None:
        return NOTHING_PACKED
    place = EntryPlace.CHANGE_DUMP_MANIFEST
    package: SpooledPackage[Change] = packing.package(settings, publication.generation, place, stop)
    with closing(package):
        names: tuple[str, ...] = ()
        for change in changes_between(context.catalog, name, due.first - 1, due.last):
            stop()
            if not _take(package, contents, change):
                break  # there is no room for it, or no octets
            if len(package.packed) % _TELL_EVERY == 0:
                of_set(context.listener, name)(Progress("packing", len(package.packed), due.last - due.first + 1))
        if package.packed:
            one = _put(package, due)
            state = msgspec.structs.replace(before, packages=(*before.final, one), packed_at=context.clock())
            names = change_package_names(name, one.segment, one.hash)
        else:  # begin anew after a change whose octets cannot be had (RS-CDM-10)
            text = f"the content of change {change.seq:,} is missing: Change Dumps begin anew after it"
            context.listener(Notice("HW-PUB-13", text, f"{name}: {change.uri[:200]}"))
            state = ChangeDumpState(first=change.seq + 1, from_=change.at + MICROSECOND)
    documented = document_content.change_dump(context.site, name, state)
    packing.name(CHANGE_DUMP, settings, publication, state, change_dump_names, names, [documented])
    return PackResult(is_done=True)


def _take(package: SpooledPackage[Change], contents: KeptContents, change: Change) -> bool:
    """Pack a change; False where the package is full before it, or its octets cannot be had."""
    if change.change is ChangeKind.DELETED:
        is_packed = package.builder.reserve(0, entry_octets(change, ""))
        if is_packed:
            package.packed.append((change, {}))
        return is_packed
    path = f"/changes/{change.seq:010d}/{file_name(change.uri)}"
    content = contents.open(package.settings.name, change)
    if isinstance(content, NoContent):
        return False
    if not package.builder.reserve(content.octets, entry_octets(change, path)):
        content.close()
        return False
    if package.take(path, content, change.metadata) is not None:
        return False
    # RS-CDM-07: every bitstream has a type
    stated: dict[str, Any] = {"path": path, "type": change.metadata.type or UNKNOWN_TYPE}
    context, name = package.context, package.settings.name
    patch = patches_of(context.catalog, name, [change]).get(change.seq) if package.settings.patch else None
    found = None if patch is None else context.store.open(patch.name(name))
    if patch is not None and found is not None:
        path, link = f"/patches/{change.seq:010d}.{patch.suffix}", patch.link(context.site, name, change)
        if package.take(path, found, Metadata(type=link.type, length=link.length, hash=link.hash)) is None:
            package.builder.octets += patch.octets
            package.builder.manifest_octets += len(link.href) + _PATCH_LINK_OCTETS
            stated["links"] = (msgspec.structs.replace(link, path=path),)  # in a manifest it has a path (RS-CDM-11)
    package.packed.append((change, stated))
    return True


def package_of(plan: PackagePlan, last: Change) -> ChangePackage:
    """The package that was made by a plan and holds the changes up to `last`, before its octets are known.

    It ends with its segment, or right after its last change: no other has that time or an earlier one.
    """
    is_cut = last.seq < plan.last
    return ChangePackage(
        segment=plan.segment,
        first=plan.first,
        last=last.seq,
        from_=plan.from_,
        until=plan.until if plan.until is not None and not is_cut else last.at + MICROSECOND,
        octets=0,
        hash="",
        is_final=is_cut or plan.until is not None,
    )


def _put(package: SpooledPackage[Change], due: PackagePlan) -> ChangePackage:
    """Put a package of changes into the store."""
    site, name = package.context.site, package.settings.name
    one = package_of(due, package.packed[-1][0])
    octets, sha256 = package.put(
        document_content.head_of(
            Kind.CHANGE_DUMP_MANIFEST, document_content.set_links(site, name, None), from_=one.from_, until=one.until
        ),  # all changes of these times are in it (RS-CDM-02, RS-CDM-10)
        lambda rows: document_content.change_entries(rows, site.resource_prefix(name), site.profile),
        partial(change_package_names, name, one.segment),
        latest=one.until,
    )
    return msgspec.structs.replace(one, octets=octets, hash=sha256)


_ROWS_AT_ONCE = 5_000


class KeptContents(NamedTuple):
    """The changes whose versions a store keeps, by the SHA-256 that they state."""

    versions: VersionStore
    catalog: Catalog
    contents: ContentReader

    def open(self, set_name: str, change: Change) -> OpenContent | NoContent:
        """The octets of a created or updated change: of the version, else of the resource as the change has left it."""
        if strongest_digest(change.metadata) is None:
            return NoContent(Absence.CHANGED)
        sha256 = sha256_of(change.metadata.hash)
        content = self.versions.open(sha256) if sha256 else None
        if content is not None and change.metadata.length in (None, content.octets):
            return content
        if content is not None:  # cut off by whatever has damaged the disk
            content.close()
        held = self.catalog.get(set_name, [change.uri]).get(change.uri)
        if held is None or held.seq != change.seq:
            return NoContent(Absence.CHANGED)
        return self.contents.open(set_name, held)


def needed_versions(catalog: Catalog) -> DigestSet:
    """The digests of the versions that packages and patches to come and the histories need, of all sets.

    Raises the catalog's StoreFaults.
    """
    return DigestSet(filter(None, _needed(catalog)))


def _needed(catalog: Catalog) -> Iterator[str]:
    for state in catalog.sets():
        publication, name = decode_publication(state.notes), state.name
        if (dump := publication.change_dump) is not None:
            for change in changes_between(catalog, name, dump.next_first - 1, catalog.state(name).last_seq):
                yield sha256_of(change.metadata.hash)
        keeps, after = Predecessors(publication.patch).keeps, ""
        while publication.patch and (rows := catalog.resources(name, after, _ROWS_AT_ONCE)):
            yield from (sha256_of(row.metadata.hash) for row in rows if keeps(row.metadata))
            after = rows[-1].uri
    for name in has_history(catalog):
        yield from needed_digests(History(catalog, name))
