"""The version store: octets by digest, each once, durable before they are named, not removed while needed."""

import ctypes
import datetime as dt
import errno
import hashlib
import os
import threading
from pathlib import Path

import pytest

from headwater.files.version_copy import VersionCopy, version_path
from headwater.files.version_spool import PACKED_OCTETS, VersionSpool
from headwater.storage.objects.interface import octets_of
from headwater.versions.folder_store import FolderVersionStore
from headwater.versions.interface import SetAside, VersionIntake, VersionsUnusable, WrongOctets
from headwater.versions.retention import GRACE, DigestSet, VersionRetention, collect, damaged

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> FolderVersionStore:
    return FolderVersionStore(tmp_path / "versions")


def content(store: FolderVersionStore, name: str) -> bytes | None:
    found = store.open(name)
    if found is None:
        return None
    try:
        return b"".join(octets_of(found, 0, found.octets))
    finally:
        found.close()


def put(store: FolderVersionStore, data: bytes, *, days_ago: float = 0) -> str:
    """Small octets, which are in packs; but every other one is in a file, where an earlier program has put it."""
    when = (NOW - dt.timedelta(days=days_ago)).timestamp()
    if data[-1] % 2:
        put_file(store, data, when)
    else:
        store.put(digest(data), [data])
        store._packs.touch([digest(data)], int(when * 1e6))
    return digest(data)


def put_file(store: FolderVersionStore, data: bytes, when: float) -> None:
    path = Path(os.fsdecode(version_path(store._kept, digest(data))))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (when, when))


def aside(intake: VersionIntake, *contents: bytes) -> list[SetAside]:
    """Octets set aside as a reader does."""
    spool = VersionSpool(intake.folders)
    found = []
    for data in contents:
        copy = spool.copy(len(data))
        copy.write(data)
        copy.finish(digest(data))
        copy.discard()  # has no effect on what is finished
        found.append(SetAside(digest(data), copy.name, len(data)))
    assert spool.settle() == {}
    spool.close()
    return found


def test_octets_are_found_by_their_digest_and_kept_once(store: FolderVersionStore) -> None:
    assert not store.has(digest(b"one"))
    assert store.open(digest(b"one")) is None
    for _ in range(2):
        store.put(digest(b"one"), [b"o", b"ne"])
    store.put(digest(b""), [])
    assert content(store, digest(b"one")) == b"one"
    assert {(one.digest, one.octets) for one in store.versions()} == {(digest(b"one"), 3), (digest(b""), 0)}
    assert version_path(b"v", "ab" + "cd" + "0" * 60) == b"v/ab/cd/abcd" + b"0" * 60


