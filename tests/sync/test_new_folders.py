"""A folder that is filled aside and gets its place as a whole, and what lies in its way."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.deflate import crc32
from headwater.sync.copy import file_placer
from headwater.sync.copy.file_placer import NewFile, Placement, place_files
from headwater.sync.copy.file_tree import FileTree, NewFolder

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


def files(*names: str) -> list[NewFile]:
    made: list[NewFile] = []
    for number, name in enumerate(names):
        octets = name.encode() * 9
        digest = hashlib.sha256(octets).hexdigest()
        made.append(
            (f"{number}-member", name.encode(), 10**9, octets, len(octets), crc32(octets), False, "sha-256", digest)
        )
    return made


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text()[:20] for path in folder.rglob("*") if path.is_file()}


def test_nothing_of_it_is_seen_before_all_is(tree: FileTree, copy: Path) -> None:
    seen: list[list[Path]] = []
    place_files(tree, files(*NAMES), lambda: seen.append(list(copy.iterdir())))
    assert seen == [[]] * len(NAMES)
    assert sorted(content(copy)) == NAMES


def _a_folder(at: Path) -> None:
    (at / "d").mkdir()


def _a_file(at: Path) -> None:
    (at / "d").write_text("other")


def _a_link(at: Path) -> None:
    (at / "elsewhere").mkdir()
    (at / "d").symlink_to("elsewhere")


def _a_folder_with_one_of_the_names(at: Path) -> None:
    (at / "d" / "a").mkdir(parents=True)


def _a_folder_that_hands_down_its_group(at: Path) -> None:
    at.chmod(0o2755)


IN_THE_WAY: dict[str, tuple[Callable[[Path], None], list[Placement]]] = {
    "a folder": (_a_folder, [Placement.PLACED] * 5),
    "a file": (_a_file, [Placement.OCCUPIED] * 5),
    "a link": (_a_link, [Placement.OCCUPIED] * 5),
    "one of the names": (_a_folder_with_one_of_the_names, [Placement.OCCUPIED, *[Placement.PLACED] * 4]),
    "a group that is handed down": (_a_folder_that_hands_down_its_group, [Placement.PLACED] * 5),
}


@pytest.mark.parametrize("late", [False, True], ids=["before", "meanwhile"])
@pytest.mark.parametrize(("make", "wanted"), IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_what_is_in_the_way_counts_as_for_one_file(
    tree: FileTree, copy: Path, make: Callable[[Path], None], wanted: list[Placement], late: bool
) -> None:
    """Whether it was there before, or comes while the folder is filled."""
    calls = iter(range(100))

    def meanwhile() -> None:
        if next(calls) == 2:
            make(copy)

    if not late:
        make(copy)
    found = [Placement(outcome[0]) for outcome in place_files(tree, files(*NAMES), meanwhile if late else lambda: None)]
    assert found == wanted
    placed = [name for name, placement in zip(NAMES, found, strict=True) if placement is Placement.PLACED]
    assert sorted(set(content(copy)) - {"d"}) == placed
    assert not (copy / "elsewhere").exists() or not any((copy / "elsewhere").iterdir())


def test_a_folder_takes_its_group_bit_from_the_one_above(tree: FileTree, copy: Path) -> None:
    """What a folder hands down is handed down to new ones, also several levels below."""
    copy.chmod(0o2755)
    place_files(tree, files(*(f"x/y/{name}" for name in NAMES)))
    assert (copy / "x" / "y" / "d").stat().st_mode & 0o2000


def test_a_folder_takes_its_access_list_from_the_one_above(tree: FileTree, copy: Path) -> None:
    listed = b"\x02\x00\x00\x00" + b"".join(
        entry.to_bytes(2, "little") + mode.to_bytes(2, "little") + b"\xff\xff\xff\xff"
        for entry, mode in ((1, 7), (4, 0), (32, 0))
    )
    try:
        os.setxattr(copy, "system.posix_acl_default", listed)
    except OSError as cause:
        pytest.skip(f"this file system keeps no access lists: {cause}")
    place_files(tree, files(*NAMES))
    assert os.getxattr(copy / "d", "system.posix_acl_default") == listed


@pytest.mark.parametrize(
    "names",
    [[*NAMES, "d/a"], [*NAMES, "d/" + "n" * 256], [*NAMES, "d/b/deeper", *(f"d/c/{n}" for n in range(9))]],
    ids=["a name twice", "a name that is too long", "folders with names of files"],
)
def test_names_that_cannot_be_are_found_one_by_one(
    tree: FileTree, copy: Path, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = place_files(tree, files(*names))
    (copy.parent / "other").mkdir()
    with monkeypatch.context() as patched, FileTree(copy.parent / "other", copy.parent / "temp") as other:
        patched.setattr(file_placer, "_TOGETHER", 10**9)
        assert [outcome[0] for outcome in place_files(other, files(*names))] == [outcome[0] for outcome in found]
    assert content(copy) == content(copy.parent / "other")


def test_what_is_left_of_another_time_is_no_hindrance(tree: FileTree, copy: Path) -> None:
    left = copy.parent / "temp" / "0-member-folder"
    left.mkdir()
    (left / "a").write_text("half")
    assert [outcome[0] for outcome in place_files(tree, files(*NAMES))] == [Placement.PLACED] * 5
    assert content(copy)["d/a"].startswith("d/a")
    (left / "a").unlink()
    left.rmdir()


def test_a_folder_that_is_removed_or_replaced_is_found_again(tree: FileTree, copy: Path) -> None:
    """The tree has it open; what is renamed into a folder that is gone would be nowhere."""
    place_files(tree, files(*NAMES))
    subprocess.run(["rm", "-r", copy / "d"], check=True)
    assert [outcome[0] for outcome in place_files(tree, files("d/a"))] == [Placement.PLACED]
    subprocess.run(["rm", "-r", copy / "d"], check=True)
    with FileTree(copy, copy.parent / "temp") as another:
        place_files(another, files(*NAMES))
    assert [outcome[0] for outcome in place_files(tree, files("d/z"))] == [Placement.PLACED]
    assert sorted(content(copy)) == [*NAMES, "d/z"]


def test_a_file_is_removed_from_the_folder_that_is_there_now(tree: FileTree, copy: Path) -> None:
    place_files(tree, files(*NAMES))
    tree.remove(b"d/c")
    subprocess.run(["rm", "-r", copy / "d"], check=True)
    with FileTree(copy, copy.parent / "temp") as another:
        place_files(another, files(*NAMES))
    for name in ("d/a", "d/never", "d/b"):
        tree.remove(name.encode())
    assert sorted(content(copy)) == ["d/c", "d/e", "d/f"]


def test_two_that_place_into_the_same_new_folders_lose_nothing(
    tree: FileTree, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has made the folder and placed nothing yet, when the other gives it its place."""
    with FileTree(copy, copy.parent / "temp") as another:
        another._folder(b"d/e")
        (copy / "d" / "e").rmdir()
        monkeypatch.setattr(FileTree, "_has", lambda *_: False)  # as it was asked a moment before
        assert [outcome[0] for outcome in place_files(tree, files(*(f"d/e/{n}" for n in range(9))))] == [
            Placement.PLACED
        ] * 9
        assert [outcome[0] for outcome in place_files(another, files("d/e/z"))] == [Placement.PLACED]
    assert len(content(copy)) == 10


def test_one_that_is_not_placed_is_not_left_either(tree: FileTree, copy: Path) -> None:
    new = tree.new_folder("1-folder", b"d")
    assert isinstance(new, NewFolder)
    new.write(b"a", b"octets", None)
    (copy / "d").mkdir()
    (copy / "d" / "a").write_text("other")
    assert not tree.place_folder(new)
    tree.discard_folder(new)
    assert content(copy) == {"d/a": "other"}


def test_an_interruption_as_it_gets_its_place_takes_nothing_away(
    tree: FileTree, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may have its place already, and files of another process."""
    rename = os.rename

    def interrupted(*names: Any, **folders: Any) -> None:
        rename(*names, **folders)
        (copy / "d" / "other").write_text("placed by another process")
        raise KeyboardInterrupt

    monkeypatch.setattr("headwater.sync.copy.file_tree.os.rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        place_files(tree, files(*NAMES))
    assert sorted(content(copy)) == [*NAMES, "d/other"]
