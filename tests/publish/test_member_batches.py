"""Members of Resource Dumps that are made of files by processes: the same packages, whoever has made them."""

from __future__ import annotations

import errno
import hashlib
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headwater.catalog.content import ContentReader, NoContent, OpenContent, RecordedResource, read_whole
from headwater.catalog.interface import Metadata, Resource, Upsert
from headwater.ingest.content import ContentRoot, FileContentReader
from headwater.ingest.folder.comparison import RACY, note
from headwater.publish.resource_dumps import file_members, member_batches
from headwater.publish.resource_dumps.file_members import make_members
from headwater.publish.resource_dumps.member_batches import PageCutter
from headwater.publish.site import SetSettings
from tests.publish.packed_catalog import PackedCatalog, read_resource_dump

FILES = 60


class FolderWorld(PackedCatalog):
    """A set whose resources lie in files."""

    def __init__(self, folder: Path, root: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.root = root
        super().__init__(folder, page_entries=FILES)

    def read_by(self, contents: ContentReader, **settings: object) -> None:
        """Have the resources read so from now on."""
        self.contents = contents  # type: ignore[assignment]
        self.configure(**settings)

    def file_reader(self) -> FileContentReader:
        prefix = self.site.resource_prefix("files")
        return FileContentReader({"files": ContentRoot(prefix=prefix, folder=str(self.root), is_scanned=True)})

    def record_files(self) -> None:
        """Load all files as a scan finds them."""
        self.catalog.create("files")
        found = sorted(path for path in self.root.rglob("*") if path.is_file())
        self.catalog.load("files", [recorded(self.root, path) for path in found])
        self.catalog.open("files", self.now())

    def packages(self) -> dict[str, bytes]:
        """The packages of the Resource Dump, when all that can be packed is."""
        self.publish()
        while read_resource_dump(self.fetch) is None:
            self.pack(at_once=True)
        found = read_resource_dump(self.fetch)
        assert found is not None
        return found.packages


class OpenedOnly:
    """A content reader that does not say where the files are."""

    def __init__(self, reader: FileContentReader) -> None:
        self._reader = reader

    def open(self, set_name: str, resource: RecordedResource) -> OpenContent | NoContent:
        return self._reader.open(set_name, resource)

    def read_each(self, set_name: str, resources: Sequence[RecordedResource]) -> list[bytes | NoContent]:
        return [read_whole(self, set_name, one) for one in resources]


def recorded(root: Path, path: Path) -> Upsert:
    octets = path.read_bytes()
    kind = "text/plain" if path.suffix == ".txt" else "image/jpeg"
    stated = Metadata(hash=f"sha-256:{hashlib.sha256(octets).hexdigest()}", length=len(octets), type=kind)
    memo = RACY if path.stem.startswith("racy") else note(7, path.stat())
    return Upsert(path.relative_to(root).as_posix().replace(" ", "%20"), stated, memo)


def write_files(root: Path) -> None:
    chance = random.Random(5)
    for number in range(FILES - 8):
        path = root / f"{number % 3}" / f"f{number:03d}.{'txt' if number % 2 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            b"some text " * chance.randrange(200) if number % 2 else chance.randbytes(chance.randrange(9000))
        )
    (root / "0" / "empty.txt").touch()
    (root / "1" / "large.txt").write_bytes(b"large " * 400_000)
    (root / "1" / "large.jpg").write_bytes(chance.randbytes(1_500_000))
    (root / "2" / "a name.txt").write_bytes(b"a name " * 50)
    (root / "2" / "racy.txt").write_bytes(b"read too soon " * 50)


def changed(root: Path) -> None:
    """What comes between the scan and the packing."""
    (root / "0" / "f003.txt").write_bytes(b"other")
    (root / "1" / "f007.txt").unlink()
    octets = (root / "2" / "f008.jpg").read_bytes()
    (root / "2" / "f008.jpg").unlink()
    (root / "2" / "f008.jpg").write_bytes(octets)  # the same octets in another file: the digest tells
    os.mkfifo(root / "1" / "f007.txt")


def unchanged(_root: Path) -> None:
    """Nothing."""


