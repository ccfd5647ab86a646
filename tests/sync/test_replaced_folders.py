"""Folders of a copy that are removed or replaced by others while a run has them open."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.sync.copy.file_tree import FileTree

NAMES = ["d/a", "d/b", "d/c", "d/e", "d/f"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "temp").mkdir()
    (tmp_path / "copy").mkdir()
    return tmp_path / "copy"


@pytest.fixture
def tree(copy: Path) -> Iterator[FileTree]:
    with FileTree(copy, copy.parent / "temp") as tree:
        yield tree
    assert list((copy.parent / "temp").iterdir()) == []


def place(tree: FileTree, *names: str) -> None:
    for name in names:
        tree.write("new", name.encode() * 9, 10**9)
        tree.place("new", name.encode())


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text()[:20] for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_is_removed_or_replaced_is_found_again(tree: FileTree, copy: Path) -> None:
    """The tree has it open; what is renamed into a folder that is gone would be nowhere."""
    place(tree, *NAMES)
    subprocess.run(["rm", "-r", copy / "d"], check=True)
    place(tree, "d/a")
    subprocess.run(["rm", "-r", copy / "d"], check=True)
    with FileTree(copy, copy.parent / "temp") as another:
        place(another, *NAMES)
    place(tree, "d/z")
    assert sorted(content(copy)) == [*NAMES, "d/z"]


def test_a_file_is_removed_from_the_folder_that_is_there_now(tree: FileTree, copy: Path) -> None:
    place(tree, *NAMES)
    tree.remove(b"d/c")
    subprocess.run(["rm", "-r", copy / "d"], check=True)
    with FileTree(copy, copy.parent / "temp") as another:
        place(another, *NAMES)
    for name in ("d/a", "d/never", "d/b"):
        tree.remove(name.encode())
    assert sorted(content(copy)) == ["d/c", "d/e", "d/f"]
