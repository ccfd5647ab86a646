"""Packs of small versions: appended or adopted, found by an index, emptied when they are more than half dead."""

import datetime as dt
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.files.version_copy import version_path
from headwater.files.version_spool import HEADER, VersionSpool
from headwater.storage.database import Database
from headwater.storage.database_faults import DatabaseFull
from headwater.storage.objects.interface import octets_of
from headwater.storage.sqlite.transaction import Transaction
from headwater.versions.folder_store import FolderVersionStore
from headwater.versions.interface import SetAside, VersionsUnusable
from headwater.versions.pack_index import SCHEMA
from headwater.versions.retention import damaged

EVER = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> FolderVersionStore:
    return FolderVersionStore(tmp_path / "versions")


@pytest.fixture
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs of 4,000 octets, and spools that become packs from 1,000 on."""
    monkeypatch.setattr("headwater.versions.pack_appending.PACK_OCTETS", 4_000)
    monkeypatch.setattr("headwater.versions.pack_appending._ADOPTED_OCTETS", 1_000)
    monkeypatch.setattr("headwater.files.version_spool.SPOOL_OCTETS", 3_000)


def aside(spool: VersionSpool, *contents: bytes) -> list[SetAside]:
    found = [SetAside(digest(one), spool.add(digest(one), [one]), len(one)) for one in contents]
    assert spool.settle() == {}
    return found


def keep(store: FolderVersionStore, *contents: bytes) -> None:
    with store.intake() as intake, closing(VersionSpool(intake.folders)) as spool:
        assert intake.keep(aside(spool, *contents)) == []


def content(store: FolderVersionStore, data: bytes) -> bytes | None:
    found = store.open(digest(data))
    if found is None:
        return None
    with closing(found):
        return b"".join(octets_of(found, 0, found.octets))


def assert_kept(store: FolderVersionStore, *contents: bytes) -> None:
    assert sorted((one.digest, one.octets) for one in store.versions()) == sorted(
        (digest(one), len(one)) for one in contents
    )
    assert all(content(store, one) == one for one in contents)
    assert list(damaged(store)) == []


def pack_files(store: FolderVersionStore) -> list[Path]:
    return sorted((store._folder / "packs").iterdir(), key=lambda one: one.stat().st_mtime_ns)


def some(count: int, octets: int = 100) -> list[bytes]:
    return [b"%06d" % number + os.urandom(octets - 6) for number in range(count)]


def test_few_versions_are_copied_into_one_pack(store: FolderVersionStore) -> None:
    contents = some(20)
    for one in contents[:10]:
        keep(store, one)
    for one in contents[10:]:
        store.put(digest(one), [one])
    assert_kept(store, *contents)
    assert [one.stat().st_size for one in pack_files(store)] == [20 * (HEADER.size + 100)]
    assert not list(store._aside.iterdir())


def test_many_versions_of_one_reader_are_a_pack_as_they_are(store: FolderVersionStore, small_packs: None) -> None:
    contents = some(60)
    with store.intake() as intake, closing(VersionSpool(intake.folders)) as spool:
        for first in range(0, 60, 12):
            assert intake.keep(aside(spool, *contents[first : first + 12])) == []
            assert_kept(store, *contents[: first + 12])
        spool.add(digest(b"killed"), [b"killed"])
        spool.settle()
        grown = sum(one.stat().st_size for one in pack_files(store))
    sizes = [one.stat().st_size for one in pack_files(store)]
    assert sum(sizes) == 60 * (HEADER.size + 100)
    assert grown > sum(sizes)  # what nobody has noted is cut off in the end
    assert len(sizes) == 3
    assert_kept(store, *contents)


def test_what_a_reader_has_set_aside_for_no_change_is_in_no_pack(store: FolderVersionStore, small_packs: None) -> None:
    contents = some(100)
    with store.intake() as intake, closing(VersionSpool(intake.folders)) as spool:
        for first in range(0, 100, 20):
            named = aside(spool, *contents[first : first + 20])
            assert intake.keep(named[3:5]) == []
            intake.drop(one.name for one in (*named[:3], *named[5:]))
            assert len(os.listdir(intake.folders.aside)) <= 1
    assert_kept(store, *(one for first in range(3, 100, 20) for one in contents[first : first + 2]))
    assert sum(one.stat().st_size for one in pack_files(store)) == 10 * (HEADER.size + 100)


@pytest.mark.parametrize("count", [3, 30], ids=["copied", "adopted"])
def test_the_same_octets_are_kept_once_and_are_as_if_used_now(
    store: FolderVersionStore, small_packs: None, count: int
) -> None:
    contents = some(count)
    keep(store, *contents, *contents)
    size = sum(one.stat().st_size for one in pack_files(store))
    store._packs.touch([digest(one) for one in contents], 1)
    before = time.time()
    keep(store, *contents[:2])
    keep(store, contents[2], b"new")
    assert_kept(store, *contents, b"new")
    used = {one.digest: one.used_at.timestamp() for one in store.versions()}
    assert all(used[digest(one)] >= before - 0.001 for one in contents[:3])
    assert all(used[digest(one)] < 1 for one in contents[3:])
    assert sum(one.stat().st_size for one in pack_files(store)) <= size + HEADER.size + 3


def test_versions_in_files_of_an_earlier_program_stay_where_they_are(store: FolderVersionStore) -> None:
    path = Path(os.fsdecode(version_path(store._kept, digest(b"old"))))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"old")
    os.utime(path, (1, 1))
    assert_kept(store, b"old")
    keep(store, b"old", b"new")
    store.put(digest(b"old"), [b"old"])
    assert_kept(store, b"old", b"new")
    assert path.stat().st_mtime > 1
    assert store.delete([digest(b"old"), digest(b"new")], EVER) == [digest(b"new"), digest(b"old")]
    assert_kept(store)


def test_dead_versions_give_their_room_back_and_readers_read_on(store: FolderVersionStore, small_packs: None) -> None:
    contents = some(100)
    for first in range(0, 100, 4):
        keep(store, *contents[first : first + 4])
    assert len(pack_files(store)) == 5
    reading = [store.open(digest(one)) for one in contents]
    assert len(store.delete([digest(one) for one in contents[:70] if one != contents[33]], EVER)) == 69
    freed = store.reclaim()
    assert_kept(store, contents[33], *contents[70:])
    assert sum(one.stat().st_size for one in pack_files(store)) <= 31 * (HEADER.size + 100) * 2
    assert freed > 69 * 100
    assert store.reclaim() == 0
    for one, found in zip(contents, reading, strict=True):
        assert found is not None
        assert found.read(0, 1_000) == one
        found.close()
    store.delete([digest(one) for one in contents], EVER)
    store.reclaim()
    assert pack_files(store) == []


def test_a_version_used_since_is_not_removed(store: FolderVersionStore) -> None:
    keep(store, b"one")
    assert store.delete([digest(b"one"), digest(b"nothing")], dt.datetime(2020, 1, 1, tzinfo=dt.UTC)) == [
        digest(b"nothing")
    ]
    assert_kept(store, b"one")


def test_what_killed_processes_have_appended_counts_for_nothing(store: FolderVersionStore) -> None:
    keep(store, b"one")
    [pack] = pack_files(store)
    with pack.open("ab") as file:
        file.write(b"HWV1 half a record, then power was gone" * 100)
    (pack.parent / "0123456789abcdef.pack").write_bytes(b"a pack that no row names")
    (pack.parent / "no pack").write_bytes(b"?")
    keep(store, b"two")
    assert store.clean() == 2
    assert [one.stat().st_size for one in pack_files(store)] == [HEADER.size + 3] * 2
    assert_kept(store, b"one", b"two")
    assert store.clean() == 0


@pytest.mark.parametrize("count", [5, 40], ids=["appended", "packs of their own"])
def test_an_older_index_costs_no_version(store: FolderVersionStore, small_packs: None, count: int) -> None:
    """Somebody has restored it: what it does not count is found again, though versions have come since."""
    before, after, later = some(5), some(count), some(3)
    keep(store, *before)
    store.close()
    index = (store._folder / "index.sqlite").read_bytes()
    keep(store, *after)
    store.delete([digest(before[0])], EVER)
    store.close()
    (store._folder / "index.sqlite").write_bytes(index)
    for suffix in ("-wal", "-shm"):
        (store._folder / f"index.sqlite{suffix}").unlink(missing_ok=True)
    keep(store, *later)
    assert all(content(store, one) == one for one in (*before, *later))
    assert store.clean() == 0
    assert_kept(store, *before, *after, *later)
    assert store.clean() == 0


def test_a_pack_older_than_the_index_is_told_and_filled_anew(store: FolderVersionStore) -> None:
    """Somebody has restored it: versions that it has not are damaged, and are kept again when they come again."""
    keep(store, b"one")
    [pack] = pack_files(store)
    octets = pack.read_bytes()
    keep(store, b"two", b"three")
    pack.write_bytes(octets)
    keep(store, b"four")
    assert {one.digest for one in damaged(store)} == {digest(b"two"), digest(b"three")}
    keep(store, b"two", b"three")
    assert_kept(store, b"one", b"two", b"three", b"four")


def test_a_commit_that_fails_is_told_and_costs_nothing(
    store: FolderVersionStore, small_packs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full when the index is committed: what is told as kept is there, what is not comes again."""
    contents = some(40)
    keep(store, *contents[:3])

    def full(self: Database, durability: object) -> Iterator[Transaction]:
        for one in written(self, durability):  # type: ignore[arg-type]
            yield one
            raise DatabaseFull("the disk is full", where=str(self.path))

    written = Database._written
    with store.intake() as intake, closing(VersionSpool(intake.folders)) as spool:
        for first in (0, 20):
            named = aside(spool, *contents[first : first + 20])
            with monkeypatch.context() as patched:
                patched.setattr(Database, "_written", full)
                lost = intake.keep(named)
            assert set(lost) == {digest(one) for one in contents[first : first + 20]} - {
                digest(one) for one in contents[:3]
            }
            assert_kept(store, *contents[:3])
            assert intake.keep(named[3:10]) == []
            store.delete([one.digest for one in named[3:10]], EVER)
    assert_kept(store, *contents[:3])
    keep(store, *contents)
    assert_kept(store, *contents)