@pytest.mark.parametrize("change", [unchanged, changed])
@pytest.mark.parametrize("package_entries", [1, 7, 1_000])
def test_packages_are_the_same_whoever_makes_the_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], package_entries: int
) -> None:
    """By processes, in this one, and by opening each resource; what is not as it was recorded is in none of them."""
    monkeypatch.setattr(member_batches, "BATCH_MEMBERS", 5)
    monkeypatch.setattr(member_batches, "processors", lambda: 3)
    root = tmp_path / "files"
    write_files(root)
    worlds = [FolderWorld(tmp_path / str(number), root) for number in range(3)]
    for world in worlds:
        world.record_files()
    change(root)
    by_processes, by_this_one, by_opening = worlds
    monkeypatch.setattr(member_batches, "POOL_MEMBERS", 0)
    by_processes.read_by(by_processes.file_reader(), package_entries=package_entries)
    packages = by_processes.packages()
    monkeypatch.setattr(member_batches, "POOL_MEMBERS", 1_000)
    by_this_one.read_by(by_this_one.file_reader(), package_entries=package_entries)
    assert by_this_one.packages() == packages
    by_opening.read_by(OpenedOnly(by_opening.file_reader()), package_entries=package_entries)
    assert by_opening.packages() == packages
    dump = read_resource_dump(by_processes.fetch)
    assert dump is not None
    gone = {"0/f003.txt", "1/f007.txt"} if change is changed else set()
    prefix = by_opening.site.resource_prefix("files")
    names = {str(path.relative_to(root)).replace(" ", "%20") for path in root.rglob("*.*")}
    assert set(dump.resources) == {prefix + name for name in names - gone}


def test_processes_make_the_members_of_plain_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would compare one way with itself."""
    world = FolderWorld(tmp_path, tmp_path / "files")
    write_files(world.root)
    world.record_files()
    world.read_by(world.file_reader())
    made: list[str] = []

    def noted(job: file_members.MemberJob) -> file_members.MadeMembers:
        error, members = make_members(job)
        made.extend(one[2] for one, member in zip(job[2], members, strict=True) if one is not None and member)
        return error, members

    monkeypatch.setattr(member_batches, "make_members", noted)
    world.packages()
    assert len(made) == FILES - 8 + 2  # and one that is empty, and one with a blank; neither large, nor read too soon
    assert all(name.startswith("resources/") for name in made)


@pytest.mark.parametrize(
    ("page", "processors", "expected"),
    [
        (("image/jpeg", True, 60), 2, 1),
        (("text/plain", True, 60), 2, 2),
        (("text/plain", True, 59), 2, 0),
        (("text/plain", True, 60), 1, 0),
        (("text/plain", False, 60), 2, 0),
    ],
    ids=["stored", "deflated", "few", "one processor", "no files"],
)
def test_processes_are_started_where_they_save_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: tuple[str, bool, int], processors: int, expected: int
) -> None:
    kind, of_files, count = page
    monkeypatch.setattr(member_batches, "processors", lambda: processors)
    monkeypatch.setattr(member_batches, "POOL_MEMBERS", 60)
    path = tmp_path / "f"
    path.write_bytes(b"f" * 100)
    memo = note(7, path.stat()) if of_files else b"of a provider"
    row = Resource(uri="f", metadata=Metadata(length=100, type=kind), memo=memo, page=0, seq=0)
    prefix = "http://source.example/"
    reader = FileContentReader({"s": ContentRoot(prefix=prefix, folder=str(tmp_path), is_scanned=of_files)})
    cutter = PageCutter("s", SetSettings(name="s"), prefix, reader)
    assert cutter.processes_for([row] * count) == expected


def test_a_file_that_changes_while_it_is_read_is_left_to_the_publisher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f.txt"
    path.write_bytes(b"as it was recorded")
    state = path.stat()
    file = (os.fsencode(path), (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino), "f.txt", False)
    read = os.pread

    def overtaken(descriptor: int, octets: int, place: int) -> bytes:
        found = read(descriptor, octets, place)
        path.write_bytes(b"as it is meanwhile")
        return found

    with (tmp_path / "spool").open("w+b") as spool:
        assert make_members((spool.fileno(), 0, [file]))[1][0] is not None
        monkeypatch.setattr(os, "pread", overtaken)
        assert make_members((spool.fileno(), 0, [file])) == (0, [None])


def test_a_full_disk_takes_nothing_out_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = FolderWorld(tmp_path, tmp_path / "files")
    write_files(world.root)
    world.record_files()
    world.read_by(world.file_reader())
    world.publish()

    def full(*_more: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as context:
        context.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            world.publisher.pack_resources("files")
    assert len(world.packages()) == 1
