"""Rows of a list that are staged together: the same as one by one, whatever entries look like (AMB-08, DST-S12)."""

from __future__ import annotations

import datetime as dt

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.spec.records import Entry, Link
from headwater.sync.connection import Scope
from headwater.sync.lists.entries import EntryFilter, scope_origins
from tests.support.examples import examples

_NAMES = st.sampled_from(
    ["a", "a/b", "%41", "a b", "../a", "a/./b", ".a", "a\nhttp://here.example/b", "é", "a?b", "a#b", "", "a\n"]
)
_HOSTS = st.sampled_from(
    ["http://here.example/", "http://HERE.example/", "http://here.example:80/", "http://there.example/", "ftp://a/", ""]
)
_ENTRIES = st.builds(
    lambda host, name, lastmod, linked, extra: Entry(
        loc=host + name,
        lastmod=lastmod,
        length=4,
        hash="sha-256:" + "0" * 64,
        links=(Link(rel="duplicate", href="http://here.example/other"),) if linked else (),
        extra=(("{urn:x}a", "b"),) if extra else (),
    ),
    _HOSTS,
    _NAMES,
    st.sampled_from([None, dt.datetime(2026, 11, 24, tzinfo=dt.UTC)]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([False, False, False, True]),
)
_USUAL = [Entry(loc=f"http://here.example/{name}", length=4) for name in "abc"]


@given(st.lists(st.lists(_ENTRIES, max_size=4) | st.just(_USUAL), max_size=4))
@settings(max_examples=examples(200))
def test_entries_together_give_the_rows_of_each(batches: list[list[Entry]]) -> None:
    scope = Scope(scope_origins("http://here.example/"))
    together, one_by_one = EntryFilter(scope), EntryFilter(scope)
    for entries in batches:
        assert list(map(tuple, together.rows(entries))) == [tuple(one_by_one.row(entry)) for entry in entries]
