"""The process that places small files: the same copy, whatever becomes of it, and no other run while it is at work."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.deflate import FAST_LEVEL, crc32, deflate_whole
from headwater.errors import Exit
from headwater.processes.pool import _Processes
from headwater.storage.lock import LockHeld, lock_exclusive
from headwater.sync.copy.file_placer import NewFile, Placement, PlacementOutcome
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.copy.placing_process import PlacingProcess
from headwater.sync.faults import DestinationUnusable
from headwater.sync.packages.large_member import LargeMember
from headwater.sync.packages.members import SMALL_OCTETS
from headwater.sync.packages.placing import MemberPlacing
from headwater.sync.transfer.work_queue import PlanCounts
from tests.support.copying import go
from tests.support.fake_dumps import Dumps, zipped
from tests.support.fake_source import at, document
from tests.support.waiting import until
from tests.sync.packages.test_package_transfer import COUNT, dumps, fetched, rows, tree, ways

__all__ = ["dumps"]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process, however few the files and the processors are."""
    monkeypatch.setattr("headwater.sync.packages.package_transfer.PARALLEL_FROM", 1)
    monkeypatch.setattr("headwater.sync.packages.package_transfer.processors", lambda: 2)


@pytest.fixture
def placing(tmp_path: Path) -> Iterator[PlacingProcess[str]]:
    """A process over the folder `copy`, whose lock it shares; temporary files lie in `temp`."""
    for name in ("copy", "temp"):
        (tmp_path / name).mkdir()
    lock = lock_exclusive(tmp_path / "lock")
    with FileTree(tmp_path / "copy", tmp_path / "temp") as files:
        process: PlacingProcess[str] = PlacingProcess(files, str(tmp_path / "temp"), lock)
        yield process
        process.close()
        assert list((tmp_path / "temp").glob("*")) == []
    os.close(lock)


def new_file(
    name: str, octets: bytes, *, number: int = 0, deflate: bool = False, crc: int | None = None, digest: str = ""
) -> NewFile:
    content = deflate_whole(octets, FAST_LEVEL) if deflate else octets
    checksum = crc32(octets) if crc is None else crc
    wanted = digest or hashlib.sha256(octets).hexdigest()
    return f"{number}-member", name.encode(), 10**9, content, len(octets), checksum, deflate, "sha-256", wanted


@pytest.mark.parametrize("offered", ["resourcedump", "demand"])
@pytest.mark.usefixtures("always")
def test_the_copy_and_its_state_are_the_same(dumps: Dumps, dest: Path, tmp_path: Path, offered: str) -> None:
    dumps.publish_packages(dumps.package())
    dumps.publish(*(["resourcedump"] if offered != "demand" else []), demand=offered == "demand")
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert ran.status == Exit.DONE
    assert sum(ways(ran).values()) >= COUNT
    plain = tmp_path / "plain"
    assert go(dumps.site.source.base, plain, prefer="lists").status == Exit.DONE
    assert tree(dest) == tree(plain) == dumps.site.files
    assert rows(dest) == rows(plain)
    assert list((dest / ".headwater" / "tmp").iterdir()) == []


@pytest.mark.usefixtures("always")
def test_what_finds_its_name_taken_is_left_to_single_requests(dumps: Dumps, dest: Path) -> None:
    dumps.publish_packages(dumps.package())
    dumps.publish("resourcedump")
    (dest / "d0" / "f2.txt").mkdir(parents=True)
    ran = go(dumps.site.source.base, dest, prefer="dumps")
    assert ways(ran) == {"Resource Dump": COUNT}
    assert fetched(dumps) == ["/set/resources/d0/f2.txt"]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("has_length", [True, False])
