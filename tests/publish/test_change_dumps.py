"""Change Dumps: every change's octets in order, in packages that never change, and nothing that is not true."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from headwater.publish import package_builder as builder
from headwater.publish.package_builder import file_name
from headwater.publish.plan import GRACE_SECONDS
from headwater.publish.publication_state import decode_publication
from headwater.spec.records import ChangeKind
from tests.publish.change_history import ChangingCatalog, PackedChanges, read_change_dump
from tests.support.kept_versions import cut_off


def dump(world: ChangingCatalog) -> PackedChanges:
    found = read_change_dump(world.fetch)
    assert found is not None
    return found


def told(world: ChangingCatalog) -> list[tuple[str, str, bytes | None]]:
    prefix = world.site.resource_prefix("files")
    return [(one.change.value, one.uri.removeprefix(prefix), one.content) for one in dump(world).changes]


def test_a_package_holds_every_change_of_a_segment_in_order(tmp_path: Path) -> None:
    """RS-CD-04, RS-CD-10, RS-CDM-04, RS-CDM-10: one member a change, several for one resource, none for a deletion."""
    world = ChangingCatalog(tmp_path, segment_entries=4)
    world.begin(1)
    world.publish()
    assert told(world) == []  # AMB-03
    world.change("a", b"one")
    world.change("a", b"two")
    world.change("a", None)
    world.change("sub/b%20c.pdf", b"x" * 3_000_000, type_="application/pdf")
    world.change("a", b"one")
    world.publish()
    assert told(world) == []  # packages come beside the publication
    assert world.pack() == 2
    expected = [
        ("created", "a", b"one"),
        ("updated", "a", b"two"),
        ("deleted", "a", None),
        ("created", "sub/b%20c.pdf", b"x" * 3_000_000),
        ("created", "a", b"one"),
    ]
    assert told(world) == expected
    closed, open_ = dump(world).names
    before = world.fetch(closed)
    assert closed.startswith("http://source.example/sync/files/changedump/00000-")
    world.change("a", b"three")
    world.publish()
    assert world.pack() == 1
    assert told(world) == [*expected, ("updated", "a", b"three")]
    assert dump(world).names[0] == closed
    assert world.fetch(closed) == before
    assert world.fetch(open_) is not None  # for readers of the Change Dump as it was
    world.clock.sleep(GRACE_SECONDS + 1)
    world.publish()
    assert world.fetch(open_) is None
    assert world.pack() == 0


def test_a_segment_may_need_several_packages(tmp_path: Path) -> None:
    world = ChangingCatalog(tmp_path, segment_entries=100, package_entries=3, package_octets=10)
    world.begin(0)
    world.publish()
    sizes = [1, 1, 1, 1, 9, 1, 30, 1, 1]
    for number, size in enumerate(sizes):
        world.change(f"r{number}", b"x" * size)
    world.publish()
    world.pack()
    assert len(dump(world).changes) == len(sizes)
    packed = decode_publication(world.catalog.state("files").notes).change_dump
    assert packed is not None
    assert [(one.first, one.last, one.is_final) for one in packed.packages] == [
        (1, 3, True),
        (4, 5, True),
        (6, 6, True),
        (7, 7, True),
        (8, 9, False),
    ]
    world.change("more", b"y")
    world.publish()
    world.pack()
    assert dump(world).names[:4] == [one for one in dump(world).names if one][:4]
    assert len(dump(world).changes) == len(sizes) + 1


def test_a_manifest_stays_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RS-LIM-01: an entry of a manifest is longer than that of the Change List, which a segment is measured for."""
    monkeypatch.setattr(builder, "MANIFEST_OCTETS", 2_000)
    world = ChangingCatalog(tmp_path, segment_entries=100)
    world.begin(0)
    world.publish()
    for number in range(9):
        world.change(f"r{number}", b"x")
    world.publish()
    assert world.pack() > 1
    assert len(dump(world).changes) == 9


def test_the_open_segment_is_packed_at_its_period(tmp_path: Path) -> None:
    world = ChangingCatalog(tmp_path, change_dump_seconds=60)
    world.begin(0)
    world.publish()
    world.change("a", b"1")
    assert world.pack(at_once=False) == 1
    world.change("a", b"2")
    assert world.pack(at_once=False) == 0
    world.clock.sleep(61)
    assert world.pack(at_once=False) == 1
    assert len(told(world)) == 2


def test_a_set_without_offers_none_and_one_that_no_longer_does_takes_it_away(tmp_path: Path) -> None:
    """RS-CAP-05: the Capability List names just what there is."""
    world = ChangingCatalog(tmp_path, change_dump=False)
    world.begin(0)
    world.change("early", b"not kept", keep=False)
    world.publish()
    assert read_change_dump(world.fetch) is None
    assert world.pack() == 0
    world.configure()
    world.publish()
    assert told(world) == []  # it begins with a segment of its own
    world.change("a", b"kept")
    world.publish()
    world.pack()
    assert told(world) == [("created", "a", b"kept")]
    names = dump(world).names
    world.configure(change_dump=False)
    world.publish()
    assert read_change_dump(world.fetch) is None
    world.clock.sleep(GRACE_SECONDS + 1)
    world.publish(force=True)
    assert [world.fetch(name) for name in names] == [None]
    assert not list(world.store.names("files/changedump"))


