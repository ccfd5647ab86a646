"""Archives of a source: what leaves is kept, what is shown at a period is kept as it was, within bounds (RS-ARC)."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.catalog.interface import Delete
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.publish import archives as documents
from headwater.publish import plan, whole_lists
from headwater.publish.archives import within_bounds
from headwater.publish.plan import Refresh
from headwater.publish.publication_state import (
    ArchivedChangeDump,
    ArchivedChangeList,
    ArchivedResourceDump,
    ArchivedResourceList,
    ArchiveState,
    ChangePackage,
    PagePackages,
    ResourcePackage,
    decode_publication,
)
from headwater.publish.publisher import Publisher
from headwater.publish.site import SetSettings, Site, change_segment_name
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Entry
from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import XML, Mark, ObjectKind, PutResult
from tests.publish.archives.archive_reader import ArchivedDocument, read_archives
from tests.publish.change_history import ChangingCatalog
from tests.publish.dump_reader import read_named
from tests.publish.packed_catalog import PackedCatalog, read_resource_dump
from tests.support.published import BASE, PublishedCatalog, put
from tests.support.waiting import START

HOUR = 3_600.0
DAY = 24 * HOUR
LISTS, CHANGES = "resourcelist-archive", "changelist-archive"
ARCHIVED: dict[str, Any] = {
    "archive": True,
    "archive_seconds": DAY,
    "retention_seconds": DAY,
    "refresh_seconds": 60.0,
    "renew_seconds": 2 * HOUR,
}


def world_of(folder: Path, **settings: object) -> PublishedCatalog:
    return PublishedCatalog(folder, sets=(SetSettings(**ARCHIVED | settings),))


def state_of(world: PublishedCatalog) -> ArchiveState:
    found = decode_publication(world.catalog.state("files").notes).archive
    assert found is not None
    return found


def live_for_a_day(world: PublishedCatalog, day: int) -> None:
    """Changes to three resources, seen by pages; what was closed the day before has been shown for a day."""
    world.record(put("r0", day), put(f"n{day}", day), *([Delete(f"n{day - 1}")] if day % 2 else []))
    world.publish()
    world.clock.sleep(HOUR)
    world.publish(force=True)
    world.clock.sleep(DAY)
    world.publish()


def state_at(archives: dict[str, list[ArchivedDocument]], moment: dt.datetime) -> dict[str, str] | None:
    """What the newest snapshot before `moment` and the archived changes after it come to; None: not all are there."""
    known = [one for one in archives[LISTS] if one.head.completed and one.head.completed <= moment]
    if not known or known[-1].head.at is None:
        return None
    at = reach = known[-1].head.at
    state = {entry.loc: str(entry.hash) for entry in known[-1].entries}
    for one in archives[CHANGES]:
        assert one.head.from_ is not None
        if one.head.until is None or one.head.until < reach:
            continue
        if one.head.from_ > reach:
            return None
        apply([entry for entry in one.entries if entry.datetime and at < entry.datetime <= moment], state)
        reach = one.head.until
    return state if reach >= moment else None


def apply(changes: Iterable[Entry], state: dict[str, str]) -> None:
    for entry in changes:
        if entry.change is ChangeKind.DELETED:
            state.pop(entry.loc, None)
        else:
            state[entry.loc] = str(entry.hash)


def test_past_states_come_out_of_the_archives(tmp_path: Path) -> None:
    """RS-ARC-02…18: a history of days; each time is what the catalog held then."""
    world = world_of(tmp_path, segment_seconds=HOUR)
    world.begin(9)
    world.publish()
    truths = {}
    for day in range(1, 12):
        live_for_a_day(world, day)
        truths[world.catalog.mark("files", world.now())] = world.truth()
        world.clock.sleep(1)
        archives = read_archives(world.fetch)
    assert world.look().state == world.truth()
    assert len(archives[LISTS]) > 8
    assert len(archives[CHANGES]) > 8
    found = {moment: state_at(archives, moment) for moment in truths}
    assert len([one for one in found.values() if one is not None]) > 6
    assert all(state == truths[moment] for moment, state in found.items() if state is not None)


def test_what_leaves_the_index_is_in_the_archive_first_and_says_the_same(tmp_path: Path) -> None:
    """RS-ARC-26, RS-ARC-31, RS-ARC-32: a closed list goes on saying what it said, under a name of its own."""
    world = world_of(tmp_path, segment_seconds=HOUR)
    world.begin(3)
    world.publish()
    live_for_a_day(world, 1)
    name = change_segment_name("files", 0)
    before = world.fetch(f"{BASE}/{name}")
    while not state_of(world).change_lists:
        world.record(put("r0", 2))
        world.publish(force=True)
        world.clock.sleep(HOUR / 2)
    assert world.fetch(f"{BASE}/{name}") == before, "AMB-63: its grace is not over, and it never changes"
    (archived, *_) = read_archives(world.fetch)[CHANGES]
    assert archived.entry.loc == f"{BASE}/files/archive/changelist/00000.xml"
    assert before is not None
    copied = world.fetch(archived.entry.loc) or b""
    assert copied[copied.index(b"<url>") :] == before[before.index(b"<url>") :]
    world.clock.sleep(plan.GRACE_SECONDS + 1)
    world.publish()
    assert world.fetch(f"{BASE}/{name}") is None
    read_archives(world.fetch)


def test_a_lost_list_is_archived_from_the_catalog(tmp_path: Path) -> None:
    world = world_of(tmp_path, segment_seconds=HOUR)
    world.begin(3)
    world.publish()
    for day in range(1, 5):
        live_for_a_day(world, day)
    (first, *_) = read_archives(world.fetch)[CHANGES]
    before = world.fetch(first.entry.loc)
    world.store.delete(first.entry.loc.removeprefix(BASE + "/"))
    world.publisher.begin()
    world.publish()
    assert world.fetch(first.entry.loc) == before
    snapshot = read_archives(world.fetch)[LISTS][0]
    world.store.delete(snapshot.entry.loc.removeprefix(BASE + "/"))
    world.publisher.begin()
    world.publish()
    assert snapshot.entry.loc not in [one.entry.loc for one in read_archives(world.fetch)[LISTS]]


def test_a_resource_list_is_archived_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RS-ARC-15: once a period, where something has changed; of very many resources it is an index of pages."""
    world = world_of(tmp_path, refresh_seconds=900 * DAY, refresh_changes=1, renew_seconds=900 * DAY)
    world.begin(7)
    world.publish()
    (first,) = read_archives(world.fetch)[LISTS]
    assert {entry.loc: str(entry.hash) for entry in first.entries} == world.truth()
    assert world.publish().written == ()
    world.clock.sleep(2 * DAY)
    assert not [name for name in world.publish().written if "/archive/" in name], "it is as it was archived"
    world.record(put("r6", 5))
    monkeypatch.setattr(whole_lists, "DOCUMENT_ENTRIES", 4)
    world.clock.sleep(2 * DAY)
    world.publish()
    _, second = read_archives(world.fetch)[LISTS]
    assert second.head.kind is Kind.RESOURCE_LIST_INDEX
    assert {entry.loc: str(entry.hash) for entry in second.entries} == world.truth()
    assert first.entry.at is not None
    assert second.entry.at is not None
    assert first.entry.at < second.entry.at


