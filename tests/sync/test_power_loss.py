"""A copy and a power that fails at any moment: the next run finds out what was lost, and brings the truth (DST-F7)."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.storage.database import Database
from headwater.sync.copy import file_tree as flushing
from headwater.sync.copy import held_files as ledger
from headwater.sync.update import applier as applier
from tests.support.copying import DONE, check, go, is_clean, tree
from tests.support.disk import EVERYTHING, Disk, Loss
from tests.support.fake_source import Site, Source, at, url

pytestmark = pytest.mark.long(10)

LOSSES = int(os.environ.get("HEADWATER_POWER_LOSSES", "60"))
"""Simulated ones; set the variable for a longer siege."""

BIG = 70_000
"""More than what is held in memory until it is whole."""


class Bare(Site):
    """A source that lists no digests, only lengths and times."""

    def resource(self, name: str, **more: object) -> str:
        return url(self.uri(name), at(self.written(name)), length=len(self.files[name]))

    def change(self, when: float, kind: str, name: str, body: bytes | None = None, **more: object) -> str:
        known: dict[str, Any] = {} if body is None else {"length": len(body)}
        return url(self.uri(name), None if body is None else at(when), change=kind, datetime=at(when), **known)

    def written(self, name: str) -> float:
        return max(when for when, _, changed, body in self.changes if changed == name and body is not None)


def filled(source: Source, kind: type[Site]) -> Site:
    site = kind(source)
    for number in range(6):
        site.put(f"d{number % 2}/f{number}", b"%d" % number * (BIG if number == 0 else 40))
    site.publish_list()
    return publish(site)


def publish(site: Site) -> Site:
    site.publish_changes(0)
    site.publish_capabilities("resourcelist", "changelist")
    site.publish_description()
    return site


def change(site: Site, step: int) -> None:
    """Resources replaced by others of the same length, new ones, one that goes."""
    site.put("d0/f0", b"%d" % (step + 1) * BIG)
    site.put("d1/f1", b"%d" % (step + 1) * 40)
    site.put(f"new{step}/file", b"new %d" % step)
    site.drop(f"d0/f{2 * step}" if step == 1 else "d1/f3")
    publish(site)


@pytest.fixture(params=[Site, Bare], ids=["with digests", "without digests"])
def recorded(
    request: pytest.FixtureRequest, tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> tuple[Site, Disk]:
    """Three runs on one disk, the last over what the one before has made durable."""
    site = filled(source, request.param)
    ground = tmp_path / "disk"
    ground.mkdir()
    disk = Disk(ground)
    with disk.recording(monkeypatch), monkeypatch.context() as patch:
        patch.setattr(ledger, "boot_id", lambda: "before")
        for user in (ledger, applier):
            patch.setattr(user, "flush", lambda _root: disk.synced(EVERYTHING))
        for step in range(3):
            if step:
                change(site, step)
            assert go(source.base, ground / "copy").status == DONE
            disk.mark(str(step))
    return site, disk


def recover(loss: Loss, site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dest = loss.leave(folder) / "copy"
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "boot_id", loss.boot)
        ran = go(site.source.base, dest)
        assert ran.status == DONE, (loss, ran.error, ran.report)
        assert tree(dest) == dict(site.files), loss
        assert is_clean(dest)


def test_a_power_loss_at_any_moment_is_found_out_by_the_next_run(
    recorded: tuple[Site, Disk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, disk = recorded
    for number, loss in enumerate(disk.losses(LOSSES, seed=12)):
        recover(loss, site, tmp_path / str(number), monkeypatch)
    found = check(site.source.base, tmp_path / "0" / "copy")
    assert found.verdict == "in sync", found


def damage(path: Path) -> None:
    """Other octets, the same size and time: what a power loss may leave of a file."""
    found = path.stat()
    path.write_bytes(bytes(found.st_size))
    os.utime(path, ns=(found.st_mtime_ns, found.st_mtime_ns))


@pytest.mark.parametrize("kind", [Site, Bare])
@pytest.mark.parametrize(
    ("boot", "next_boot", "is_found"), [("one", "two", True), ("", "", True), ("one", "one", False)]
)
def test_files_of_a_run_that_was_never_flushed_are_hashed_unless_the_machine_stayed_up(
    source: Source,
    dest: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Site],
    boot: str,
    next_boot: str,
    is_found: bool,
) -> None:
    """Where the kernel tells no boot id, nobody knows whether it did; the server's 304 is no proof of a file."""
    site = filled(source, kind)
    with monkeypatch.context() as killed:
        killed.setattr(ledger, "boot_id", lambda: boot)
        killed.setattr(ledger.CrashRecovery, "end", lambda _self, _number: None)
        assert go(source.base, dest).status == DONE
    damage(dest / "d1" / "f1")
    site.put("d1/f1", site.files["d1/f1"])  # told as updated, and what it was: 304 without a digest
    publish(site)
    monkeypatch.setattr(ledger, "boot_id", lambda: next_boot)
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert ran.one.updated == int(is_found)
    assert ((dest / "d1" / "f1").read_bytes() == b"1" * 40) is is_found


