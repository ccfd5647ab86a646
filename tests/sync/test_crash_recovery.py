"""Crash recovery: what lies there is what the rows say, and what a power loss may have damaged is hashed."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.copy_state import SCHEMA
from headwater.storage.database import Database
from headwater.sync.copy import held_files
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.copy.held_files import CrashRecovery, intend
from headwater.sync.reports import Done

NOW = dt.datetime(2026, 11, 24, tzinfo=dt.UTC)
URI, PATH = "http://s.example/a", b"a"


class Copy:
    """A copy of one resource, and what its state says of it."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self.database = database
        self.recovery = CrashRecovery(database, folder, lambda: NOW)

    def begin(self) -> int:
        with FileTree(self.folder, None) as tree:
            return self.recovery.begin(tree)

    def record(self, content: bytes | None, run: int = 0, *, mtime_ns: int | None = None) -> None:
        """A row as of a file with this content, at this time or that of the file that is there; None: without one."""
        path = None if content is None else PATH
        size, digest = (None, None) if content is None else (len(content), digest_of(content))
        if mtime_ns is None and content is not None:
            mtime_ns = (self.folder / "a").stat().st_mtime_ns
        with self.database.write() as t:
            t.run(
                "INSERT INTO resources(set_id, uri, path, size, mtime_ns, digest, listed_hash, etag, run)"
                " VALUES (1, ?, ?, ?, ?, ?, 'listed', 'tag', ?)",
                (URI, path, size, mtime_ns, digest, run),
            )

    def intend(self, *, removal: bool = False) -> None:
        with self.database.write() as t:
            intend(t, 1, [(URI, PATH)], removal=removal)

    @property
    def rows(self) -> list[tuple[object, ...]]:
        with self.database.read() as t:
            return t.fetch("SELECT uri, path, size, digest, listed_hash, etag, recovered FROM resources ORDER BY uri")

    @property
    def damaged(self) -> list[str]:
        with self.database.read() as t:
            return [uri for (uri,) in t.rows("SELECT uri FROM failures ORDER BY uri")]


def digest_of(content: bytes) -> str:
    return f"sha-256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    folder = tmp_path / "copy"
    folder.mkdir()
    with Database(tmp_path / "state.sqlite", SCHEMA) as database:
        yield Copy(folder, database)


def boots(monkeypatch: pytest.MonkeyPatch, boot: str) -> None:
    monkeypatch.setattr(held_files, "boot_id", lambda: boot)


THERE = b"what lies there"
AS_THERE = (URI, PATH, len(THERE), digest_of(THERE))
PLACED = [
    ("placed, and not recorded", THERE, None, [(*AS_THERE, None, None, 1)]),
    ("placed over what is recorded", THERE, b"before", [(*AS_THERE, None, None, 1)]),
    ("recorded as it is", THERE, THERE, [(*AS_THERE, "listed", "tag", 0)]),
    ("gone, and recorded", None, THERE, [(URI, PATH, -1, None, None, None, 0)]),
    ("never placed", None, None, []),
]


@pytest.mark.parametrize(("there", "recorded", "rows"), [one[1:] for one in PLACED], ids=[one[0] for one in PLACED])
def test_what_lies_there_is_what_the_row_says(
    copy: Copy, there: bytes | None, recorded: bytes | None, rows: list[tuple[object, ...]]
) -> None:
    """A hash that was listed for other octets, or a tag of theirs, would have the source say that nothing changed."""
    if there is not None:
        (copy.folder / "a").write_bytes(there)
    if recorded is not None:
        copy.record(recorded, mtime_ns=None if there is not None else 1)
    copy.intend()
    copy.begin()
    assert copy.rows == rows
    with copy.database.read() as t:
        assert t.one("SELECT 1 FROM intents") is None


def test_a_file_of_the_same_octets_and_another_time_is_recorded_with_its_own(copy: Copy) -> None:
    (copy.folder / "a").write_bytes(THERE)
    copy.record(THERE, mtime_ns=1)
    copy.intend()
    copy.begin()
    with copy.database.read() as t:
        assert t.value("SELECT mtime_ns FROM resources") == (copy.folder / "a").stat().st_mtime_ns


def test_a_row_without_a_file_takes_the_file_that_was_placed_for_it(copy: Copy) -> None:
    (copy.folder / "a").write_bytes(THERE)
    copy.record(None)
    copy.intend()
    copy.begin()
    assert copy.rows == [(*AS_THERE, None, "tag", 1)]