def test_a_large_state_of_a_resource_waits_for_a_small_one(
    dumps: Dumps, dest: Path, monkeypatch: pytest.MonkeyPatch, has_length: bool
) -> None:
    """The temporary file of a resource has one writer at a time."""
    monkeypatch.setattr("headwater.sync.copy.placing_process._BLOCK_FILES", 1)
    site, names = dumps.site, list(dumps.site.files)[1:10]
    twice = site.resource("d0/f2.txt", path="/large", **({} if has_length else {"length": None}))
    first = [site.resource(name, path="/" + dumps.path(name)) for name in names]
    if not has_length:
        site.publish_list([site.resource(name, length=None) for name in site.files])
    manifest = document([*first, twice], links=site.up(), capability="resourcedump-manifest", at=at(site.clock))
    members = [(dumps.path(name), site.files[name]) for name in names]
    large = b"another state".ljust(SMALL_OCTETS + 1)
    dumps.publish_packages(zipped([("manifest.xml", manifest), *members, ("large", large)], deflate=True))
    dumps.publish("resourcedump")
    writing = LargeMember.write
    at_work: list[PlacingProcess[Any]] = []
    giving = PlacingProcess.give

    def give(process: PlacingProcess[Any], *given: Any) -> Any:
        at_work.append(process)
        return giving(process, *given)

    def write(member: LargeMember, octets: bytes) -> None:
        queue = at_work[-1]._queue
        while queue is not None and any(process.tasks for process in queue._processes._alive):
            queue._processes.take(0.1)
        writing(member, octets)

    monkeypatch.setattr(PlacingProcess, "give", give)
    monkeypatch.setattr(LargeMember, "write", write)
    ran = go(site.source.base, dest, prefer="dumps")
    assert ran.status == Exit.DONE, ran.notices
    assert tree(dest) == site.files
    assert ways(ran) == {"Resource Dump": len(names)}
    assert ran.one.created == len(site.files)
    rows(dest)


@pytest.mark.usefixtures("always")
def test_what_is_kept_aside_is_not_left_to_it(dumps: Dumps, dest: Path, tmp_path: Path) -> None:
    """A backup is written by the run itself."""
    dumps.publish_packages(dumps.package())
    dumps.publish("resourcedump")
    assert go(dumps.site.source.base, dest, prefer="dumps", backup_dir=str(tmp_path / "old")).status == Exit.DONE
    assert tree(dest) == dumps.site.files


def test_files_of_one_that_dies_are_placed_here(placing: PlacingProcess[str], tmp_path: Path) -> None:
    """Also what it had begun, or had placed without having said so."""
    content = {f"d/{number}": b"%d" % number * 100 for number in range(500)}
    told: list[str] = []

    def note(outcomes: Iterable[tuple[str, PlacementOutcome]]) -> None:
        told.extend(item for item, (placement, *_) in outcomes if placement == Placement.PLACED)

    for number, (name, octets) in enumerate(content.items()):
        note(placing.give([(name, new_file(name, octets, number=number, deflate=number % 2 == 0))]))
        if number == 200:
            processes: _Processes = placing._queue._processes
            os.kill(processes._alive[0]._popen.pid, signal.SIGKILL)
            (tmp_path / "temp" / "placing" / "201-member").write_bytes(b"begun")
    note(placing.rest())
    assert sorted(told) == sorted(content)
    assert {f"d/{path.name}": path.read_bytes() for path in (tmp_path / "copy" / "d").iterdir()} == content