def test_other_octets_than_named_are_not_kept(store: FolderVersionStore) -> None:
    with pytest.raises(WrongOctets):
        store.put(digest(b"one"), [b"two"])
    assert not store.has(digest(b"one"))
    assert store.clean() == 0  # nothing was left aside


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_what_is_no_digest_is_no_path(store: FolderVersionStore, name: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        store.has(name)


@pytest.mark.parametrize("octets", [0, 5, 4_096, PACKED_OCTETS, PACKED_OCTETS + 1, (1 << 20) + 1])
def test_what_a_reader_sets_aside_becomes_a_version(store: FolderVersionStore, octets: int) -> None:
    data = os.urandom(octets)
    with store.intake() as intake:
        for _ in range(2):
            assert intake.keep(aside(intake, data)) == []
    assert content(store, digest(data)) == data
    assert not list((store._aside).iterdir())


def test_what_is_not_needed_is_removed_and_what_is_not_there_is_told(store: FolderVersionStore) -> None:
    with store.intake() as intake:
        large = bytes(PACKED_OCTETS + 1)
        [copy] = aside(intake, large)
        intake.drop([copy.name])
        missing = [copy, SetAside(digest(b"two"), "", 3), SetAside(digest(b"three"), "0123456789abcdef-0:44", 5)]
        assert intake.keep(missing) == [digest(large), digest(b"two"), digest(b"three")]
        cut_off = VersionCopy(intake.folders, 2 << 20)
        cut_off.write(b"begin")
        cut_off.discard()
        assert os.listdir(intake.folders.aside) == []


def test_a_full_disk_costs_no_scan_its_result(store: FolderVersionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.files.version_copy.RESERVE_OCTETS", 1 << 60)
    with store.intake() as intake:
        copy = VersionCopy(intake.folders, 3)
        copy.write(b"one")
        copy.finish(digest(b"one"))
        assert (copy.errno, copy.name) == (28, "")
        spool = VersionSpool(intake.folders)
        name = spool.add(digest(b"one"), [b"one"])
        assert spool.settle() == {name.partition(":")[0]: 28}
    with pytest.raises(VersionsUnusable, match="MiB left"):
        store.put(digest(b"one"), [b"one"])


def test_a_store_that_cannot_be_made_keeps_nothing_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "versions").write_bytes(b"a file is in the way")
    with FolderVersionStore(tmp_path / "versions").intake() as intake:
        copy = VersionCopy(intake.folders, 3)
        copy.write(b"one")
        copy.finish(digest(b"one"))
        assert copy.errno
        spool = VersionSpool(intake.folders)
        spool.add(digest(b"one"), [b"one"])
        assert list(spool.settle().values()) == [errno.ENOTDIR]
        assert intake.keep([SetAside(digest(b"one"), "", 3)]) == [digest(b"one")]


def test_what_killed_processes_have_left_is_cleaned(store: FolderVersionStore) -> None:
    kept = put(store, b"kept.")
    (store._aside / "old").mkdir(parents=True)
    (store._aside / "old" / "0123").write_bytes(b"half")
    assert store.clean() == 1
    assert store.has(kept)


def test_retention_by_age_never_takes_what_is_needed_or_new(store: FolderVersionStore) -> None:
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


def test_retention_by_size_takes_the_oldest_first(store: FolderVersionStore) -> None:
    names = [put(store, bytes([day]) * 100, days_ago=day) for day in range(1, 11)]
    needed = names[9]
    done = collect(store, VersionRetention(octets=450), DigestSet([needed]), NOW)
    assert [store.has(one) for one in names] == [True, True, True, False, False, False, False, False, False, True]
    assert (done.removed, done.removed_octets) == (6, 600)
    assert collect(store, VersionRetention(), DigestSet([]), NOW).removed == 0


def test_however_many_versions_go_all_of_them_are_removed(
    store: FolderVersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.versions.retention._REMOVED_AT_ONCE", 2)
    names = [put(store, b"old %d" % number, days_ago=30) for number in range(5)]
    done = collect(store, VersionRetention(seconds=0), DigestSet([names[2]]), NOW)
    assert (done.removed, done.removed_octets) == (4, 20)
    assert [store.has(one) for one in names] == [False, False, True, False, False]


@pytest.mark.parametrize("data", [b"again.", b"again!", bytes(PACKED_OCTETS + 1)], ids=["pack", "file", "large"])
def test_a_version_that_is_named_again_is_not_removed_meanwhile(store: FolderVersionStore, data: bytes) -> None:
    """Whichever comes first: after naming and removing at the same time, what was named is there."""
    name = put(store, data, days_ago=30)

    def remove() -> None:
        for _ in range(200):
            store.delete([name], NOW - dt.timedelta(days=7))

    remover = threading.Thread(target=remove)
    remover.start()
    with store.intake() as intake:
        for _ in range(100):
            lost = intake.keep(aside(intake, data))
            assert lost == ([] if store.has(name) else [name])
    remover.join()


def test_damage_is_found(store: FolderVersionStore) -> None:
    good, bad = put(store, b"good"), put(store, b"bad!")
    assert digest(b"good") == good
    Path(os.fsdecode(version_path(store._kept, bad))).write_bytes(b"bat!")
    assert [one.digest for one in damaged(store)] == [bad]
    assert content(store, good) == b"good"


def test_a_set_of_digests() -> None:
    names = [digest(bytes([one])) for one in range(100)]
    some = DigestSet(names[:50])
    assert [one in some for one in names] == [True] * 50 + [False] * 50
    assert digest(b"") not in DigestSet([])


@pytest.mark.parametrize("number", [0, errno.ENOSYS, errno.EIO])
def test_many_versions_are_made_durable_at_once(
    store: FolderVersionStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """What cannot be made durable is not kept; where the system has no such call, each is synced."""

    def syncfs(_descriptor: int) -> int:
        ctypes.set_errno(number)
        return -1 if number else 0

    monkeypatch.setattr("headwater.storage.durable._SYNCFS", syncfs)
    monkeypatch.setattr("headwater.storage.durable.MANY", 2)
    contents = [bytes([one]) * (PACKED_OCTETS + 1) for one in range(5)]
    names = [digest(one) for one in contents]
    with store.intake() as intake:
        assert intake.keep(aside(intake, *contents)) == (names if number == errno.EIO else [])
    assert [store.has(name) for name in names] == [number != errno.EIO] * 5