def test_octets_that_cannot_be_had_make_the_dump_begin_anew(tmp_path: Path) -> None:
    """RS-CDM-10: no package covers the time of a change that it does not hold."""
    world = ChangingCatalog(tmp_path, segment_entries=3)
    world.begin(0)
    world.publish()
    for number in range(8):
        world.change(f"r{number}", b"%d" % number, keep=number != 4)
    world.publish()
    world.pack()
    assert [name for _, name, _ in told(world)] == ["r5", "r6", "r7"]
    assert world.rules == ["HW-PUB-13"]
    missing = world.catalog.changes("files", 4, 1)[0]
    assert dump(world).from_ == missing.at + dt.timedelta(microseconds=1)
    assert world.look().state == world.truth()  # Change Lists are whole


def test_a_damaged_version_is_not_packed(tmp_path: Path) -> None:
    world = ChangingCatalog(tmp_path)
    world.begin(0)
    world.publish()
    world.change("bad", b"bad" * 1_000_000)
    world.change("small", b"small and bad")
    cut_off(tmp_path / "versions", b"bad" * 1_000_000)
    cut_off(tmp_path / "versions", b"small and bad")
    world.change("good", b"good")
    world.publish()
    world.pack()
    assert [name for _, name, _ in told(world)] == ["good"]


def test_packages_leave_with_their_change_lists(tmp_path: Path) -> None:
    world = ChangingCatalog(tmp_path, segment_entries=2, retention_seconds=100)
    world.begin(0)
    world.publish()
    for number in range(6):
        world.change(f"r{number}", b"%d" % number)
        world.publish(force=True)
        world.pack()
    assert len(dump(world).names) == 3
    world.clock.sleep(101)
    world.publish(force=True)
    world.clock.sleep(101)
    world.publish(force=True)
    first = next(one for one in world.look().changes)
    assert [one.at for one in dump(world).changes] == [one.datetime for one in world.look().changes]
    assert first.loc.endswith("r4")


def test_a_lost_package_is_not_named_any_more(tmp_path: Path) -> None:
    world = ChangingCatalog(tmp_path, segment_entries=2)
    world.begin(0)
    world.publish()
    for number in range(5):
        world.change(f"r{number}", b"%d" % number)
    world.publish()
    world.pack()
    (world.store.root / dump(world).names[0].partition("/sync/")[2]).unlink()
    world.configure()  # another process
    world.publish()
    world.pack()
    assert [name for _, name, _ in told(world)] == ["r4"], "the dump begins anew after all that was packed for good"


def test_of_very_many_packages_the_oldest_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RS-LIM-01: a dump is one document; who has missed what left sees the gap."""
    monkeypatch.setattr("headwater.publish.change_dump.MOST_PACKAGES", 3)
    world = ChangingCatalog(tmp_path, segment_entries=1)
    world.begin(0)
    world.publish()
    for number in range(7):
        world.change(f"r{number}", b"%d" % number)
        world.publish()
        world.pack()
    world.publish()
    assert [name for _, name, _ in told(world)] == ["r4", "r5", "r6"]


def test_a_publication_does_not_wait_for_a_package(tmp_path: Path) -> None:
    """In the middle of packing others publish; what was packed is named when it is done."""
    world = ChangingCatalog(tmp_path)
    world.begin(0)
    world.publish()
    world.change("a", b"1")
    seen: list[int] = []

    def publish() -> None:
        if not seen:
            seen.append(1)
            world.change("a", b"2")
            world.publish()
            assert len(world.look().changes) == 2

    assert world.publisher.pack_changes("files", at_once=True, stop=publish).is_done
    assert [content for _, _, content in told(world)] == [b"1"]
    world.pack()
    assert [content for _, _, content in told(world)] == [b"1", b"2"]


def test_what_was_packed_for_a_history_that_has_ended_is_not_named(tmp_path: Path) -> None:
    world = ChangingCatalog(tmp_path)
    world.begin(0)
    world.publish()
    world.change("a", b"1")
    world.publish()

    def move() -> None:
        if world.site.base_url.endswith("sync"):
            old = world.publisher
            world.configure(change_dump=False)
            world.publish()
            world.publisher = old
            world.site = world.site.__class__(base_url="http://other", sets=world.site.sets)

    assert world.publisher.pack_changes("files", at_once=True, stop=move).is_done
    assert read_change_dump(world.fetch) is None


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("a/b.txt", "b.txt"),
        ("a%20b.pdf", "a b.pdf"),
        ("%C3%A4.txt", "ä.txt"),
        ("%FF.txt", "%FF.txt"),
        ("https://h/x/y.pdf?q=1#f", "y.pdf"),
        ("https://h/", "content"),
        ("x/..%2F", "..%2F"),
        ("a%2Fb", "a%2Fb"),
        ("a%5Cb", "a%5Cb"),
        ("%00", "%00"),
        ("C%3Ax", "C%3Ax"),
        ("..", "content"),
        (".hidden", "content"),
        ("end.", "content"),
        ("n" * 200, "content"),
    ],
)
def test_member_names_are_safe(uri: str, name: str) -> None:
    assert file_name(uri) == (name if not name.startswith(".") else "content")


def test_changes_are_told_as_they_were(tmp_path: Path) -> None:
    world = ChangingCatalog(tmp_path)
    world.begin(0)
    world.publish()
    world.change("a", b"")
    world.change("a", None)
    world.publish()
    world.pack()
    assert [(one.change, one.content) for one in dump(world).changes] == [
        (ChangeKind.CREATED, b""),
        (ChangeKind.DELETED, None),
    ]
