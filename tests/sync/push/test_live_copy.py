"""A copy that stays open between payloads: applied as Change Lists are, in its turn, and remembered as runs are."""

from __future__ import annotations

import datetime as dt
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headwater.cli import run
from headwater.copy_state import FOLDER
from headwater.errors import StoreFault
from headwater.spec.kinds import Kind
from headwater.spec.records import Document
from headwater.storage.lock import lock_exclusive
from headwater.sync import push as live_copy
from headwater.sync.copy.file_tree import DestinationLocked
from headwater.sync.copy_status import copy_status
from headwater.sync.options import SyncOptions
from headwater.sync.push import LiveCopy, ReadPayload, UnusablePayload, changed_documents, read_payload
from headwater.sync.run import SyncTask, synchronise
from headwater.sync.source_times import micros
from tests.support.copying import DONE, FAILED, go, tree
from tests.support.fake_source import Site, at, document, ln, url

TOPIC = "notification.xml"


def payload(site: Site, *changes: tuple[float, str, str, bytes | None], until: float | None = None) -> ReadPayload:
    entries = [site.change(*change) for change in changes]
    said = {"from": at(changes[0][0] - 1), "until": at(changes[-1][0] if until is None else until)}
    body = document(entries, links=site.up(), capability="change-notification", **said)
    now = dt.datetime.now(dt.UTC)
    return read_payload(body, TOPIC, Kind.CHANGE_NOTIFICATION, now, f"{site.root}/capabilitylist.xml")


@contextmanager
def live(site: Site, dest: Path, **options: object) -> Iterator[LiveCopy]:
    task = SyncTask(url=site.source.base, destination=dest, options=SyncOptions(retries=0, **options))  # type: ignore[arg-type]
    synchronise(task)
    copy = LiveCopy(task)
    try:
        yield copy
    finally:
        copy.close()


def apply(copy: LiveCopy, site: Site, *payloads: ReadPayload, since: int | None = None) -> int:
    try:
        return copy.apply(f"{site.root}/capabilitylist.xml", TOPIC, payloads, since)
    finally:
        copy.rest()


def test_payloads_are_applied_together_and_the_last_change_of_each_resource_counts(site: Site, dest: Path) -> None:
    with live(site, dest) as copy:
        site.put("a.txt", b"one")
        site.put("a.txt", b"two")
        site.drop("f0.txt")
        site.source.forget()
        first, second, third = (payload(site, change) for change in site.changes[-3:])
        applied = apply(copy, site, first, second, third)
        assert (dest / "a.txt").read_bytes() == b"two"
        assert not (dest / "f0.txt").exists()
        assert applied == 0
        assert site.source.requests() == ["/set/resources/a.txt"]
        report = copy.take_report()
        assert report is not None
        assert (report.sets[0].created, report.sets[0].deleted, report.sets[0].process) == (1, 1, "push")
        assert report.sets[0].position == at(site.clock)
        assert copy.take_report() is None


