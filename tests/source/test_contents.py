"""Content readers open the octets that were recorded, or say why they cannot: of folders, push sets, simulated sets."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.catalog.content import (
    Absence,
    ContentChanged,
    ContentReader,
    NoContent,
    OpenContent,
    RecordedResource,
    recorded_blocks,
)
from headwater.catalog.interface import Metadata, Upsert
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.files.patterns import Selection
from headwater.ingest.content import ContentRoot, FileContentReader
from headwater.ingest.folder.comparison import RACY, note
from headwater.ingest.folder.walk import PathFilter
from headwater.simulate.resources import ChangeSettings, SourceSettings
from headwater.simulate.simulation import Simulation
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.configured_source import utc_now
from headwater.source.source import Source
from tests.support.waiting import until

OCTETS = os.urandom(700_000)
URI = "a%20folder/file.bin"
PREFIX = "http://source.example/s/resources/"


class Ground(NamedTuple):
    """A reader and a resource of one of its sets, which lies in `file` if it does."""

    reader: ContentReader
    resource: RecordedResource
    file: Path


def metadata(octets: bytes = OCTETS) -> Metadata:
    digest = f"md5:{hashlib.md5(octets).hexdigest()} sha-256:{hashlib.sha256(octets).hexdigest()}"
    return Metadata(length=len(octets), hash=digest)


def placed(folder: Path) -> Path:
    file = folder / "root" / "a folder" / "file.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(OCTETS)
    return file


def of_folder(folder: Path) -> Ground:
    file = placed(folder)
    reader = FileContentReader({"s": ContentRoot(prefix=PREFIX, folder=str(folder / "root"), is_scanned=True)})
    return Ground(reader, Upsert(URI, metadata(), note(7, file.stat())), file)


def of_push_set(folder: Path) -> Ground:
    file = placed(folder)
    reader = FileContentReader({"s": ContentRoot(prefix=PREFIX, folder=str(folder / "root"))})
    return Ground(reader, Upsert(URI, metadata(), b"the provider's"), file)


def of_simulated_set(folder: Path) -> Ground:
    catalog = SqliteCatalog(folder / "catalog.sqlite")
    settings = SourceSettings(resources=3, sets=("s",), sizes=(9_000, 9_000))
    simulation = Simulation(catalog, settings, ChangeSettings())
    simulation.prepare()
    return Ground(simulation, catalog.resources("s")[1], folder / "none")


FILES = [of_folder, of_push_set]
ALL = [*FILES, of_simulated_set]
each = pytest.mark.parametrize("made", ALL, ids=lambda made: made.__name__)
each_in_files = pytest.mark.parametrize("made", FILES, ids=lambda made: made.__name__)
Made = Callable[[Path], Ground]


def opened(ground: Ground) -> OpenContent:
    content = ground.reader.open("s", ground.resource)
    assert not isinstance(content, NoContent), content
    return content


def why(ground: Ground) -> Absence:
    content = ground.reader.open("s", ground.resource)
    assert isinstance(content, NoContent)
    return content.why


@each
def test_what_was_recorded_is_opened(tmp_path: Path, made: Made) -> None:
    ground = made(tmp_path)
    content = opened(ground)
    octets = b"".join(recorded_blocks(content, ground.resource.metadata))
    assert len(octets) == content.octets == ground.resource.metadata.length
    assert hashlib.md5(octets).hexdigest() in str(ground.resource.metadata.hash)
    assert content.read(content.octets - 3, 10) == octets[-3:]
    assert content.read(content.octets, 10) == b""
    assert content.is_unchanged()
    content.close()


def test_what_has_another_length_is_not_read() -> None:
    """A package holds small resources in memory: one that is recorded as small may be as large as a disk by now."""

    class Large:
        octets = 1 << 50
        is_vouched = False

        def read(self, _start: int, _octets: int) -> bytes:
            raise AssertionError("it is read")

        def is_unchanged(self) -> bool:
            return False

        def close(self) -> None: ...

    with pytest.raises(ContentChanged):
        next(recorded_blocks(Large(), Metadata(length=10, hash=f"md5:{'0' * 32}")))


@each
def test_two_readers_do_not_disturb_each_other(tmp_path: Path, made: Made) -> None:
    ground = made(tmp_path)
    one, other = opened(ground), opened(ground)
    assert one.read(5, 10) == other.read(5, 10)
    one.close()
    assert len(b"".join(recorded_blocks(other, ground.resource.metadata))) == other.octets
    other.close()


def gone(file: Path) -> None:
    file.unlink()


def gone_with_its_folder(file: Path) -> None:
    shutil.rmtree(file.parent)


def a_folder_now(file: Path) -> None:
    file.unlink()
    file.mkdir()


def a_link_out(file: Path) -> None:
    other = file.parent.parent.parent / "elsewhere"
    file.rename(other)
    file.symlink_to(other)


def a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def longer(file: Path) -> None:
    with file.open("ab") as open_file:
        open_file.write(b"more")


def away(file: Path) -> None:
    file.parent.parent.rename(file.parent.parent.parent / "unmounted")


@pytest.mark.parametrize(
    ("change", "absence"),
    [
        (gone, Absence.GONE),
        (gone_with_its_folder, Absence.GONE),
        (a_folder_now, Absence.GONE),
        (a_link_out, Absence.GONE),
        (a_fifo, Absence.GONE),
        (longer, Absence.CHANGED),
        (away, Absence.UNREADABLE),
    ],
    ids=lambda one: getattr(one, "__name__", one.name if isinstance(one, Absence) else None),
)
@each_in_files
def test_what_is_no_longer_so_is_not_opened(
    tmp_path: Path, made: Made, change: Callable[[Path], None], absence: Absence
) -> None:
    ground = made(tmp_path)
    change(ground.file)
    assert why(ground) is absence


def test_a_file_of_a_folder_is_known_by_its_signature(tmp_path: Path) -> None:
    """One with another signature by its digest, also when size and time are what they were; so is one read too soon."""
    ground = of_folder(tmp_path)
    before = ground.file.stat()
    ground.file.write_bytes(OCTETS[::-1])
    os.utime(ground.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    other = opened(ground)
    assert not other.is_vouched
    with pytest.raises(ContentChanged, match="sha-256"):
        list(recorded_blocks(other, ground.resource.metadata))
    other.close()
    too_soon = ground._replace(resource=Upsert(URI, metadata(OCTETS[::-1]), RACY))
    content = too_soon.reader.open("s", too_soon.resource)
    assert not isinstance(content, NoContent)
    assert not content.is_vouched
    assert b"".join(recorded_blocks(content, too_soon.resource.metadata)) == OCTETS[::-1]
    content.close()
    unstated = Metadata(length=len(OCTETS))
    for memo in (RACY, ground.resource.memo):
        assert why(ground._replace(resource=Upsert(URI, unstated, memo))) is Absence.CHANGED


@pytest.mark.parametrize("touched", [lambda file: os.link(file, f"{file}.2"), lambda file: file.chmod(0o640), os.utime])
def test_a_file_whose_octets_are_as_they_were_is_given(tmp_path: Path, touched: Callable[[Path], None]) -> None:
    """A hard link, another mode or another time is a new signature; the digest tells that the octets are the same."""
    ground = of_folder(tmp_path)
    touched(ground.file)
    content = opened(ground)
    assert b"".join(recorded_blocks(content, ground.resource.metadata)) == OCTETS
    content.close()


def test_a_file_of_a_push_set_is_known_by_its_digest(tmp_path: Path) -> None:
    ground = of_push_set(tmp_path)
    ground.file.write_bytes(OCTETS[::-1])
    content = opened(ground)
    assert not content.is_vouched
    with pytest.raises(ContentChanged, match="sha-256"):
        list(recorded_blocks(content, ground.resource.metadata))
    content.close()
    content = opened(ground._replace(resource=Upsert(URI, Metadata())))
    assert sum(map(len, recorded_blocks(content, Metadata()))) == len(OCTETS), "nothing is stated that could be wrong"
    content.close()


@pytest.mark.parametrize("octets", [b"x" * 10, OCTETS[:-1], OCTETS[::-1]], ids=len)
@each_in_files
def test_a_change_while_it_is_read_is_noticed_at_the_end(tmp_path: Path, made: Made, octets: bytes) -> None:
    ground = made(tmp_path)
    content = opened(ground)
    blocks = recorded_blocks(content, ground.resource.metadata)
    next(blocks)
    with ground.file.open("r+b") as file:
        file.truncate(0)
        file.write(octets)
    with pytest.raises(ContentChanged):
        list(blocks)
    content.close()


@each_in_files
def test_who_has_opened_a_file_reads_on_when_it_is_replaced(tmp_path: Path, made: Made) -> None:
    ground = made(tmp_path)
    content = opened(ground)
    other = ground.file.with_name("other")
    other.write_bytes(b"new")
    other.replace(ground.file)
    octets = bytearray()
    try:
        for block in recorded_blocks(content, ground.resource.metadata):
            octets += block
    except ContentChanged:
        assert made is of_folder, "losing its name changes the time of its inode; a digest is a better witness"
    assert octets == OCTETS
    content.close()


@pytest.mark.parametrize(
    "uri",
    ["../outside", "a%20folder/../../outside", "%2e%2e/outside", "a%2Ffile", "a%00", "", "/etc/passwd", "a//b", "x y"],
)
@each_in_files
def test_no_uri_leads_out_of_the_root(tmp_path: Path, made: Made, uri: str) -> None:
    (tmp_path / "outside").write_bytes(OCTETS)
    ground = made(tmp_path)
    assert why(ground._replace(resource=Upsert(uri, metadata()))) is Absence.GONE


def test_what_the_set_does_not_take_is_not_opened(tmp_path: Path) -> None:
    ground = of_push_set(tmp_path)
    root = tmp_path / "root"
    paths = PathFilter(os.fsencode(root), Selection(exclude=("*.bin",)), ())
    reader = FileContentReader({"s": ContentRoot(prefix=PREFIX, folder=str(root), paths=paths)})
    assert why(ground._replace(reader=reader)) is Absence.GONE


@pytest.mark.parametrize(
    ("root", "uri", "address"),
    [
        (ContentRoot(prefix=PREFIX), "a/b", f"{PREFIX}a/b"),
        (ContentRoot(prefix=PREFIX), "https://other.example/x", "https://other.example/x"),
        (ContentRoot(prefix=PREFIX, folder="/"), "https://other.example/x", "https://other.example/x"),
    ],
)
def test_what_lies_on_another_server_is_told_with_its_address(root: ContentRoot, uri: str, address: str) -> None:
    assert FileContentReader({"s": root}).open("s", Upsert(uri, Metadata())) == NoContent(Absence.ELSEWHERE, address)


def test_a_source_reads_what_its_catalog_holds(tmp_path: Path) -> None:
    """Files that a scan has recorded, and records that a provider has announced."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_bytes(b"scanned")
    (tmp_path / "pushed").mkdir()
    (tmp_path / "pushed" / "b.txt").write_bytes(b"announced")
    sets = (
        SetConfig(name="f", files=str(tmp_path / "files")),
        SetConfig(name="p", feed="events", token="0123456789abcdef", resource_root=str(tmp_path / "pushed")),
    )
    with Source(SourceConfig(state=str(tmp_path / "state"), base_url="http://source.example", sets=sets)) as source:
        source.catalog.create("p")
        source.catalog.load("p", [Upsert("b.txt", metadata(b"announced")), Upsert("c.txt", metadata(b"lost"))])
        source.catalog.open("p", utc_now())

        def told(name: str) -> dict[str, bytes | Absence]:
            found: dict[str, bytes | Absence] = {}
            for row in source.catalog.resources(name):
                content = source.contents.open(name, row)
                if isinstance(content, NoContent):
                    found[row.uri] = content.why
                else:
                    found[row.uri] = b"".join(recorded_blocks(content, row.metadata))
                    content.close()
            return found

        def is_scanned() -> bool:  # a file that was read within a tick of its change is read again
            source.run_once()
            return told("f") == {"a.txt": b"scanned"}

        until(is_scanned)
        assert told("p") == {"b.txt": b"announced", "c.txt": Absence.GONE}
