"""Killed at every step: what a dead run has left at any moment is finished by the next one (DST-F6, DST-F7).

One run is filmed: after each step that changes anything on disk the folder is copied as it stands, which is what a
process killed there leaves behind. From every such picture the next run must come to the same end.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.files.file_copies import write_all
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.options import SyncOptions
from headwater.sync.reports import Done, SyncReport
from headwater.transport import response as reception
from headwater.transport.transport import Transport
from tests.support.copying import DONE, FAILED, IMPATIENT, check, go, is_clean, run_over, tree
from tests.support.fake_source import Site, Source, at, document, url

pytestmark = pytest.mark.long(10)

BIG = 100_000
"""More than what is held in memory until it is whole: such bodies lie half written in `tmp`."""

_CHANGING = ("rename", "unlink", "rmdir", "mkdir", "utime")


class Film:
    """The pictures of one run, in their order, none of them twice in a row."""

    def __init__(self, dest: Path, folder: Path) -> None:
        self.dest = dest
        self.folder = folder
        self.pictures: list[Path] = []
        self.told: list[Done] = []
        """What the run has told so far, as to a file of `--changes`."""

        self.told_at: list[int] = []
        """How much of it, at each picture."""

        self._last = ""
        self._off = True

    @contextlib.contextmanager
    def of(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Film]:
        """Films whatever runs inside: calls of the operating system, halves of written bodies, commits."""
        write = Database.write

        def in_halves(descriptor: int, octets: Any) -> None:
            middle = len(octets) // 2
            write_all(descriptor, octets[:middle])
            self.shoot()
            write_all(descriptor, octets[middle:])
            self.shoot()

        @contextlib.contextmanager
        def committing(database: Database, **options: Any) -> Iterator[Transaction]:
            with write(database, **options) as transaction:
                yield transaction
            self.shoot()

        with monkeypatch.context() as patch:
            for name in _CHANGING:
                patch.setattr(os, name, self._followed(getattr(os, name)))
            patch.setattr(reception, "write_all", in_halves)
            patch.setattr(Database, "write", committing)
            self._off = False
            self.shoot()
            yield self
            self._off = True

    def _followed(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            self.shoot()
            return result

        return call

    def shoot(self) -> None:
        """Keep the folder as it stands, if it is another than before."""
        if self._off or not self.dest.exists():
            return
        self._off = True
        state = fingerprint(self.dest)
        if state != self._last:
            self._last = state
            picture = self.folder / str(len(self.pictures))
            shutil.copytree(self.dest, picture, ignore=shutil.ignore_patterns("*-shm"))
            self.pictures.append(picture)
            self.told_at.append(len(self.told))
        self._off = False


def fingerprint(folder: Path) -> str:
    found = hashlib.blake2b()
    for path in sorted(folder.rglob("*")):
        if not path.name.endswith("-shm"):
            found.update(f"{path} {path.stat().st_mtime_ns}".encode() + (path.read_bytes() if path.is_file() else b""))
    return found.hexdigest()


def filled(source: Source) -> Site:
    site = Site(source)
    for number in range(5):
        site.put(f"d{number % 2}/f{number}", b"%d" % number * (BIG if number == 0 else 40))
    site.clock = 10
    return site.publish(since=10)


def first(source: Source, dest: Path) -> Site:
    """The first baseline, into an empty folder."""
    return filled(source)


def increment(source: Source, dest: Path) -> Site:
    """Changes of all kinds; what goes was the only file of its folder."""
    site = filled(source)
    site.put("alone/file", b"alone")
    site.publish(since=10)
    assert go(source.base, dest).status == DONE
    site.put("d0/f0", b"x" * BIG)
    site.put("d1/f1", b"one, newer")
    site.put("new/one", b"n" * BIG)
    site.put("new/two", b"new")
    site.drop("alone/file")
    site.drop("d0/f2")
    site.publish_changes(10)
    return site


def lists_only(source: Source, dest: Path) -> Site:
    """A second baseline: what its list leaves out is deleted."""
    site = filled(source)
    site.publish_capabilities("resourcelist")
    assert go(source.base, dest).status == DONE
    site.put("d0/f0", b"y" * BIG)
    site.put("new", b"new")
    site.drop("d1/f1")
    site.publish_list()
    return site


def without_hashes(source: Source, dest: Path) -> Site:
    """Nothing listed but addresses and change times: only what is remembered tells what is done."""
    site = filled(source)
    site.publish_list([url(site.uri(name)) for name in site.files], when=10)
    site.publish_changes(10, entries=[])
    assert go(source.base, dest).status == DONE
    site.put("d1/f1", b"one, newer")
    site.put("new", b"new")
    site.drop("d1/f3")
    told = [site.change(when, kind, name) for when, kind, name, _ in site.changes if when > 10]
    site.publish_changes(10, entries=told)
    return site


def a_list_closes(source: Source, dest: Path) -> Site:
    """The position moves from one list to the next."""
    site = filled(source)
    assert go(source.base, dest).status == DONE
    site.put("d1/f1", b"one, newer")
    site.put("d1/f3", b"three, newer")
    first, second = site.changes[-2:]
    links = site.up()
    site.serve(
        "/set/closed.xml",
        document(
            [site.change(*first)], links=links, capability="changelist", **{"from": at(10), "until": at(first[0])}
        ),
    )
    site.serve(
        "/set/open.xml",
        document([site.change(*second)], links=links, capability="changelist", **{"from": at(first[0])}),
    )
    parts = [
        url(f"{site.root}/closed.xml", tag="sitemap", from_=at(10), until=at(first[0])),
        url(f"{site.root}/open.xml", tag="sitemap", from_=at(first[0])),
    ]
    site.serve("/set/changelist.xml", document(parts, "sitemapindex", links=links, capability="changelist"))
    return site


@pytest.mark.parametrize("scene", [first, increment, lists_only, without_hashes, a_list_closes])
def test_killed_at_every_step(
    scene: Callable[[Source, Path], Site],
    source: Source,
    dest: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is lost, nothing stays behind, and what lay in its place is not fetched again."""
    site = scene(source, dest)
    before = tree(dest)
    film = Film(dest, tmp_path)
    with film.of(monkeypatch):
        assert telling(source, dest, film.told).exit_status == DONE
    changed = {done.path for done in film.told}
    assert changed == {name for name in {*before, *site.files} if before.get(name) != site.files.get(name)}
    assert tree(dest) == dict(site.files)
    seen = {"half": 0, "between": 0}
    for picture in film.pictures:
        seen["half"] += any(0 < size < BIG for size in temporary(picture))
        seen["between"] += tree(picture) not in (before, dict(site.files))
        told = finish(source, site, picture, hashed=scene is not without_hashes)
        told |= {done.path for done in film.told[: film.told_at[int(picture.name)]]}
        assert changed - told == set(), picture.name
    assert seen["between"] > 0  # trees that were done in part were among them
    assert seen["half"] > 0 or scene in (without_hashes, a_list_closes)
    assert len(film.pictures) > 10