def test_a_report_tells_how_long_its_work_took(site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not how long ago the one before it was."""
    clock = [0.0]
    monkeypatch.setattr(live_copy, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    with live(site, dest) as copy:
        for name, waited in (("a.txt", 50.0), ("b.txt", 100.0)):
            clock[0] += waited
            site.put(name, b"one")
            apply(copy, site, payload(site, site.changes[-1]))
            clock[0] += 2.0
            report = copy.take_report()
            assert report is not None
            assert (report.sets[0].created, report.seconds) == (1, 2.0)


def test_the_position_of_the_lists_stays_and_the_next_run_finds_everything_done(site: Site, dest: Path) -> None:
    before = None
    with live(site, dest) as copy:
        before = copy_status(dest).sets[0].position
        site.put("a.txt", b"one")
        apply(copy, site, payload(site, site.changes[-1]))
        assert copy_status(dest).sets[0].position == before
    site.publish(since=10.0)
    site.source.forget()
    report = synchronise(SyncTask(url=site.source.base, destination=dest))
    assert (report.sets[0].created, report.sets[0].updated) == (0, 0)
    assert site.source.requests("/set/resources/a.txt") == []
    assert report.sets[0].position == at(site.clock)


def test_nothing_older_is_done_over_what_is_newer(site: Site, dest: Path) -> None:
    with live(site, dest) as copy:
        site.put("a.txt", b"one")
        site.put("a.txt", b"two")
        old, new = (payload(site, change) for change in site.changes[-2:])
        apply(copy, site, new)
        site.source.forget()
        apply(copy, site, old)
        assert (dest / "a.txt").read_bytes() == b"two"
        assert site.source.requests() == []


def test_payloads_of_a_source_whose_intervals_overlap_are_all_applied(site: Site, dest: Path) -> None:
    """It breaks RS-CN-05: together they have changes out of order."""
    with live(site, dest) as copy:
        site.put("a.txt", b"one")
        site.put("b.txt", b"two")
        earlier, later = (payload(site, change) for change in site.changes[-2:])
        assert later.document.from_ is not None
        wide = msgspec.structs.replace(later.document, from_=later.document.from_ - dt.timedelta(seconds=5))
        assert apply(copy, site, msgspec.structs.replace(later, document=wide), earlier) == 0
        assert ((dest / "a.txt").read_bytes(), (dest / "b.txt").read_bytes()) == (b"one", b"two")


def test_what_was_told_before_is_passed_over(site: Site, dest: Path) -> None:
    with live(site, dest) as copy:
        site.put("a.txt", b"one")
        one = payload(site, site.changes[-1])
        apply(copy, site, one)
        site.source.forget()
        assert apply(copy, site, one, since=(micros(site.now()) or 0) + 1) == 0
        assert site.source.requests() == []


def test_what_cannot_be_had_is_told_and_not_remembered(site: Site, dest: Path) -> None:
    """A payload is a hint: only a list's word makes a failure of it."""
    with live(site, dest) as copy:
        applied = apply(copy, site, payload(site, (site.clock + 1, "created", "none.txt", b"none")))
        assert applied == 1
        assert copy_status(dest).failed == 0
        site.source.pages["/set/resources/f0.txt"] = site.source.reply("/set/resources/f1.txt")
        applied = apply(copy, site, payload(site, (site.clock + 2, "updated", "f0.txt", b"other")))
        assert applied == 1
        assert (dest / "f0.txt").read_bytes() == b"body 0\n"
        assert copy_status(dest).failed == 0


def test_a_mass_of_deletions_is_held_back(site: Site, dest: Path) -> None:
    """DST-B4: a hub is believed no more than a Change List is."""
    for number in range(20):
        site.put(f"more{number}.txt", b"more")
    site.publish(since=10.0)
    with live(site, dest) as copy:
        names = [f"more{number}.txt" for number in range(20)]
        changes = [(site.clock + 1 + number / 100, "deleted", name, None) for number, name in enumerate(names)]
        apply(copy, site, payload(site, *changes))
        assert all((dest / name).exists() for name in names)
        report = copy.take_report()
        assert report is not None
        assert report.sets[0].held_back == 20


def test_lists_that_tell_the_same_deletions_are_no_consent(site: Site, dest: Path) -> None:
    """DST-B4: they decide once more, and what payloads have brought since lets none of them go."""
    for number in range(20):
        site.put(f"more{number}.txt", b"more")
    site.publish(since=10.0)
    with live(site, dest) as copy:
        told = len(site.changes)
        for number in range(20):
            site.drop(f"more{number}.txt")
        apply(copy, site, payload(site, *site.changes[told:]))
        told = len(site.changes)
        for number in range(100):
            site.put(f"new{number}.txt", b"new")
        apply(copy, site, payload(site, *site.changes[told:]))
    site.publish_changes(10.0)
    for _ in range(2):
        ran = go(site.source.base, dest)
        assert (ran.status, ran.one.held_back, ran.one.deleted) == (FAILED, 20, 0)
    ran = go(site.source.base, dest, max_delete=0.2)
    assert (ran.status, ran.one.held_back, ran.one.deleted) == (DONE, 0, 20)


def test_it_waits_for_other_runs_and_lets_them_have_the_folder(site: Site, dest: Path) -> None:
    with live(site, dest) as copy:
        copy.open()
        site.put("a.txt", b"one")
        one = payload(site, site.changes[-1])
        held = lock_exclusive(dest / FOLDER / "lock")
        with pytest.raises(DestinationLocked):
            apply(copy, site, one)
        os.close(held)
        site.publish(since=10.0)
        synchronise(SyncTask(url=site.source.base, destination=dest))  # another run, in between
        site.put("b.txt", b"two")
        apply(copy, site, payload(site, site.changes[-1]))
        assert (dest / "b.txt").read_bytes() == b"two"


@pytest.mark.parametrize("runs", [True, False], ids=["and a run follows another", "and no run follows"])
def test_what_is_forgotten_between_two_payloads_is_followed_no_more(site: Site, dest: Path, runs: bool) -> None:
    """It goes by what others have left of the copy: nothing is recorded for a set that is not there."""
    other = Site(site.source, "other")
    other.put("o.txt", b"other")
    other.publish()
    site.publish_description("set", "other")
    with live(site, dest) as copy:
        site.put("a.txt", b"one")
        apply(copy, site, payload(site, site.changes[-1]))
        assert run(["forget", str(dest), "--set", "set"]) == 0
        if runs:
            synchronise(SyncTask(url=site.source.base, destination=dest, options=SyncOptions(sets=("other",))))
        site.put("b.txt", b"two")
        with pytest.raises(KeyError):
            apply(copy, site, payload(site, site.changes[-1]))
    assert [(one.name, one.files) for one in copy_status(dest).sets] == [("other", 1)]
    assert not list(dest.rglob("b.txt"))


def test_a_set_that_is_not_there_is_told(site: Site, dest: Path) -> None:
    with live(site, dest) as copy, pytest.raises(KeyError):
        copy.apply("http://nobody.example/", TOPIC, [payload(site, (11.0, "deleted", "f0.txt", None))], None)
    assert issubclass(DestinationLocked, StoreFault)


@pytest.mark.parametrize("choice", [{"prefer_types": ("text/plain",)}, {"only_described": True}])
def test_where_links_choose_lists_alone_decide(site: Site, dest: Path, choice: dict[str, Any]) -> None:
    """What a payload told of links would else hold against lists that have led further."""
    with live(site, dest, **choice) as copy:
        before = tree(dest)
        with pytest.raises(KeyError):
            apply(copy, site, payload(site, (11.0, "deleted", "f0.txt", None)))
        assert tree(dest) == before


def test_files_that_are_replaced_go_to_the_backup(site: Site, dest: Path, tmp_path: Path) -> None:
    with live(site, dest, backup_dir=str(tmp_path / "kept")) as copy:
        site.put("f0.txt", b"other")
        apply(copy, site, payload(site, site.changes[-1]))
    assert [path.read_bytes() for path in (tmp_path / "kept").rglob("f0.txt")] == [b"body 0\n"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.CHANGE_NOTIFICATION, document([], capability="framework-notification")),
        (Kind.CHANGE_NOTIFICATION, document([], capability="resourcelist", at=at(0))),
        (Kind.CHANGE_NOTIFICATION, document([], links=ln("up", "http://x.example/"), capability="changelist")),
        (Kind.FRAMEWORK_NOTIFICATION, document([], capability="change-notification")),
        (Kind.FRAMEWORK_NOTIFICATION, document([], capability="capabilitylist")),
        (Kind.FRAMEWORK_NOTIFICATION, b"<urlset"),
    ],
)
def test_payloads_of_other_channels_are_refused_rs_ch_02(kind: Kind, body: bytes) -> None:
    with pytest.raises(UnusablePayload):
        read_payload(body, TOPIC, kind, dt.datetime.now(dt.UTC), "http://s.example/capabilitylist.xml")


