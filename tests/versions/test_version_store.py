"""The version store: octets by digest, each once, durable before they are named, not removed while needed."""

import ctypes
import datetime as dt
import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.files.file_copies import SMALL_OCTETS, VersionCopy, VersionWriter, version_path
from headwater.storage.database import Database
from headwater.storage.object_store import octets_of
from headwater.storage.transaction import DatabaseFull, Transaction
from headwater.versions.retention import GRACE, DigestSet, VersionRetention, collect, damaged
from headwater.versions.store import FILE, SetAside, VersionStore, VersionsUnusable
from tests.support.kept_versions import damage, keep_octets, make_old, set_aside

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
EVER = dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
LARGE = b"large" * SMALL_OCTETS


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> VersionStore:
    return VersionStore(tmp_path / "versions")


def content(store: VersionStore, name: str) -> bytes | None:
    found = store.open(name)
    if found is None:
        return None
    try:
        return b"".join(octets_of(found, 0, found.octets))
    finally:
        found.close()


def put(store: VersionStore, data: bytes, *, days_ago: float = 0) -> str:
    """Octets that a change has last named so many days ago."""
    keep_octets(store, data)
    when = NOW - dt.timedelta(days=days_ago)
    make_old(store._folder, digest(data), used_us=int(when.timestamp() * 1e6))
    return digest(data)