def telling(source: Source, dest: Path, told: list[Done]) -> SyncReport:
    with Transport(IMPATIENT) as wire:
        return run_over(wire, source.base, dest, SyncOptions(max_delete=1.0), each=told.append)


def temporary(picture: Path) -> list[int]:
    folder = picture / ".headwater" / "tmp"
    return [path.stat().st_size for path in folder.iterdir()] if folder.exists() else []


def finish(source: Source, site: Site, picture: Path, *, hashed: bool) -> set[str]:
    """The run after a kill, and one more; the paths of which they told."""
    told: list[Done] = []
    placed = {name for name, body in tree(picture).items() if site.files.get(name) == body}
    source.forget()
    ran = telling(source, picture, told)
    assert ran.exit_status == DONE, (picture.name, ran)
    assert tree(picture) == dict(site.files), picture.name
    assert is_clean(picture)
    assert left_over(picture) == (0, 0), picture.name
    asked = [path.partition("/resources/")[2] for path in source.requests() if "/resources/" in path]
    assert len(asked) == len(set(asked)), picture.name
    if hashed:
        assert set(asked) & placed == set(), picture.name
    source.forget()
    assert go(source.base, picture).status == DONE
    assert [path for path in source.requests() if "/resources/" in path] == [], picture.name
    if int(picture.name) % 5 == 0:
        assert check(source.base, picture).verdict == "in sync", picture.name
    assert all(done.set_name == "set" for done in told), told
    return {done.path for done in told}


def left_over(picture: Path) -> tuple[int, int]:
    """How many notes of files about to be placed, and of failures, are left in the state."""
    with contextlib.closing(sqlite3.connect(picture / ".headwater" / "state.sqlite")) as database:
        (intents,) = database.execute("SELECT count(*) FROM intents").fetchone()
        (failures,) = database.execute("SELECT count(*) FROM failures").fetchone()
    return int(intents), int(failures)


def test_killed_while_failures_are_remembered(
    source: Source, dest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DST-F6: the position moves over what failed, and never without remembering it."""
    site = filled(source)
    assert go(source.base, dest).status == DONE
    site.put("d1/f1", b"one, newer")
    site.put("gone", b"gone")
    site.publish_changes(10)
    pages = {name: source.pages.pop(f"/set/resources/{name}") for name in ("d1/f1", "gone")}
    film = Film(dest, tmp_path)
    with film.of(monkeypatch):
        assert go(source.base, dest).status == FAILED
    for picture in film.pictures:
        assert go(source.base, picture).status == FAILED, picture.name
        assert left_over(picture) == (0, 2), picture.name
    for name, page in pages.items():
        source.pages[f"/set/resources/{name}"] = page
    for picture in film.pictures:
        assert go(source.base, picture).status == DONE, picture.name
        assert tree(picture) == dict(site.files), picture.name
