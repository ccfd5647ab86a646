"""The ZIP writer: the same octets from the same input, ZIP64 where it is needed, read by others."""

import hashlib
import io
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.packages.faults import BadMemberName, MemberChanged
from headwater.packages.zip_writer import ZipWriter, pays

TEXT = b"A resource that is text is worth deflating. " * 200
CHECKERS = [["unzip", "-tq"], ["bsdtar", "-tf"], ["7z", "t"]]


def several(writer: ZipWriter) -> bytes:
    """One member of each kind."""
    return b"".join(
        [
            writer.member("resources/stored.jpg", TEXT, deflate=False),
            writer.member("resources/deflated.txt", TEXT, deflate=True),
            writer.member("resources/empty", b"", deflate=True),
            writer.member("resources/Grüße/日本.txt", b"x", deflate=True),
            *writer.stream("resources/streamed.txt", [TEXT, b"", TEXT], deflate=True),
            *writer.stream("resources/known.txt", [TEXT], octets=len(TEXT), deflate=True),
            *writer.stream("resources/known.jpg", [TEXT, TEXT], octets=2 * len(TEXT), deflate=False),
            *writer.stream("resources/unknown.jpg", [TEXT] * 8, deflate=False),
            *writer.stream("resources/nothing", [], deflate=False),
            writer.end(),
        ]
    )


CONTENT = {
    "resources/stored.jpg": TEXT,
    "resources/deflated.txt": TEXT,
    "resources/empty": b"",
    "resources/Grüße/日本.txt": b"x",
    "resources/streamed.txt": TEXT * 2,
    "resources/known.txt": TEXT,
    "resources/known.jpg": TEXT * 2,
    "resources/unknown.jpg": TEXT * 8,
    "resources/nothing": b"",
}


