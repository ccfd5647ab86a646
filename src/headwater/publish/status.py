"""The status of every set of a catalog: what it holds, what is published of it, how long changes have been waiting.

Made from a few reads of the catalog, so that the process that asks need not be the one that publishes.
"""

import datetime as dt
from collections.abc import Sequence

import msgspec

from headwater.catalog.interface import Catalog, Page, SetSnapshot
from headwater.publish.archives import all_archived, sizes
from headwater.publish.plan import is_stale
from headwater.publish.publication_state import (
    ArchiveState,
    ChangeDumpState,
    PublicationState,
    ResourceDumpState,
    decode_publication,
)


class OpenSegment(msgspec.Struct, frozen=True, kw_only=True):
    """The open Change List: how full it is, in changes and in octets (an upper bound), and since when it runs."""

    number: int
    changes: int
    octets: int
    from_: dt.datetime = msgspec.field(name="from")


class ChangeDumpStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A set's Change Dump: since when it tells of changes, how large it is, how much is not packed yet."""

    from_: dt.datetime = msgspec.field(name="from")
    packages: int
    octets: int
    changes_waiting: int
    packed_at: dt.datetime | None


class ResourceDumpStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A set's Resource Dump: whether it is offered, which moment it shows at least, how large it is."""

    offered: bool
    at: dt.datetime | None
    packages: int
    octets: int
    pages_waiting: int  # pages without packages: the dump is offered when all have some
    left_out: int  # resources whose octets could not be had when they were packed


class ArchiveStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A set's archives: how many documents each lists, how much they take with the packages that they name.

    `since`: from which moment on they tell.
    """

    change_lists: int
    change_dumps: int
    resource_lists: int
    resource_dumps: int
    octets: int
    since: dt.datetime | None


class SourceSetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One set at one moment. Lags are seconds, 0 when nothing waits."""

    name: str
    phase: str  # `loading` until the first load is complete, then `open`
    resources: int
    last_seq: int  # the number of the newest change
    last_at: dt.datetime | None  # the time of the newest change, or up to which the outside is known to be recorded
    published: bool
    published_seq: int  # the newest change that the published Change Lists have
    changes_waiting: int
    changes_lag_seconds: float  # how long the oldest change that is not published has been waiting
    pages: int
    pages_stale: int  # pages whose published documents do not show everything yet; the open Change List does
    pages_pending: int  # those of them that a round of rendering has left for the next publication
    pages_lag_seconds: float  # how long the oldest of them has been waiting
    resource_list_at: dt.datetime | None
    refreshed_at: dt.datetime | None  # when pages were rendered last
    last_look_at: dt.datetime | None  # when what the set is made of was last looked at as a whole
    entries_octets: int  # an upper bound of what the entries of all pages take, uncompressed
    segments: int
    open_segment: OpenSegment | None
    resource_dump: ResourceDumpStatus | None  # None where the set offers none
    change_dump: ChangeDumpStatus | None  # None where the set offers none
    archive: ArchiveStatus | None  # None where the set has no archives

    @property
    def lag_seconds(self) -> float:
        """How long news have been waiting: changes; of a set of which nothing was ever published, everything."""
        return self.changes_lag_seconds if self.published else max(self.changes_lag_seconds, self.pages_lag_seconds)


def set_statuses(catalog: Catalog, now: dt.datetime, names: Sequence[str] = ()) -> list[SourceSetStatus]:
    """How the sets stand, by name; all, when none is named. A set that is not there is left out.

    Reads snapshot, and of each set with changes that wait the oldest; what comes meanwhile may or may not show.
    """
    wanted = frozenset(names)
    found = [(snapshot, decode_publication(snapshot.state.notes)) for snapshot in catalog.snapshots(wanted)]
    oldest = {
        snapshot.state.name: publication.open.seq + 1
        for snapshot, publication in found
        if snapshot.state.last_seq > publication.open.seq
    }
    since = catalog.times(oldest) if oldest else {}
    return [_status(snapshot, publication, since.get(snapshot.state.name), now) for snapshot, publication in found]


def _status(
    snapshot: SetSnapshot, publication: PublicationState, waiting_since: dt.datetime | None, now: dt.datetime
) -> SourceSetStatus:
    state, pages, segments = snapshot.state, snapshot.pages, snapshot.segments
    last = segments[-1] if segments else None
    resource_dump, change_dump, archive = publication.resource_dump, publication.change_dump, publication.archive
    stale = [page for page in pages if is_stale(page)]
    return SourceSetStatus(
        name=state.name,
        phase="loading" if state.opened_at is None else "open",
        resources=state.count,
        last_seq=state.last_seq,
        last_at=state.last_at,
        published=not publication.is_first,
        published_seq=publication.open.seq,
        changes_waiting=max(0, state.last_seq - publication.open.seq),
        changes_lag_seconds=0.0 if waiting_since is None else _seconds(now, waiting_since),
        pages=len(pages),
        pages_stale=len(stale),
        pages_pending=len(publication.pending),
        pages_lag_seconds=max((_seconds(now, page.stale_at) for page in stale if page.stale_at), default=0.0),
        resource_list_at=publication.at,
        refreshed_at=publication.refreshed_at,
        last_look_at=publication.looked_at,
        entries_octets=sum(page.weight for page in pages),
        segments=len(segments),
        open_segment=None
        if last is None
        else OpenSegment(number=last.number, changes=last.last - last.first + 1, octets=last.weight, from_=last.from_),
        resource_dump=None if resource_dump is None else _resource_dump(resource_dump, pages),
        change_dump=None if change_dump is None else _change_dump(change_dump, state.last_seq),
        archive=None if archive is None else _archive(archive),
    )


def _resource_dump(dump: ResourceDumpState, pages: Sequence[Page]) -> ResourceDumpStatus:
    packed = {one.number for one in dump.pages}
    packages = [one for page in dump.pages for one in page.packages]
    return ResourceDumpStatus(
        offered=dump.is_offered,
        at=min((one.at for one in dump.pages), default=None),
        packages=len(packages),
        octets=sum(one.octets for one in packages),
        pages_waiting=sum(1 for page in pages if page.count and page.number not in packed),
        left_out=sum(one.left_out for one in dump.pages),
    )


def _change_dump(dump: ChangeDumpState, last_seq: int) -> ChangeDumpStatus:
    packed = dump.packages[-1].last if dump.packages else dump.first - 1
    return ChangeDumpStatus(
        from_=dump.from_,
        packages=len(dump.packages),
        octets=sum(one.octets for one in dump.packages),
        changes_waiting=max(0, last_seq - packed),
        packed_at=dump.packed_at,
    )


def _archive(archive: ArchiveState) -> ArchiveStatus:
    begins = [one.at for one in archive.resource_lists] + [one.at for one in archive.resource_dumps]
    begins += [one.from_ for one in archive.change_lists] + [one.from_ for one in archive.change_dumps]
    return ArchiveStatus(
        change_lists=len(archive.change_lists),
        change_dumps=len(archive.change_dumps),
        resource_lists=len(archive.resource_lists),
        resource_dumps=len(archive.resource_dumps),
        octets=sum(dict(size for one in all_archived(archive) for size in sizes(one)).values()),
        since=min(begins, default=None),
    )


def _seconds(now: dt.datetime, then: dt.datetime) -> float:
    return max(0.0, (now - then).total_seconds())