def test_what_hears_of_many_files_and_fails_now_and_then_hears_of_all_in_the_end(copy: Copy) -> None:
    """What it was told is not told again from the beginning of the note for ever."""
    names = [f"f{number:03d}" for number in range(400)]
    for name in names:
        (copy.folder / name).write_text(name)
    with copy.database.write() as t:
        intend(t, 1, [(f"http://s.example/{name}", name.encode()) for name in names])
    told: list[str] = []

    def each(done: Done) -> None:
        told.append(done.path)
        if len(told) % 120 == 0:
            raise RuntimeError(done.path)

    copy.recovery = CrashRecovery(copy.database, copy.folder, lambda: NOW, each)
    failed = 0
    while {*told} < {*names} and failed < 10:
        with contextlib.suppress(RuntimeError):
            copy.begin()
            break
        failed += 1
    assert {*told} == {*names}
    assert len(told) <= len(names) + 50 * failed


@pytest.mark.parametrize("boot", ["same", "next", ""])
@pytest.mark.parametrize("is_claimed", [True, False], ids=["row left", "row gone"])
def test_what_was_removed_and_is_back_after_a_power_loss_is_removed_again(
    copy: Copy, monkeypatch: pytest.MonkeyPatch, boot: str, is_claimed: bool
) -> None:
    """As long as a row has it, it is told of, and stays; without a power loss what is there is not ours."""
    boots(monkeypatch, "same")
    copy.begin()
    (copy.folder / "a").write_bytes(THERE)
    if is_claimed:
        copy.record(THERE)
    copy.intend(removal=True)
    boots(monkeypatch, boot)
    copy.begin()
    assert (copy.folder / "a").exists() is (is_claimed or boot == "same")
    assert copy.rows == ([(*AS_THERE, "listed", "tag", 0)] if is_claimed else [])


@pytest.mark.parametrize(
    ("boot", "is_ended", "is_hashed"),
    [("next", False, True), ("", False, True), ("same", False, False), ("next", True, True)],
)
def test_only_what_a_power_loss_may_have_damaged_is_hashed(
    copy: Copy, monkeypatch: pytest.MonkeyPatch, boot: str, is_ended: bool, is_hashed: bool
) -> None:
    """Of the run that was not flushed: files that are as recorded are not fetched again, and all others are."""
    boots(monkeypatch, "same")
    flushed: list[bytes] = []
    monkeypatch.setattr(held_files, "flush", flushed.append)
    number = copy.begin()
    (copy.folder / "a").write_bytes(bytes(len(THERE)))
    copy.record(THERE, run=number)
    (copy.folder / "b").write_bytes(THERE)
    with copy.database.write() as t:
        for name, digest in (("b", digest_of(THERE)), ("c", digest_of(THERE)), ("d", None)):
            t.run(
                "INSERT INTO resources(set_id, uri, path, size, mtime_ns, digest, run) VALUES (1, ?, ?, 15, 1, ?, ?)",
                (f"http://s.example/{name}", name.encode(), digest, number),
            )
    (copy.folder / "d").write_bytes(THERE)
    if is_ended:
        copy.recovery.end(number)
    boots(monkeypatch, boot)
    copy.begin()
    assert copy.damaged == (["http://s.example/a", "http://s.example/c", "http://s.example/d"] if is_hashed else [])
    assert len(flushed) == int(not is_hashed)


@pytest.mark.parametrize(("has_written", "durable"), [(False, 1), (True, 0)])
def test_a_run_that_has_written_nothing_has_nothing_to_be_flushed(
    copy: Copy, monkeypatch: pytest.MonkeyPatch, has_written: bool, durable: int
) -> None:
    boots(monkeypatch, "same")
    number = copy.begin()
    if has_written:
        (copy.folder / "a").write_bytes(THERE)
        copy.record(THERE, run=number)
    copy.recovery.end(number)
    with copy.database.read() as t:
        assert t.fetch("SELECT durable, ended_at IS NOT NULL FROM runs") == [(durable, 1)]


@pytest.mark.parametrize("is_flushed", [True, False])
def test_where_nobody_tells_of_a_power_loss_a_run_ends_with_a_flush(
    copy: Copy, monkeypatch: pytest.MonkeyPatch, is_flushed: bool
) -> None:
    boots(monkeypatch, "")
    monkeypatch.setattr(held_files, "flush", lambda _root: is_flushed)
    number = copy.begin()
    (copy.folder / "a").write_bytes(THERE)
    copy.record(THERE, run=number)
    copy.recovery.end(number)
    with copy.database.read() as t:
        assert t.value("SELECT durable FROM runs") == int(is_flushed)
