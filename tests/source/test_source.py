"""The source at work: changes of a folder are published soon, whatever fails is shown and tried again."""

import datetime as dt
import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import rich.console  # a user who cannot read everything may not read what is imported later
import rich.table  # noqa: F401

from headwater.catalog.interface import Metadata, Upsert
from headwater.cli import run
from headwater.errors import Exit, StoreFault
from headwater.files import hashing
from headwater.http.metrics import MetricsPage, RequestCounters
from headwater.ingest.deletion_guard import set_problems
from headwater.ingest.folder.comparison import RACY
from headwater.progress import Notice, Progress
from headwater.publish import plan as publish_plan
from headwater.retry import TimeShare
from headwater.source.config import SetConfig, SourceConfig, read_config
from headwater.source.configured_source import utc_now
from headwater.source.health import report
from headwater.source.leadership import Locked, StateLock
from headwater.source.published_folder import PublishedFolder
from headwater.source.set_folders import FolderOverlap
from headwater.source.source import ReadOnlySource, Source
from headwater.source.worker import SetWorker
from tests.ingest.test_walk import ODD_NAMES
from tests.source.replay import Tree
from tests.support.waiting import DEADLINE, settle, until

pytestmark = pytest.mark.long(15)

BASE = "http://example.org/sync"


class WatchedSource:
    """A folder, its source, and what a destination reads from the published documents."""

    def __init__(self, base: Path, **settings: object) -> None:
        self.folder = base / "folder"
        self.state = base / "state"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings: dict[str, object] = {"rescan_seconds": 300.0} | settings
        self.tree = Tree(self.state / "documents", BASE)
        self.events: list[Notice | Progress] = []

    def config(self, base_url: str = BASE) -> SourceConfig:
        one = SetConfig(files=str(self.folder), **self.settings)  # type: ignore[arg-type]
        return SourceConfig(state=str(self.state), base_url=base_url, sets=(one,))

    @contextmanager
    def running(self) -> Iterator[Source]:
        with Source(self.config(), listener=self.events.append) as source:
            source.start()
            until(lambda: source.is_published("files") and source.sets_health[0].phase == "following")
            yield source
            began = time.monotonic()
            assert source.stop()
            assert time.monotonic() - began < DEADLINE / 4

    def put(self, name: str | bytes, data: bytes = b"x") -> None:
        path = os.path.join(os.fsencode(self.folder), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def is_current(self) -> bool:
        return self.tree.replayed() == self.tree.truth(self.folder)

    def comes(self) -> None:
        """What was changed is published: by a hint, for the next full scan is later than the deadline."""
        until(self.is_current)


@pytest.fixture
def world(tmp_path: Path) -> WatchedSource:
    return WatchedSource(tmp_path)


def test_one_round(world: WatchedSource) -> None:
    world.put("a")
    with Source(world.config()) as source:
        assert not source.is_published("files")
        (worked,) = source.run_once()
        assert worked.scanned.created == 1
        assert worked.published is not None
        assert source.is_published("files")
        assert source.is_site_published()
        assert world.is_current()
        assert source.survey("files").unchanged + source.survey("files").updated == 1
        assert source.run_once()[0].published is not None
    assert sorted(path.name for path in world.state.iterdir()) == [
        ".headwater-state",
        "catalog.sqlite",
        "documents",
        "lock",
    ]


def test_a_survey_knows_again_what_was_scanned_with_versions(tmp_path: Path) -> None:
    world = WatchedSource(tmp_path, versions=True)
    world.put("a")
    settle()
    with Source(world.config()) as source:
        source.run_once()
        assert (source.survey("files").unchanged, source.survey("files").read) == (1, 0)


def test_a_rotation_does_not_wait_for_a_scan_that_is_due_much_later(tmp_path: Path) -> None:
    """DIT-28: a period shorter than `rescan_seconds` is kept as well."""
    world = WatchedSource(tmp_path, rescan_seconds=300.0, rotation_seconds=0.5)
    world.put("a")
    with world.running():
        world.put("b")
        closed = world.state / "documents" / "files" / "changelist" / "00000.xml"
        until(lambda: closed.is_file() and b'until="' in closed.read_bytes())
        world.comes()


def test_one_process_at_a_time(world: WatchedSource) -> None:
    with Source(world.config()):
        with pytest.raises(Locked) as fault:
            Source(world.config())
        assert fault.value.exit_status is Exit.STORE
        assert f"process {os.getpid()}" in fault.value.what
    Source(world.config()).close()


def test_a_source_that_cannot_be_opened_leaves_no_lock(world: WatchedSource) -> None:
    world.state.mkdir()
    (world.state / "documents").write_text("in the way")
    from headwater.storage.object_store import CannotWrite

    with pytest.raises(CannotWrite):
        Source(world.config())
    StateLock(world.state).release()


def test_the_folder_is_not_its_own_state(world: WatchedSource) -> None:
    world.state = world.folder
    with pytest.raises(FolderOverlap):
        Source(world.config())


def test_state_inside_the_folder_is_not_published(world: WatchedSource) -> None:
    world.state = world.folder / ".headwater"
    world.tree = Tree(world.state / "documents", BASE)
    world.put("a")
    with world.running() as source:
        scans = source.sets_health[0].scans
        world.put("b")
        until(lambda: len(world.tree.replayed()) == 2)
        time.sleep(0.6)  # what the source writes itself is no hint
        assert source.sets_health[0].scans == scans
    assert set(world.tree.replayed()) == {f"{BASE}/files/resources/{name}" for name in ("a", "b")}


def test_changes_are_published_as_they_are_hinted(world: WatchedSource) -> None:
    for name in ("keep", "edit", "drop", "folder/x", "folder/y"):
        world.put(name, name.encode())
    with world.running() as source:
        assert world.is_current()
        assert source.sets_health[0].watching
        assert '"phase":"following"' in msgspec.json.encode(source.health()).decode()
        world.put("edit", b"edited")
        world.put("new", b"new")
        (world.folder / "drop").unlink()
        world.comes()
        os.rename(world.folder / "folder", world.folder / "moved")
        world.comes()
        world.put("moved/x", b"again")
        world.comes()
        world.put("deep/er/and/deeper/file", b"1")
        world.comes()
        shutil.rmtree(world.folder / "deep")
        world.comes()
        world.put("replacement", b"2")
        os.replace(world.folder / "replacement", world.folder / "keep")
        world.comes()
        os.utime(world.folder / "keep", (1_500_000_000, 1_500_000_000))
        until(lambda: any(one.lastmod and one.lastmod.year == 2017 for one in world.tree.changes()))
    deletions = [one.loc for one in world.tree.changes() if one.change and one.change.value == "deleted"]
    assert f"{BASE}/files/resources/keep" not in deletions


@pytest.mark.parametrize("found_by", ["hint", "scan"])
def test_small_changes_do_not_wait_for_a_large_file(
    world: WatchedSource, found_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digests take a while; what comes later and is small is recorded first."""
    monkeypatch.setattr("headwater.ingest.folder.scanner.LARGE_OCTETS", 1 << 20)
    read, small = hashing._feed, threading.Event()

    def slowly(descriptor: int, size: int, takers: list[Any], stop: Callable[[], bool] | None) -> int:
        until_at = time.monotonic() + DEADLINE / 2
        while size > 1 << 20 and not small.is_set() and time.monotonic() < until_at:
            assert stop is not None
            stop()
            time.sleep(0.05)
        return read(descriptor, size, takers, stop)

    monkeypatch.setattr(hashing, "_feed", slowly)
    world.put("a")
    if found_by == "scan":
        world.settings |= {"watch": False, "rescan_seconds": 0.5}
    with world.running() as source:
        world.put("big", bytes(2 << 20))
        world.put("small")
        until(lambda: [one.uri for one in source.catalog.changes("files")] == ["small"], what="the small change")
        small.set()
        until(lambda: len(source.catalog.changes("files")) == 2, what="both changes")
        world.comes()


def test_what_is_excluded_leaves_lists_and_packages_at_once(world: WatchedSource) -> None:
    """Long before its page would be due by the number of its changes or by its age."""
    for number in range(40):
        world.put(f"f{number:02}", b"of %d" % number)
    world.settings["dump"] = True
    documents = world.state / "documents" / "files"
    with world.running():
        until(lambda: (documents / "resourcedump.xml").exists(), what="the dump")
    before = {one.name for one in documents.glob("resourcedump/*.zip")}
    world.settings["exclude"] = ("f07",)
    with world.running():
        until(lambda: "f07" not in (documents / "resourcelist.xml").read_text(), what="the list")
        until(lambda: any(one.name not in before for one in documents.glob("resourcedump/*.zip")), what="the dump")
        until(lambda: not before & {one.name for one in documents.glob("resourcedump/*.zip")}, what="the removal")
        until(lambda: "resourcedump.xml" in (documents / "capabilitylist.xml").read_text(), what="the offer")
    assert all(b"f07" not in one.read_bytes() for one in documents.glob("resourcedump/*.xml"))


def test_what_a_source_needs_itself_is_never_published(tmp_path: Path) -> None:
    """Its configuration, tokens, keys and catalog, also by a hard link, by a symbolic link, or made while it runs."""
    folder = tmp_path / "folder"
    (folder / "d").mkdir(parents=True)
    for name in ("a", "push.token", "hub.token"):
        (folder / name).write_text("t" * 40 + name)
    (folder / "source.toml").write_text("""
        state = "../state"
        catalog = "d/own.sqlite"
        base_url = "http://localhost:1"
        [notify]
        hubs = ["http://localhost:2"]
        token_file = "hub.token"
        [[set]]
        name = "files"
        files = "."
        [[set]]
        name = "pushed"
        feed = "events"
        token_file = "push.token"
        resource_root = "."
    """)
    os.link(folder / "push.token", folder / "d" / "linked")
    (folder / "d" / "symbolic").symlink_to("../source.toml")
    events: list[Notice | Progress] = []
    with Source(read_config(folder / "source.toml"), listener=events.append) as source:
        for _round in range(2):  # beside the catalog lie its companions by now
            source.run_once()
            assert [one.uri for one in source.catalog.resources("files")] == ["a"]
        for path in (b"push.token", b"source.toml", b"d/own.sqlite", b"d/own.sqlite-wal", b"hub.token"):
            assert not source.takes("files", path)
            assert not source.takes("pushed", path)
        assert source.takes("files", b"a")
    assert {one.rule for one in events if isinstance(one, Notice)} >= {"HW-ING-17"}


def test_a_source_that_published_its_own_files_and_hidden_ones_before_drops_them(tmp_path: Path) -> None:
    """What an older version listed goes at once, however much of the set that is."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a", ".env", "token"):
        (folder / name).write_text("t" * 40)
    listed = SourceConfig(
        state=str(tmp_path / "state"),
        base_url=BASE,
        sets=(SetConfig(files=str(folder), hidden=True),),
    )
    with Source(listed) as source:
        source.run_once()
        assert source.catalog.state("files").count == 3
    push = SetConfig(name="p", feed="events", token_file=str(folder / "token"))
    with Source(msgspec.structs.replace(listed, sets=(SetConfig(files=str(folder)), push))) as source:
        source.run_once()
        assert [one.uri for one in source.catalog.resources("files")] == ["a"]


def test_names_of_any_octets_are_published(world: WatchedSource) -> None:
    world.settings["hidden"] = True
    with world.running():
        for name in ODD_NAMES:
            world.put(name, name)
        world.comes()
        world.put("caf\xe9".encode("latin-1"), b"1")
        world.comes()
        world.put("afterwards", b"2")
        world.comes()


def test_a_folder_that_cannot_be_watched_is_scanned(world: WatchedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "OS file watch limit reached.")

    monkeypatch.setattr("headwater.ingest.folder.watch.FolderWatch", refuse)
    with world.running() as source:
        world.put("a")
        world.comes()
        health = source.sets_health[0]
        assert not health.watching
        assert health.watch_error is not None
        assert "HW-ING-40" in health.watch_error
    assert [one.rule for one in world.events if isinstance(one, Notice)] == ["HW-ING-40"]


def test_health_tells_which_folders_are_not_watched_and_those_are_once_they_can_be(nobodys: WatchedSource) -> None:
    """`cp -a` by another user: a folder with mode 0700, opened at the end; nothing there waits for a full scan."""
    world = nobodys
    world.put("old/a")
    with world.running() as source:
        (world.folder / "late").mkdir(mode=0)
        until(lambda: source.sets_health[0].unwatched == 1)
        (world.folder / "late").chmod(0o755)
        until(lambda: source.sets_health[0].unwatched == 0)
        scans = source.sets_health[0].scans
        world.put("late/a")
        world.comes()
        time.sleep(1.5)  # the second look at a folder that has just appeared is over
        world.put("late/b")
        world.comes()
        world.put("old/c")
        world.comes()
        assert source.sets_health[0].scans == scans, "they were found by hints"


def test_a_folder_that_is_gone_and_versions_that_are_lost_are_not_well(
    world: WatchedSource, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for `status` nor for what `/health` says; other sets are served on, so its status stays."""
    world.settings |= {"versions": True, "rescan_seconds": 0.3}
    world.put("a")

    def stands(source: Source) -> tuple[int, bool, int]:
        status, body = report(source)
        return status, json.loads(body)["well"], run(["status", str(world.state)])

    with world.running() as source:
        until(lambda: stands(source) == (200, True, Exit.DONE))
        monkeypatch.setattr("headwater.files.file_copies.RESERVE_OCTETS", 1 << 60)
        world.put("b", b"b")
        until(lambda: stands(source) == (200, False, Exit.TRANSFERS_FAILED), what="the loss")
        run(["status", str(world.state)])
        out = capsys.readouterr().out  # the file may have been read in the middle of its writing as well
        assert re.search("the last (1 version|2 versions) could not be kept", out)
        monkeypatch.undo()
        world.put("c", b"c")
        until(lambda: stands(source) == (200, True, Exit.DONE), what="the next version")
        world.folder.rename(world.folder.with_name("away"))
        until(lambda: stands(source) == (200, False, Exit.TRANSFERS_FAILED), what="the folder's absence")
        world.folder.with_name("away").rename(world.folder)
        until(lambda: stands(source) == (200, True, Exit.DONE), what="its return")


def test_files_that_cannot_be_read_are_counted_and_named(
    nobodys: WatchedSource, capsys: pytest.CaptureFixture[str]
) -> None:
    """By whoever asks, and at once: a folder is told by its files, and no more once it can be read."""
    world, names = nobodys, [f"shut/{number}" for number in range(5)]
    for name in (*names, "alone \N{SNOWMAN}", "other/a"):
        world.put(name)
    state = str(world.state)
    with world.running() as source:

        def told() -> list[dict[str, object]]:
            capsys.readouterr()
            run(["status", state, "--json"])
            return list(json.loads(capsys.readouterr().out).get("unreadable", ()))

        def shown() -> tuple[object, object]:
            page = MetricsPage(source, RequestCounters()).page().decode()
            figure = re.search(r'headwater_set_unreadable_files\{set="files"\} (\d+)', page)
            return json.loads(report(source)[1])["sets"][0]["unreadable_files"], int(figure[1]) if figure else None

        assert run(["status", state]) == Exit.DONE, capsys.readouterr().err
        assert (told(), shown()) == ([], (0, 0))
        (world.folder / "shut").chmod(0)
        until(lambda: [one["files"] for one in told()] == [5], what="the files of the folder")
        (world.folder / "alone \N{SNOWMAN}").chmod(0)
        until(lambda: [one["files"] for one in told()] == [6], what="the file")
        assert told()[0]["examples"] == ["alone%20%E2%98%83", "shut"]
        assert shown() == (6, 6)
        assert run(["status", state]) == Exit.TRANSFERS_FAILED
        assert "files: 6 files cannot be read, and what is published of them stays: alone \N{SNOWMAN}, shut" in (
            capsys.readouterr().out
        )
        folder = PublishedFolder(source._context, "files", source._folders["files"])
        assert SetWorker(source._context, folder).once().scanned.warnings == {"HW-ING-20": 6}
        (world.folder / "shut").chmod(0o755)
        until(lambda: [one["files"] for one in told()] == [1], what="the folder that can be read again")
        (world.folder / "alone \N{SNOWMAN}").chmod(0o644)
        until(lambda: not told(), what="the end of it")
        assert (run(["status", state]), shown()) == (Exit.DONE, (0, 0))


def test_all_is_not_well_on_a_full_disk(world: WatchedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever serves says so, before anything has changed, and also where another process publishes."""
    world.put("a")
    with world.running() as source, ReadOnlySource(world.config()) as beside:
        assert [report(one)[0] for one in (source, beside)] == [200, 200]
        disk = SimpleNamespace(f_blocks=9, f_bavail=1, f_frsize=4096, f_flag=0)
        monkeypatch.setattr("headwater.source.configured_source.os.statvfs", lambda _folder: disk)
        for one in (source, beside):
            status, body = report(one)
            told = json.loads(body)
            assert (status, told["ready"], told["well"], told["error_code"]) == (503, True, False, "HW-STO-01")
        monkeypatch.undo()
        assert report(beside)[0] == 200


@pytest.fixture
def nobodys() -> Iterator[WatchedSource]:
    """Of a user who cannot read everything."""
    if os.getuid() == 0:
        os.seteuid(65534)
    base = Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        yield WatchedSource(base)
    finally:
        os.seteuid(os.getuid())
        shutil.rmtree(base)


def test_all_is_not_well_while_nothing_can_be_recorded(world: WatchedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: what was published is served, and a deletion or a new file is told to nobody."""

    def full(*_arguments: object, **_options: object) -> None:
        raise StoreFault("the disk is full")

    monkeypatch.setattr("headwater.source.health.FAILING_SECONDS", 0.5)
    world.put("a")
    with world.running() as source:
        assert report(source)[0] == 200
        monkeypatch.setattr(source.catalog, "record", full)
        world.put("b")
        until(lambda: report(source)[0] == 503)
        told = msgspec.json.decode(report(source)[1])
        assert (told["ready"], told["well"]) == (True, False)
        assert told["sets"][0]["ready"]
        assert (told["sets"][0]["error_code"], "error" in told["sets"][0]) == (StoreFault.code, False)
        assert "full" in str(source.sets_health[0].error)
        monkeypatch.undo()
        world.comes()
        until(lambda: source.sets_health[0].failing_since is None)
        assert report(source)[0] == 200


def test_all_is_not_well_where_the_clock_was_set_back_while_something_failed(
    world: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an hour: since when it fails lies ahead then, and the health would be good for that hour."""

    def full(*_arguments: object, **_options: object) -> None:
        raise StoreFault("the disk is full")

    world.put("a")
    with world.running() as source:
        monkeypatch.setattr(source.catalog, "record", full)
        world.put("b")
        until(lambda: source.sets_health[0].failing_since is not None)
        source.sets_health[0].failing_since = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
        assert report(source)[0] == 503
        monkeypatch.undo()
        world.comes()
        until(lambda: report(source)[0] == 200)


def test_a_folder_that_is_not_there_yet_is_waited_for_and_said_so(world: WatchedSource) -> None:
    """A disk that is mounted later."""
    world.folder.rmdir()
    with Source(world.config(), listener=world.events.append) as source:
        source.start()
        until(lambda: any(isinstance(one, Notice) and one.rule == "HW-ING-02" for one in world.events))
        (told,) = [one for one in world.events if isinstance(one, Notice) and one.rule == "HW-ING-02"]
        assert "is tried again" in told.message
        world.folder.mkdir()
        world.put("a")
        until(lambda: source.is_published("files"))
        world.comes()


def test_the_regular_scan_finds_what_no_hint_told(tmp_path: Path) -> None:
    world = WatchedSource(tmp_path, rescan_seconds=0.3, watch=False)
    with world.running():
        world.put("a")
        world.comes()
        (world.folder / "a").write_bytes(b"other")
        world.comes()


def test_a_restart_serves_at_once_and_catches_up(world: WatchedSource) -> None:
    for number in range(5):
        world.put(f"f{number}")
    with world.running():
        pass
    world.put("f0", b"changed meanwhile")
    (world.folder / "f1").unlink()
    with Source(world.config()) as source:
        assert source.is_published("files")  # before anything was scanned
        assert source.is_site_published()
        source.start()
        world.comes()
    assert [one.change.value for one in world.tree.changes() if one.change] == ["deleted", "updated"]


def test_another_base_url_is_published_before_anything_is_shown(world: WatchedSource) -> None:
    world.put("a")
    with world.running():
        pass
    elsewhere = Tree(world.state / "documents", "https://elsewhere.example")
    with Source(world.config("https://elsewhere.example")) as source:
        assert not source.is_published("files")
        source.start()
        until(lambda: source.is_published("files"))
        assert list(elsewhere.listed()) == ["https://elsewhere.example/files/resources/a"]


def test_what_was_recorded_and_not_published_comes_first(world: WatchedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put("a")
    with world.running():
        pass
    world.put("b")
    with Source(world.config()) as source:
        monkeypatch.setattr(source.publisher, "publish", _failing)
        with pytest.raises(OSError, match="disk"):
            source.run_once()
        monkeypatch.undo()
    assert len(world.tree.replayed()) == 1
    with Source(world.config()) as source:
        monkeypatch.setattr("headwater.ingest.folder.scanner.FolderScanner.scan", _failing)
        source.start()
        world.comes()


def _worker(source: Source) -> SetWorker:
    (one,) = source._workers.values()
    return one


def _failing(*_arguments: object, **_options: object) -> None:
    raise OSError(28, "disk full")


@pytest.mark.parametrize("lost", ["documents", "documents/files", "documents/.well-known"])
def test_lost_documents_are_restored(world: WatchedSource, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """Not by a restart alone: the regular look at what is published finds them missing too."""
    world.put("a")
    with world.running():
        pass
    monkeypatch.setattr("headwater.source.worker.TICK_SECONDS", 0.2)
    shutil.rmtree(world.state / lost)
    with Source(world.config()) as source:
        assert not (source.is_published("files") and source.is_site_published())
        source.start()
        until(lambda: source.is_published("files") and source.is_site_published())
        world.comes()
        until(lambda: source.sets_health[0].phase == "following")
        (world.state / lost).rename(world.state / "lost")  # at once: it is being restored while one would remove it
        until(lambda: (world.state / "documents/.well-known/resourcesync").exists())
        until(lambda: (world.state / "documents/files/capabilitylist.xml").exists())
        world.comes()


def test_pages_of_a_quiet_folder_follow_as_soon_as_it_is_configured(
    world: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`refresh_seconds` below the time between publications."""
    monkeypatch.setattr("headwater.source.worker.TICK_SECONDS", 3_600.0)
    world.settings |= {"refresh_seconds": 1.0}
    world.put("a")
    with world.running():
        world.put("b")
        until(lambda: f"{BASE}/files/resources/b" in world.tree.listed())
        world.put("c")
        until(lambda: f"{BASE}/files/resources/c" in world.tree.listed())


@pytest.mark.parametrize("busy", ["scans", "hints"])
def test_lost_documents_are_restored_however_busy_the_folder_is(
    world: WatchedSource, monkeypatch: pytest.MonkeyPatch, busy: str
) -> None:
    """What comes more often than the regular look does not put it off."""
    monkeypatch.setattr("headwater.source.worker.TICK_SECONDS", 1.0)
    world.settings |= {"rescan_seconds": 0.1} if busy == "scans" else {}
    world.put("a")
    with world.running() as source:
        lost = world.state / "documents/files/capabilitylist.xml"
        lost.unlink()

        def is_back() -> bool:
            if busy == "hints":
                _worker(source).hint([b"a"])
            return lost.exists()

        until(is_back)


def test_failures_are_shown_and_tried_again(world: WatchedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put("a")
    with world.running() as source:
        health = source.sets_health[0]
        monkeypatch.setattr("headwater.storage.folder_store.os.replace", _failing)
        world.put("b")
        until(lambda: health.failures >= 2)
        assert health.error is not None
        assert "disk full" in health.error
        assert health.error_code == "HW-STO-11"
        assert health.phase == "failing"
        notices = [one for one in world.events if isinstance(one, Notice)]
        assert [one.rule for one in notices] == ["HW-STO-11"]  # once, not with every attempt
        assert "HW-STO-11" not in notices[0].message  # it is told beside it
        monkeypatch.undo()
        world.comes()
        until(lambda: health.failures == 0)
        assert health.error is None


def test_what_was_placed_and_not_recorded_leaves_the_static_tree(tmp_path: Path) -> None:
    """A catalog that cannot write (disk full) is helped by removing a new file: its place goes as well."""
    world, placed = WatchedSource(tmp_path), tmp_path / "out" / "files" / "resources"
    world.put("a")
    with (
        Source(msgspec.structs.replace(world.config(), to=str(tmp_path / "out"))) as source,
        pytest.MonkeyPatch.context() as patch,
    ):
        source.start()
        until(lambda: source.sets_health[0].phase == "following")
        patch.setattr("headwater.catalog.sqlite_catalog.SqliteCatalog.record", _failing)
        world.put("large")
        until(lambda: source.sets_health[0].failures >= 1)
        assert sorted(os.listdir(placed)) == ["a", "large"]
        (world.folder / "large").unlink()
        patch.undo()
        until(lambda: os.listdir(placed) == ["a"])
        assert source.stop()


def test_a_bug_is_shown_too(world: WatchedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put("a")
    with world.running() as source:

        def broken(*_arguments: object, **_options: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr("headwater.ingest.folder.scanner.FolderScanner.rescan", broken)
        world.put("b")
        until(lambda: source.sets_health[0].error == "ZeroDivisionError: a bug")
        assert source.sets_health[0].error_code == "HW-000"
        world.comes()  # the full scan that follows finds it all the same


def test_a_folder_that_goes_away_deletes_nothing_and_may_come_back(world: WatchedSource) -> None:
    for number in range(30):
        world.put(f"f{number}")
    with world.running() as source:
        before = world.tree.replayed()
        os.rename(world.folder, world.folder.with_name("away"))
        until(lambda: source.sets_health[0].held_back is not None)
        assert world.tree.replayed() == before
        os.rename(world.folder.with_name("away"), world.folder)
        world.put("f3", b"changed")
        until(lambda: len(world.tree.changes()) == 1)
        assert world.is_current()
        until(lambda: source.sets_health[0].held_back is None)
        until(lambda: source.sets_health[0].watching)


def test_health_forgets_what_was_held_back_when_the_folder_is_whole_again(
    world: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a hint, and nothing that comes back is a change: a full scan has to look."""
    monkeypatch.setattr("headwater.source.worker.HELD_SECONDS", 0.5)
    for number in range(30):
        world.put(f"d/f{number}")
    world.put("other")
    with world.running() as source:
        for _time in range(2):
            os.rename(world.folder / "d", world.folder.parent / "d")
            until(lambda: source.sets_health[0].held_back is not None)
            assert [one.reason for one in set_problems(source.catalog).held_back] == [source.sets_health[0].held_back]
            os.rename(world.folder.parent / "d", world.folder / "d")
            until(lambda: source.sets_health[0].held_back is None)
            assert not set_problems(source.catalog).held_back
        assert world.is_current()
    held = [one for one in world.events if isinstance(one, Notice) and one.rule == "HW-ING-21"]
    assert 1 <= len(held) <= 2


def test_the_note_of_a_watched_change_settles_without_a_full_scan(world: WatchedSource) -> None:
    """A file read in the tick of its change is read again a moment later: only then is its tag strong."""
    world.put("a")
    with world.running() as source:
        scans = source.sets_health[0].scans
        for text in (b"new", b"newer"):
            world.put("b", text)
            world.comes()
            until(lambda: source.catalog.get("files", ["b"])["b"].memo != RACY)
        assert source.sets_health[0].scans == scans


def test_what_a_hint_found_is_not_told_again_by_the_full_scan(world: WatchedSource) -> None:
    world.put("a")
    with world.running() as source:
        os.symlink("/", world.folder / "out")
        world.put("b")
        world.comes()
        until(lambda: any(isinstance(one, Notice) for one in world.events))
        scans = source.sets_health[0].scans
        _worker(source).hint([b""])
        until(lambda: source.sets_health[0].scans == scans + 1)
    assert [one.rule for one in world.events if isinstance(one, Notice)] == ["HW-ING-11"]


def test_mass_deletions_by_hints_are_held_back(world: WatchedSource, tmp_path: Path) -> None:
    for number in range(30):
        world.put(f"d/f{number}")
    world.put("other")
    with world.running() as source:
        before = world.tree.replayed()
        (world.folder / "d").rename(tmp_path / "elsewhere")  # all at once: the first few of many are no mass
        until(lambda: source.sets_health[0].held_back is not None)
        world.put("new")
        until(lambda: len(world.tree.replayed()) == len(before) + 1)


def test_stopping_in_the_middle_of_the_first_load(world: WatchedSource) -> None:
    world.put("large")
    os.truncate(world.folder / "large", 100 << 30)
    with Source(world.config()) as source:
        source.start()
        until(lambda: source.sets_health[0].phase == "loading")
        time.sleep(0.3)
        began = time.monotonic()
        assert source.stop()
        assert time.monotonic() - began < DEADLINE / 4  # it would take a minute to read
        assert not source.is_published("files")
    os.truncate(world.folder / "large", 3)
    with world.running():
        assert world.is_current()


def test_several_sets_follow_each_their_folder(tmp_path: Path) -> None:
    sets = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        sets.append(SetConfig(files=str(tmp_path / name), name=name))
    config = SourceConfig(state=str(tmp_path / "state"), base_url=BASE, sets=tuple(sets))
    trees = {name: Tree(tmp_path / "state" / "documents", BASE, name) for name in ("one", "two")}
    with Source(config) as source:
        source.start()
        until(lambda: all(map(source.is_published, trees)) and source.is_site_published())
        (tmp_path / "two" / "more").write_text("more")
        until(lambda: trees["two"].replayed() == trees["two"].truth(tmp_path / "two"))
        assert trees["one"].replayed() == trees["one"].truth(tmp_path / "one")


def test_a_folder_whose_disk_hangs_holds_up_no_other_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network's disk may not answer for minutes: also not whoever asks what a new name is."""
    names = ("hung", "well")
    for name in names:
        (tmp_path / name).mkdir()
    looked, asked, gate = os.lstat, threading.Event(), threading.Event()

    def asks(path: str | bytes, **more: Any) -> os.stat_result:
        if os.fsencode(path).endswith(b"hung/new"):
            asked.set()
            gate.wait(DEADLINE)
        return looked(path, **more)

    sets = tuple(SetConfig(files=str(tmp_path / name), name=name) for name in names)
    tree = Tree(tmp_path / "state" / "documents", BASE, "well")
    with Source(SourceConfig(state=str(tmp_path / "state"), base_url=BASE, sets=sets)) as source:
        source.start()
        until(lambda: all(source.is_published(one.name) and one.watching for one in source.sets_health))
        monkeypatch.setattr(os, "lstat", asks)
        (tmp_path / "hung" / "new").mkdir()
        try:
            assert asked.wait(DEADLINE)
            (tmp_path / "well" / "file").write_text("more")
            until(lambda: tree.replayed() == tree.truth(tmp_path / "well"), DEADLINE / 2)
        finally:
            gate.set()


def test_pages_that_changes_alone_leave_do_not_wait_for_the_regular_publication(
    world: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_plan, "DUTY", TimeShare(0.999_999))  # rounds are never too dear
    names = [f"f{number}" for number in range(5)]
    for name in names:
        world.put(name)
    world.settings |= {"refresh_changes": 1}
    config = msgspec.structs.replace(world.config(), page_entries=1)
    with Source(config) as source:
        source.start()
        until(lambda: source.is_published("files") and source.sets_health[0].phase == "following")
        for name in names:
            world.put(name, b"other")
        until(lambda: all(one.touched > 1 for one in source.catalog.pages("files")), what="the changes")
        until(lambda: not any(map(publish_plan.is_stale, source.catalog.pages("files"))), what="the pages")


def test_a_first_load_holds_up_no_other_set(tmp_path: Path) -> None:
    for name in ("large", "small"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    os.truncate(tmp_path / "large" / "file", 100 << 30)  # it would take a minute to read
    sets = (
        *(SetConfig(files=str(tmp_path / name), name=name) for name in ("large", "small")),
        SetConfig(name="fed", feed="events", resource_base="http://f.example/"),
    )
    tree = Tree(tmp_path / "state" / "documents", BASE, "small")
    with Source(SourceConfig(state=str(tmp_path / "state"), base_url=BASE, sets=sets)) as source:
        source.start()
        until(lambda: source.sets_health[0].phase == "loading")
        source.push_sets.by_set["fed"].open()
        until(lambda: source.is_published("small") and source.is_published("fed"))
        (tmp_path / "small" / "more").write_text("more")
        until(lambda: tree.replayed() == tree.truth(tmp_path / "small"))
        source.catalog.record("fed", [Upsert("u", Metadata())], utc_now())
        until(lambda: b"/u<" in (tmp_path / "state/documents/fed/changelist/open.xml").read_bytes())
        assert source.sets_health[0].phase == "loading"
        assert not source.is_published("large")


def test_times_never_go_back_with_the_clock(world: WatchedSource) -> None:
    """AMB-20: a clock that is put back moves no change before another."""
    times = iter([dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2025, 1, 1, tzinfo=dt.UTC)])
    for name, moment in zip("ab", times, strict=True):
        world.put(name)
        with Source(world.config(), clock=lambda moment=moment: moment) as source:  # type: ignore[misc]
            source.run_once()
    world.put("c")
    with Source(world.config()) as source:
        source.run_once()
    moments = [one.datetime for one in world.tree.changes() if one.datetime]
    assert moments == sorted(set(moments))
    assert moments[0] > dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert world.is_current()