def test_without_an_archive_nothing_is_archived_and_what_was_goes(tmp_path: Path) -> None:
    """AMB-30: off by default; switched off, what it named stays for an hour."""
    world = world_of(tmp_path, segment_seconds=HOUR)
    world.begin(3)
    world.publish()
    for day in range(1, 5):
        live_for_a_day(world, day)
    world.site = Site(base_url=BASE, sets=(SetSettings(),))
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    world.publish()
    assert read_archives(world.fetch) == {}
    current = [data for name, (_, _, data) in world.files().items() if "/archive/" not in name]
    assert not [data for data in current if b'rel="archives"' in data]
    assert list(world.store.names("files/archive/"))
    world.clock.sleep(plan.GRACE_SECONDS + 1)
    world.publish()
    assert not list(world.store.names("files/archive/"))


def test_dumps_that_are_replaced_stay_in_their_archive(tmp_path: Path) -> None:
    """Packages that an archived Resource Dump names stay, others go as before."""
    world = PackedCatalog(tmp_path, **ARCHIVED, dump_share=0.01)
    world.load({f"r{n}": b"content %d" % n for n in range(6)})
    for day in range(4):
        world.publish(force=True)
        world.pack()
        world.publish(force=True)
        world.clock.sleep(DAY)
        world.publish()
        world.change("r1", b"day %d" % day)
    (oldest, *others) = read_archives(world.fetch)["resourcedump-archive"]
    assert len(others) >= 2
    assert len(oldest.entries) == 6
    current = read_resource_dump(world.fetch)
    assert current is not None
    assert oldest.entries[1].hash != others[-1].entries[1].hash
    world.configure(**ARCHIVED, archive_documents=1)
    world.publish()
    world.clock.sleep(plan.GRACE_SECONDS + 1)
    world.publish(force=True)
    kept = [name for name in world.store.names("files/resourcedump/") if name.endswith(".zip")]
    named = {package for one in state_of(world).resource_dumps for package in documents.document_names("files", one)}
    assert set(kept) <= named | {name.removeprefix(BASE + "/") for name in current.packages}


