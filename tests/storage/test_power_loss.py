"""The folder store and a power that fails at any moment: what was acknowledged is there, and nothing half."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from headwater.storage import durable
from headwater.storage.database import Database, Schema
from headwater.storage.durable import replace_file, sync_folder
from headwater.storage.folder_store import TEMPORARY, FolderStore
from headwater.storage.object_store import XML, ZIP, Coding
from tests.support.disk import Disk, Loss

pytestmark = pytest.mark.long(10)

LOSSES = int(os.environ.get("HEADWATER_POWER_LOSSES", "300"))
"""Simulated ones; set the variable for a longer siege."""

STEPS: list[tuple[str, bytes | None]] = [
    ("robots.txt", b"one"),
    ("set/pages/00000.xml", b"a" * 3_000),
    ("set/pages/00001.xml", b"b" * 10),
    ("set/pages/00000.xml", b"c" * 2_000),
    ("set/pages/00001.xml", None),
    ("set/index.xml", b"d" * 700),
    ("set/package", b"g" * 700),
    ("other/index.xml", b"e"),
    ("robots.txt", b"two"),
    ("set/package", b"h" * 700),
    ("set/index.xml", b"d" * 700),
    ("set/pages/00001.xml", b"f" * 4_000),
    ("other/index.xml", None),
    ("set/package", b"i" * 1_700),
]


def after(steps: list[tuple[str, bytes | None]]) -> dict[str, bytes | None]:
    """What each name holds then; None: nothing."""
    return dict.fromkeys((name for name, _ in STEPS)) | dict(steps)


def step(store: FolderStore, name: str, octets: bytes | None) -> None:
    if octets is None:
        store.delete(name)
    else:
        is_package = name.endswith("package")
        store.put(name, [octets[:5], octets[5:]], ZIP if is_package else XML, lambda: f"of {octets[:9]!r}")


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    made = tmp_path / "disk"
    made.mkdir()
    return made


def recorded(ground: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(ground)
    with disk.recording(monkeypatch):
        store = FolderStore(ground / "state" / "documents")
        for number, (name, octets) in enumerate(STEPS):
            step(store, name, octets)
            disk.mark(str(number))
    return disk


def look(root: Path, name: str) -> bytes | None:
    """What a reader gets of a document, in both forms."""
    store = FolderStore(root, durable=False)
    found = store.open(name)
    if found is None:
        return None
    with found:
        octets = found.read(0, found.octets)
    coded = store.open(name, Coding.GZIP)
    assert coded is not None
    with coded:
        data = coded.read(0, coded.octets)
    stored = found.stored
    assert stored.mark == (f"of {octets[:9]!r}" if stored.is_vouched else None)
    if name.endswith("package"):
        assert (stored.media_type, stored.is_vouched) == (ZIP.media_type, True)
    assert octets == (gzip.decompress(data) if coded.coding is Coding.GZIP else data)
    return octets


def check(loss: Loss, folder: Path) -> None:
    root = loss.leave(folder) / "state" / "documents"
    acknowledged = len(loss.marks())
    held, next_ = after(STEPS[:acknowledged]), after(STEPS[: acknowledged + 1])
    for name, octets in held.items():
        found = look(root, name)
        assert found in (octets, next_[name]), f"{name}: {loss}"
    store = FolderStore(root, durable=False)
    for name, octets in STEPS[max(acknowledged - 1, 0) :]:  # the next run goes on
        step(store, name, octets)
    assert {name: look(root, name) for name in held} == after(STEPS), loss
    assert set(store.names()) == {name for name, octets in after(STEPS).items() if octets is not None}


def test_a_power_loss_at_any_moment_costs_no_document(
    ground: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = recorded(ground, monkeypatch)
    for number, loss in enumerate(disk.losses(LOSSES, seed=9)):
        check(loss, tmp_path / str(number))


def test_what_a_killed_process_left_unsynced_is_safe_once_it_is_acknowledged(
    ground: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed after the rename and before the sync of the folder: the next one finds the same octets there."""
    disk = Disk(ground)
    with disk.recording(monkeypatch):
        with monkeypatch.context() as killed:
            killed.setattr("headwater.storage.folder_store.sync_folder", lambda _path: None)
            step(FolderStore(ground / "documents"), "set/index.xml", b"octets")
        step(FolderStore(ground / "documents"), "set/index.xml", b"octets")
    for number, loss in enumerate(disk.last_losses(12, seed=10)):
        assert look(loss.leave(tmp_path / str(number)) / "documents", "set/index.xml") == b"octets"


