"""The static tree's places: what their folders' listings say of them."""

import os
from pathlib import Path

import pytest

from headwater.files.patterns import Selection
from headwater.ingest.folder import static_tree as set_tree
from headwater.ingest.folder.static_tree import InodeListing
from headwater.ingest.folder.walk import FileEntry, Walk


def fill(root: Path) -> list[str]:
    for name in ("a", "a.b", "a/b/c", "a/b/d", "a/c", "a-/x", "b/1/2/3", "b/1/2/4", "b/1/5", "b/6", "c d/é", "z"):
        path = root / name.replace("a/", "A/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / "A" / "link").symlink_to("c")
    os.mkfifo(root / "A" / "pipe")
    found = Walk(os.fsencode(root), Selection()).everything()
    return [os.fsdecode(one.path)[len(str(root)) + 1 :] for one in found if isinstance(one, FileEntry)]


def test_a_listing_tells_the_inodes_and_lists_each_folder_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = fill(tmp_path)
    listed: list[bytes] = []
    real = set_tree._inodes

    def counted(folder: bytes) -> dict[bytes, int]:
        listed.append(folder.rstrip(b"/"))
        return real(folder)

    monkeypatch.setattr(set_tree, "_inodes", counted)
    listing = InodeListing(os.fsencode(tmp_path))
    assert [listing.inode(os.fsencode(one)) for one in files] == [(tmp_path / one).stat().st_ino for one in files]
    assert len(files) >= 12
    assert len(listed) == len(set(listed)) == 8


@pytest.mark.parametrize("path", [b"nothing", b"nothing/x", b"z/x", b"A/link", b"A/pipe", b"A/b"])
def test_a_listing_shows_no_regular_file(tmp_path: Path, path: bytes) -> None:
    fill(tmp_path)
    assert InodeListing(os.fsencode(tmp_path)).inode(path) is None
