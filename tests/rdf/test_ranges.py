"""Canonical files compared side by side, whatever blocks they are read in (Hypothesis)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.rdf import unified_diff
from headwater.rdf.unified_diff import PatchSummary, write_patch
from tests.rdf.datasets import statement

STATEMENTS = st.sets(st.integers(0, 40)).map(lambda numbers: sorted(map(statement, numbers)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranges")


def in_this_process(
    function: Any, settings: Any, jobs: Iterable[tuple[None, Any]], _few: int
) -> Iterator[tuple[None, Any]]:
    compare = function(settings)
    for item, job in jobs:
        yield item, compare(job)


@given(STATEMENTS, STATEMENTS, st.integers(1, 300))
def test_a_patch_is_the_difference_however_files_are_cut(
    folder: Path, old: list[bytes], new: list[bytes], octets: int
) -> None:
    (folder / "old").write_bytes(b"".join(old))
    (folder / "new").write_bytes(b"".join(new))
    with pytest.MonkeyPatch.context() as patched, (folder / "patch").open("wb") as target:
        patched.setattr(unified_diff, "_RANGE", octets)
        patched.setattr(unified_diff, "in_processes", in_this_process)
        found = write_patch(folder / "old", folder / "new", target)
    less, more = sorted(set(old) - set(new)), sorted(set(new) - set(old))
    assert found == PatchSummary(len(less), len(more))
    expected = b"".join(b"-" + line for line in less) + b"".join(b"+" + line for line in more)
    assert (folder / "patch").read_bytes() == expected


@pytest.mark.parametrize("turned", [False, True])
def test_a_file_may_end_long_before_the_other(turned: bool, tmp_path: Path) -> None:
    """Also where all that is left of it comes before the line at which the other one is cut."""
    few, many = [statement(1)], [statement(number, "x" * 2000) for number in range(10_000, 13_000)]
    old, new = (many, few) if turned else (few, many)
    for name, some in (("old", old), ("new", new)):
        (tmp_path / name).write_bytes(b"".join(some))
    with (tmp_path / "patch").open("wb") as target:
        assert write_patch(tmp_path / "old", tmp_path / "new", target) == PatchSummary(len(old), len(new))


def test_large_files_are_compared(tmp_path: Path) -> None:
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