def test_what_an_earlier_run_wrote_is_flushed_once_before_it_is_trusted(
    source: Source, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[bytes] = []
    monkeypatch.setattr(ledger, "flush", flushed.append)
    monkeypatch.setattr(ledger, "boot_id", lambda: "up")
    site = filled(source, Site)
    for expected in (0, 1, 1):  # the first run has nothing before it, and the third nothing that is not safe
        assert go(source.base, dest).status == DONE
        assert flushed == [os.fsencode(dest)] * expected
    change(site, 1)
    for expected in (1, 2):
        assert go(source.base, dest).status == DONE
        assert len(flushed) == expected


@pytest.mark.parametrize("has_waited", [True, False])
def test_where_no_boot_id_is_known_a_run_ends_with_a_flush(
    source: Source, dest: Path, monkeypatch: pytest.MonkeyPatch, has_waited: bool
) -> None:
    """Where the system does not wait for the disk, the next run hashes what this one wrote."""
    flushed: list[bytes] = []

    def flush(root: bytes) -> bool:
        flushed.append(root)
        return has_waited

    monkeypatch.setattr(ledger, "flush", flush)
    monkeypatch.setattr(ledger, "boot_id", lambda: "")
    filled(source, Site)
    assert go(source.base, dest).status == DONE
    assert flushed == [os.fsencode(dest)]
    damage(dest / "d1" / "f1")
    assert go(source.base, dest).status == DONE
    assert len(flushed) == (1 if has_waited else 2)  # a run that has written nothing needs none
    assert ((dest / "d1" / "f1").read_bytes() == b"1" * 40) is not has_waited


def test_a_flush_is_trusted_on_linux_alone(dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sync(2) waits there, and nowhere else for certain."""
    dest.mkdir()
    assert flushing.flush(os.fsencode(dest)) is (sys.platform == "linux")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert flushing.flush(os.fsencode(dest)) is False


def test_a_file_that_is_gone_is_not_asked_for_on_condition(source: Source, dest: Path) -> None:
    """A change that the source takes back: it would say 304 of what is not there."""
    site = filled(source, Bare)
    assert go(source.base, dest).status == DONE
    (dest / "d1" / "f1").unlink()
    site.put("d1/f1", site.files["d1/f1"])
    publish(site)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


class Killed(BaseException):
    """Ends a run as nothing else does."""


@pytest.mark.parametrize("kind", [Site, Bare])
def test_a_run_that_is_cut_while_it_finds_out_what_was_lost_leaves_that_to_the_next(
    source: Source, dest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Site]
) -> None:
    """DST-F7: cut before each of its transactions, the first run after a power loss takes nothing for looked at."""
    site = filled(source, kind)
    write, left = Database.write, [0]

    def cut(database: Database, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return write(database, **options)

    with monkeypatch.context() as killed:
        killed.setattr(ledger, "boot_id", lambda: "before")
        killed.setattr(ledger.CrashRecovery, "end", lambda _self, _number: None)
        assert go(source.base, dest).status == DONE
    damage(dest / "d1" / "f1")
    monkeypatch.setattr(ledger, "boot_id", lambda: "after")
    monkeypatch.setattr(Database, "write", cut)
    for step in range(1, 1_000):
        picture = tmp_path / str(step)
        shutil.copytree(dest, picture)
        left[0] = step
        try:
            go(source.base, picture)
        except Killed:
            assert go(source.base, picture).status == DONE, step
        assert tree(picture) == dict(site.files), step
        if left[0] > 0:
            assert step > 5
            return


def test_what_was_deleted_and_is_back_after_a_power_loss_is_removed(
    source: Source, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = filled(source, Site)
    assert go(source.base, dest).status == DONE
    change(site, 1)

    def kill(_root: bytes) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(applier, "flush", kill)
        with pytest.raises(Killed):
            go(source.base, dest)
    assert not (dest / "d0" / "f2").exists()
    (dest / "d0" / "f2").write_bytes(b"2" * 40)
    monkeypatch.setattr(ledger, "boot_id", lambda: "another")
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_the_state_has_its_name_on_the_disk_before_the_first_file(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(source, Site)
    disk = Disk(tmp_path)
    with disk.recording(monkeypatch):
        assert go(source.base, tmp_path / "a" / "copy").status == DONE
    safe = disk.safe_from()
    placed = next(at for at, op in enumerate(disk.ops) if op.kind == "name")
    for name in ("a", "copy", ".headwater", "state.sqlite", "state.sqlite-wal"):
        made = next(at for at, op in enumerate(disk.ops) if op.name == name)
        assert safe[made] < placed, name


def test_a_file_of_the_user_at_the_name_of_one_that_was_deleted_stays(
    source: Source, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note of a removal says what to remove after a power loss; it is dropped as soon as the disk has it."""
    site = filled(source, Site)
    assert go(source.base, dest).status == DONE
    change(site, 1)
    assert go(source.base, dest).status == DONE
    (dest / "d0" / "f2").write_bytes(b"mine")
    monkeypatch.setattr(ledger, "boot_id", lambda: "another")
    assert go(source.base, dest).status == DONE
    assert (dest / "d0" / "f2").read_bytes() == b"mine"