def test_change_dumps_go_with_their_lists(tmp_path: Path) -> None:
    world = ChangingCatalog(tmp_path, **ARCHIVED, segment_seconds=HOUR)
    world.begin(1)
    world.publish()
    for day in range(1, 6):
        world.change("a", b"day %d" % day)
        world.publish()
        world.pack()
        world.clock.sleep(HOUR)
        world.publish(force=True)
        world.pack()
        world.clock.sleep(DAY + HOUR)
        world.publish()
        archives = read_archives(world.fetch)
    assert archives["changedump-archive"]
    for dump, list_ in zip(archives["changedump-archive"], archives[CHANGES], strict=False):
        assert (dump.head.from_, dump.head.until) == (list_.head.from_, list_.head.until)
        assert [one.loc for one in dump.entries] == [one.loc for one in list_.entries]


# bounds


def days(number: float) -> dt.datetime:
    return START + dt.timedelta(days=number)


def package(hash_: str) -> ResourcePackage:
    return ResourcePackage(entries=1, octets=100, hash=hash_)


def dump_of(number: int, *hashes: str) -> ArchivedResourceDump:
    pages = tuple(
        PagePackages(number=n, touched=0, at=days(number), completed=days(number), left_out=0, packages=(package(one),))
        for n, one in enumerate(hashes)
    )
    return ArchivedResourceDump(number=number, key="0" * 16, at=days(number), completed=days(number), pages=pages)


FULL = ArchiveState(
    change_lists=tuple(ArchivedChangeList(number=n, from_=days(n), until=days(n + 1), octets=10) for n in range(4)),
    change_dumps=(
        ArchivedChangeDump(
            number=1,
            packages=(
                ChangePackage(
                    segment=1, first=1, last=2, from_=days(1), until=days(2), octets=100, hash="x", is_final=True
                ),
            ),
        ),
    ),
    resource_lists=tuple(
        ArchivedResourceList(number=n, key="0" * 16, at=days(n), completed=days(n + 0.5), pages=0, octets=50)
        for n in range(3)
    ),
    resource_dumps=(dump_of(1, "a", "b"), dump_of(3, "b", "c")),
)


