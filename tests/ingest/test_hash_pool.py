"""Reading files: the right digests in the right order, here or in other processes, and places in a static tree."""

import errno
import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.ingest.folder.hashing import pool as pool_module
from headwater.ingest.folder.hashing import worker
from headwater.ingest.folder.hashing.pool import HashPool, Stopped
from headwater.ingest.folder.hashing.worker import read_file
from headwater.ingest.folder.static_tree.file_placement import COPY, LINK
from headwater.spec.hashes import HASHLIB

BOTH = ("md5", "sha-256")
widened = pool_module._widened


@pytest.fixture
def base(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path)


def put(base: bytes, name: bytes, data: bytes) -> bytes:
    path = os.path.join(base, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    return path


@pytest.mark.parametrize("data", [b"", b"x", os.urandom(1 << 20), os.urandom((1 << 20) + 1), os.urandom(3_000_001)])
def test_digests_of_one_read(base: bytes, data: bytes) -> None:
    path = put(base, b"file", data)
    outcome, error, state, began, changed, digests = read_file((path, None, None), BOTH, None)
    found = os.stat(path)
    assert (outcome, error) == (worker.READ, 0)
    assert state == (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    assert changed == found.st_ctime_ns <= began <= time.time_ns()
    assert digests == f"md5:{hashlib.md5(data).hexdigest()} sha-256:{hashlib.sha256(data).hexdigest()}"


def test_every_known_digest_can_be_computed(base: bytes) -> None:
    path = put(base, b"file", b"abc" * 500_000)
    for name, ours in HASHLIB.items():
        assert (
            read_file((path, None, None), (name,), None)[5]
            == f"{name}:{hashlib.new(ours, b'abc' * 500_000).hexdigest()}"
        )


@pytest.mark.parametrize("before", [b"y", b"yz", b"", b"y" * (2 << 20)])
def test_a_file_that_has_changed_since_it_was_found(base: bytes, before: bytes) -> None:
    found = worker.state_of(os.stat(put(base, b"file", before)))
    path = put(base, b"other", b"x")
    os.replace(path, base + b"/file")
    now = read_file((base + b"/file", None, found), ("md5",), None)
    assert now[2] == worker.state_of(os.stat(base + b"/file"))
    assert now[5] == f"md5:{hashlib.md5(b'x').hexdigest()}"


def test_a_file_that_is_written_to_between_the_look_and_the_end(base: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same number of octets, within the time that opening takes: only the state says so."""
    path = put(base, b"file", b"old")
    found = worker.state_of(os.stat(path))
    real = os.read

    def rewriting(descriptor: int, octets: int) -> bytes:
        data = real(descriptor, octets)
        monkeypatch.setattr("headwater.ingest.folder.hashing.worker.os.read", real)
        put(base, b"file", b"new")
        os.utime(path, ns=(found[1] + 1, found[1] + 1))  # whatever the clock's tick
        return data

    monkeypatch.setattr("headwater.ingest.folder.hashing.worker.os.read", rewriting)
    assert read_file((path, None, found), ("md5",), None)[5] == f"md5:{hashlib.md5(b'new').hexdigest()}"


def outcome(path: bytes) -> tuple[int, int]:
    return read_file((path, None, None), BOTH, None)[:2]


def test_what_is_no_readable_file(base: bytes) -> None:
    os.mkfifo(base + b"/fifo")
    os.symlink("fifo", base + b"/link")
    put(base, b"file", b"")
    assert outcome(base + b"/fifo") == (worker.SPECIAL, 0)  # and nobody waited for a writer
    assert outcome(base) == (worker.SPECIAL, 0)
    assert outcome(base + b"/nothing") == (worker.VANISHED, 0)
    assert outcome(base + b"/file/below") == (worker.VANISHED, 0)
    assert outcome(base + b"/link") == (worker.CHANGED, 0)  # it was a file when it was found
    assert outcome(base + b"/" + b"n" * 300) == (worker.UNREADABLE, errno.ENAMETOOLONG)


@pytest.mark.parametrize("size", [10, 2 << 20])
def test_a_file_that_never_holds_still(base: bytes, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(base, b"file", b"x" * size)
    real = os.read

    def growing(descriptor: int, octets: int) -> bytes:
        with open(path, "ab") as file:
            file.write(b"+")
        return real(descriptor, octets)

    monkeypatch.setattr("headwater.ingest.folder.hashing.worker.os.read", growing)
    assert outcome(path) == (worker.CHANGED, 0)


def test_a_file_that_shrinks_is_not_taken_for_whole(base: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(base, b"file", b"x" * (2 << 20))
    real = os.read

    reads: list[int] = []

    def shrinking(descriptor: int, octets: int) -> bytes:
        reads.append(octets)
        if len(reads) == 1:
            os.truncate(path, 5)
        return real(descriptor, octets)

    monkeypatch.setattr("headwater.ingest.folder.hashing.worker.os.read", shrinking)
    found = read_file((path, None, None), BOTH, None)
    assert (found[0], found[2][0]) == (worker.READ, 5)  # of the second attempt, which finds a quiet file
    assert len(reads) > 1


class Job(NamedTuple):
    path: bytes
    octets: int
    key: int


def read(readers: HashPool, jobs: list[Job]) -> Iterator[tuple[Job, worker.HashResult]]:
    for some, found in readers.read(jobs, lambda job: (job.path, None, None)):
        yield from zip(some, found, strict=True)


def many(base: bytes, count: int) -> list[Job]:
    return [Job(put(base, b"%04d" % number, b"%d" % number), 4, number) for number in range(count)]


def expected(number: int) -> str:
    return "sha-256:" + hashlib.sha256(b"%d" % number).hexdigest()


@pytest.mark.parametrize("processes", [0, 1, 3])
def test_readings_come_in_the_order_of_the_jobs(base: bytes, processes: int) -> None:
    jobs = many(base, pool_module.SERIAL_FILES + 700)
    found = list(read(HashPool(("sha-256",), processes=processes), jobs))
    assert [job.key for job, _reading in found] == list(range(len(jobs)))
    assert all(one[0] == worker.READ and one[5] == expected(job.key) for job, one in found)


@pytest.mark.parametrize(
    ("octets", "files"),
    [(None, 8), (0, 128), (4_096, 128), (1 << 20, 4), (1 << 40, 1)],
    ids=["nothing known", "empty", "small", "large", "huge"],
)
def test_blocks_of_unknown_size_follow_what_was_read(octets: int | None, files: int) -> None:
    pace = pool_module._BlockSize()
    if octets is not None:
        pace.learn([(worker.READ, 0, (octets, 0, 0, 0), 0, 0, "")] * 8)
    assert pace.files == files


def test_work_of_a_process_that_dies_is_done_here(base: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = many(base, pool_module.SERIAL_FILES + 700)
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def popen(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(real(*arguments, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr("headwater.ingest.folder.hashing.pool.subprocess.Popen", popen)
    found = []
    for one in read(HashPool(("sha-256",), processes=2), jobs):
        found.append(one)
        if len(found) == pool_module.SERIAL_FILES + pool_module.BLOCK_FILES:
            started[0].kill()
        if len(found) == pool_module.SERIAL_FILES + 300:
            started[1].kill()
    assert [one[5] for _job, one in found] == [expected(number) for number in range(len(jobs))]
    assert all(process.poll() is not None for process in started)


@pytest.mark.parametrize("room", [0, 1 << 16, 1 << 20])
def test_requests_and_answers_that_fill_pipes_never_wait_for_each_other(
    base: bytes, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_widened", lambda stream: min(room, widened(stream)))
    monkeypatch.setattr(pool_module, "_PIPE_OCTETS", max(room, 4096))  # no pipe holds less
    deep = b"/".join([b"d" * 250] * 12)
    jobs = [Job(put(base, deep + b"/%04d" % number, b"%d" % number), 4, number) for number in range(3_000)]
    readers = HashPool(tuple(HASHLIB), processes=2)
    assert [job.key for job, one in read(readers, jobs) if one[0] == worker.READ] == list(range(len(jobs)))


def test_no_process_to_be_had(base: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr("headwater.ingest.folder.hashing.pool.subprocess.Popen", refuse)
    jobs = many(base, pool_module.SERIAL_FILES + 100)
    assert len(list(read(HashPool(("sha-256",), processes=2), jobs))) == len(jobs)


@pytest.mark.parametrize("processes", [0, 2])
def test_stopping_does_not_wait_for_a_large_file(base: bytes, processes: int) -> None:
    path = put(base, b"large", b"")
    os.truncate(path, 40 << 30)
    jobs = [*many(base, pool_module.SERIAL_FILES), Job(path, 40 << 30, 0)]
    began = time.monotonic()
    readers = HashPool(BOTH, processes=processes, stop=lambda: time.monotonic() - began > 1)
    with pytest.raises(Stopped):
        list(read(readers, jobs))
    assert time.monotonic() - began < 15, "all of it takes a minute"


def test_the_reading_program_needs_nothing_but_the_standard_library(base: bytes) -> None:
    """It starts in milliseconds, and ends when its parent does."""
    path = put(base, b"file", b"abc")
    process = subprocess.Popen([*pool_module.PROGRAM, "", "md5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    worker.send(process.stdin, [(path, None, None), (b"/nowhere", None, None)])
    first, second = worker.receive(process.stdout)
    assert first[5] == f"md5:{hashlib.md5(b'abc').hexdigest()}"
    assert second[0] == worker.VANISHED
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()


# Places in a static tree


def test_a_linked_place_is_the_file_itself(base: bytes) -> None:
    path, place = put(base, b"in/file", b"abc"), base + b"/out/deep/er/file"
    found = read_file((path, place, None), ("md5",), LINK)
    assert found[0] == worker.READ
    assert os.path.samefile(path, place)
    assert found[2][2] == os.stat(path).st_ctime_ns  # the state after the link, which has moved ctime
    assert os.listdir(base + b"/out/deep/er") == [b"file"]
    again = read_file((path, place, None), ("md5",), LINK)
    assert again[2] == found[2]


def test_a_copied_place_has_its_own_octets_and_the_same_time(base: bytes) -> None:
    path, place = put(base, b"in/file", b"abc" * 1_000_000), base + b"/out/file"
    os.utime(path, ns=(1, 1_234_567_890_123_456_789))
    os.chmod(path, 0o640)
    assert read_file((path, place, None), ("md5",), COPY)[0] == worker.READ
    assert not os.path.samefile(path, place)
    with open(place, "rb") as file:
        assert file.read() == b"abc" * 1_000_000
    assert os.stat(place).st_mtime_ns == 1_234_567_890_123_456_789
    assert os.stat(place).st_mode & 0o777 == 0o640
    assert os.listdir(base + b"/out") == [b"file"]


@pytest.mark.parametrize("by_descriptor", [True, False])
@pytest.mark.parametrize("what", ["folder", "file"])
@pytest.mark.parametrize("old", [True, False])
def test_what_is_linked_is_what_was_opened(
    base: bytes, monkeypatch: pytest.MonkeyPatch, by_descriptor: bool, what: str, old: bool
) -> None:
    """A folder or the file is exchanged for a link to the outside between the opening and the linking."""
    path, place = put(base, b"in/folder/file", b"inside"), base + b"/out/file"
    secret = put(base, b"outside/file", b"secret")
    if old:
        put(base, b"out/file", b"old")
    real = os.link
    exchanged = os.path.dirname(path) if what == "folder" else path

    def exchanging(*arguments: bytes, **options: object) -> None:
        monkeypatch.setattr("headwater.ingest.folder.static_tree.file_placement.os.link", real)
        os.rename(exchanged, base + b"/in/aside")
        os.symlink(os.path.dirname(secret) if what == "folder" else secret, exchanged)
        real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("headwater.ingest.folder.static_tree.file_placement.os.link", exchanging)
    if not by_descriptor:
        monkeypatch.setattr("headwater.ingest.folder.static_tree.file_placement._DESCRIPTORS", None)
    found = read_file((path, place, None), ("md5",), LINK)
    assert found[0] in (worker.READ, worker.CHANGED)
    assert found[0] == worker.CHANGED or found[5] == f"md5:{hashlib.md5(b'inside').hexdigest()}"
    if os.path.lexists(place):
        assert not os.path.islink(place)
        with open(place, "rb") as file:
            assert file.read() in (b"inside", b"old")
    assert os.listdir(base + b"/out") in ([b"file"], [])


@pytest.mark.parametrize("old", [True, False])
def test_places_are_linked_without_names_for_descriptors(
    base: bytes, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    monkeypatch.setattr("headwater.ingest.folder.static_tree.file_placement._DESCRIPTORS", None)
    path, place = put(base, b"in/file", b"abc"), base + b"/out/deep/file"
    if old:
        put(base, b"out/deep/file", b"old")
    assert read_file((path, place, None), ("md5",), LINK)[0] == worker.READ
    assert os.path.samefile(path, place)
    assert os.listdir(base + b"/out/deep") == [b"file"]


def test_a_copy_where_links_cannot_be(base: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr("headwater.ingest.folder.static_tree.file_placement.os.link", refuse)
    path, place = put(base, b"in/file", b"abc"), base + b"/out/file"
    assert read_file((path, place, None), ("md5",), LINK)[0] == worker.READ
    with open(place, "rb") as file:
        assert file.read() == b"abc"
    assert not os.path.samefile(path, place)


@pytest.mark.parametrize("mode", [LINK, COPY])
def test_places_that_change_their_kind(base: bytes, mode: str) -> None:
    put(base, b"out/a", b"was a file")
    put(base, b"out/b/c/d", b"was in a folder")
    assert read_file((put(base, b"in/a/x", b"1"), base + b"/out/a/x", None), ("md5",), mode)[0] == worker.READ
    assert read_file((put(base, b"in/b", b"2"), base + b"/out/b", None), ("md5",), mode)[0] == worker.READ
    with open(base + b"/out/a/x", "rb") as file:
        assert file.read() == b"1"
    with open(base + b"/out/b", "rb") as file:
        assert file.read() == b"2"


@pytest.mark.parametrize("mode", [LINK, COPY])
def test_a_changing_file_is_not_copied_to_its_place(base: bytes, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, place = put(base, b"in/file", b"new"), put(base, b"out/file", b"old")
    real = os.read

    def growing(descriptor: int, octets: int) -> bytes:
        with open(path, "ab") as file:
            file.write(b"+")
        return real(descriptor, octets)

    monkeypatch.setattr("headwater.ingest.folder.hashing.worker.os.read", growing)
    assert read_file((path, place, None), ("md5",), mode)[0] == worker.CHANGED
    if mode == COPY:
        with open(place, "rb") as file:
            assert file.read() == b"old"
    assert os.listdir(base + b"/out") == [b"file"]


@pytest.mark.parametrize("mode", [LINK, COPY])
def test_a_place_that_cannot_be_made(base: bytes, mode: str) -> None:
    path = put(base, b"in/file", b"abc")
    assert read_file((path, base + b"/out/" + b"n" * 256, None), ("md5",), mode)[:2] == (
        worker.UNPLACED,
        errno.ENAMETOOLONG,
    )
    assert read_file((base + b"/in/nothing", base + b"/out/x", None), ("md5",), mode)[0] == worker.VANISHED
    assert not os.path.exists(base + b"/out/x")
