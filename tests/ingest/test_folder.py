"""The scanner: what happens to a folder becomes changes, each exactly once; what cannot be known changes nothing."""

import datetime as dt
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.catalog.interface import Delete, Metadata, Moved, Upsert
from headwater.catalog.page_filling import LONGEST_URI as LONGEST_ACCEPTABLE
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.errors import Exit
from headwater.files import hashing
from headwater.files.hash_pool import HashPool
from headwater.files.nofollow import Opener, open_by_steps, open_unlinked
from headwater.files.patterns import Selection
from headwater.ingest.deletion_guard import WINDOW, HoldReason
from headwater.ingest.folder import comparison
from headwater.ingest.folder import file_events as event_builder
from headwater.ingest.folder import scanner as folder_module
from headwater.ingest.folder.comparison import ScanResult, compare
from headwater.ingest.folder.scanner import LONG_URI, LONGEST_URI, FolderScanner
from headwater.ingest.folder.static_tree import SetTree
from headwater.ingest.folder.walk import Folder, UnreadableEntry, quote, topmost
from headwater.processes.pool import Stopped
from tests.ingest.scanned_folder import SET, ScannedFolder, hashes, now
from tests.ingest.test_walk import ODD_NAMES
from tests.support.examples import examples
from tests.support.failing import failing
from tests.support.waiting import settle


@pytest.fixture
def world(tmp_path: Path) -> ScannedFolder:
    return ScannedFolder(tmp_path, processes=0)


def counts(done: ScanResult) -> tuple[int, int, int, int]:
    return done.created, done.updated, done.deleted, done.unchanged


def test_a_new_set_is_loaded_and_opened_as_of_the_start_of_the_scan(world: ScannedFolder) -> None:
    """RS-TIME-05: `at` is when the snapshot began."""
    world.put("a.txt", b"one")
    world.put("sub/b.pdf", b"")
    before = dt.datetime.now(dt.UTC)
    done = world.scan()
    assert done.opened
    assert counts(done) == (2, 0, 0, 0)
    assert done.at is not None
    assert before <= done.at <= dt.datetime.now(dt.UTC)
    assert world.held() == world.truth() == {"a.txt": hashes(b"one"), "sub/b.pdf": hashes(b"")}
    found = world.catalog.get(SET, ["sub/b.pdf"])["sub/b.pdf"].metadata
    assert (found.length, found.type) == (0, "application/pdf")
    assert found.lastmod is not None
    assert found.lastmod.microsecond == 0
    assert world.log() == []


def test_changes_are_logged_once(world: ScannedFolder) -> None:
    for name in ("keep", "edit", "drop"):
        world.put(name, name.encode())
    world.scan()
    world.put("edit", b"edited")
    world.put("new", b"new")
    world.remove("drop")
    settle()
    done = world.scan()
    assert counts(done) == (1, 1, 1, 1)
    assert world.told() == [("deleted", "drop"), ("updated", "edit"), ("created", "new")]
    assert world.held() == world.truth()
    assert counts(world.scan()) == (0, 0, 0, 3)
    assert len(world.log()) == 3


def test_every_change_is_later_than_at(world: ScannedFolder) -> None:
    """AMB-11, AMB-20: what a scan finds happened after the line that was drawn before it."""
    world.put("a")
    first = world.scan()
    world.put("b")
    second = world.scan()
    assert first.at is not None
    assert second.at is not None
    assert first.at < second.at < world.log()[0].at


