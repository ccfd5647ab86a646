"""A scan keeps the octets of its changes before they are recorded, from the very read that computed their digests."""

import hashlib
import os
from pathlib import Path

import pytest

from headwater.spec.records import ChangeKind
from headwater.storage.object_store import octets_of
from headwater.versions.store import VersionStore
from tests.ingest.scanned_folder import ScannedFolder
from tests.support.waiting import settle


@pytest.fixture(params=[0, 2], ids=["in this process", "by others"])
def world(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ScannedFolder:
    monkeypatch.setattr("headwater.files.hash_pool.SERIAL_FILES", 4)
    found = ScannedFolder(tmp_path, processes=request.param)
    found.versions = VersionStore(tmp_path / "versions")
    return found


def kept(world: ScannedFolder) -> dict[str, bytes]:
    assert world.versions is not None
    found = {}
    for one in world.versions.versions():
        content = world.versions.open(one.digest)
        assert content is not None
        found[one.digest] = b"".join(octets_of(content, 0, content.octets))
        content.close()
        assert hashlib.sha256(found[one.digest]).hexdigest() == one.digest
    return found


def test_every_change_has_its_octets_whatever_happens_to_the_file(world: ScannedFolder) -> None:
    for number in range(20):
        world.put(f"{number}", b"loaded %d" % number)
    world.scan()
    assert kept(world) == {}  # Change Lists begin after the load
    for number in range(10):
        world.put(f"{number}", b"first %d" % number)
    world.put("large", b"x" * (2 << 20))
    settle()
    world.scan()
    for number in range(5, 15):
        world.put(f"{number}", b"second %d" % (number % 2))  # the same octets in several files: kept once
    world.remove("0")
    settle()
    world.scan()
    expected = [b"first %d" % number for number in range(10)] + [b"second 0", b"second 1", b"x" * (2 << 20)]
    assert sorted(kept(world).values()) == sorted(expected)
    for change in world.log():
        if change.change is not ChangeKind.DELETED:
            digest = (change.metadata.hash or "").partition("sha-256:")[2]
            assert len(kept(world)[digest]) == change.metadata.length


def test_what_gives_no_change_is_not_kept(world: ScannedFolder) -> None:
    for number in range(10):
        world.put(f"{number}", b"x", aged=True)
    world.scan()
    world.configure(algorithms=("sha-256", "md5"))  # all files are read again, and their `hash` is another
    world.scan()
    assert len(kept(world)) == 1
    for number in range(10):
        path = world.full(f"{number}")
        os.chmod(path, 0o640)  # another state, the same metadata
    assert world.scan().unchanged == 10
    assert len(kept(world)) == 1
    assert list((Path(os.fsdecode(world.root)).parent / "versions" / ".aside").iterdir()) == []


def test_changes_are_recorded_without_their_octets_where_there_is_no_room(
    world: ScannedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.scan()
    monkeypatch.setattr("headwater.files.file_copies.RESERVE_OCTETS", 1 << 60)
    world.put("a", b"a")
    assert world.scan().created == 1
    assert world.rules() == {"HW-ING-23"}
    (told,) = world.notices
    assert told.message == f"this file is not kept as a version: the disk would have less than {1 << 40} MiB left"
    assert kept(world) == {}
