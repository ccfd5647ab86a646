"""Pages that other processes print: the same octets, whatever becomes of the processes, and nothing left behind."""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.catalog.interface import Delete
from headwater.progress import Listener, Notice, Progress, silent
from headwater.publish import resource_lists as pages
from headwater.publish.publication_state import PageRound
from headwater.publish.publisher import Publisher, PublisherOptions
from headwater.publish.resource_lists import RenderJob, RenderPool
from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import CannotWrite
from tests.support.documents import read_bytes
from tests.support.published import PublishedCatalog, put
from tests.support.waiting import START

TIMES = re.compile(rb' (at|completed)="[^"]*"')
PAGES = 7


def real_time() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@pytest.fixture
def started(started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that were started; any page is worth them."""
    monkeypatch.setattr(pages, "POOL_ENTRIES", 1)
    return started


@pytest.fixture
def world(tmp_path: Path) -> PublishedCatalog:
    """A set of PAGES pages, opened."""
    world = PublishedCatalog(tmp_path, page_entries=4, clock=real_time)
    world.begin(4 * (PAGES - 1) + 1)
    return world


def publisher(
    world: PublishedCatalog, documents: str, listener: Listener = silent, may_write: Callable[[], None] = lambda: None
) -> Publisher:
    store = FolderStore(world.folder / documents, durable=False)
    where = world.folder / "catalog.sqlite"
    return Publisher(
        world.catalog,
        store,
        world.site,
        real_time,
        listener,
        PublisherOptions(may_write=may_write, render_pool=RenderPool(where, 2)),
    )


def octets(folder: Path) -> dict[str, bytes]:
    """Every file of a tree without its times, so that two publications can be compared."""
    return {
        str(path.relative_to(folder)): TIMES.sub(b"", path.read_bytes())
        for path in folder.rglob("*.*")
        if path.is_file() and path.suffix != ".gz"
    }


def here(world: PublishedCatalog) -> dict[str, bytes]:
    """What a publication of the same catalog gives that prints all by itself."""
    world.catalog.note("files", b"")
    Publisher(world.catalog, FolderStore(world.folder / "here"), world.site, real_time).publish("files", START)
    return octets(world.folder / "here")


def test_pages_are_the_same_whoever_prints_them(
    world: PublishedCatalog, started: list[subprocess.Popen[bytes]]
) -> None:
    mine = publisher(world, "documents")
    before = real_time()
    done = mine.publish("files", START)
    pages = [name for name in done.written if "resourcelist/" in name]
    assert pages == [f"files/resourcelist/{number:05d}.xml" for number in range(PAGES)], "in the order of their numbers"
    assert len(started) == 2
    for name in pages:
        document, _entries, _warnings = read_bytes((world.folder / "documents" / name).read_bytes())
        assert document.at is not None
        assert document.completed is not None
        assert document.at < before <= document.completed <= real_time(), "RS-TIME-06: of its own snapshot"
    assert world.look().state == world.truth()
    world.record(*(put(f"r{number}", 1) for number in range(0, 20, 3)), Delete("r1"), put("new", 1))
    world.publisher = mine
    world.publish(force=True)
    assert len(started) == 4
    assert world.look().listed == world.truth()
    assert octets(world.folder / "documents") == here(world)


def dies(_request: bytes) -> Callable[[tuple[int, int]], tuple[int, int]]:
    raise SystemExit


def writes_less_than_it_says(_request: bytes) -> Callable[[tuple[int, int]], tuple[int, int]]:
    return lambda job: (os.write(job[1], b"half") + 1, 0)


def _dead_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "page_renderer", dies)


def _half_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "page_renderer", writes_less_than_it_says)


def _no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def _no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("no room for temporary files")

    monkeypatch.setattr(pages, "_anonymous_file", refuse)


@pytest.mark.parametrize("trouble", [_dead_process, _half_page, _no_process, _no_file])
def test_without_processes_the_publisher_prints_itself(
    world: PublishedCatalog,
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    trouble: Callable[[pytest.MonkeyPatch], None],
) -> None:
    trouble(monkeypatch)
    publisher(world, "documents").publish("files", START)
    assert all(one.poll() is not None for one in started)
    monkeypatch.undo()
    assert octets(world.folder / "documents") == here(world)


@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_process_that_is_killed_loses_no_page(
    world: PublishedCatalog, started: list[subprocess.Popen[bytes]], after: int
) -> None:
    def kill(event: Progress | Notice) -> None:
        if isinstance(event, Progress) and event.phase == "pages" and event.done == after:
            started[after % 2].kill()
            started[after % 2].wait()

    publisher(world, "documents", listener=kill).publish("files", START)
    assert len(started) == 2
    assert octets(world.folder / "documents") == here(world)


def test_a_publication_that_fails_ends_its_processes(
    world: PublishedCatalog, started: list[subprocess.Popen[bytes]]
) -> None:
    """Nothing of what they had printed is seen, and no file or process stays."""
    left = 4

    def may_write() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise CannotWrite("not ours any more")

    open_files = len(os.listdir("/proc/self/fd"))
    failing = publisher(world, "documents", may_write=may_write)
    with pytest.raises(CannotWrite):
        failing.publish("files", START)
    assert started
    assert all(one.returncode is not None for one in started)
    assert len(os.listdir("/proc/self/fd")) <= open_files + 1, "the catalog keeps a connection to read with"
    assert not list((world.folder / "documents").rglob(".headwater-tmp-*"))
    left = 1_000
    failing.publish("files", START)
    assert octets(world.folder / "documents") == here(world)


def test_processes_are_started_only_where_they_pay(
    world: PublishedCatalog, started: list[subprocess.Popen[bytes]]
) -> None:
    order = RenderJob(site=world.site, name="files", round=PageRound(at=START, seq=0, last=2, touched=0), indexed=True)
    catalog = world.folder / "catalog.sqlite"
    few = [
        (RenderPool(None, 2), range(3), 100_000),
        (RenderPool(catalog, 1), range(3), 100_000),
        (RenderPool(catalog, 2), range(1), 100_000),
        (RenderPool(catalog, 2), range(3), 0),
    ]
    for one, numbers, entries in few:
        with one.rendering(order, numbers, entries) as rendering:
            assert next(rendering, None) is None
    busy = RenderPool(catalog, 2)
    with busy.rendering(order, range(2), 8) as first:
        assert next(first, None) is not None
        assert len(started) == 2
        with busy.rendering(order, range(2), 8) as rendering:
            assert next(rendering, None) is None, "another publication has the processes"
    with busy.rendering(order, range(2), 8) as rendering:
        assert next(rendering, None) is not None
    assert len(started) == 4
