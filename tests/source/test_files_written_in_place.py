"""A static tree of hard links: a file that is written in place is public before its list only the first time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.files.file_copies import COPY, LINK
from tests.cli.test_publish import Bench
from tests.support.waiting import settle


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def write_over(path: Path, data: bytes) -> None:
    """As `rsync --inplace -t` does: the time is that of another file."""
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(1, 1_700_000_000_000_000_000 + len(path.read_bytes())))


def replace(path: Path, data: bytes) -> None:
    path.with_name("aside").write_bytes(data)
    path.with_name("aside").replace(path)


class Linked(Bench):
    def placed(self, name: str) -> tuple[str, bytes]:
        """How a file has its place in the tree, and what is read there."""
        place = self.out / "files" / "resources" / name
        is_link = os.path.samefile(self.folder / name, place)
        return LINK if is_link else COPY, place.read_bytes()


@pytest.mark.parametrize("write", [append, write_over])
@pytest.mark.parametrize("pause", [settle, lambda: None], ids=["at rest", "at once"])
def test_what_is_written_in_place_has_a_copy_from_then_on(
    tmp_path: Path, write: Callable[[Path, bytes], None], pause: Callable[[], None]
) -> None:
    bench = Linked(tmp_path)
    for name in ("a", "b"):
        bench.put(name, b"one of " + name.encode())
    settle()
    bench.run()
    assert (bench.placed("a")[0], bench.placed("b")[0]) == (LINK, LINK)
    path = bench.folder / "a"
    for data in (b"two", b"three", b"four"):
        before = bench.placed("a")
        write(path, data)
        if data != b"two":
            assert bench.placed("a") == before, "what is written is not public before its list"
        bench.run("--settle", "0")
        bench.check()
        assert bench.placed("a") == (COPY, path.read_bytes())
        pause()
        bench.run("--settle", "0")  # what was read too soon is read again
        assert bench.placed("a") == (COPY, path.read_bytes())
    bench.check()
    assert bench.placed("b")[0] == LINK


def test_what_is_renamed_into_its_place_is_linked_again(tmp_path: Path) -> None:
    bench = Linked(tmp_path)
    bench.put("a", b"one")
    settle()
    bench.run()
    append(bench.folder / "a", b"two")
    settle()
    bench.run()
    assert bench.placed("a") == (COPY, b"onetwo")
    replace(bench.folder / "a", b"another")
    settle()
    bench.run()
    assert bench.placed("a") == (LINK, b"another")
    bench.check()
