"""Resource Dumps: all resources in packages, page by page; nothing in them that is not true, nothing half visible."""

from __future__ import annotations

import datetime as dt
import errno
import io
import os
import random
import subprocess
import zipfile
from pathlib import Path

import pytest

from headwater.catalog.content import Absence, NoContent, OpenContent, RecordedResource
from headwater.files import file_copies
from headwater.packages.zip_writer import ZipWriter
from headwater.publish import package_builder as spool
from headwater.publish.plan import GRACE_SECONDS, Refresh
from headwater.publish.publication_state import decode_publication
from headwater.publish.site import resource_package_names
from headwater.spec.records import ChangeKind
from headwater.storage.object_store import ZIP
from tests.publish.packed_catalog import PackedCatalog, PackedResources, read_resource_dump
from tests.support.documents import read_bytes


def dump(world: PackedCatalog) -> PackedResources:
    found = read_resource_dump(world.fetch)
    assert found is not None
    return found


def held(world: PackedCatalog) -> dict[str, bytes]:
    prefix = world.site.resource_prefix("files")
    return {uri.removeprefix(prefix): content for uri, content in dump(world).resources.items()}


def texts(count: int) -> dict[str, bytes]:
    return {f"r{number:02d}": f"text {number} ".encode() * 50 for number in range(count)}


def test_a_dump_is_offered_once_all_pages_are_packed(tmp_path: Path) -> None:
    """RS-CAP-04, RS-CAP-08, RS-RD-01 … RS-RDM-07: no destination is shown a part as if it were complete."""
    world = PackedCatalog(tmp_path)
    world.load(texts(10))
    world.publish()
    pages = 0
    while read_resource_dump(world.fetch) is None:
        assert world.fetch("http://source.example/sync/files/resourcedump.xml") is None
        assert world.publisher.pack_resources("files").is_done
        pages += 1
    assert pages == 3
    assert held(world) == texts(10)
    assert world.pack() == 0
    world.publish()
    assert held(world) == texts(10)


def test_pages_are_packed_once_a_period_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """Though what the dump states as `completed` never goes back."""
    day = 86_400.0
    world = PackedCatalog(tmp_path, page_entries=100, dump_share=1_000, dump_seconds=day)
    world.clock.sleep(90 * day)
    world.load(texts(3))
    world.publish()
    world.pack()
    packed = []
    for hour in range(100):
        world.clock.set(hour * 3_601)
        world.change("r01", b"%d" % hour)
        world.publish()
        packed += [hour] * world.pack()
    assert packed == [0, 24, 48, 72, 96]
    assert held(world)["r01"] == b"96"