@pytest.mark.parametrize(
    ("bounds", "kept"),
    [
        pytest.param({}, ([0, 1, 2, 3], [1], [0, 1, 2], [1, 3]), id="nothing is too much"),
        pytest.param({"archive_kept_seconds": 8 * DAY}, ([1, 2, 3], [1], [2], [3]), id="by age"),
        pytest.param({"archive_documents": 3}, ([2, 3], [], [], [3]), id="by count"),
        pytest.param(
            {"archive_octets": 590}, ([0, 1, 2, 3], [1], [0, 1, 2], [1, 3]), id="a shared package counts once"
        ),
        pytest.param({"archive_octets": 589}, ([0, 1, 2, 3], [1], [1, 2], [1, 3]), id="by octets, oldest first"),
        pytest.param({"archive_octets": 1}, ([], [], [], []), id="too little for anything"),
    ],
)
def test_bounds(bounds: dict[str, float], kept: tuple[list[int], ...]) -> None:
    """In whole documents, the oldest of all archives first."""
    found = within_bounds(FULL, SetSettings(archive=True, **bounds), days(10))  # type: ignore[arg-type]
    lists = (found.change_lists, found.change_dumps, found.resource_lists, found.resource_dumps)
    assert tuple([one.number for one in some] for some in lists) == kept


def test_what_is_too_old_is_named_no_more_and_stays_for_an_hour(tmp_path: Path) -> None:
    """AMB-63: never a document that something named a moment ago."""
    world = world_of(tmp_path, segment_seconds=HOUR, archive_kept_seconds=3 * DAY)
    world.begin(3)
    world.publish()
    for day in range(1, 4):
        live_for_a_day(world, day)
    named = {one.entry.loc for some in read_archives(world.fetch).values() for one in some}
    world.clock.sleep(30 * DAY)
    world.record(put("last", 1))
    world.publish()
    still = {one.entry.loc for some in read_archives(world.fetch).values() for one in some}
    assert named - still
    assert all(world.fetch(one) is not None for one in named)
    world.clock.sleep(plan.GRACE_SECONDS + 1)
    world.publish(force=True)
    assert not any(world.fetch(one) for one in named - still)
    read_archives(world.fetch)


# kills and begun-anew histories


class Killed(BaseException):
    """The process is gone."""


