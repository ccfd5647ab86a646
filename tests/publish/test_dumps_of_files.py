"""Resource Dumps of files: the same packages, however the files are read, and nothing that is not as recorded."""

from __future__ import annotations

import errno
import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.catalog.content import ContentReader, NoContent, OpenContent, RecordedResource
from headwater.catalog.interface import Metadata, Upsert
from headwater.ingest.content import ContentRoot, FileContentReader
from headwater.ingest.folder.comparison import RACY, note
from headwater.publish.package_builder import SpooledPackage
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
            self.pack()
        found = read_resource_dump(self.fetch)
        assert found is not None
        return found.packages


class OpenedOnly:
    """A content reader that does not say where the files are."""

    def __init__(self, reader: FileContentReader) -> None:
        self._reader = reader

    def open(self, set_name: str, resource: RecordedResource) -> OpenContent | NoContent:
        return self._reader.open(set_name, resource)


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
def test_packages_are_the_same_however_files_are_read(
    tmp_path: Path, change: Callable[[Path], None], package_entries: int
) -> None:
    """Many at a time, or by opening each; what is not as it was recorded is in none of them."""
    root = tmp_path / "files"
    write_files(root)
    worlds = [FolderWorld(tmp_path / str(number), root) for number in range(2)]
    for world in worlds:
        world.record_files()
    change(root)
    together, by_opening = worlds
    together.read_by(together.file_reader(), package_entries=package_entries)
    packages = together.packages()
    by_opening.read_by(OpenedOnly(by_opening.file_reader()), package_entries=package_entries)
    assert by_opening.packages() == packages
    dump = read_resource_dump(together.fetch)
    assert dump is not None
    gone = {"0/f003.txt", "1/f007.txt"} if change is changed else set()
    prefix = by_opening.site.resource_prefix("files")
    names = {str(path.relative_to(root)).replace(" ", "%20") for path in root.rglob("*.*")}
    assert set(dump.resources) == {prefix + name for name in names - gone}


def test_a_full_disk_takes_nothing_out_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = FolderWorld(tmp_path, tmp_path / "files")
    write_files(world.root)
    world.record_files()
    world.read_by(world.file_reader())
    world.publish()

    def full(*_more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as context:
        context.setattr(SpooledPackage, "_write", full)
        with pytest.raises(OSError, match="No space"):
            world.publisher.pack_resources("files")
    assert len(world.packages()) == 1