def test_an_untouched_file_is_not_read_again(world: ScannedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put("a", b"1" * 10)
    world.put("b", b"2" * 10)
    settle()
    world.scan()
    monkeypatch.setattr("headwater.files.hash_pool.read_file", None)
    assert counts(world.scan()) == (0, 0, 0, 2)


def test_a_file_written_in_the_tick_in_which_it_was_read_is_read_again(world: ScannedFolder) -> None:
    """The race that git's index knows: same size, same times, other octets."""
    world.put("a", b"old")
    world.scan()
    full = world.full("a")
    state = os.stat(full)
    with open(full, "r+b") as file:
        file.write(b"new")
    os.utime(full, ns=(state.st_atime_ns, state.st_mtime_ns))
    world.scan()
    assert world.held() == {"a": hashes(b"new")}


def test_a_touched_file_with_the_same_octets(world: ScannedFolder) -> None:
    """AMB-83: another Last-Modified is a change of metadata; a finer difference is none (AMB-26)."""
    world.put("a")
    world.put("b")
    os.utime(world.full("b"), ns=(0, 1_700_000_000_000_000_001))
    world.scan()
    os.utime(world.full("a"), (1_600_000_000, 1_600_000_000))
    os.utime(world.full("b"), ns=(0, 1_700_000_000_999_999_999))
    assert counts(world.scan()) == (0, 1, 0, 1)
    assert world.told() == [("updated", "a")]


def test_odd_names(world: ScannedFolder) -> None:
    for name in ODD_NAMES:
        world.put(name, name)
        world.put(b"d/" + name, name)
    world.scan()
    assert world.held() == world.truth()
    for name in ODD_NAMES:
        world.put(name, b"changed")
        world.remove(b"d/" + name)
    world.configure(max_delete=1.0)
    done = world.scan()
    assert counts(done) == (0, len(ODD_NAMES), len(ODD_NAMES), 0)
    assert world.held() == world.truth()


def test_a_file_that_becomes_a_folder_and_back(world: ScannedFolder) -> None:
    """The name is free before it is taken, for a destination that applies one change after the other."""
    world.put("a", b"file")
    world.put("z")
    world.scan()
    world.remove("a")
    world.put("a/b", b"inside")
    world.scan()
    assert world.told() == [("deleted", "a"), ("created", "a/b")]
    world.remove("a/b")
    os.rmdir(world.full("a"))
    world.put("a", b"again")
    world.scan()
    assert world.told()[2:] == [("deleted", "a/b"), ("created", "a")]


def test_times_that_cannot_be_break_nothing(world: ScannedFolder) -> None:
    for number, seconds in enumerate([-86400 * 365 * 20, 0, 4_000_000_000, 16_000_000_000]):
        world.put(f"f{number}")
        try:
            os.utime(world.full(f"f{number}"), (seconds, seconds))
        except OSError:
            continue  # the file system cannot hold it: then nobody meets it here
    assert counts(world.scan())[0] == 4
    settle()
    world.scan()
    assert world.log() == []
    now = dt.datetime.now(dt.UTC)
    assert all(one.metadata.lastmod is not None and one.metadata.lastmod <= now for one in world.catalog.resources(SET))


# What cannot be looked at


@pytest.mark.parametrize("call", ["lstat", "open", "list"])
@pytest.mark.parametrize("error", [13, 5, 116], ids=["EACCES", "EIO", "ESTALE"])
def test_what_cannot_be_read_stays_as_published(
    world: ScannedFolder, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    world.put("dir/closed", b"old")
    world.put("dir-b/open")
    world.put("dir/other")
    world.scan()
    world.put("dir/closed", b"new")
    world.put("dir/fresh", b"fresh")
    name = {
        "lstat": "ingest.folder.walk.os.lstat",
        "list": "ingest.folder.walk.open_unlinked",
        "open": "files.hashing.open_unlinked",
    }[call]
    target = {"lstat": b"/dir/closed", "open": b"/dir/closed", "list": b"/dir"}[call]
    real = os.lstat if call == "lstat" else open_unlinked

    def refusing(path: bytes, *more: int) -> object:
        if path.endswith(target):
            raise OSError(error, os.strerror(error), path)
        return real(path, *more)

    monkeypatch.setattr(f"headwater.{name}", refusing)
    done = world.scan()
    assert done.deleted == 0
    assert done.kept == (2 if call == "list" else 1)
    assert world.held()["dir/closed"] == hashes(b"old")
    assert world.rules() == {"HW-ING-20"}
    monkeypatch.undo()
    assert world.scan().updated == 1
    assert world.held() == world.truth()


def test_nothing_is_missing_where_more_cannot_be_read_than_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "MOST_PLACES", 1)
    seen = [UnreadableEntry("a", b"/a", "closed"), UnreadableEntry("b/", b"/b", "closed")]
    result = ScanResult()
    assert list(compare(seen, [("a", b""), ("b/x", b""), ("c", b"")], 0, result)) == []
    assert (result.kept, result.unreadable.count) == (3, 3)


@pytest.mark.parametrize("error", [13, 5, 116], ids=["EACCES", "EIO", "ESTALE"])
def test_nothing_is_deleted_when_the_second_look_fails(
    world: ScannedFolder, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """The folder was listed without the file, and cannot be looked at a moment later: that proves nothing."""
    world.put("dir/file", b"old")
    world.put("dir/other")
    world.scan()
    world.remove("dir/file")
    looks = []
    real = os.lstat

    def refusing(path: bytes) -> os.stat_result:
        if path == world.full("dir"):
            looks.append(path)
            if len(looks) > 1:
                raise OSError(error, os.strerror(error), path)
        return real(path)

    monkeypatch.setattr("headwater.ingest.folder.walk.os.lstat", refusing)
    done = world.scan()
    assert len(looks) == 2
    assert (done.deleted, done.kept) == (0, 1)
    assert world.held()["dir/file"] == hashes(b"old")
    monkeypatch.undo()
    assert world.scan().deleted == 1


def test_a_first_load_is_of_the_time_when_it_began(world: ScannedFolder) -> None:
    """RS-TIME-05: what changes while files are read is not said to be shown."""
    moments: list[dt.datetime] = []
    world.breathe = lambda: moments.append(dt.datetime.now(dt.UTC))
    world.put("a")
    done = world.scan()
    assert moments
    assert done.opened
    assert done.at is not None
    assert done.at <= moments[0]
    assert world.catalog.state(SET).opened_at == done.at


# What is exchanged for a link while we look


@pytest.mark.parametrize(
    ("moment", "what"),
    [
        ("ingest.folder.walk", "dir"),
        ("ingest.folder.walk", "dir/below"),
        ("files.hashing", "dir"),
        ("files.hashing", "dir/below"),
        ("files.hashing", "dir/below/file"),
    ],
)
@pytest.mark.parametrize("opener", [open_unlinked, open_by_steps])
def test_a_folder_exchanged_for_a_link_leads_nowhere(
    world: ScannedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, what: str, opener: Opener
) -> None:
    """Whoever may write into the folder makes us read nothing that he may not read himself."""
    world.put("dir/below/file", b"inside")
    world.put("other")
    world.scan()
    outside = ScannedFolder(tmp_path / "outside")
    outside.put("below/file", b"secret")
    outside.put("file", b"secret")
    world.put("dir/below/file", b"inside, too")
    there = {"dir": ".", "dir/below": "below", "dir/below/file": "file"}[what]

    def exchanging(path: bytes, flags: int) -> int:
        if path.endswith(b"/" + what.encode()) or (moment == "files.hashing" and path.endswith(b"/file")):
            monkeypatch.setattr(f"headwater.{moment}.open_unlinked", opener)
            os.rename(world.full(what), world.root + b"-aside")
            os.symlink(os.path.realpath(outside.full(there)), world.full(what))
        return opener(path, flags)

    monkeypatch.setattr(f"headwater.{moment}.open_unlinked", exchanging)
    done = world.scan()
    assert set(world.held().values()) == {hashes(b"inside"), hashes(b"x")}
    assert (done.created, done.updated, done.deleted) == (0, 0, 0)
    assert moment == "ingest.folder.walk" or done.unsettled == [b"dir/below/file"], "another look finds the link"
    os.unlink(world.full(what))
    os.rename(world.root + b"-aside", world.full(what))
    world.scan()
    assert world.held() == world.truth()


def test_a_closed_file_that_is_new_is_only_noticed(world: ScannedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put("a")
    world.scan()
    world.put("b")
    monkeypatch.setattr(
        event_builder, "HashPool", _readings({b"b": (hashing.UNREADABLE, 13, (0, 0, 0, 0), 0, 0, "", "")})
    )
    assert counts(world.scan()) == (0, 0, 0, 1)
    assert "b" not in world.held()
    assert world.rules() == {"HW-ING-20"}


def _readings(by_name: dict[bytes, hashing.HashResult]) -> type:
    class Scripted(HashPool):
        def _read_one(self, request: hashing.HashRequest) -> hashing.HashResult:
            return by_name.get(os.path.basename(request[0])) or super()._read_one(request)

    return Scripted


def test_a_file_that_changes_while_it_is_read_is_tried_again(
    world: ScannedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("busy", b"old")
    world.put("calm", b"old")
    world.scan()
    world.put("busy", b"new")
    world.put("calm", b"new")
    real = os.read

    def writing(descriptor: int, octets: int) -> bytes:
        data = real(descriptor, octets)
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/busy"):
            with open(world.full("busy"), "ab") as file:
                file.write(b"+")
        return data

    monkeypatch.setattr("headwater.files.hashing.os.read", writing)
    done = world.scan()
    assert done.unsettled == [b"busy"]
    assert (done.updated, done.kept) == (1, 1)
    assert world.held() == {"busy": hashes(b"old"), "calm": hashes(b"new")}
    assert world.rules() == {"HW-ING-22"}
    monkeypatch.undo()
    world.rescan(*done.unsettled)
    assert world.held() == world.truth()


@pytest.mark.skipif(sys.platform != "linux", reason="who has a file open is known on Linux alone")
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("look", ["scan", "hint", "load"])
def test_a_file_that_is_being_written_is_left_as_it_is_published(world: ScannedFolder, known: bool, look: str) -> None:
    """Until it is closed, or has been at rest for a while; what is renamed into its place is finished."""
    world.configure(settle_seconds=30.0)
    before = {"a": hashes(b"old")} if known and look != "load" else {}
    if before:
        world.put("a", b"old")
    if look != "load":
        world.scan()
    with open(world.full("a"), "wb") as file:
        file.write(b"half")
        file.flush()
        done = world.rescan(b"a") if look == "hint" else world.scan()
        assert (world.held(), done.unsettled, world.rules()) == (before, [b"a"], {"HW-ING-22"})
        world.put("b", b"whole")
        world.rescan(b"a", b"b")
        assert world.held() == before | {"b": hashes(b"whole")}
        file.write(b" and half")
    done = world.rescan(*done.unsettled)
    assert (world.held()["a"], done.unsettled) == (hashes(b"half and half"), [])
    with open(world.full("a"), "ab") as file:
        file.write(b", open for ever")
        file.flush()
        os.utime(world.full("a"), (1_700_000_000, 1_700_000_000))  # at rest for longer
        world.rescan(b"a")
        assert world.held()["a"] == hashes(b"half and half, open for ever")


def test_a_file_that_vanishes_before_it_is_read_is_passed_over(
    world: ScannedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("a")
    world.scan()
    world.put("b")
    monkeypatch.setattr(event_builder, "HashPool", _readings({b"b": (hashing.VANISHED, 0, (0, 0, 0, 0), 0, 0, "", "")}))
    assert counts(world.scan()) == (0, 0, 0, 1)
    assert world.notices == []


def test_nothing_is_recorded_in_a_set_that_is_no_longer_what_was_seen(world: ScannedFolder) -> None:
    """Somebody else scans it now: what was read before that is not news any more."""
    for name in "abc":
        world.put(name)
    world.scan()
    seen = world.catalog.state(SET)
    scanner = FolderScanner(world.catalog, SET, Folder(root=world.root), now, seen=lambda: seen)
    world.put("a", b"changed")
    assert scanner.scan().updated == 1
    for change in (lambda: world.put("b", b"changed"), lambda: world.remove("c")):
        change()
        with pytest.raises(Moved):
            scanner.scan()
    assert len(world.log()) == 1


@pytest.mark.parametrize("case", ["a link became a file", "read before"])
def test_what_a_hint_has_brought_meanwhile_is_not_undone(
    world: ScannedFolder, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """RS-CL-05: a scan reads where a link led as it came by, or reads ahead; a later look has been recorded since."""
    for name in ("target", "gone", "x"):
        world.put(name, name.encode())
    world.scan()
    world.remove("gone")
    os.symlink(b"target", world.full("x2")) if case == "a link became a file" else world.put("x2", b"early")
    breaths = [0]

    def hint() -> None:
        breaths[0] += 1
        if breaths[0] == 2:  # the walk has ended, the files are about to be read
            world.remove("x2")
            world.put("x2", b"late")
            world.scanner.rescan([b"x2"])
            if case == "read before":
                early = (hashing.READ, 0, (5, 0, 0, 0), 0, 0, hashes(b"early"), "")
                monkeypatch.setattr(event_builder, "HashPool", _readings({b"x2": early}))

    world.breathe = hint
    done = world.scan()
    assert breaths[0] >= 2
    assert (done.unsettled, done.deleted) == ([b"x2"], 1)
    assert world.told() == [("created", "x2"), ("deleted", "gone")]
    assert world.held() == world.truth()
    monkeypatch.undo()
    world.put("x2", b"later still")
    assert world.scan().updated == 1


def test_what_a_hint_has_found_as_it_was_is_not_replaced_by_what_was_read_before(
    world: ScannedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan has read another state, which is gone again when a hint finds the file as the set knows it."""
    for name in ("gone", "x", "y"):
        world.put(name, b"first", aged=True)
    settle()
    world.scan()
    world.remove("gone")
    world.put("x", b"other")
    breaths = [0]

    def hint() -> None:
        breaths[0] += 1
        if breaths[0] == 2:  # the walk has ended, the files are about to be read
            world.put("x", b"first", aged=True)
            assert world.scanner.rescan([b"x"]).changes == 0
            early = (hashing.READ, 0, (5, 0, 0, 0), 0, 0, hashes(b"other"), "")
            monkeypatch.setattr(event_builder, "HashPool", _readings({b"x": early}))

    world.breathe = hint
    done = world.scan()
    assert breaths[0] >= 2
    assert done.unsettled == [b"x"]
    assert world.told() == [("deleted", "gone")]
    assert world.held() == world.truth()


@pytest.mark.parametrize("outcome", [hashing.VANISHED, hashing.SPECIAL])
def test_a_known_file_that_vanishes_before_it_is_read_is_looked_at_again(
    world: ScannedFolder, monkeypatch: pytest.MonkeyPatch, outcome: int
) -> None:
    """Its last change was never seen, and no hint may come: it is not left to the next full scan."""
    for name in "abc":
        world.put(name)
    world.scan()
    world.put("b", b"changed")
    monkeypatch.setattr(event_builder, "HashPool", _readings({b"b": (outcome, 0, (0, 0, 0, 0), 0, 0, "", "")}))
    done = world.scan()
    assert (done.unsettled, done.kept) == ([b"b"], 1)
    monkeypatch.undo()
    world.remove("b")
    world.rescan(*done.unsettled)
    assert world.told() == [("deleted", "b")]


def test_a_file_that_is_back_before_its_deletion_is_recorded_is_not_deleted(world: ScannedFolder) -> None:
    """A file that is being replaced by rename may be missed by the listing: it is looked at once more."""
    world.put("a", b"old")
    world.put("b")
    world.scan()
    world.remove("a")
    breaths = [0]

    def put_back() -> None:
        breaths[0] += 1
        if breaths[0] == 2:  # the walk has ended, deletions are about to be recorded
            world.put("a", b"new")

    world.breathe = put_back
    done = world.scan()
    assert breaths[0] >= 2
    assert (done.deleted, done.unsettled) == (0, [b"a"])
    world.rescan(*done.unsettled)
    assert world.told() == [("updated", "a")]
    assert world.held() == world.truth()


def test_files_replaced_over_and_over_are_never_deleted(world: ScannedFolder) -> None:
    for number in range(20):
        world.put(f"f{number}", b"0")
    world.scan()
    stop = threading.Event()

    def replace() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            for number in range(20):
                world.put("new", b"%d" % count)
                os.replace(world.full("new"), world.full(f"f{number}"))

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _number in range(40):
            world.scan()
            world.rescan(b"f1", b"f2")
    finally:
        stop.set()
        thread.join()
    world.scan()
    assert [path for change, path in world.told() if change == "deleted" and path != "new"] == []
    assert {uri: hash_ for uri, hash_ in world.held().items() if uri != "new"} == {
        uri: hash_ for uri, hash_ in world.truth().items() if uri != "new"
    }


# Links, long names, patterns


def test_a_link_is_a_file_with_the_octets_of_its_target(world: ScannedFolder) -> None:
    world.put("target", b"one")
    os.symlink("target", world.full("link"))
    os.symlink("/etc/hostname", world.full("outside"))
    world.scan()
    assert world.held() == {"target": hashes(b"one"), "link": hashes(b"one")}
    assert world.rules() == {"HW-ING-11"}
    world.put("target", b"two")
    world.scan()
    assert world.held() == {"target": hashes(b"two"), "link": hashes(b"two")}
    assert world.rules() == set()  # what is known is not said in every pass


def test_a_file_that_becomes_a_pipe_is_deleted_and_never_opened(world: ScannedFolder) -> None:
    world.put("a")
    world.put("b")
    world.scan()
    world.remove("a")
    os.mkfifo(world.full("a"))
    assert world.scan().deleted == 1
    assert world.rules() == {"HW-ING-13"}


@pytest.mark.parametrize(
    ("excess", "published", "rules"),
    [
        (0, True, set()),
        (LONG_URI - 1_000 + 1, True, {"RS-DOC-19"}),
        (LONGEST_URI - 1_000 + 1, False, {"HW-ING-14"}),
    ],
)
def test_long_uris(tmp_path: Path, excess: int, published: bool, rules: set[str]) -> None:
    name = b"\xff" * 200 + b"n" * 200
    world = ScannedFolder(tmp_path, processes=0, uri_prefix_length=1_000 - len("%FF") * 200 - 1 - 200 + excess)
    world.put(name[:200] + b"/" + name[200:])
    assert world.scan().created == int(published)
    assert world.rules() == rules


@pytest.mark.parametrize("loaded", [False, True], ids=["load", "record"])
def test_a_uri_that_the_catalog_refuses_costs_no_other_file_its_place(world: ScannedFolder, loaded: bool) -> None:
    """Octets outside ASCII count threefold: a path that the system takes can be a URI that nobody takes."""
    world.put("a")
    if loaded:
        world.scan()
    deep = "/".join(["é" * 100] * 13)  # 7,812 characters as a URI
    world.put("b")
    expected = {"a", "b"}
    for length in (7_870, 7_883, 7_884, 7_892, 7_893, 7_970, 7_999, 8_001):
        name = deep + "/" + "n" * (length - len(quote(os.fsencode(deep))) - 1)
        world.put(name)
        expected |= {quote(os.fsencode(name))} if length <= LONGEST_ACCEPTABLE else set()
    quoted = deep + "/" + "it's&" * 15
    world.put(quoted)
    done = world.scan()
    assert set(world.held()) - {quote(os.fsencode(quoted))} == expected
    assert done.warnings["HW-ING-14"] >= 4
    named = [one.where for one in world.notices if one.rule == "HW-ING-14"]
    assert len(named) == done.warnings["HW-ING-14"]
    assert world.rescan(os.fsencode(name)).changes == 0


def test_patterns_choose_and_a_narrower_choice_deletes(world: ScannedFolder) -> None:
    for name in ("a.xml", "b.txt", "drafts/c.xml"):
        world.put(name)
    world.scan()
    world.configure(selection=Selection(["*.xml"], ["drafts/"]))
    world.scan()
    assert world.told() == [("deleted", "b.txt"), ("deleted", "drafts/c.xml")]


def test_what_a_new_pattern_leaves_out_is_no_mass_of_deletions(world: ScannedFolder) -> None:
    """The guard is for accidents of the folder; a pattern is the owner's will, also while the guard holds back."""
    for number in range(30):
        world.put(f"keys/{number}.key")
        world.put(f"d/f{number}")
    world.scan()
    world.configure(selection=Selection([], ["*.key"]))
    done = world.scan()
    assert (done.held_back, done.deleted) == (None, 30)
    world.configure(selection=Selection([], ["*.key", "f1*"]))
    for number in (0, *range(2, 10), *range(20, 30)):
        world.remove(f"d/f{number}")
    done = world.scan()
    assert done.held_back is not None
    assert (done.held_back.vanished, done.held_back.held, done.deleted) == (19, 19, 11)
    assert not any(uri.startswith("d/f1") for uri in world.held())
    world.configure(selection=Selection([], ["*"]), max_delete=0.0)
    done = world.scan()
    assert (done.held_back, done.deleted, world.held()) == (None, 19, {})


def test_our_own_folders_are_left_out(tmp_path: Path) -> None:
    world = ScannedFolder(tmp_path, processes=0, avoid=(os.fsencode(tmp_path / "root" / ".headwater"),))
    world.put("a")
    world.put(".headwater/catalog.sqlite")
    world.put("sub/.headwater/hers")
    world.scan()
    assert set(world.held()) == {"a"}


def test_the_state_of_other_commands_is_never_published(world: ScannedFolder) -> None:
    """A catalog, a lock or the credentials of somebody's copy are nobody's resources, however one gets to them."""
    world.put("a")
    world.put("site/.headwater/catalog.sqlite")
    world.put("site/files/list.xml")
    world.put("state/.headwater-state")
    world.put("state/sub/catalog.sqlite")
    world.put("headwater/.headwater.txt")
    os.symlink("site/.headwater/catalog.sqlite", world.full("link"))
    os.symlink("state/sub", world.full("folder-link"))
    os.symlink("state", world.full("state-link"))
    world.scan()
    assert set(world.held()) == {"a", "site/files/list.xml", "headwater/.headwater.txt"}
    assert world.rules() == {"HW-ING-15"}
    world.put("site/.headwater/lock")
    done = world.rescan(
        b"site/.headwater/lock", b"site/.headwater", b"state/sub/catalog.sqlite", b"link", b"folder-link"
    )
    assert done.changes == 0
    world.put("late/.headwater/lock")
    assert world.rescan(b"late").changes == 0


def test_a_folder_that_becomes_state_leaves_the_set(world: ScannedFolder) -> None:
    world.put("a")
    world.put("state/catalog.sqlite")
    world.scan()
    world.put("state/.headwater-state")
    world.scan()
    assert set(world.held()) == {"a"}


def test_other_digests_are_computed_when_the_settings_change(world: ScannedFolder) -> None:
    world.put("a")
    settle()
    world.scan()
    world.configure(algorithms=("sha-512",))
    assert counts(world.scan()) == (0, 1, 0, 0)
    held = world.held()["a"]
    assert held is not None
    assert held.startswith("sha-512:")


# Mass deletions


def fill(world: ScannedFolder, count: int = 20) -> None:
    for number in range(count):
        world.put(f"d{number % 4}/f{number}")
    world.scan()


def emptied(world: ScannedFolder) -> None:
    for folder, below, names in os.walk(world.root, topdown=False):
        for name in names:
            os.unlink(os.path.join(folder, name))
        for name in below:
            os.rmdir(os.path.join(folder, name))


def missing(world: ScannedFolder) -> None:
    os.rename(world.root, world.root + b"-away")


def a_file(world: ScannedFolder) -> None:
    missing(world)
    with open(world.root, "wb"):
        pass


def mostly_gone(world: ScannedFolder) -> None:
    for number in range(11):
        world.remove(f"d{number % 4}/f{number}")


@pytest.mark.parametrize(
    ("accident", "reason"),
    [
        (emptied, HoldReason.ROOT_EMPTY),
        (missing, HoldReason.ROOT_MISSING),
        (a_file, HoldReason.ROOT_MISSING),
        (mostly_gone, HoldReason.TOO_MANY),
    ],
)
@pytest.mark.parametrize("partial", [False, True], ids=["scan", "hints"])
def test_a_mass_of_deletions_is_held_back(
    world: ScannedFolder, accident: object, reason: HoldReason, partial: bool
) -> None:
    fill(world)
    before = world.held()
    accident(world)  # type: ignore[operator]
    done = world.rescan(b"d0", b"d1", b"d2", b"d3") if partial else world.scan()
    assert done.held_back is not None
    assert done.held_back.reason is reason
    assert done.at is None
    assert world.held() == before
    assert world.log() == []
    assert world.rules() == {"HW-ING-21"}


def test_additions_go_on_while_deletions_are_held_back(world: ScannedFolder) -> None:
    fill(world)
    mostly_gone(world)
    world.put("new")
    world.put("d3/f19", b"changed")
    done = world.scan()
    assert done.held_back is not None
    assert sorted(world.told()) == [("created", "new"), ("updated", "d3/f19")]
    world.configure(max_delete=1.0)
    done = world.scan()
    assert (done.held_back, done.deleted) == (None, 11)
    assert world.held() == world.truth()


def remove(world: ScannedFolder, numbers: range) -> list[bytes]:
    """Remove these files of many and tell where they were."""
    for number in numbers:
        world.remove(f"f{number:03}")
    return [b"f%03d" % number for number in numbers]


@pytest.mark.parametrize("restarted", [False, True], ids=["at work", "restarted"])
def test_deletions_count_together_however_many_looks_they_take(world: ScannedFolder, restarted: bool) -> None:
    """DST-B4: what one line called held back is not published by the next look, and not after a restart."""
    for number in range(100):
        world.put(f"f{number:03}")
    world.scan()
    for start in range(0, 60, 3):
        if restarted:
            world.configure()
        done = world.rescan(*remove(world, range(start, start + 3)))
        assert (done.held_back is None) is (start + 3 <= 20)
    done = world.rescan(b"f018")
    assert (done.held_back is not None, done.deleted, len(world.held())) == (True, 0, 82)
    world.ahead += 3 * WINDOW
    done = world.scan()
    assert done.held_back is not None
    assert (done.held_back.vanished, done.held_back.held, done.deleted) == (60, 100, 0)
    world.scanner.guard.allow()
    done = world.scan()
    assert (done.held_back, done.deleted) == (None, 42)
    assert world.held() == world.truth()
    assert world.rescan(*remove(world, range(60, 68))).held_back is None  # the count has begun anew …
    assert world.rescan(*remove(world, range(68, 90))).held_back is not None  # … and the consent is used up


def test_a_slow_deletion_of_many_is_none(world: ScannedFolder) -> None:
    """Each hour has its own count, as long as full scans come in between."""
    for number in range(100):
        world.put(f"f{number:03}")
    world.scan()
    for start in range(0, 80, 8):
        gone = remove(world, range(start, start + 8))
        assert world.rescan(*gone).held_back is None if start % 16 else world.scan().held_back is None
        world.scan()
        world.ahead += 1.1 * WINDOW
    assert world.held() == world.truth()


def test_hints_between_two_full_scans_count_together_however_long_that_is(world: ScannedFolder) -> None:
    for number in range(100):
        world.put(f"f{number:03}")
    world.scan()
    for start in (0, 10):
        assert world.rescan(*remove(world, range(start, start + 10))).held_back is None
        world.ahead += 2 * WINDOW
    assert world.rescan(*remove(world, range(20, 30))).held_back is not None


def test_hints_and_a_full_scan_count_each_deletion_once(world: ScannedFolder) -> None:
    for number in range(100):
        world.put(f"f{number:03}")
    world.scan()
    other = ScannedFolder(Path(os.fsdecode(world.root)).parent, processes=0)
    gone = remove(world, range(15))
    breaths = [0]

    def between() -> None:
        breaths[0] += 1
        if breaths[0] == 1:  # the rows of the catalog were read before it
            assert other.rescan(*gone).held_back is None

    world.breathe = between
    assert world.scan().held_back is None
    world.breathe = lambda: None
    assert world.rescan(*remove(world, range(15, 20))).held_back is None
    assert world.rescan(*remove(world, range(20, 21))).held_back is not None
    assert len(world.held()) == 80


def test_a_file_in_an_empty_mount_point_lets_no_deletion_go(world: ScannedFolder) -> None:
    fill(world, 5)
    before = world.held()
    emptied(world)
    world.put("README")
    for _number in range(3):
        assert world.scan().held_back is not None
    assert before.keys() < world.held().keys()
    fill(world, 5)
    assert world.scan().held_back is None


def test_consent_covers_an_empty_folder_and_never_a_missing_one(world: ScannedFolder) -> None:
    fill(world)
    world.configure(max_delete=1.0)
    missing(world)
    assert world.scan().held_back is not None
    os.mkdir(world.root)
    done = world.scan()
    assert (done.held_back, done.deleted) == (None, 20)
    assert world.held() == {}


def test_a_root_that_goes_away_during_the_scan_deletes_nothing(world: ScannedFolder) -> None:
    fill(world, 8)
    breaths = [0]

    def vanish() -> None:
        breaths[0] += 1
        if breaths[0] == 1:  # after the root was listed, before its folders are
            missing(world)
            os.mkdir(world.root)

    world.breathe = vanish
    done = world.scan()
    assert done.held_back is not None
    assert done.held_back.reason is HoldReason.ROOT_MISSING
    assert world.log() == []


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_new_set_needs_a_folder(world: ScannedFolder, kind: str) -> None:
    missing(world) if kind == "missing" else a_file(world)
    with failing("HW-ING-02") as fault:
        world.scan()
    assert fault.value.exit_status is Exit.USAGE


def test_an_empty_folder_is_an_empty_set(world: ScannedFolder) -> None:
    assert counts(world.scan()) == (0, 0, 0, 0)
    world.put("a")
    assert world.scan().created == 1


# Interruptions


def test_an_interrupted_load_goes_on(world: ScannedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "LOAD_BATCH", 10)
    for number in range(200):
        world.put(f"f{number:03}", b"%d" % number)
    settle()
    breaths = [0]

    def stop() -> bool:
        breaths[0] += 1
        return breaths[0] > 150  # asked after every file

    world.stop = stop
    with pytest.raises(Stopped):
        world.scan()
    assert world.catalog.state(SET).opened_at is None
    loaded = world.catalog.state(SET).count
    assert 0 < loaded < 200
    world.stop = lambda: False
    world.remove("f000")
    world.put("f001", b"changed")
    done = world.scan()
    assert done.opened
    assert done.unchanged == loaded - 2
    assert world.held() == world.truth()
    assert world.log() == []


def test_hints_are_served_in_the_middle_of_a_scan(world: ScannedFolder) -> None:
    """A pass over hinted paths between two steps of a full one: everything ends right, nothing is told twice."""
    for number in range(30):
        world.put(f"f{number}", b"0")
    world.scan()
    world.put("f1", b"1")
    world.put("f2", b"2")
    world.remove("f3")
    other = ScannedFolder(Path(os.fsdecode(world.root)).parent, processes=0)
    breaths = [0]

    def between() -> None:
        breaths[0] += 1
        if breaths[0] == 2:
            other.rescan(b"f1", b"f3")

    world.breathe = between
    world.scan()
    assert sorted(world.told()) == [("deleted", "f3"), ("updated", "f1"), ("updated", "f2")]
    assert world.held() == world.truth()


# Hints


def test_hinted_paths(world: ScannedFolder) -> None:
    for name in ("a/x", "a/y", "a-b", "b", "c/d/e"):
        world.put(name)
    world.scan()
    os.rename(world.full("a"), world.full("moved"))
    world.put("b", b"changed")
    world.put("a-b", b"not hinted")
    world.put("c/d/f")
    assert counts(world.rescan(b"a", b"moved", b"b", b"c", b"c/d/f", b"nothing", b"../../etc")) == (3, 1, 2, 1)
    assert sorted(world.told()) == [
        ("created", "c/d/f"),
        ("created", "moved/x"),
        ("created", "moved/y"),
        ("deleted", "a/x"),
        ("deleted", "a/y"),
        ("updated", "b"),
    ]
    world.rescan(b"a-b")
    assert world.held() == world.truth()


def test_the_next_scan_says_of_links_to_a_file_what_a_hint_has_said_of_it(world: ScannedFolder) -> None:
    world.put("real/sub/file", b"1")
    os.symlink("real", world.full("folder-link"))
    os.symlink("real/sub/file", world.full("file-link"))
    world.scan()
    world.put("real/sub/file", b"2")
    world.put("real/new")
    world.rescan(b"real/sub", b"real/new")
    assert world.held()["real/sub/file"] == hashes(b"2") != world.held()["file-link"]
    world.scan()
    expected = {
        "real/sub/file": b"2",
        "real/new": b"x",
        "folder-link/sub/file": b"2",
        "folder-link/new": b"x",
        "file-link": b"2",
    }
    assert world.held() == {uri: hashes(data) for uri, data in expected.items()}
    os.rename(world.full("real"), world.full("moved"))
    world.configure(max_delete=1.0)
    world.scan()
    os.symlink("moved/new", world.full("late-link"))
    world.rescan(b"late-link")
    assert world.held() == {
        uri: hashes(data) for uri, data in {"moved/sub/file": b"2", "moved/new": b"x", "late-link": b"x"}.items()
    }


def test_topmost() -> None:
    assert topmost([b"a/b", b"a", b"a-b", b"c/d/e", b"c/d", b"a/b/c"]) == [b"a", b"a-b", b"c/d"]


NAMES = st.sampled_from(["a", "b", "a/x", "a/y", "a-b", "b/x/y", "c/ü", "c/d/e"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.binary(max_size=3)),
        st.tuples(st.just("drop"), NAMES, st.none()),
        st.tuples(st.just("scan"), st.none(), st.none()),
        st.tuples(st.just("hint"), st.just(None), st.none()),
    ),
    max_size=25,
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(STEPS)
def test_whatever_happens_the_log_leads_to_the_folder(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str | None, bytes | None]]
) -> None:
    """Replaying the change log over the first load gives what the folder holds, with hints or without (RS-CL-14)."""
    world = ScannedFolder(tmp_path_factory.mktemp("law"), processes=0, max_delete=1.0)
    world.put("c/first")
    world.scan()
    start = world.held()
    touched: set[bytes] = set()
    for action, name, data in steps:
        try:
            if action == "put" and name is not None and data is not None:
                world.put(name, data)
            elif action == "drop" and name is not None:
                world.remove(name)
        except OSError:
            continue
        if name is not None:
            touched.add(os.fsencode(name))
        elif action == "scan":
            world.scan()
            touched.clear()
        else:
            world.rescan(*touched)
            touched.clear()
            assert world.held() == world.truth()
    world.scan()
    assert world.held() == world.truth() == world.replayed(start)
    again = world.scan()
    assert again.changes == 0


# Size


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where the system has one: creating many files there is no matter of the disk."""
    shm = Path("/dev/shm")
    if not (shm.is_dir() and os.access(shm, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shm) as name:
        yield Path(name)


def test_of_many_files_few_are_read_again(memory_folder: Path) -> None:
    """Twenty thousand; tests/source/test_source.py has a hundred thousand."""
    world = ScannedFolder(memory_folder)
    for folder in range(100):
        os.makedirs(world.full(f"{folder:03}"))
        descriptor = os.open(world.full(f"{folder:03}"), os.O_RDONLY)
        for number in range(200):
            os.close(os.open(f"{number:03}", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
        os.close(descriptor)
    settle()
    done = world.scan()
    assert counts(done) == (20_000, 0, 0, 0)
    world.put("050/100", b"changed")
    world.remove("099/199")
    done = world.scan()
    assert counts(done) == (0, 1, 1, 19_998)
    assert done.read <= 200
    world.put("777/new", b"new")
    done = world.rescan(b"777")
    assert (done.created, done.read) == (1, 1)
    assert world.catalog.state(SET).count == 20_000


def test_a_set_is_left_alone_by_the_scan_of_another(tmp_path: Path) -> None:
    world = ScannedFolder(tmp_path, processes=0)
    world.put("a")
    world.scan()
    catalog = SqliteCatalog(tmp_path / "catalog.sqlite")
    catalog.create("other")
    assert world.scan().unchanged + world.scan().read >= 1
    assert catalog.state("other").count == 0


def test_a_large_file_is_read_once_and_by_the_outermost_pass(
    world: ScannedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hint for it comes while it is read: what comes in the middle leaves it alone, and takes the small ones."""
    monkeypatch.setattr(folder_module, "LARGE_OCTETS", 1_000)
    feed, read, hinted = hashing._feed, list[int](), list[ScanResult]()

    def counted(descriptor: int, size: int, *more: Any) -> int:
        if size > 1:
            read.append(size)
        return feed(descriptor, size, *more)

    def hint() -> None:
        if read and not hinted:
            world.put("small", b"x")
            hinted.append(world.scanner.rescan([b"large", b"small"]))

    monkeypatch.setattr(hashing, "_feed", counted)
    monkeypatch.setattr(folder_module, "_BREATH_SECONDS", 0.0)
    world.put("a", b"1")
    world.scan()
    world.put("large", bytes(2 << 20))
    world.breathe = hint
    done = world.scan()
    assert read == [2 << 20]
    assert [(one.created, one.unsettled) for one in hinted] == [(1, [b"large"])]
    assert (done.created, done.unsettled) == (1, [])
    assert world.told() == [("created", "small"), ("created", "large")]
    world.breathe = lambda: None
    world.rescan(b"large")
    assert world.held() == world.truth()


@pytest.mark.parametrize("mode", ["link", "copy"])
def test_a_static_tree_loses_what_is_no_resource_and_no_link(tmp_path: Path, mode: str) -> None:
    """Nor does what a link leads to go."""
    placed, elsewhere = tmp_path / "placed", tmp_path / "elsewhere"
    world = ScannedFolder(tmp_path, processes=0, place=os.fsencode(placed), place_mode=mode, max_delete=1)
    tree = SetTree(world.catalog, SET, os.fsencode(placed), mode)
    for name in ("a", "b", "d/c", "e/f", "g/h", "i/j", "linked"):
        world.put(name, name.encode())

    def publish() -> int:
        world.scan()
        tree.complete(world.scanner.folder.walk)
        return tree.sweep()

    assert publish() == 0
    elsewhere.mkdir()
    (elsewhere / "f").write_bytes(b"theirs")
    (placed / "e" / "f").unlink()
    (placed / "e").rmdir()
    (placed / "e").symlink_to(elsewhere)
    (placed / "alias").symlink_to(placed / "a")
    (placed / "linked").unlink()
    (placed / "linked").symlink_to(placed / "a")
    (placed / "theirs").write_bytes(b"theirs")
    (placed / "d" / "theirs").write_bytes(b"theirs")
    (placed / "g" / "theirs").write_bytes(b"theirs")
    for name in ("b", "d/c", "e/f", "linked"):
        world.remove(name)
    assert publish() == 5
    assert (elsewhere / "f").read_bytes() == b"theirs"
    assert (placed / "alias").read_bytes() == (placed / "linked").read_bytes() == b"a"
    assert sorted(one.name for one in placed.rglob("*") if one.is_file() and not one.is_symlink()) == ["a", "h", "j"]
    for name in ("a", "g/h", "i/j"):
        world.remove(name)
    assert publish() == 3


@pytest.mark.parametrize("mode", ["link", "copy"])
def test_what_changes_while_it_is_read_never_lies_in_the_static_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """It may be renamed before it is a resource: then nobody would tell that it has gone."""
    placed = tmp_path / "placed"
    world = ScannedFolder(tmp_path, processes=0, place=os.fsencode(placed), place_mode=mode)
    feed = hashing._feed

    def growing(descriptor: int, size: int, *more: Any) -> int:
        octets = feed(descriptor, size, *more)
        with open(world.full("upload.part"), "ab") as file:
            file.write(b"more")
        return octets

    world.put("upload.part")
    monkeypatch.setattr(hashing, "_feed", growing)
    assert world.scan().unsettled == [b"upload.part"]
    assert os.listdir(placed) == []
    monkeypatch.undo()
    os.rename(world.full("upload.part"), world.full("upload"))
    world.scan()
    assert os.listdir(placed) == ["upload"]


def test_a_tree_is_compared_as_a_whole(tmp_path: Path) -> None:
    """Whatever history the catalog has by now: it may have been lost, or restored as it was."""
    placed, catalog = tmp_path / "placed", tmp_path / "catalog.sqlite"

    def publish(change: Callable[[ScannedFolder], None]) -> None:
        world = ScannedFolder(tmp_path, processes=0, place=os.fsencode(placed))
        change(world)
        world.scan()
        SetTree(world.catalog, SET, os.fsencode(placed), "link").sweep()
        world.catalog.close()

    publish(lambda world: world.put("secret"))
    catalog.unlink()

    def otherwise(world: ScannedFolder) -> None:
        world.remove("secret")
        world.put("b")

    publish(otherwise)
    assert os.listdir(placed) == ["b"]


def test_nothing_is_placed_through_a_link_that_somebody_made(tmp_path: Path) -> None:
    placed, elsewhere = tmp_path / "placed", tmp_path / "elsewhere"
    world = ScannedFolder(tmp_path, processes=0, place=os.fsencode(placed))
    world.put("a/b/c", b"1")
    world.scan()
    (elsewhere / "b").mkdir(parents=True)
    shutil.rmtree(placed / "a")
    (placed / "a").symlink_to(elsewhere)
    for path in ("a/b/d", "a/e/f"):
        world.put(path, b"2")
        with failing("HW-ING-30"):
            world.scan()
        world.remove(path)
    assert os.listdir(elsewhere) == ["b"]
    assert os.listdir(elsewhere / "b") == []
    world.remove("a/b/c")
    world.put("a/d", b"2")  # the link is where the folder is to be
    world.scan()
    assert os.listdir(placed / "a") == ["d"]


@pytest.mark.parametrize("uri", ["../mine", "..%2Fmine", "d/../../mine", "%2Fabsolute/mine", ".", "a%00"])
def test_a_static_tree_removes_nothing_outside(tmp_path: Path, uri: str) -> None:
    """Whatever the catalog says was deleted."""
    placed, mine = tmp_path / "placed", tmp_path / "mine"
    world = ScannedFolder(tmp_path, processes=0, place=os.fsencode(placed))
    world.put("d/a")
    world.scan()
    mine.touch()
    tree = SetTree(world.catalog, SET, os.fsencode(placed), "link")
    tree.sweep()
    uri = uri.replace("%2Fabsolute", str(tmp_path))
    world.catalog.record(SET, [Upsert(uri, Metadata())], now())
    world.catalog.record(SET, [Delete(uri)], now())
    assert tree.sweep() == 0
    assert mine.exists()