def order(disk: Disk) -> list[str]:
    """Names made, renamed and removed, and syncs, in their order; whatever is random in a name is `#`."""
    names = {op.file: op.name for op in disk.ops if op.file and op.name and op.kind in ("create", "mkdir")}
    said = []
    for op in disk.ops:
        name = "#.gz" if op.name.startswith(TEMPORARY) and op.name.endswith(".gz") else op.name
        name = "#" if name.startswith(TEMPORARY) else name
        if op.kind == "sync":
            synced = names.get(op.place, "root")
            name = "#.gz" if synced.endswith(".gz") else "#" if synced.startswith(TEMPORARY) else synced
        if op.kind not in ("content", "mark"):
            said.append(f"{op.kind} {name}")
    return said


def test_octets_are_synced_before_the_name_and_folders_after_it(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(ground)
    store.put("a.xml", [b"before"])
    disk = Disk(ground)
    with disk.recording(monkeypatch):
        store.put("a.xml", [b"octets"])
    assert order(disk) == [
        "create #", "create #.gz",
        "sync #.gz", "sync #",
        "name a.xml.gz", "unname #.gz", "name a.xml", "unname #",
        "sync root",
    ], "nothing is waited for between the two: a web server of the folder shows both"  # fmt: skip


def test_each_new_folder_is_synced_in_the_one_above(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(ground)
    disk = Disk(ground)
    with disk.recording(monkeypatch):
        store.put("one/two/a.xml", [b"octets"])
    said = order(disk)
    made, first = said.index("mkdir two"), said.index("create #")
    assert said[made + 1 : first] == ["sync two", "sync one", "sync root"]
    assert said[-1] == "sync two"


def test_a_removal_is_synced(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(ground)
    store.put("a.xml", [b"octets"])
    disk = Disk(ground)
    with disk.recording(monkeypatch):
        store.delete("a.xml")
    assert order(disk) == ["unname a.xml", "unname a.xml.gz", "sync root"]


def test_a_store_that_need_not_be_durable_syncs_nothing(ground: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(ground)
    with disk.recording(monkeypatch):
        store = FolderStore(ground / "documents", durable=False)
        store.put("one/a.xml", [b"octets"])
        store.delete("one/a.xml")
    assert not [op for op in disk.ops if op.kind == "sync"]


def test_a_file_that_is_replaced_is_synced_before_it_has_its_name_and_its_folder_after(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ground / "list.xml").write_bytes(b"before")
    disk = Disk(ground)
    with disk.recording(monkeypatch):
        replace_file(ground / "list.xml", [b"after", b"wards"], TEMPORARY)
    assert order(disk) == ["create #", "sync #", "name list.xml", "unname #", "sync root"]


def test_a_sync_goes_through_the_cache_of_the_disk_where_the_system_has_a_call_for_that(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS: fsync alone does not."""
    called: list[int] = []
    monkeypatch.setattr(durable, "_FULL", 51)
    monkeypatch.setattr("headwater.storage.durable.fcntl.fcntl", lambda _descriptor, call: called.append(call))
    sync_folder(ground)
    assert called == [51]
    with Database(ground / "data.db", Schema(1, ("CREATE TABLE t(x);",))) as database:
        assert database._writer.execute("PRAGMA fullfsync").fetchall() == [(1,)]