def test_packages_are_completed_after_what_they_show_also_when_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RS-TIME-06: of a change that comes while a page is packed, too."""
    world = PackedCatalog(tmp_path, page_entries=100)
    world.load(texts(3))
    world.publish()
    world.clock.set(-3_600)
    read_page = world.catalog.page

    def read_late(name: str, number: int) -> object:
        world.change("r01", b"later")
        return read_page(name, number)

    monkeypatch.setattr(world.catalog, "page", read_late)
    assert world.publisher.pack_resources("files").is_done
    assert held(world)["r01"] == b"later"
    document, _, _ = read_bytes(world.fetch("http://source.example/sync/files/resourcedump.xml") or b"")
    newest = world.catalog.state("files").last_at
    assert document.completed is not None
    assert newest is not None
    assert document.completed >= newest


def test_an_empty_set_has_an_empty_dump(tmp_path: Path) -> None:
    world = PackedCatalog(tmp_path)
    world.load({})
    world.publish()
    world.pack()
    assert held(world) == {}
    world.change("first", b"1")
    world.publish()
    world.pack()
    assert held(world) == {"first": b"1"}


def test_a_page_may_need_several_packages(tmp_path: Path) -> None:
    world = PackedCatalog(tmp_path, page_entries=100, package_entries=3, package_octets=10)
    contents = {f"r{n}": b"x" * size for n, size in enumerate([1, 1, 1, 1, 9, 1, 30, 1, 1])}
    world.load(contents)
    world.publish()
    assert world.pack() == 1
    assert held(world) == contents
    assert [len(zipfile.ZipFile(io.BytesIO(data)).namelist()) - 1 for data in dump(world).packages.values()] == [
        3, 2, 1, 1, 2,
    ]  # fmt: skip


def test_only_pages_that_have_changed_enough_are_packed_anew(tmp_path: Path) -> None:
    """And what left the dump stays for readers that hold it as it was (AMB-63)."""
    world = PackedCatalog(tmp_path, page_entries=10, dump_share=0.25, dump_seconds=10_000)
    world.load(texts(30))
    world.publish()
    world.pack()
    before = dump(world)
    world.change("r15", b"other")
    world.change("r16", None)
    world.publish()
    assert world.pack() == 0
    assert dump(world).packages == before.packages
    world.change("r17", b"other, too")
    world.publish()
    assert world.pack() == 1
    after = dump(world)
    gone = set(before.packages) - set(after.packages)
    assert len(gone) == 1
    assert held(world)["r17"] == b"other, too"
    assert "r16" not in held(world)
    assert world.fetch(*gone) == before.packages[next(iter(gone))]
    world.clock.sleep(GRACE_SECONDS + 1)
    world.publish()
    assert world.fetch(*gone) is None
    world.change("r01", b"waits its time")
    world.publish()
    assert world.pack() == 0
    world.clock.sleep(10_001)
    assert world.pack() == 1
    assert held(world)["r01"] == b"waits its time"


def test_a_page_without_resources_leaves_the_dump(tmp_path: Path) -> None:
    world = PackedCatalog(tmp_path)
    world.load(texts(8))
    world.publish()
    world.pack()
    for number in range(4):
        world.change(f"r{number:02d}", None)
    world.publish()
    world.pack()
    assert sorted(held(world)) == ["r04", "r05", "r06", "r07"]


def test_what_cannot_be_had_is_left_out_and_packed_later(tmp_path: Path) -> None:
    """The manifest never states what the package does not hold (RS-RDM-07)."""
    world = PackedCatalog(tmp_path, page_entries=10)
    world.load(texts(5))
    world.contents.absent["r03"] = Absence.UNREADABLE
    world.publish()
    world.pack()
    assert sorted(held(world)) == ["r00", "r01", "r02", "r04"]
    world.contents.absent.clear()
    assert world.pack() == 0
    world.clock.sleep(86_400)
    assert world.pack() == 1
    assert held(world) == texts(5)


@pytest.mark.parametrize("why", [Absence.CHANGED, Absence.GONE])
def test_what_is_not_as_recorded_is_left_out_and_tried_again(tmp_path: Path, why: Absence) -> None:
    """A change tells of it then; of a file that was touched and is what it was none does: the page stays due."""
    world = PackedCatalog(tmp_path, page_entries=10)
    world.load(texts(5))
    world.contents.absent["r03"] = why
    world.publish()
    packed = world.publisher.pack_resources("files")
    assert packed.is_done
    assert sorted(held(world)) == ["r00", "r01", "r02", "r04"]
    world.contents.absent.clear()  # it was the same after all
    assert world.pack() == 0
    world.clock.sleep(86_400)
    assert world.pack() == 1
    assert held(world) == texts(5)


def test_a_resource_is_left_out_when_a_later_change_tells_of_it(tmp_path: Path) -> None:
    world = PackedCatalog(tmp_path, page_entries=10)
    world.load(texts(5))
    world.publish()
    reading = world.contents.open

    def changing(set_name: str, resource: RecordedResource) -> OpenContent | NoContent:
        if resource.uri != "r03":
            return reading(set_name, resource)
        world.change("r03", b"new")
        return NoContent(Absence.CHANGED)

    world.contents.open = changing  # type: ignore[method-assign]
    assert world.publisher.pack_resources("files").is_done
    found = dump(world)
    assert len(found.resources) == 4
    world.publish()
    assert [one.datetime > found.at for one in world.look().changes if one.datetime] == [True]


@pytest.mark.parametrize("why", [Absence.UNREADABLE, Absence.GONE, Absence.CHANGED])
@pytest.mark.parametrize("is_offered", [False, True], ids=["first", "renewed"])
def test_a_disk_that_is_not_mounted_takes_nothing_out_of_a_dump(tmp_path: Path, why: Absence, is_offered: bool) -> None:
    """Deletions are held back then, and so are packages without the resources, however often it is looked (DST-F9)."""
    world = PackedCatalog(tmp_path, page_entries=20, renew_seconds=100.0)
    world.load(texts(40))
    world.publish()
    world.pack() if is_offered else world.publisher.pack_resources("files")
    world.clock.sleep(101)
    world.contents.absent = dict.fromkeys(texts(40), why)
    for _ in range(9):
        assert not world.publisher.pack_resources("files").is_done
    assert held(world) == texts(40) if is_offered else read_resource_dump(world.fetch) is None
    world.contents.absent.clear()
    assert world.pack()
    assert held(world) == texts(40)
    assert len([one for one in world.store.names("files/resourcedump/") if one.endswith(".zip")]) <= 4


@pytest.mark.parametrize("why", [Absence.UNREADABLE, Absence.ELSEWHERE])
def test_what_still_cannot_be_had_gives_a_page_no_other_packages(tmp_path: Path, why: Absence) -> None:
    """Else its packages would have another name after each change of another page, and fill the disk."""
    world = PackedCatalog(tmp_path, page_entries=5)
    world.load(texts(10))
    world.contents.absent["r03"] = why
    world.publish()
    world.pack()
    before = read_resource_dump(world.fetch)
    assert before is not None
    for number in range(10):
        world.clock.sleep(60)
        world.change("r99", b"%d" % number)
        world.publish()
        world.pack()
    after = read_resource_dump(world.fetch)
    assert after is not None
    first_page = {name for name in before.packages if "/00000-" in name}
    assert first_page <= set(after.packages)
    if why is Absence.UNREADABLE:
        world.contents.absent.clear()
        world.clock.sleep(86_400)
        world.pack()
        assert "r03" in held(world)


def test_without_room_for_the_spool_nothing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That a disk is full is no reason to take resources for unreadable."""
    world = PackedCatalog(tmp_path, page_entries=10)
    world.load({**texts(3), "large": b"l" * 3_000_000})
    world.publish()

    def full(_self: object, *_more: object, **_other: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as context:
        context.setattr(ZipWriter, "member", full)
        with pytest.raises(OSError, match="No space"):
            world.publisher.pack_resources("files")
    assert read_resource_dump(world.fetch) is None
    world.pack()
    assert len(held(world)) == 4


@pytest.mark.parametrize("room", ["spool", "store"])
def test_packages_leave_room_for_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: str) -> None:
    """A large package must not fill the disk: then no change could be recorded while it is made."""
    world = PackedCatalog(tmp_path)
    world.load({"large": os.urandom(3_000_000)})
    world.publish()
    with monkeypatch.context() as context:
        context.setattr(file_copies, "RESERVE_OCTETS", 1 << 60)
        context.setattr(spool, "ROOM_OCTETS", 1 if room == "spool" else 4_000_000)
        with pytest.raises(OSError, match="MiB left"):
            world.publisher.pack_resources("files")
    assert read_resource_dump(world.fetch) is None
    world.pack()
    assert len(held(world)) == 1