def test_a_package_is_read_by_zipfile() -> None:
    with zipfile.ZipFile(io.BytesIO(several(ZipWriter()))) as package:
        assert package.testzip() is None
        assert {info.filename: package.read(info) for info in package.infolist()} == CONTENT
        infos = {info.filename: info for info in package.infolist()}
        assert {info.date_time for info in infos.values()} == {(1980, 1, 1, 0, 0, 0)}
        assert {info.external_attr >> 16 for info in infos.values()} == {0o100644}
        assert infos["resources/stored.jpg"].compress_type == zipfile.ZIP_STORED
        assert infos["resources/known.jpg"].compress_type == zipfile.ZIP_STORED
        assert infos["resources/deflated.txt"].compress_size < len(TEXT) / 10


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker[0])
def test_a_package_is_read_by_other_programs(checker: list[str], tmp_path: Path) -> None:
    if shutil.which(checker[0]) is None:
        pytest.skip(f"{checker[0]} is not installed: nothing is tried with it")
    path = tmp_path / "package.zip"
    path.write_bytes(several(ZipWriter()))
    done = subprocess.run([*checker, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower()


def test_bsdtar_reads_a_package_while_it_arrives(tmp_path: Path) -> None:
    if shutil.which("bsdtar") is None:
        pytest.skip("bsdtar is not installed: nothing is tried with it")
    done = subprocess.run(["bsdtar", "-xf", "-"], input=several(ZipWriter()), cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert {name: (tmp_path / name).read_bytes() for name in CONTENT} == CONTENT


def test_the_same_input_gives_the_same_octets() -> None:
    """The form on the wire too, so that a change of it is noticed; without deflate, which differs by engine."""
    writer = ZipWriter()
    first = writer.member("manifest.xml", b"<urlset/>", deflate=False) + writer.end()
    assert several(ZipWriter()) == several(ZipWriter())
    assert hashlib.sha256(first).hexdigest() == "fd4b32f43841b2ddfbb6d67436f746ab70cf962212035414b4d12fd7ef4a2d03"


@given(st.lists(st.binary(max_size=2_000), max_size=12), st.booleans())
@settings(max_examples=50, deadline=None)
def test_how_content_is_cut_into_blocks_changes_nothing(blocks: list[bytes], deflate: bool) -> None:
    def written(pieces: list[bytes]) -> bytes:
        writer = ZipWriter()
        return b"".join(writer.stream("name", pieces, deflate=deflate)) + writer.end()

    assert written(blocks) == written([b"".join(blocks)])


def test_the_number_of_octets_is_that_of_what_was_given() -> None:
    writer = ZipWriter()
    assert len(several(writer)) == writer.octets
    assert writer.members == len(CONTENT)


def test_a_manifest_is_put_first_when_all_is_packed() -> None:
    writer = ZipWriter()
    body = writer.member("resources/a", b"a", deflate=False) + writer.member("resources/b", b"b" * 99, deflate=True)
    package = writer.insert_first("manifest.xml", TEXT) + body + writer.end()
    with zipfile.ZipFile(io.BytesIO(package)) as opened:
        assert opened.testzip() is None
        assert opened.namelist() == ["manifest.xml", "resources/a", "resources/b"]
        assert opened.read("manifest.xml") == TEXT
        assert opened.read("resources/b") == b"b" * 99


@pytest.mark.parametrize("blocks", [[b"short"], [b"too", b" long for it"]], ids=["shorter", "longer"])
def test_content_that_changed_leaves_the_writer_as_it_was(blocks: list[bytes]) -> None:
    """The file is cut back to what the writer had given, and goes on."""
    writer = ZipWriter()
    package = io.BytesIO()
    package.write(writer.member("before", b"b", deflate=False))

    def pack() -> None:
        for octets in writer.stream("changing", blocks, octets=8, deflate=False):
            package.write(octets)

    with pytest.raises(MemberChanged):
        pack()
    package.truncate(writer.octets)
    package.seek(writer.octets)
    package.write(writer.member("after", b"a", deflate=False) + writer.end())
    with zipfile.ZipFile(package) as opened:
        assert opened.testzip() is None
        assert opened.namelist() == ["before", "after"]


@pytest.mark.parametrize("name", ["", "x" * 65_536, "\ud800"])
def test_a_name_that_no_package_can_have(name: str) -> None:
    with pytest.raises(BadMemberName):
        ZipWriter().member(name, b"", deflate=False)


def sparse(path: Path, start: int, fill: Callable[[ZipWriter], Iterator[bytes]]) -> Path:
    """A file whose members begin at `start`."""
    writer = ZipWriter(start)
    with path.open("wb") as file:
        file.seek(start)
        file.writelines(fill(writer))
        file.write(writer.end())
    return path


def near_the_limit(writer: ZipWriter) -> Iterator[bytes]:
    """Members on both sides of 4 GiB."""
    for number in range(4):
        yield writer.member(f"resources/{number}", bytes([number]) * 100, deflate=False)


def test_offsets_beyond_4_gib(tmp_path: Path) -> None:
    path = sparse(tmp_path / "package.zip", (1 << 32) - 1 - 200, near_the_limit)
    with zipfile.ZipFile(path) as package:
        assert package.testzip() is None
        assert [package.read(f"resources/{number}") for number in range(4)] == [bytes([n]) * 100 for n in range(4)]
        assert [info.extract_version for info in package.infolist()] == [20, 20, 45, 45]
    if shutil.which("unzip") is not None:
        assert subprocess.run(["unzip", "-tqq", str(path)], check=False).returncode == 0


def test_the_last_offset_that_needs_no_zip64(tmp_path: Path) -> None:
    """0xFFFFFFFF is no offset: it says that there is a ZIP64 field."""
    for start, version in [((1 << 32) - 2, 20), ((1 << 32) - 1, 45)]:
        path = sparse(tmp_path / str(version), start, lambda w: iter([w.member("a", b"a", deflate=False)]))
        with zipfile.ZipFile(path) as package:
            assert [info.extract_version for info in package.infolist()] == [version]
            assert package.read("a") == b"a"


@pytest.mark.parametrize("count", [65_534, 65_535])
def test_many_members(count: int) -> None:
    writer = ZipWriter()
    package = b"".join(writer.member(str(number), b"", deflate=False) for number in range(count)) + writer.end()
    assert (b"PK\x06\x06" in package) == (count >= 65_535)
    with zipfile.ZipFile(io.BytesIO(package)) as opened:
        assert len(opened.infolist()) == count


@pytest.mark.parametrize("known", [True, False], ids=["known length", "unknown length"])
def test_a_member_beyond_4_gib(known: bool, tmp_path: Path) -> None:
    """Zeros, which take no room in a sparse file."""
    octets, block = (1 << 32) + 5, bytes(1 << 18)
    writer = ZipWriter()
    with (tmp_path / "package.zip").open("wb") as file:
        blocks = chain(repeat(block, octets >> 18), [b"12345"])
        for part in writer.stream("large", blocks, octets=octets if known else None, deflate=not known):
            if part is block:
                file.seek(len(part), os.SEEK_CUR)
            else:
                file.write(part)
        file.write(writer.member("after", b"a", deflate=False) + writer.end())
    with zipfile.ZipFile(tmp_path / "package.zip") as package:
        large, after = package.infolist()
        assert large.file_size == octets
        assert large.extract_version == 45
        assert package.read(after) == b"a"
        assert (large.compress_size == octets) is known


@pytest.mark.parametrize(
    ("media_type", "octets", "expected"),
    [
        ("text/html; charset=utf-8", 4_096, True),
        ("application/atom+xml", 4_096, True),
        ("image/svg+xml", 4_096, True),
        ("image/jpeg", 4_096, False),
        ("application/pdf", 4_096, False),
        ("application/zip", None, False),
        ("application/vnd.example+zip", None, False),
        ("application/gzip", None, False),
        ("video/mp4", None, False),
        (None, None, True),
        (None, 4_096, True),
        ("text/plain", 10, False),
        ("TEXT/PLAIN", None, True),
    ],
)
def test_what_pays(media_type: str | None, octets: int | None, expected: bool) -> None:
    assert pays(media_type, octets) is expected
