"""Paths that are told plain without a look at each: they are the natural ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.sync.copy.file_names import are_plain, natural_path
from tests.support.examples import examples

BASE = "http://h.example/set/resources/"
_LETTERS = st.sampled_from([*"aZ0._-/%?# ü~+", "..", "//", "/.", "%2f", "%41", ".headwater", "%uri"])


@settings(max_examples=examples(400))
@given(
    st.lists(st.lists(_LETTERS, max_size=12).map("".join), min_size=1, max_size=4),
    st.sampled_from([BASE, "http://h.example/"]),
)
def test_a_path_that_is_told_plain_is_the_natural_one(ends: list[str], base: str) -> None:
    rests = [(BASE + end)[len(base) :] for end in ends]
    if are_plain("\n".join(f"/{rest}" for rest in rests), len(rests)):
        assert [natural_path(base + rest, base) for rest in rests] == [rest.encode() for rest in rests]


@pytest.mark.parametrize("rest", ["a", "0000/f000001.json", "a-b/_c/d.e.f", "a" * 200])
def test_the_usual_paths_are_plain(rest: str) -> None:
    assert are_plain(f"/{rest}", 1)
    assert are_plain(f"/{rest}\n/b\n/{rest}", 3)


@pytest.mark.parametrize("rest", ["", "a/", ".a", "a/.b", "a//b", "/a", "a b", "a%20b", "a?b", "a\nb", "ü", "a\0"])
def test_what_has_to_be_looked_at_is_not_plain(rest: str) -> None:
    """RS-EXT-07, DST-P3: wherever it stands among usual ones."""
    for lines in ([rest], [rest, "b"], ["b", rest], ["b", rest, "c"]):
        assert not are_plain("\n".join(f"/{line}" for line in lines), len(lines))
