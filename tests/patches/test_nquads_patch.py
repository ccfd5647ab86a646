"""N-Quads Unified Diff as a kind of patch: of resources whose octets follow from their statements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.patches import N_QUADS, PatchRefused

make, apply = N_QUADS.make, N_QUADS.apply

LINES = [b'<http://a.example/%d> <http://a.example/p> "%d" .\n' % (number, number) for number in range(40)]
FILES = st.sets(st.sampled_from(LINES)).map(lambda lines: b"".join(sorted(lines)))


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
    with pytest.raises(PatchRefused):
        apply(old, b"+" + LINES[0])


@pytest.mark.parametrize("patch", [b"+-" + LINES[0], b"+<broken\n", b"-\xff\n", b"\x1f\x8b\x08broken"])
def test_what_is_refused(patch: bytes) -> None:
    """NQUD-A3, NQUD-A14: nothing of it is applied."""
    with pytest.raises(PatchRefused):
        apply(LINES[0], patch)


def test_what_has_no_effect_does_no_harm() -> None:
    """NQUD-02, NQUD-A5."""
    assert (
        apply(LINES[0], b"--- old\n+++ new\n@@ -1 +1 @@\n-" + LINES[1] + b"+" + LINES[0] + b" " + LINES[2]) == LINES[0]
    )