def test_the_index_is_made_anew_of_packs(store: FolderVersionStore, small_packs: None, tmp_path: Path) -> None:
    contents = some(70)
    keep(store, *contents[:40])
    for one in contents[40:]:
        keep(store, one)
    store.close()
    for name in os.listdir(store._folder):
        if name.startswith("index.sqlite"):
            (store._folder / name).unlink()
    pack = pack_files(store)[0]
    octets = bytearray(pack.read_bytes())
    octets[HEADER.size + 10] ^= 1  # of the first record
    pack.write_bytes(octets + b"HWV1 torn")
    assert_kept(FolderVersionStore(store._folder), *contents[1:])
    keep(store, *contents[:5])
    assert_kept(store, *contents)


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "cut off"])
def test_a_lost_pack_is_told_and_its_versions_are_kept_anew(store: FolderVersionStore, is_gone: bool) -> None:
    keep(store, b"one", b"two")
    [pack] = pack_files(store)
    if is_gone:
        pack.unlink()
    else:
        os.truncate(pack, HEADER.size + 4)
    lost = {digest(b"one"), digest(b"two")} if is_gone else {digest(b"two")}
    assert {one.digest for one in damaged(store)} == lost
    keep(store, b"one", b"two", b"three")
    assert_kept(store, b"one", b"two", b"three")


