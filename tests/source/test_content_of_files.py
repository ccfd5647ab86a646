"""The content of files of a folder as a scan has recorded them, or why there is none."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from headwater.catalog.content import Absence, NoContent, read_and_close
from headwater.catalog.interface import Metadata, Upsert
from headwater.files.patterns import Selection
from headwater.ingest.content import ContentRoot, FileContentReader
from headwater.ingest.folder.comparison import RACY, note
from headwater.ingest.folder.walk import PathFilter

PREFIX = "http://source.example/s/resources/"
FILES = {
    "a/one.txt": b"one",
    "a/two.txt": b"two" * 999,
    "a/empty": b"",
    "a/deep/er/three.txt": b"three",
    "b/four.txt": b"four",
    "top": b"top",
    "with%20blank": b"a name that needs an escape",
}


def reader_of(root: Path, paths: PathFilter | None = None) -> FileContentReader:
    return FileContentReader({"s": ContentRoot(prefix=PREFIX, folder=str(root), paths=paths, is_scanned=True)})


def recorded(root: Path) -> list[Upsert]:
    """All files as a scan records them."""
    found = []
    for uri, octets in FILES.items():
        file = root / uri.replace("%20", " ")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(octets)
        digest = f"sha-256:{hashlib.sha256(octets).hexdigest()}"
        found.append(Upsert(uri, Metadata(length=len(octets), hash=digest), note(7, file.stat())))
    return found


def with_memo(resources: Sequence[Upsert], uri: str, memo: bytes) -> list[Upsert]:
    return [msgspec.structs.replace(one, memo=memo) if one.uri == uri else one for one in resources]


def nothing(_root: Path) -> None: ...


def gone(root: Path) -> None:
    (root / "a/one.txt").unlink()


def gone_with_its_folder(root: Path) -> None:
    shutil.rmtree(root / "a")


def changed(root: Path) -> None:
    (root / "a/one.txt").write_bytes(b"eno")


def longer(root: Path) -> None:
    (root / "a/one.txt").write_bytes(b"one more")


def replaced_by_its_like(root: Path) -> None:
    shutil.copy2(root / "a/one.txt", root / "a/other")
    (root / "a/other").replace(root / "a/one.txt")


def a_link(root: Path) -> None:
    (root / "a/one.txt").rename(root / "a/other")
    (root / "a/one.txt").symlink_to("other")


def a_link_out(root: Path) -> None:
    (root / "a/one.txt").rename(root.parent / "outside")
    (root / "a/one.txt").symlink_to(root.parent / "outside")


def a_folder_that_is_a_link_out(root: Path) -> None:
    (root / "a").rename(root.parent / "elsewhere")
    (root / "a").symlink_to(root.parent / "elsewhere")


def a_folder_now(root: Path) -> None:
    (root / "a/one.txt").unlink()
    (root / "a/one.txt").mkdir()


def a_fifo(root: Path) -> None:
    (root / "a/one.txt").unlink()
    os.mkfifo(root / "a/one.txt")


def read_all(reader: FileContentReader, resources: Sequence[Upsert]) -> list[bytes | NoContent]:
    opened = [(reader.open("s", one), one.metadata) for one in resources]
    return [one if isinstance(one, NoContent) else read_and_close(one, metadata) for one, metadata in opened]


def away(root: Path) -> None:
    root.rename(root.parent / "unmounted")


BELOW_A = [uri for uri in FILES if uri.startswith("a/")]


@pytest.mark.parametrize(
    ("change", "result", "others"),
    [
        (nothing, b"one", []),
        (gone, Absence.GONE, []),
        (gone_with_its_folder, Absence.GONE, BELOW_A),
        (changed, Absence.CHANGED, []),
        (longer, Absence.CHANGED, []),
        (replaced_by_its_like, b"one", []),
        (a_link, b"one", []),
        (a_link_out, Absence.GONE, []),
        (a_folder_that_is_a_link_out, Absence.GONE, BELOW_A),
        (a_folder_now, Absence.GONE, []),
        (a_fifo, Absence.GONE, []),
        (away, Absence.UNREADABLE, list(FILES)),
    ],
)
def test_a_file_that_is_no_longer_as_it_was_recorded_has_no_content(
    tmp_path: Path, change: Callable[[Path], None], result: bytes | Absence, others: list[str]
) -> None:
    resources = recorded(tmp_path / "root")
    change(tmp_path / "root")
    found = read_all(reader_of(tmp_path / "root"), resources)
    first = found[0]
    assert (first.why if isinstance(first, NoContent) else first) == result
    for resource, content in list(zip(resources, found, strict=True))[1:]:
        assert isinstance(content, NoContent) if resource.uri in others else content == FILES[resource.uri]


@pytest.mark.parametrize("memo", [RACY, b"", b"the provider's", b"\2" + note(7, os.stat(__file__))[1:]])
def test_without_a_signature_the_digest_tells(tmp_path: Path, memo: bytes) -> None:
    resources = with_memo(recorded(tmp_path / "root"), "b/four.txt", memo)
    assert read_all(reader_of(tmp_path / "root"), resources) == list(FILES.values())


def test_what_the_set_does_not_take(tmp_path: Path) -> None:
    resources = recorded(root := tmp_path / "root")
    odd = [Upsert(uri, Metadata(length=3), b"") for uri in ("../x", "http://other.example/", ".headwater/x", "a//b")]
    reader = reader_of(root, PathFilter(os.fsencode(root), Selection(exclude=("*.txt",)), ()))
    found = read_all(reader, [*resources, *odd])
    assert [one for one in found if isinstance(one, bytes)] == [FILES[uri] for uri in FILES if "txt" not in uri]


def test_a_root_that_is_reached_by_a_link(tmp_path: Path) -> None:
    resources = recorded(tmp_path / "root")
    (tmp_path / "link").symlink_to("root")
    assert read_all(reader_of(tmp_path / "link"), resources) == list(FILES.values())


def test_what_changes_after_it_was_read_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look at the state comes last: there is no moment in which a change could be missed."""
    resources = recorded(tmp_path / "root")
    pread = os.pread

    def then_write(descriptor: int, octets: int, start: int) -> bytes:
        read = pread(descriptor, octets, start)
        if read == b"four":
            (tmp_path / "root/b/four.txt").write_bytes(b"five")
        return read

    monkeypatch.setattr(os, "pread", then_write)
    found = read_all(reader_of(tmp_path / "root"), resources)
    assert found == [NoContent(Absence.CHANGED) if octets == b"four" else octets for octets in FILES.values()]


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    resources = recorded(tmp_path / "root")
    for change in (nothing, a_fifo, gone_with_its_folder):
        change(tmp_path / "root")
        before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        read_all(reader_of(tmp_path / "root"), resources)
        assert (len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0) == before
