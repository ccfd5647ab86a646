"""Files of sorted lines, cut alike: every line is in one range, and equal lines are in the same (Hypothesis)."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.rdf import sorting as ranges
from headwater.rdf.differences import PatchSummary, write_patch
from headwater.rdf.faults import NotCanonical, RdfBounds, RdfTooCostly
from headwater.rdf.sorting import LineFile, common_ranges
from tests.rdf.datasets import statement

LINES = st.sets(st.text("abc", max_size=20).map(lambda text: f"{text}\n".encode()), max_size=40).map(sorted)


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_WINDOW", 20)
    monkeypatch.setattr(ranges, "_PIECE", 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranges")


@given(LINES, LINES, st.integers(1, 100))
def test_all_lines_are_in_common_ranges(folder: Path, old: list[bytes], new: list[bytes], octets: int) -> None:
    (folder / "old").write_bytes(b"".join(old))
    (folder / "new").write_bytes(b"".join(new))
    read: tuple[list[bytes], list[bytes]] = ([], [])
    with closing(LineFile(folder / "old")) as first, closing(LineFile(folder / "new")) as second:
        for a, to_a, b, to_b, low, high in common_ranges(first, second, octets):
            for lines, piece in zip(read, (first.read(a, to_a), second.read(b, to_b)), strict=True):
                lines += piece.splitlines(keepends=True)
                assert all(low <= line and (not high or line < high) for line in piece.splitlines(keepends=True))
    assert read == (old, new)


@given(LINES, st.text("abc", max_size=20), st.data())
def test_the_place_of_a_line_is_found(folder: Path, lines: list[bytes], text: str, data: st.DataObject) -> None:
    (folder / "file").write_bytes(b"".join(lines))
    begins = list(accumulate(map(len, lines), initial=0))
    low = data.draw(st.integers(0, len(lines)))
    high = data.draw(st.integers(low, len(lines)))
    line = f"{text}\n".encode()
    expected = begins[min(max(bisect_left(lines, line), low), high)]
    with closing(LineFile(folder / "file")) as file:
        assert file.position(line, begins[low], begins[high]) == expected


def test_large_files_are_compared_by_processes(tmp_path: Path) -> None:
    """As many octets as make ranges, with differences in each of them, at the ends, and a part that one file lacks."""
    lines = [statement(number, "x" * 2000) for number in range(10_000, 16_000)]
    old = [line for number, line in enumerate(lines) if number % 1000 != 7 and not 100 < number < 300]
    new = [line for number, line in enumerate(lines) if number % 1000 != 11 and number != 5999]
    for name, some in (("old", old), ("new", new)):
        (tmp_path / name).write_bytes(b"".join(some))
    with (tmp_path / "patch").open("wb") as target:
        found = write_patch(tmp_path / "old", tmp_path / "new", target)
    less, more = sorted(set(old) - set(new)), sorted(set(new) - set(old))
    assert found == PatchSummary(len(less), len(more)) == PatchSummary(7, 205)
    expected = b"".join(b"-" + line for line in less) + b"".join(b"+" + line for line in more)
    assert (tmp_path / "patch").read_bytes() == expected


@pytest.mark.parametrize("place", [0, 3000, 5999])
def test_a_fault_in_a_large_file_is_told_with_its_line(place: int, tmp_path: Path) -> None:
    lines = [statement(number, "x" * 2000) for number in range(10_000, 16_000)]
    (tmp_path / "good").write_bytes(b"".join(lines))
    lines[place], lines[place - 1] = lines[place - 1], lines[place]
    (tmp_path / "bad").write_bytes(b"".join(lines))
    for old, new in (("good", "bad"), ("bad", "good")):
        with (tmp_path / "patch").open("wb") as target, pytest.raises(NotCanonical, match="line "):
            write_patch(tmp_path / old, tmp_path / new, target)


def test_a_last_line_without_its_end_is_not_canonical(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(statement(1))
    (tmp_path / "new").write_bytes(statement(1) + statement(2)[:-1])
    with (tmp_path / "patch").open("wb") as target, pytest.raises(NotCanonical, match="does not end"):
        write_patch(tmp_path / "old", tmp_path / "new", target)


def test_a_line_of_any_length_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 3_000_000 + b"\n")
    with closing(LineFile(tmp_path / "file", RdfBounds(line_octets=1_000_000))) as file, pytest.raises(RdfTooCostly):
        file.next_line(0)
