"""N-Quads Unified Diff as a kind of patch: of resources whose octets follow from their statements."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.patches import N_QUADS
from headwater.rdf.unified_diff import merge_patches

make = N_QUADS.make

LINES = [b'<http://a.example/%d> <http://a.example/p> "%d" .\n' % (number, number) for number in range(40)]
FILES = st.sets(st.sampled_from(LINES)).map(lambda lines: b"".join(sorted(lines)))


def apply(old: bytes, patch: bytes) -> bytes:
    """What a destination makes of the octets."""
    with tempfile.TemporaryDirectory() as name:
        base, diff, target = (Path(name, one) for one in ("base", "diff", "target"))
        base.write_bytes(old)
        diff.write_bytes(patch)
        merge_patches(base, [diff], target, scratch=target.parent)
        return target.read_bytes()


@given(FILES, FILES)
def test_what_is_made_gives_the_new_octets(old: bytes, new: bytes) -> None:
    """NQUD-A4: removals first, each part in order."""
    patch = make(old, new)
    if patch is not None:
        lines = patch.splitlines(keepends=True)
        assert apply(old, patch) == new
        assert lines == sorted(lines, key=lambda line: (line[:1] == b"+", line))
        assert len(patch) < len(new)
    elif len(new) > len(old) * 2 and set(old.splitlines()) <= set(new.splitlines()):
        assert len(new) - len(old) + new.count(b"\n") - old.count(b"\n") >= len(new)


@pytest.mark.parametrize(
    "old",
    [
        LINES[1] + LINES[0],
        LINES[0] * 2,
        LINES[0].rstrip(b"\n"),
        LINES[0].replace(b" .", b"  ."),
        b"_:b " + LINES[0].partition(b" ")[2],
        b"\xff",
        b"no statement\n",
    ],
    ids=["not in order", "twice", "no end", "two spaces", "a blank node", "not UTF-8", "not N-Quads"],
)
def test_what_no_patch_is_made_of(old: bytes) -> None:
    assert make(old, b"".join(LINES[:9])) is None
    assert make(b"".join(sorted(LINES[:9])), old) is None