def test_octets_are_found_by_their_digest_and_kept_once(store: VersionStore) -> None:
    assert not store.has(digest(b"one"))
    assert store.open(digest(b"one")) is None
    assert not store._folder.exists()
    for _ in range(2):
        keep_octets(store, b"one", LARGE, b"", b"one")
    assert content(store, digest(b"one")) == b"one"
    assert {(one.digest, one.octets) for one in store.versions()} == {
        (digest(b"one"), 3),
        (digest(b""), 0),
        (digest(LARGE), len(LARGE)),
    }
    assert version_path(b"v", "ab" + "cd" + "0" * 60) == b"v/ab/cd/abcd" + b"0" * 60


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_what_is_no_digest_is_no_path(store: VersionStore, name: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        store.has(name)


@pytest.mark.parametrize("octets", [0, 5, 4_096, SMALL_OCTETS, SMALL_OCTETS + 1, (1 << 20) + 1])
def test_what_a_reader_sets_aside_becomes_a_version(store: VersionStore, octets: int) -> None:
    data = os.urandom(octets)
    with store.intake() as intake:
        for _ in range(2):
            named = set_aside(intake, data)
            assert intake.keep(named) == []
            intake.remove(one.name for one in named)
        assert os.listdir(intake.folder) == []
        assert content(store, digest(data)) == data
    assert not list((store._aside).iterdir())


def test_what_is_not_needed_is_removed_and_what_is_not_there_is_told(store: VersionStore) -> None:
    with store.intake() as intake:
        [copy, small] = set_aside(intake, LARGE, b"one")
        intake.remove([copy.name, small.name])
        missing = [copy, small, SetAside(digest(b"two"), "0123456789abcdef:44", 5)]
        assert intake.keep(missing) == [digest(LARGE), digest(b"one"), digest(b"two")]
        cut_off = VersionCopy(VersionWriter(intake.folder), 2 << 20)
        cut_off.write(b"begin")
        cut_off.discard()
        assert os.listdir(intake.folder) == []
    assert list(store.versions()) == []


def test_a_full_disk_costs_no_scan_its_result(store: VersionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_octets(store, b"kept")
    with store.intake() as intake:
        named = set_aside(intake, b"one", b"kept")
        with monkeypatch.context() as full:
            full.setattr("headwater.files.file_copies.RESERVE_OCTETS", 1 << 60)
            assert intake.keep(named) == [digest(b"one")]
            writer = VersionWriter(intake.folder)
            copy = VersionCopy(writer, len(LARGE))
            copy.write(LARGE)
            copy.finish()
            assert (copy.errno, copy.name) == (errno.ENOSPC, "")
            assert writer.add(b"two")
            assert writer.settle() == errno.ENOSPC
            assert writer.settle() == 0
            store.delete([digest(b"kept")], EVER)
            store.reclaim()
        assert intake.keep(named) == []
    assert {one.digest for one in store.versions()} == {digest(b"one"), digest(b"kept")}


def test_a_commit_that_fails_is_told_and_costs_nothing(store: VersionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told as kept is there, what is not comes again."""
    keep_octets(store, b"kept")

    def full(self: Database, durability: object) -> Iterator[Transaction]:
        for one in written(self, durability):  # type: ignore[arg-type]
            yield one
            raise DatabaseFull("the disk is full", where=str(self.path))

    written = Database._written
    with store.intake() as intake:
        named = set_aside(intake, b"one", LARGE, b"kept")
        with monkeypatch.context() as patched:
            patched.setattr(Database, "_written", full)
            lost = intake.keep(named)
        assert {digest(b"one"), digest(LARGE)} <= set(lost)
        assert [one.digest for one in store.versions()] == [digest(b"kept")]
        assert intake.keep(named) == []
    assert content(store, digest(LARGE)) == LARGE


def test_a_store_that_cannot_be_made_keeps_nothing_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "versions").write_bytes(b"a file is in the way")
    store = VersionStore(tmp_path / "versions")
    with store.intake() as intake:
        writer = VersionWriter(intake.folder)
        copy = VersionCopy(writer, len(LARGE))
        assert copy.errno == errno.ENOTDIR
        writer.add(b"one")
        assert writer.settle() == errno.ENOTDIR
        assert intake.keep([SetAside(digest(b"one"), "0:0", 3)]) == [digest(b"one")]
    with pytest.raises(VersionsUnusable):
        store.touch([digest(b"one")])


def test_a_database_of_another_program_is_told(store: VersionStore) -> None:
    store._folder.mkdir()
    (store._folder / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(VersionsUnusable):
        store.open(digest(b"one"))
    with store.intake() as intake:
        assert intake.keep(set_aside(intake, b"one")) == [digest(b"one")]


def test_what_killed_processes_have_left_is_cleaned(store: VersionStore) -> None:
    kept = put(store, b"kept.")
    (store._aside / "old").mkdir(parents=True)
    (store._aside / "old" / "0123").write_bytes(b"half")
    large = put(store, LARGE)
    Path(os.fsdecode(version_path(store._kept, large))).unlink()  # it had not got its name yet
    assert not store.has(large)
    assert store.open(large) is None
    assert store.clean() == 1
    assert [one.digest for one in store.versions()] == [kept]
    assert store.clean() == 0


@pytest.mark.parametrize("altered", [b"O" + b"n" * 5_000, LARGE[:-1] + b"?"], ids=["small", "large"])
def test_octets_that_the_disk_has_altered_are_told_and_kept_anew(store: VersionStore, altered: bytes) -> None:
    right = b"o" + altered[1:-1] + b"!"
    keep_octets(store, right, b"other")
    damage(store._folder, right)
    assert [one.digest for one in damaged(store)] == [digest(right)]
    keep_octets(store, right)
    assert list(damaged(store)) == []
    assert content(store, digest(right)) == right


def test_a_version_is_as_if_used_when_it_is_kept_again_or_touched(store: VersionStore) -> None:
    names = [put(store, data, days_ago=9) for data in (b"one", b"two", LARGE, b"three")]
    keep_octets(store, b"one", LARGE)
    assert store.touch([names[1], digest(b"nothing")]) == {names[1]}
    damage(store._folder, b"three")
    assert store.touch([names[3]]) == set()
    assert {one.digest for one in store.versions() if one.used_at < NOW} == {names[3]}
    assert set(store.delete([*names, digest(b"nothing")], NOW)) == {names[3]}


def test_removed_versions_give_their_room_back_and_readers_read_on(store: VersionStore) -> None:
    contents = [b"%06d" % number + os.urandom(20_000) for number in range(200)]
    keep_octets(store, *contents, LARGE)
    store.close()
    size = (store._folder / FILE).stat().st_size
    reading = [store.open(digest(one)) for one in (*contents, LARGE)]
    assert len(store.delete([digest(one) for one in (*contents[:150], LARGE)], EVER)) == 151
    assert store.reclaim() > 2_500_000
    assert store.reclaim() == 0
    assert (store._folder / FILE).stat().st_size < size / 2
    for one, found in zip((*contents, LARGE), reading, strict=True):
        assert found is not None
        assert b"".join(octets_of(found, 0, found.octets)) == one
        found.close()
    assert sorted(one.digest for one in store.versions()) == sorted(digest(one) for one in contents[150:])
    assert not Path(os.fsdecode(version_path(store._kept, digest(LARGE)))).exists()


def test_retention_by_age_never_takes_what_is_needed_or_new(store: VersionStore) -> None:
    old, needed = put(store, b"old", days_ago=30), put(store, b"needed", days_ago=30)
    young, fresh = put(store, b"young", days_ago=1), put(store, b"fresh", days_ago=0.02)
    week = VersionRetention(seconds=7 * 86_400)
    planned = collect(store, week, DigestSet([needed]), NOW, dry_run=True)
    assert (planned.versions, planned.needed, planned.removed, planned.removed_octets) == (4, 1, 1, 3)
    assert store.has(old)
    assert collect(store, week, DigestSet([needed]), NOW).removed == 1
    assert [store.has(one) for one in (old, needed, young, fresh)] == [False, True, True, True]
    nothing = VersionRetention(seconds=0)
    collect(store, nothing, DigestSet([needed]), NOW)
    assert [store.has(one) for one in (needed, young, fresh)] == [True, False, True]  # `fresh` is within the grace
    collect(store, nothing, DigestSet([needed]), NOW + 2 * GRACE)
    assert [store.has(one) for one in (needed, fresh)] == [True, False]


def test_retention_by_size_takes_the_oldest_first(store: VersionStore) -> None:
    names = [put(store, bytes([day]) * 100, days_ago=day) for day in range(1, 11)]
    needed = names[9]
    done = collect(store, VersionRetention(octets=450), DigestSet([needed]), NOW)
    assert [store.has(one) for one in names] == [True, True, True, False, False, False, False, False, False, True]
    assert (done.removed, done.removed_octets) == (6, 600)
    assert collect(store, VersionRetention(), DigestSet([]), NOW).removed == 0


def test_however_many_versions_go_all_of_them_are_removed(store: VersionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.versions.retention._REMOVED_AT_ONCE", 2)
    names = [put(store, b"old %d" % number, days_ago=30) for number in range(5)]
    done = collect(store, VersionRetention(seconds=0), DigestSet([names[2]]), NOW)
    assert (done.removed, done.removed_octets) == (4, 20)
    assert [store.has(one) for one in names] == [False, False, True, False, False]


@pytest.mark.parametrize("data", [b"again.", LARGE], ids=["small", "large"])
def test_a_version_that_is_named_again_is_not_removed_meanwhile(store: VersionStore, data: bytes) -> None:
    """Whichever comes first: after naming and removing at the same time, what was named is there."""
    name = put(store, data, days_ago=30)

    def remove() -> None:
        for _ in range(200):
            store.delete([name], NOW - dt.timedelta(days=7))

    remover = threading.Thread(target=remove)
    remover.start()
    with store.intake() as intake:
        for _ in range(100):
            lost = intake.keep(set_aside(intake, data))
            assert lost == ([] if store.has(name) else [name])
    remover.join()


def test_a_set_of_digests() -> None:
    names = [digest(bytes([one])) for one in range(100)]
    some = DigestSet(names[:50])
    assert [one in some for one in names] == [True] * 50 + [False] * 50
    assert digest(b"") not in DigestSet([])


@pytest.mark.parametrize("number", [0, errno.ENOSYS, errno.EIO])
def test_many_versions_are_made_durable_at_once(
    store: VersionStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """What cannot be made durable is not kept; where the system has no such call, each is synced."""

    def syncfs(_descriptor: int) -> int:
        ctypes.set_errno(number)
        return -1 if number else 0

    monkeypatch.setattr("headwater.storage.durable._SYNCFS", syncfs)
    monkeypatch.setattr("headwater.storage.durable.MANY", 2)
    contents = [bytes([one]) * (SMALL_OCTETS + 1) for one in range(5)]
    names = [digest(one) for one in contents]
    with store.intake() as intake:
        assert intake.keep(set_aside(intake, *contents)) == (names if number == errno.EIO else [])
    assert [store.has(name) for name in names] == [number != errno.EIO] * 5
