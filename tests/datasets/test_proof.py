"""The proof of a patch: the digest of what it makes is that of the patched dataset; nothing else passes (TIM-08)."""

from __future__ import annotations

import hashlib
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.datasets.dataset_folder import BrokenSeries, patched_digest
from tests.support.examples import examples

LINES = st.sets(st.integers(0, 60), max_size=60)


def line(number: int) -> bytes:
    """Lines of different lengths, some of which begin as others do."""
    return b'<http://d.example/%d> <http://d.example/p> "%s" .\n' % (number % 20, b"x" * number)


def dataset(numbers: set[int]) -> bytes:
    return b"".join(sorted(map(line, numbers)))


def patch_between(old: set[int], new: set[int]) -> bytes:
    removed, added = sorted(map(line, old - new)), sorted(map(line, new - old))
    return b"".join([*(b"-" + one for one in removed), *(b"+" + one for one in added)])


@settings(max_examples=examples(500), deadline=None)
@given(LINES, LINES, st.booleans())
def test_the_digest_is_that_of_the_patched_dataset(old: set[int], new: set[int], is_from_nothing: bool) -> None:
    old = set() if is_from_nothing else old
    with tempfile.TemporaryDirectory() as folder:
        held, patch = Path(folder, "old"), Path(folder, "patch")
        held.write_bytes(dataset(old))
        patch.write_bytes(patch_between(old, new))
        for base in (held, None) if not old else (held,):
            assert patched_digest(base, patch) == hashlib.sha256(dataset(new)).hexdigest()


def test_a_large_dataset_and_lines_far_from_each_other(tmp_path: Path) -> None:
    chance = random.Random(1)
    old = set(range(3000))
    new = old - set(chance.sample(range(3000), 20)) | {3000 + n for n in range(20)}
    (tmp_path / "old").write_bytes(dataset(old))
    (tmp_path / "patch").write_bytes(patch_between(old, new))
    assert patched_digest(tmp_path / "old", tmp_path / "patch") == hashlib.sha256(dataset(new)).hexdigest()


@pytest.mark.parametrize(
    ("old", "patch", "words"),
    [
        ({1, 2}, b"+" + line(1), "no effect"),
        ({1, 2}, b"-" + line(3), "no effect"),
        (set(), b"-" + line(3), "no effect"),
        (set(), b"+" + line(3) + b"-" + line(3), "neither a removal nor an addition"),
        ({1}, b" " + line(3), "neither a removal nor an addition"),
        ({1}, b"+" + line(3) + b"-" + line(1), "neither a removal nor an addition"),
        ({1}, b"+" + line(3)[:-1], "neither a removal nor an addition"),
    ],
)
def test_what_is_no_patch_of_the_dataset_is_refused(tmp_path: Path, old: set[int], patch: bytes, words: str) -> None:
    (tmp_path / "old").write_bytes(dataset(old))
    (tmp_path / "patch").write_bytes(patch)
    with pytest.raises(BrokenSeries, match=words):
        patched_digest(tmp_path / "old", tmp_path / "patch")


def test_a_patch_in_another_order_is_refused(tmp_path: Path) -> None:
    (tmp_path / "patch").write_bytes(b"+" + line(3) + b"+" + line(1) + b"+" + line(2))
    with pytest.raises(BrokenSeries, match="not in order"):
        patched_digest(None, tmp_path / "patch")