def test_digests_that_begin_alike_are_both_kept(store: FolderVersionStore) -> None:
    keep(store, b"one")
    with Database(store._folder / "index.sqlite", SCHEMA) as index, index.write() as tx:
        tx.run("UPDATE versions SET digest = ?", (hashlib.sha256(b"two").digest()[:8] + bytes(24),))
    keep(store, b"two", b"three")
    store.put(digest(b"two"), [b"two"])
    assert content(store, b"two") == b"two"
    assert Path(os.fsdecode(version_path(store._kept, digest(b"two")))).is_file()
    assert content(store, b"three") == b"three"


def test_a_full_disk_keeps_nothing_half(store: FolderVersionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(store, b"one")
    with store.intake() as intake, closing(VersionSpool(intake.folders)) as spool:
        named = aside(spool, b"one", b"two")
        with monkeypatch.context() as full:
            full.setattr("headwater.files.version_copy.RESERVE_OCTETS", 1 << 60)
            assert intake.keep(named) == [digest(b"two")]
    assert_kept(store, b"one")
    keep(store, b"two")
    assert_kept(store, b"one", b"two")


def test_a_full_disk_lets_packs_be_emptied(
    store: FolderVersionStore, small_packs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = some(20)
    keep(store, *contents)
    monkeypatch.setattr("headwater.files.version_copy.RESERVE_OCTETS", 1 << 60)
    store.delete([digest(one) for one in contents[:15]], EVER)
    assert store.reclaim() > 0
    assert_kept(store, *contents[15:])


def test_an_index_of_another_program_is_told(store: FolderVersionStore) -> None:
    (store._folder / "packs").mkdir(parents=True)
    (store._folder / "index.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(VersionsUnusable):
        store.open(digest(b"one"))
    with store.intake() as intake, closing(VersionSpool(intake.folders)) as spool:
        assert intake.keep(aside(spool, b"one")) == [digest(b"one")]


def test_where_links_cannot_be_made_octets_are_copied(
    store: FolderVersionStore, small_packs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("headwater.versions.pack_appending.os.link", refused)
    contents = some(60)
    keep(store, *contents)
    assert_kept(store, *contents)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["keep", "put", "delete", "reclaim", "clean", "reopen", "forget index", "tail"]),
        st.lists(st.integers(0, 40), max_size=30),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(OPERATIONS)
def test_it_keeps_what_a_mapping_keeps(
    tmp_path_factory: pytest.TempPathFactory, small_packs: None, operations: list[tuple[str, list[int]]]
) -> None:
    store = FolderVersionStore(tmp_path_factory.mktemp("packs") / "versions")
    model: set[bytes] = set()
    for name, numbers in operations:
        contents = [b"%d" % number * (60 + number) for number in numbers]
        if name == "keep":
            _keep_in_two_batches(store, contents)
            model |= set(contents)
        elif name == "put":
            for one in contents[:3]:
                store.put(digest(one), [one])
                model.add(one)
        elif name == "delete":
            store.delete({digest(one): 0 for one in contents}, EVER)
            model -= set(contents)
        elif name == "tail" and (store._folder / "packs").is_dir():
            for pack in pack_files(store):
                with pack.open("ab") as file:
                    file.write(b"torn")
        elif name == "forget index":
            _rebuild(store)
            model |= {one for one in _all_contents() if store.has(digest(one))}  # dead records come back
        else:
            {"reclaim": store.reclaim, "clean": store.clean, "reopen": store.close}.get(name, store.close)()
        assert_kept(store, *model)
    store.reclaim()
    total = sum(one.stat().st_size for one in pack_files(store)) if (store._folder / "packs").is_dir() else 0
    assert total <= 2 * sum(HEADER.size + len(one) for one in model) + 400  # and what was torn
    store.close()


def _keep_in_two_batches(store: FolderVersionStore, contents: list[bytes]) -> None:
    with store.intake() as intake, closing(VersionSpool(intake.folders)) as spool:
        half = len(contents) // 2
        for some_contents in (contents[:half], contents[half:]):
            assert intake.keep(aside(spool, *some_contents)) == []


def _all_contents() -> list[bytes]:
    return [b"%d" % number * (60 + number) for number in range(41)]


def _rebuild(store: FolderVersionStore) -> None:
    store.close()
    for name in os.listdir(store._folder) if store._folder.is_dir() else ():
        if name.startswith("index.sqlite"):
            (store._folder / name).unlink()