class Mortal(FolderStore):
    """A store in a process that dies after so many writes or removals."""

    left = 10**9

    def put(self, name: str, chunks: Iterable[bytes], kind: ObjectKind = XML, mark: Mark | None = None) -> PutResult:
        stored = super().put(name, self._chunks(chunks), kind, mark)
        self._step()
        return stored

    def delete(self, name: str) -> None:
        self._step()
        super().delete(name)

    def _chunks(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._step()
            yield chunk

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


def test_killed_anywhere_no_archive_names_what_is_missing(tmp_path: Path) -> None:
    """RS-ARC-13, AMB-63: publications of 30 days die at a step each; what readers find is whole at any time."""
    chance = random.Random(4)
    world = world_of(tmp_path, segment_seconds=HOUR, archive_kept_seconds=6 * DAY)
    world.begin(9)
    world.publish()
    kills = 0
    for day in range(1, 31):
        world.record(put("r0", day), put(f"n{day}", day))
        for sleep, force in ((HOUR, True), (DAY, False)):
            kills += _dies(world, chance, force=force)
            read_archives(world.fetch)
            world.look()
            world.publish(force=force)
            world.clock.sleep(sleep)
    archives = read_archives(world.fetch)
    assert kills > 30
    assert world.look().state == world.truth()
    assert len(archives[LISTS]) > 3
    assert len(archives[CHANGES]) > 3
    world.clock.sleep(plan.GRACE_SECONDS + 1)
    world.publisher.begin()
    world.publisher.publish("files", world.catalog.mark("files", world.now()), Refresh.ALL)
    world.clock.sleep(plan.GRACE_SECONDS + 1)
    world.publish()
    state = state_of(world)
    named = set(documents.archive_names("files", state, (LISTS, CHANGES)))
    assert set(world.store.names("files/archive/")) <= named, "what the killed have left is cleaned away"


def _dies(world: PublishedCatalog, chance: random.Random, *, force: bool) -> int:
    """Publish in a process that dies somewhere, before or after the note; 1 when it did."""
    store = Mortal(world.folder / "documents", durable=False)
    store.left = chance.randrange(25)
    publisher = Publisher(world.catalog, store, world.site, world.now)
    note = world.catalog.note
    is_noted = chance.random() < 0.5

    def failing_note(name: str, notes: bytes) -> None:
        raise Killed

    if not is_noted:
        world.catalog.note = failing_note  # type: ignore[method-assign]
    try:
        publisher.publish("files", world.catalog.mark("files", world.now()), Refresh.STALE if force else Refresh.DUE)
    except Killed:
        return 1
    finally:
        world.catalog.note = note  # type: ignore[method-assign]
    return 0


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_history_that_begins_anew(tmp_path: Path, is_moved: bool) -> None:
    """RS-ARC-19: what was archived stays true, and the times tell the gap; of other URIs nothing stays."""
    world = world_of(tmp_path, segment_seconds=HOUR)
    world.begin(3)
    world.publish()
    for day in range(1, 5):
        live_for_a_day(world, day)
    before = read_archives(world.fetch)[CHANGES]
    assert before
    if is_moved:
        world.site = Site(base_url=BASE, sets=(SetSettings(**ARCHIVED, resource_base="http://other.example/"),))
    else:
        world.catalog.close()
        saved = (tmp_path / "catalog.sqlite").read_bytes()
        world.catalog = SqliteCatalog(tmp_path / "catalog.sqlite", limits=world.catalog.limits)
        world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
        for day in range(5, 8):
            live_for_a_day(world, day)
        world.catalog.close()
        (tmp_path / "catalog.sqlite").write_bytes(saved)
        world.catalog = SqliteCatalog(tmp_path / "catalog.sqlite", limits=world.catalog.limits)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    world.publish()
    world.record(put("after", 1))
    world.publish()
    after = read_archives(world.fetch)[CHANGES]
    assert decode_publication(world.catalog.state("files").notes).history > 0
    assert [one.entry for one in after] == ([] if is_moved else [one.entry for one in before])


@pytest.mark.parametrize("count", [3, 9])
def test_a_new_catalog_over_old_documents_takes_no_snapshot_of_them(tmp_path: Path, count: int) -> None:
    """RS-ARC-13: they are of the history of before, and in another form, an index of pages and no list, perhaps."""
    world = world_of(tmp_path, segment_seconds=HOUR)
    world.begin(count)
    world.publish()
    live_for_a_day(world, 1)
    world.catalog = SqliteCatalog(tmp_path / "new.sqlite", limits=world.catalog.limits)
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    world.begin(2)
    begun_at = world.now()
    for _time in range(4):
        world.publish()
        for one in read_archives(world.fetch)[LISTS]:
            assert one.entry.at is not None
            assert one.entry.at >= begun_at - dt.timedelta(seconds=1)
        world.clock.sleep(DAY / 2)
    assert read_archives(world.fetch)[LISTS], "of what the new catalog has"


def test_no_snapshot_is_taken_of_lists_with_other_addresses(tmp_path: Path) -> None:
    """RS-ARC-31: what is in the store as the addresses become others are lists of before."""
    world = world_of(tmp_path, segment_seconds=HOUR)
    world.begin(3)
    world.publish()
    live_for_a_day(world, 1)
    assert read_archives(world.fetch)[LISTS]
    world.record(put("r0", 99))  # so that the list that is stored is another than the one archived last
    world.publish(force=True)
    world.site = Site(base_url=BASE, sets=(SetSettings(**ARCHIVED, resource_base="http://other.example/"),))
    world.publisher = Publisher(world.catalog, world.store, world.site, world.now)
    for _time in range(4):
        world.publish()
        for one in read_archives(world.fetch)[LISTS]:
            _, entries = read_named(world.fetch, one.entry.loc)
            assert {entry.loc.rpartition("/")[0] for entry in entries} == {"http://other.example"}
        world.clock.sleep(DAY / 2)
    assert read_archives(world.fetch)[LISTS], "of what has the new addresses"