@pytest.mark.parametrize(("ahead", "is_known"), [(0, True), (59, True), (61, False), (1_500_000, False)])
def test_an_interval_that_ends_in_the_future_is_taken_for_open(ahead: int, is_known: bool) -> None:
    """Else later payloads would lie in it, and count as past."""
    came_at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    until = came_at + dt.timedelta(minutes=ahead)
    document = Document(kind=Kind.CHANGE_NOTIFICATION, capability="changelist", until=until)
    assert ReadPayload(document, (), came_at).until == (micros(until) if is_known else None)


def test_a_framework_notification_names_documents_and_their_indexes_rs_fn_10() -> None:
    entries = [
        url("http://s.example/list1.xml", links=ln("index", "http://s.example/list.xml"), capability="resourcelist"),
        url("http://s.example/capabilitylist.xml", capability="capabilitylist"),
    ]
    body = document(entries, capability="framework-notification")
    read = read_payload(body, TOPIC, Kind.FRAMEWORK_NOTIFICATION, dt.datetime.now(dt.UTC))
    assert {one.rpartition("/")[2] for one in changed_documents(read)} == {
        "list1.xml",
        "list.xml",
        "capabilitylist.xml",
    }


def test_want_of_room_while_payloads_are_applied_is_remembered(
    site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `status` would tell of the last run, which was sound, while the service has ended."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with live(site, dest) as copy:
        assert copy_status(dest).exit_status == 0
        site.put("new.txt", b"new")
        monkeypatch.setattr("headwater.sync.copy.file_tree.FileTree.write", refuse)
        with pytest.raises((StoreFault, OSError)):
            apply(copy, site, payload(site, (site.clock, "created", "new.txt", b"new")))
    status = copy_status(dest)
    assert status.exit_status == 6
    assert status.last_run is not None
    assert "No space left" in (status.last_run.fault or "")
    monkeypatch.undo()
    synchronise(SyncTask(url=site.source.base, destination=dest))
    assert copy_status(dest).exit_status == 0


def test_a_run_that_comes_to_nothing_began_when_its_payload_came(
    site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when the copy was opened, nor when the run before it began."""

    def refuse(*_: object) -> None:
        raise StoreFault("the state cannot be read")

    with live(site, dest) as copy:
        copy.open()
        came_at = dt.datetime.now(dt.UTC)
        monkeypatch.setattr(live_copy, "sets", refuse)
        with pytest.raises(StoreFault):
            apply(copy, site, payload(site, (11.0, "deleted", "f0.txt", None)))
    run = copy_status(dest).last_run
    assert run is not None
    assert run.began_at >= came_at


def test_want_of_room_that_nobody_foresaw_is_remembered_of_a_run(
    site: Site, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    task = SyncTask(url=site.source.base, destination=dest)
    synchronise(task)
    site.put("new.txt", b"new")
    site.publish()
    monkeypatch.setattr("headwater.sync.copy.file_tree.FileTree.write", refuse)
    with pytest.raises(OSError, match="No space"):
        synchronise(task)
    assert copy_status(dest).exit_status == 6
