"""Sparse files stay sparse: in a copy, its backup, what is published of it, and among versions."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headwater.files.file_copies import VersionCopy, VersionWriter, write_sparse
from headwater.files.hashing import ReadOptions, read_file
from tests.support.copying import DONE, check, go
from tests.support.fake_source import Site, Source

HOLE = bytes(8 << 20)
THIN = b"begin" + HOLE + b"middle" + HOLE
"""It ends with a hole."""


def room(path: Path) -> int:
    return os.stat(path).st_blocks * 512


@pytest.fixture(scope="module", autouse=True)
def _has_holes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Wherever the tests run: without it they could not fail."""
    probe = tmp_path_factory.mktemp("holes") / "file"
    with probe.open("wb") as file:
        file.truncate(1 << 20)
    assert room(probe) < 1 << 16, "the file system of the tests has no sparse files"


def test_a_copy_of_a_sparse_file_is_sparse(tmp_path: Path) -> None:
    with Source() as source:
        site = Site(source)
        site.put("image", THIN)
        site.put("full", b"x" * (1 << 20))
        site.publish()
        assert go(source.base, tmp_path / "copy").status == DONE
        assert (tmp_path / "copy" / "image").read_bytes() == THIN
        assert check(source.base, tmp_path / "copy").verdict == "in sync"
    assert room(tmp_path / "copy" / "image") < len(THIN) // 8
    assert room(tmp_path / "copy" / "full") >= 1 << 20


def test_its_backup_is_sparse_across_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refused)
    with Source() as source:
        site = Site(source)
        site.put("image", THIN)
        site.publish()
        go(source.base, tmp_path / "copy")
        site.put("image", b"another")
        site.publish()
        assert go(source.base, tmp_path / "copy", backup_dir=str(tmp_path / "kept")).status == DONE
    (kept,) = (tmp_path / "kept").glob("*/image")
    assert (kept.read_bytes() == THIN, room(kept) < len(THIN) // 8) == (True, True)


def test_what_is_placed_in_a_tree_or_set_aside_is_sparse(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(THIN)
    (tmp_path / "aside").mkdir()
    options = ReadOptions("copy", VersionWriter(bytes(tmp_path / "aside")))
    read_file((bytes(tmp_path / "source"), ("sha-256",), bytes(tmp_path / "place")), options)
    (version,) = (tmp_path / "aside").iterdir()
    for copied in (tmp_path / "place", version):
        assert (copied.read_bytes() == THIN, room(copied) < len(THIN) // 8) == (True, True)


@pytest.mark.parametrize(
    "blocks",
    [
        [b""],
        [b"\0"],
        [bytes(4095)],
        [bytes(4096)],
        [b"a", bytes(5000), b"b"],
        [bytes(5000), bytes(5000)],
        [bytes(5000) + b"z"],
    ],
    ids=lambda blocks: "+".join(str(len(one)) for one in blocks),
)
def test_octets_are_what_was_written(tmp_path: Path, blocks: list[bytes]) -> None:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        for one in blocks:
            write_sparse(descriptor, one)
    finally:
        os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"".join(blocks)


def test_a_small_version_is_as_it_was(tmp_path: Path) -> None:
    writer = VersionWriter(bytes(tmp_path))
    copy = VersionCopy(writer, 6000)
    copy.write(bytes(6000))
    copy.finish()
    assert writer.settle() == 0
    (file,) = tmp_path.iterdir()
    assert file.read_bytes() == bytes(6000)
