"""The octets of one batch become durable while the next is read; no batch is given to be recorded before they are."""

import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.files.version_copy import VersionFolders
from headwater.files.version_spool import PACKED_OCTETS, VersionSpool
from headwater.processes.pool import Stopped
from headwater.versions.interface import SetAside
from headwater.versions.keeping import BatchVersions, VersionKeeping


class Intake:
    """Keeps what it is given as soon as it may; digests that begin with `0` cannot be kept."""

    folders = VersionFolders(b"", b"")

    def __init__(self) -> None:
        self.may_keep = threading.Event()
        self.kept: list[str] = []
        self.dropped: list[str] = []

    def keep(self, versions: Iterable[SetAside]) -> list[str]:
        digests = [one.digest for one in versions]
        assert self.may_keep.wait(60)
        self.kept += digests
        return [one for one in digests if one.startswith("0")]

    def drop(self, names: Iterable[str]) -> None:
        self.dropped += names


def batch(*digests: str) -> BatchVersions:
    return BatchVersions(needed=[SetAside(one, one, 1) for one in digests], unneeded=[f"not {digests[0]}"])


@pytest.fixture
def intake() -> Intake:
    return Intake()


def test_a_batch_is_kept_while_the_next_is_read_and_given_when_it_is(intake: Intake) -> None:
    told: list[bytes] = []

    def read() -> Iterator[BatchVersions]:
        yield batch("a", "0")
        assert intake.kept == []  # nobody waited for it
        intake.may_keep.set()
        yield batch("b")

    keeping = VersionKeeping(intake, lambda path, _why: told.append(path))
    with closing(keeping.kept(read(), lambda one: one)) as kept:
        first, lost = next(kept)
        assert [one.digest for one in first.needed] == ["a", "0"]
        assert (lost, told) == ({"0"}, [b"0"])
        assert set(first.unneeded) <= set(intake.dropped)
        assert [lost for _, lost in kept] == [set()]
    assert intake.kept == ["a", "0", "b"]


@pytest.mark.parametrize("fault", [Stopped(), OSError("the folder has gone")], ids=repr)
def test_what_was_read_before_reading_ended_is_given_first(intake: Intake, fault: Exception) -> None:
    def read() -> Iterator[BatchVersions]:
        yield batch("a")
        yield batch("b")
        raise fault

    intake.may_keep.set()
    keeping = VersionKeeping(intake, lambda _path, _why: None)
    with closing(keeping.kept(read(), lambda one: one)) as kept:
        assert [next(kept)[0].needed[0].digest for _ in range(2)] == ["a", "b"]
        with pytest.raises(type(fault)):
            next(kept)


def test_after_a_batch_that_fails_to_be_kept_none_is_given(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(names: Iterable[str]) -> None:
        if "not a" in names:
            raise OSError("the disk has gone")

    monkeypatch.setattr(intake, "drop", drop)
    intake.may_keep.set()
    keeping = VersionKeeping(intake, lambda _path, _why: None)
    with closing(keeping.kept(iter([batch("a"), batch("b"), batch("c")]), lambda one: one)) as kept:
        with pytest.raises(OSError, match="gone"):
            next(kept)
        assert list(kept) == []


def test_nobody_takes_versions_in_after_the_batches_are_given_up(intake: Intake) -> None:
    intake.may_keep.set()
    keeping = VersionKeeping(intake, lambda _path, _why: None)
    with closing(keeping.kept(iter([batch("a"), batch("b"), batch("c")]), lambda one: one)) as kept:
        next(kept)
    assert intake.kept == ["a", "b"]  # and the thread has ended


def test_without_versions_batches_pass_as_they_come() -> None:
    given: list[int] = []
    with closing(VersionKeeping(None, lambda _path, _why: None).kept(iter([1, 2]), lambda _one: None)) as kept:
        for one, lost in kept:
            given.append(one)
            assert not lost
    assert given == [1, 2]


def test_a_record_of_a_pack_is_never_longer_than_one_may_be(tmp_path: Path) -> None:
    """Octets that go on after the size that was said are not set aside: nobody would find what lies behind them."""
    folders = VersionFolders(bytes(tmp_path / "kept"), bytes(tmp_path))
    with closing(VersionSpool(folders)) as spool:
        copy = spool.copy(10)
        for _ in range(3):
            copy.write(bytes(PACKED_OCTETS // 2))
        copy.finish(hashlib.sha256(bytes(3 * (PACKED_OCTETS // 2))).hexdigest())
        assert copy.name == ""
        assert copy.errno
        assert spool.settle() == {}
    assert list(tmp_path.iterdir()) == []