@pytest.mark.parametrize("here", [False, True])
@pytest.mark.parametrize(
    ("wrong", "placement"),
    [
        ({}, Placement.PLACED),
        ({"deflate": True}, Placement.PLACED),
        ({"digest": "0" * 64}, Placement.DIFFERENT),
        ({"digest": "0" * 64, "deflate": True}, Placement.DIFFERENT),
        ({"crc": 1}, Placement.DAMAGED),
        ({"crc": 1, "deflate": True}, Placement.DAMAGED),
        ({"name": "taken"}, Placement.OCCUPIED),
    ],
    ids=str,
)
def test_only_what_verifies_gets_its_place(
    placing: PlacingProcess[str], tmp_path: Path, wrong: dict[str, Any], placement: Placement, here: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """DST-P5: by the process as by the run itself, which helps where the process has its hands full."""
    (tmp_path / "copy" / "taken").mkdir()
    if here:
        monkeypatch.setattr("headwater.processes.pool.JobQueue.has_room", False)
    file = new_file(**({"name": "a", "octets": b"content " * 9} | wrong))
    ((item, outcome),) = [*placing.give([("a", file)]), *placing.rest()]
    assert (item, outcome[0]) == ("a", placement)
    assert (tmp_path / "copy" / "a").exists() == (placement is Placement.PLACED)
    assert [path.name for path in (tmp_path / "temp").iterdir()] == ["placing"]
    assert list((tmp_path / "temp" / "placing").iterdir()) == []


def test_what_the_process_has_no_room_for_is_placed_here(
    placing: PlacingProcess[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stands still; what it has got is placed once it goes on."""
    monkeypatch.setattr("headwater.sync.copy.placing_process._MOST_FILES", 64)
    names = [f"{number}" for number in range(64 * 40)]
    placed: dict[str, int] = {}
    for number, name in enumerate(names):
        file = new_file(name, b"x" * 99, number=number)
        placed |= {item: outcome[0] for item, outcome in placing.give([(name, file)])}
        if number == 64:
            standing = placing._queue._processes._alive[0]._popen
            standing.send_signal(signal.SIGSTOP)
    assert len(placed) >= 64 * 3
    standing.send_signal(signal.SIGCONT)
    placed |= {item: outcome[0] for item, outcome in placing.rest()}
    assert placed == dict.fromkeys(names, Placement.PLACED)
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == sorted(names)


def _hundreds(folders: dict[str, int]) -> dict[str, bytes]:
    return {
        f"{path}/{n:03d}": b"%d in %s" % (n, path.encode()) * 9 for path, count in folders.items() for n in range(count)
    }


def placed_of(placing: PlacingProcess[str], files: list[NewFile]) -> dict[str, Placement]:
    """What came of files, in lists of 38 as a package brings them, by their paths."""
    found: list[tuple[str, PlacementOutcome]] = []
    for start in range(0, len(files), 38):
        found += placing.give([(file[1].decode(), file) for file in files[start : start + 38]])
    found += placing.rest()
    assert len(found) == len(files)
    return {path: Placement(outcome[0]) for path, outcome in found}


@pytest.mark.parametrize("here", [False, True])
def test_folders_that_are_new_get_their_places_as_a_whole(
    placing: PlacingProcess[str], tmp_path: Path, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lies there already, the files are the same as one by one; nothing is left aside."""
    if here:
        monkeypatch.setattr("headwater.processes.pool.JobQueue.has_room", False)
    copy = tmp_path / "copy"
    content = _hundreds({"d": 200, "d/e": 3, "d/f": 30, "held": 60, "held/in": 60, "long": 900, "x/y/z": 120, "z": 5})
    (copy / "held").mkdir()
    (copy / "held" / "other").write_bytes(b"of before")
    placed = placed_of(
        placing,
        [new_file(path, octets, number=n, deflate=n % 2 == 0) for n, (path, octets) in enumerate(content.items())],
    )
    assert placed == dict.fromkeys(content, Placement.PLACED)
    found = {str(path.relative_to(copy)): path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert found == content | {"held/other": b"of before"}
    assert {path.stat().st_mtime_ns for path in copy.rglob("*") if path.is_file() and path.name != "other"} == {10**9}
    assert list((tmp_path / "temp" / "placing").iterdir()) == []


@pytest.mark.parametrize("here", [False, True])
def test_of_a_new_folder_only_what_verifies_gets_its_place(
    placing: PlacingProcess[str], tmp_path: Path, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DST-P5; a folder of which nothing verifies is not made."""
    if here:
        monkeypatch.setattr("headwater.processes.pool.JobQueue.has_room", False)
    content = _hundreds({"bad": 60, "mixed": 60})
    files = []
    for number, (path, octets) in enumerate(content.items()):
        is_wrong = path.startswith("bad/") or number % 3 == 0
        files.append(new_file(path, octets, number=number, digest="0" * 64 if is_wrong else ""))
    wanted = {
        path: Placement.DIFFERENT if path.startswith("bad/") or number % 3 == 0 else Placement.PLACED
        for number, path in enumerate(content)
    }
    assert placed_of(placing, files) == wanted
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["mixed"]
    there = {f"mixed/{path.name}" for path in (tmp_path / "copy" / "mixed").iterdir()}
    assert there == {path for path, placement in wanted.items() if placement is Placement.PLACED}
    assert list((tmp_path / "temp" / "placing").iterdir()) == []


def test_a_copy_that_cannot_be_written_ends_the_run(placing: PlacingProcess[str], tmp_path: Path) -> None:
    (tmp_path / "temp" / "placing").rmdir()
    (tmp_path / "temp").rmdir()
    list(placing.give([("a", new_file("a", b"a"))]))
    with pytest.raises(DestinationUnusable, match="cannot write"):
        list(placing.rest())


class _Settled:
    """What a result log is told."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def settled(self, placed: Iterable[tuple[Any, int, int, str]]) -> None:
        self.numbers += [work.n for work, *_ in placed]

    def flush_when_due(self) -> None:
        """Nothing is to be written."""


@pytest.mark.parametrize("count", [0, 3, 500, 1_203])
def test_what_has_its_place_is_noted_once_though_the_next_has_none(count: int) -> None:
    """DST-F6: the run ends, and knows of each file what came of it."""
    results = _Settled()
    told: list[object] = []
    placing = MemberPlacing(None, results, PlanCounts(), told.append, object(), largest=99)  # type: ignore[arg-type]

    def outcomes() -> Iterator[Any]:
        for n in range(count):
            work = SimpleNamespace(n=n, held=None, uri=f"http://here.example/{n}", path=b"%d" % n)
            yield (work, "sha-256:0"), (Placement.PLACED.value, 9, 0, "")
        raise DestinationUnusable("cannot write to the copy")

    with pytest.raises(DestinationUnusable):
        placing._note_outcomes(outcomes())
    assert results.numbers == list(range(count))
    assert (placing.counts.placed, len(told)) == (count, count)


_OWNER = """
import hashlib, os, sys
from pathlib import Path
from headwater.deflate import crc32
from headwater.storage.lock import lock_exclusive
from headwater.sync.copy.file_tree import FileTree
from headwater.sync.copy.placing_process import PlacingProcess
base = Path(sys.argv[1])
process = PlacingProcess(FileTree(base / "copy", base / "temp"), str(base / "temp"), lock_exclusive(base / "lock"))
number = 0
while True:
    number += 1
    octets = b"%d" % number * 1000
    digest = hashlib.sha256(octets).hexdigest()
    file = f"{number}-member", b"%d" % number, None, octets, len(octets), crc32(octets), False, "sha-256", digest
    for _ in process.give([(number, file)]):
        print("placed", flush=True)
"""


def test_no_other_run_begins_before_it_has_ended(tmp_path: Path) -> None:
    """Its owner is killed: soon the lock is free, and from then on nothing is placed."""
    for name in ("copy", "temp"):
        (tmp_path / name).mkdir()
    with subprocess.Popen([sys.executable, "-c", _OWNER, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline()
        owner.kill()

    def free() -> int | None:
        try:
            return lock_exclusive(tmp_path / "lock")
        except LockHeld:
            return None

    until(lambda: free() is not None, what="the lock")
    placed = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "copy").iterdir()}
    assert placed
    assert all((tmp_path / "copy" / name).read_bytes() == name.encode() * 1000 for name in placed)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "copy").iterdir()} == placed
