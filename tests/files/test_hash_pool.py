"""Reading files: the right digests in the right order, here or in other processes, and places in a static tree."""

import errno
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.files import hash_pool, hashing
from headwater.files.file_copies import COPY, LINK, VersionWriter
from headwater.files.hash_pool import HashPool
from headwater.files.hashing import ReadOptions, file_hasher, read_file, settled
from headwater.processes.pool import ProcessPool, Stopped, WorkerProgram
from headwater.spec.records import HASHLIB
from tests.support.waiting import until

BOTH = ("md5", "sha-256")


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
    outcome, error, state, began, changed, digests, _aside = read_file((path, BOTH, None))
    found = os.stat(path)
    assert (outcome, error) == (hashing.READ, 0)
    assert state == (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    assert changed == found.st_ctime_ns <= began <= time.time_ns()
    assert digests == f"md5:{hashlib.md5(data).hexdigest()} sha-256:{hashlib.sha256(data).hexdigest()}"


def test_every_known_digest_can_be_computed(base: bytes) -> None:
    path = put(base, b"file", b"abc" * 500_000)
    for name, ours in HASHLIB.items():
        assert read_file((path, (name,), None))[5] == f"{name}:{hashlib.new(ours, b'abc' * 500_000).hexdigest()}"


def test_a_file_that_is_written_to_between_the_look_and_the_end(base: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same number of octets: only the state says so."""
    path = put(base, b"file", b"old")
    found = hashing.state_of(os.stat(path))
    real = os.read

    def rewriting(descriptor: int, octets: int) -> bytes:
        data = real(descriptor, octets)
        monkeypatch.setattr("headwater.files.hashing.os.read", real)
        put(base, b"file", b"new")
        os.utime(path, ns=(found[1] + 1, found[1] + 1))  # whatever the clock's tick
        return data

    monkeypatch.setattr("headwater.files.hashing.os.read", rewriting)
    assert read_file((path, ("md5",), None))[5] == f"md5:{hashlib.md5(b'new').hexdigest()}"


def outcome(path: bytes) -> tuple[int, int]:
    return read_file((path, BOTH, None))[:2]


def test_what_is_no_readable_file(base: bytes) -> None:
    os.mkfifo(base + b"/fifo")
    os.symlink("fifo", base + b"/link")
    put(base, b"file", b"")
    assert outcome(base + b"/fifo") == (hashing.SPECIAL, 0)  # and nobody waited for a writer
    assert outcome(base) == (hashing.SPECIAL, 0)
    assert outcome(base + b"/nothing") == (hashing.VANISHED, 0)
    assert outcome(base + b"/file/below") == (hashing.VANISHED, 0)
    assert outcome(base + b"/link") == (hashing.CHANGED, errno.ELOOP)  # it was a file when it was found
    assert outcome(base + b"/" + b"n" * 300) == (hashing.UNREADABLE, errno.ENAMETOOLONG)


@pytest.mark.parametrize("size", [10, 2 << 20])
def test_a_file_that_never_holds_still(base: bytes, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(base, b"file", b"x" * size)
    real = os.read

    def growing(descriptor: int, octets: int) -> bytes:
        with open(path, "ab") as file:
            file.write(b"+")
        return real(descriptor, octets)

    monkeypatch.setattr("headwater.files.hashing.os.read", growing)
    assert outcome(path) == (hashing.CHANGED, 0)


def test_a_file_that_shrinks_is_not_taken_for_whole(base: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(base, b"file", b"x" * (2 << 20))
    real = os.read

    reads: list[int] = []

    def shrinking(descriptor: int, octets: int) -> bytes:
        reads.append(octets)
        if len(reads) == 1:
            os.truncate(path, 5)
        return real(descriptor, octets)

    monkeypatch.setattr("headwater.files.hashing.os.read", shrinking)
    found = read_file((path, BOTH, None))
    assert (found[0], found[2][0]) == (hashing.READ, 5)  # of the second attempt, which finds a quiet file
    assert len(reads) > 1


def test_a_small_file_is_set_aside_as_it_was_hashed(base: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that grows or shrinks meanwhile is read again; one whose octets come in parts is read to its end."""
    writer = VersionWriter(base)
    options = ReadOptions(versions=writer)
    path = put(base, b"file", b"x" * 100)
    real = os.read
    states = iter([b"y" * 101, b"z" * 99])

    def changing(descriptor: int, octets: int) -> bytes:
        if (data := next(states, None)) is not None:
            put(base, b"file", data)
        return real(descriptor, min(octets, 60))

    monkeypatch.setattr("headwater.files.hashing.os.read", changing)
    found = settled([read_file((path, BOTH, None), options)] * 2, writer)[0]
    name, _, start = found[6].partition(":")
    assert found[5] == f"md5:{hashlib.md5(b'z' * 99).hexdigest()} sha-256:{hashlib.sha256(b'z' * 99).hexdigest()}"
    with open(os.fsdecode(base) + "/" + name, "rb") as file:
        assert file.read()[int(start) :] == b"z" * 99
    assert start == "0"


def test_without_algorithms_a_file_is_not_read(base: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(base, b"file", b"abc")
    monkeypatch.setattr("headwater.files.hashing.os.read", None)
    found = read_file((path, (), None))
    assert (found[0], found[2], found[5]) == (hashing.READ, hashing.state_of(os.stat(path)), "")


class Job(NamedTuple):
    path: bytes
    octets: int = 0
    algorithms: tuple[str, ...] = ("sha-256",)


def read(readers: HashPool, jobs: list[Job]) -> Iterator[tuple[Job, hashing.HashResult]]:
    for some, found in readers.read(jobs, lambda job: (job.path, job.algorithms, None)):
        yield from zip(some, found, strict=True)


def many(base: bytes, count: int) -> list[Job]:
    return [Job(put(base, b"%04d" % number, b"%d" % number), 4) for number in range(count)]


@pytest.mark.parametrize("processes", [0, 1, 3])
def test_results_are_the_same_and_in_order_wherever_they_are_made(base: bytes, processes: int) -> None:
    """Of files and of what is none, with odd names, each with algorithms of its own."""
    few = many(base, hash_pool.SERIAL_FILES + 700)
    odd = [Job(put(base, name, name), 0, BOTH) for name in (b"two\nlines", b"\xff\xfe", b"sp ace")]
    state_only = [one._replace(algorithms=()) for one in few[:20]]
    os.symlink("0001", base + b"/link")
    none = [Job(base + b"/missing"), Job(base), Job(base + b"/link")]
    jobs = [*few, *odd, *state_only, *none]
    found = list(read(HashPool(processes=processes), jobs))
    assert [job for job, _result in found] == jobs
    results = [result for _job, result in found]
    assert [one[5] for one in results[: len(few)]] == [expected(number) for number in range(len(few))]
    assert [one[5] for one in results[len(few) : len(few) + len(odd)]] == [
        f"md5:{hashlib.md5(name).hexdigest()} sha-256:{hashlib.sha256(name).hexdigest()}"
        for name in (b"two\nlines", b"\xff\xfe", b"sp ace")
    ]
    assert [one[2] for one in results[-23:-3]] == [one[2] for one in results[:20]]
    assert [one[0] for one in results[-3:]] == [hashing.VANISHED, hashing.SPECIAL, hashing.CHANGED]


def expected(number: int) -> str:
    return "sha-256:" + hashlib.sha256(b"%d" % number).hexdigest()


def test_few_files_start_no_process(base: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    assert len(list(read(HashPool(processes=2), many(base, hash_pool.SERIAL_FILES)))) == hash_pool.SERIAL_FILES


@pytest.mark.parametrize("processes", [0, 2])
def test_stopping_does_not_wait_for_a_large_file(base: bytes, processes: int) -> None:
    path = put(base, b"large", b"")
    os.truncate(path, 40 << 30)
    jobs = [*many(base, hash_pool.SERIAL_FILES), Job(path, 40 << 30, BOTH)]
    began = time.monotonic()
    readers = HashPool(processes=processes, stop=lambda: time.monotonic() - began > 1)
    with pytest.raises(Stopped):
        list(read(readers, jobs))
    assert time.monotonic() - began < 30, "all of it takes a minute"


def test_a_hashing_process_needs_nothing_but_the_standard_library(base: bytes) -> None:
    """So it starts in milliseconds."""
    requests = [(put(base, b"file", b"abc"), ("md5",), None), (b"/nowhere", ("md5",), None)]
    pool: ProcessPool[str] = ProcessPool(
        WorkerProgram(function=file_hasher, settings=(None, None, 0)), pytest.fail, processes=1, ahead=1
    )
    ((_item, (first, second)),) = pool.answers([("", requests)])
    assert first[5] == f"md5:{hashlib.md5(b'abc').hexdigest()}"
    assert second[0] == hashing.VANISHED


def test_a_large_file_does_not_keep_a_process_whose_owner_was_killed(base: bytes) -> None:
    """It has nobody to answer, and hashing so much takes a minute."""
    path = put(base, b"large", b"")
    os.truncate(path, 40 << 30)
    program = """if True:
        import sys
        from headwater.files.hashing import file_hasher
        from headwater.processes.pool import ProcessPool, WorkerProgram
        real = __import__("subprocess").Popen
        def popen(*arguments, **options):
            process = real(*arguments, **options)
            print(process.pid, flush=True)
            return process
        __import__("subprocess").Popen = popen
        request = (sys.argv[1].encode(), ("md5", "sha-256"), None)
        pool = ProcessPool(WorkerProgram(function=file_hasher, settings=(None, None, 0)), print, processes=1, ahead=1)
        list(pool.answers([(None, [request])]))
    """
    owner = subprocess.Popen([sys.executable, "-c", program, os.fsdecode(path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    until(lambda: os.fsencode(path) in opened(pid), what="the file being read")
    owner.kill()
    owner.wait()
    owner.stdout.close()
    until(lambda: not opened(pid), what="the end of the process")


def opened(pid: int) -> list[bytes]:
    """The files that a process has open; none when it is gone."""
    with suppress(OSError):
        folder = b"/proc/%d/fd" % pid
        return [os.readlink(folder + b"/" + name) for name in os.listdir(folder)]
    return []


# Places in a static tree


def test_a_linked_place_is_the_file_itself(base: bytes) -> None:
    path, place = put(base, b"in/file", b"abc"), base + b"/out/deep/er/file"
    found = read_file((path, ("md5",), place), ReadOptions(LINK))
    assert found[0] == hashing.READ
    assert os.path.samefile(path, place)
    assert found[2][2] == os.stat(path).st_ctime_ns  # the state after the link, which has moved ctime
    assert os.listdir(base + b"/out/deep/er") == [b"file"]
    again = read_file((path, ("md5",), place), ReadOptions(LINK))
    assert again[2] == found[2]


def test_a_copied_place_has_its_own_octets_and_the_same_time(base: bytes) -> None:
    path, place = put(base, b"in/file", b"abc" * 1_000_000), base + b"/out/file"
    os.utime(path, ns=(1, 1_234_567_890_123_456_789))
    os.chmod(path, 0o640)
    assert read_file((path, ("md5",), place), ReadOptions(COPY))[0] == hashing.READ
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
        monkeypatch.setattr("headwater.files.file_copies.os.link", real)
        os.rename(exchanged, base + b"/in/aside")
        os.symlink(os.path.dirname(secret) if what == "folder" else secret, exchanged)
        real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("headwater.files.file_copies.os.link", exchanging)
    if not by_descriptor:
        monkeypatch.setattr("headwater.files.file_copies._DESCRIPTORS", None)
    found = read_file((path, ("md5",), place), ReadOptions(LINK))
    assert found[0] in (hashing.READ, hashing.CHANGED)
    assert found[0] == hashing.CHANGED or found[5] == f"md5:{hashlib.md5(b'inside').hexdigest()}"
    if os.path.lexists(place):
        assert not os.path.islink(place)
        with open(place, "rb") as file:
            assert file.read() in (b"inside", b"old")
    assert os.listdir(base + b"/out") in ([b"file"], [])


@pytest.mark.parametrize("old", [True, False])
def test_places_are_copied_without_names_for_descriptors(
    base: bytes, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    monkeypatch.setattr("headwater.files.file_copies._DESCRIPTORS", None)
    path, place = put(base, b"in/file", b"abc"), base + b"/out/deep/file"
    if old:
        put(base, b"out/deep/file", b"old")
    assert read_file((path, ("md5",), place), ReadOptions(LINK))[0] == hashing.READ
    with open(place, "rb") as file:
        assert file.read() == b"abc"
    assert not os.path.samefile(path, place)
    assert os.listdir(base + b"/out/deep") == [b"file"]


def test_a_copy_where_links_cannot_be(base: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr("headwater.files.file_copies.os.link", refuse)
    path, place = put(base, b"in/file", b"abc"), base + b"/out/file"
    assert read_file((path, ("md5",), place), ReadOptions(LINK))[0] == hashing.READ
    with open(place, "rb") as file:
        assert file.read() == b"abc"
    assert not os.path.samefile(path, place)


@pytest.mark.parametrize("mode", [LINK, COPY])
def test_places_that_change_their_kind(base: bytes, mode: str) -> None:
    put(base, b"out/a", b"was a file")
    put(base, b"out/b/c/d", b"was in a folder")
    assert read_file((put(base, b"in/a/x", b"1"), ("md5",), base + b"/out/a/x"), ReadOptions(mode))[0] == hashing.READ
    assert read_file((put(base, b"in/b", b"2"), ("md5",), base + b"/out/b"), ReadOptions(mode))[0] == hashing.READ
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

    monkeypatch.setattr("headwater.files.hashing.os.read", growing)
    assert read_file((path, ("md5",), place), ReadOptions(mode))[0] == hashing.CHANGED
    if mode == COPY:
        with open(place, "rb") as file:
            assert file.read() == b"old"
    assert os.listdir(base + b"/out") == [b"file"]


@pytest.mark.parametrize("mode", [LINK, COPY])
def test_a_place_that_cannot_be_made(base: bytes, mode: str) -> None:
    path = put(base, b"in/file", b"abc")
    assert read_file((path, ("md5",), base + b"/out/" + b"n" * 256), ReadOptions(mode))[:2] == (
        hashing.UNPLACED,
        errno.ENAMETOOLONG,
    )
    assert read_file((base + b"/in/nothing", ("md5",), base + b"/out/x"), ReadOptions(mode))[0] == hashing.VANISHED
    assert not os.path.exists(base + b"/out/x")