def test_octets_that_are_not_the_recorded_ones_are_left_out(tmp_path: Path) -> None:
    """Small and large: nothing of a member that turned out wrong is left in the package."""
    world = PackedCatalog(tmp_path, page_entries=10)
    contents = {"a": b"a" * 100, "large": b"l" * 3_000_000, "b": b"b" * 100, "changed": b"c" * 100, "z": b"z"}
    world.load(contents)
    world.contents.held |= {"large": b"x" * 3_000_000, "changed": b"d" * 100}
    world.publish()
    world.pack()
    assert held(world) == {"a": b"a" * 100, "b": b"b" * 100, "z": b"z"}
    (package,) = dump(world).packages.values()
    assert len(package) < 10_000


def test_the_same_state_gives_the_same_octets(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = (PackedCatalog(tmp_path / name, page_entries=5, package_entries=2) for name in ("one", "two"))
    for world in (one, two):
        world.load({**texts(4), "large": random.Random(1).randbytes(2_000_000)})
        world.publish()
        world.pack()
    assert dump(one).packages == dump(two).packages


def test_paths_are_those_of_the_resources(tmp_path: Path) -> None:
    """AMB-36, DST-P3: literal, with a leading slash, and such that any file system can hold them side by side."""
    world = PackedCatalog(tmp_path, page_entries=20)
    names = ["sub/a%20b.pdf", "%C3%A4.txt", "A.txt", "a.txt", "%2E%2E/x", "d", "d/e", "con%3A"]
    world.load({name: name.encode() for name in names})
    world.publish()
    world.pack()
    assert held(world) == {name: name.encode() for name in names}
    prefix = world.site.resource_prefix("files")
    paths = {uri.removeprefix(prefix): path for uri, path in dump(world).paths.items()}
    assert paths["sub/a%20b.pdf"] == "/resources/sub/a b.pdf"
    assert paths["%C3%A4.txt"] == "/resources/ä.txt"
    assert len({path.casefold() for path in paths.values()}) == len(names)


def test_other_tools_read_the_packages(tmp_path: Path) -> None:
    world = PackedCatalog(tmp_path, page_entries=20)
    world.load({**texts(9), "photo.jpg": random.Random(2).randbytes(5_000)}, "text/plain")
    world.publish()
    world.pack()
    for number, data in enumerate(dump(world).packages.values()):
        place = tmp_path / f"{number}.zip"
        place.write_bytes(data)
        done = subprocess.run(["unzip", "-tqq", str(place)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_lost_or_damaged_package_is_made_anew(tmp_path: Path) -> None:
    """Until then the dump is not offered: it would name what is not there (AMB-63)."""
    world = PackedCatalog(tmp_path)
    world.load(texts(10))
    world.publish()
    world.pack()
    name = next(iter(dump(world).packages)).removeprefix("http://source.example/sync/")
    world.store.delete(name)
    world.configure()  # a process that begins looks at what is there
    world.publish()
    assert read_resource_dump(world.fetch) is None
    world.pack()
    assert held(world) == texts(10)


def test_a_set_that_no_longer_has_a_dump_takes_it_away(tmp_path: Path) -> None:
    world = PackedCatalog(tmp_path)
    world.load(texts(5))
    world.publish()
    world.pack()
    packages = list(dump(world).packages)
    world.configure(dump=False)
    world.publish()
    assert read_resource_dump(world.fetch) is None
    assert world.pack() == 0
    world.clock.sleep(GRACE_SECONDS + 1)
    world.publish()
    assert [world.fetch(one) for one in packages] == [None] * len(packages)
    assert world.fetch("http://source.example/sync/files/resourcedump.xml") is None
    world.configure()
    world.publish()
    world.pack()
    assert held(world) == texts(5)


def test_a_dump_that_is_switched_on_renders_no_page_and_packs_no_other_dump_again(tmp_path: Path) -> None:
    world = PackedCatalog(tmp_path, dump=False)
    world.load(texts(10))
    world.publish()
    before = {name: world.store.stat(name) for name in world.store.names("files/resourcelist")}
    world.configure()
    world.publish()
    world.pack()
    packages = dump(world).packages
    world.configure(change_dump=True)
    result = world.publish()
    assert result.pages_rendered == 0
    assert world.pack() == 0
    assert dump(world).packages == packages
    assert {name: world.store.stat(name) for name in world.store.names("files/resourcelist")} == before
    offered = read_bytes(world.fetch("http://source.example/sync/files/capabilitylist.xml") or b"", "u")[1]
    assert [one.capability for one in offered] == ["resourcelist", "resourcedump", "changelist", "changedump"]


def test_what_killed_processes_have_packed_is_cleaned_away(tmp_path: Path) -> None:
    world = PackedCatalog(tmp_path)
    world.load(texts(3))
    stray, manifest = resource_package_names("files", 7, 0, "f" * 64)
    world.store.put(stray, [b"PK"], ZIP)
    world.store.put(manifest, [b"<x/>"])
    world.publish()
    world.pack()
    world.clock.sleep(GRACE_SECONDS + 1)
    world.publish()
    assert world.store.stat(stray) is None
    assert world.store.stat(manifest) is None


def test_dump_and_changes_since_come_to_the_state(tmp_path: Path) -> None:
    """AMB-90: at any moment, whatever pages are packed, dump plus the changes after its `at` is what there is."""
    chance = random.Random(3)
    world = PackedCatalog(tmp_path, page_entries=5, dump_share=0.3, dump_seconds=30, package_entries=3)
    world.load(texts(20))
    world.publish()
    world.pack()
    for step in range(60):
        for _ in range(chance.randrange(4)):
            uri = f"r{chance.randrange(30):02d}"
            gone = uri in world.contents.held and chance.random() < 0.4
            world.change(uri, None if gone else f"{step} {chance.random()}".encode())
        world.clock.sleep(chance.randrange(20))
        world.publish(force=chance.random() < 0.2)
        if chance.random() < 0.6:
            world.publisher.pack_resources("files")
        packed = dump(world)
        state = dict(packed.resources)
        for entry in world.look().changes:
            assert entry.datetime is not None
            if entry.datetime <= packed.at:
                continue
            if entry.change is ChangeKind.DELETED:
                state.pop(entry.loc, None)
            else:
                state[entry.loc] = world.contents.held.get(entry.loc.rpartition("/")[2], b"")
        prefix = world.site.resource_prefix("files")
        assert state == {prefix + uri: content for uri, content in world.contents.held.items()}
    assert decode_publication(world.catalog.state("files").notes).resource_dump is not None


def test_changes_that_the_dump_does_not_show_stay(tmp_path: Path) -> None:
    """AMB-90: whoever begins with the Resource Dump goes on from its `at`, however soon Change Lists may leave."""
    day, hour = 86_400.0, 3_600.0
    world = PackedCatalog(
        tmp_path,
        page_entries=20,
        retention_seconds=day,
        segment_seconds=hour,
        renew_seconds=10 * day,
        dump_seconds=10 * day,
        dump_share=1.0,
    )
    world.load(texts(10))
    world.publish()
    world.pack()

    def named_from() -> dt.datetime:
        data = world.fetch("http://source.example/sync/files/changelist.xml")
        assert data is not None
        from_ = read_bytes(data)[0].from_
        assert from_ is not None
        return from_

    for number in range(5):
        world.change("r01", str(number).encode())
        world.publish(force=True)
        world.clock.sleep(day + hour)
        world.publish(force=True)
        assert world.pack() == 0
        assert named_from() <= dump(world).at
    world.clock.sleep(10 * day)
    assert world.pack() == 1
    for _ in range(3):
        world.publish(force=True)
        world.clock.sleep(day + hour)
    assert named_from() > world.catalog.segments("files")[0].from_, "what the new dump shows has left"
    assert named_from() <= dump(world).at


def test_what_was_cleaned_away_while_its_page_was_packed_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AMB-63: a page may take longer to pack than what nothing names is kept."""
    world = PackedCatalog(tmp_path, page_entries=100, package_entries=1)
    world.load(texts(3))
    world.publish()
    put, is_cleaned = world.store.put, False

    def put_late(name: str, *more: object) -> object:
        nonlocal is_cleaned
        if name.endswith(".zip") and "-002-" in name and not is_cleaned:
            is_cleaned = True
            world.publisher.publish("files", world.now(), Refresh.ALL)
            world.clock.sleep(GRACE_SECONDS + 1)
            world.publish()
        return put(name, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(world.store, "put", put_late)
    assert world.pack() == 2
    assert held(world) == texts(3)


def test_who_publishes_again_after_others_looks_for_what_they_have_left(tmp_path: Path) -> None:
    world = PackedCatalog(tmp_path, dump_seconds=1)
    world.load(texts(3))
    world.publish()
    world.pack()
    stray, _manifest = resource_package_names("files", 7, 0, "f" * 64)
    world.store.put(stray, [b"PK"], ZIP)
    world.publisher.begin()
    world.change("r01", b"other")
    world.clock.sleep(2)
    world.publish()
    assert world.pack() == 1
    world.clock.sleep(GRACE_SECONDS + 1)
    world.publish()
    assert world.store.stat(stray) is None
