"""The history of states: for every moment the state that was current then, whatever was recorded in which batches."""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.catalog.interface import Delete, Event, Limits, Metadata, Upsert
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.quantities import octets_from, seconds_from
from headwater.spec.times import to_microseconds
from headwater.versions.history import History, Keeping, kept_after, kept_until
from headwater.versions.retention import VersionRetention, prune

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_URIS = ("a", "b/c", "é")
_EVENTS = st.lists(
    st.tuples(st.sampled_from(_URIS), st.none() | st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=6
)


def put(uri: str, number: int) -> Upsert:
    """A resource with octets of its own."""
    digest = hashlib.sha256(b"%d" % number).hexdigest()
    return Upsert(uri, Metadata(hash=f"sha-256:{digest}", length=1, type="text/plain"))


def digest_of(number: int) -> str:
    """The digest that `put` states."""
    return hashlib.sha256(b"%d" % number).hexdigest()


@settings(max_examples=40, deadline=None)
@given(st.sets(st.sampled_from(_URIS)), st.lists(_EVENTS, max_size=6), st.integers(0, 20))
def test_at_every_moment_the_state_is_the_one_that_was_current(
    loaded: set[str], batches: list[list[tuple[str, int | None, int]]], kept_seconds: int
) -> None:
    """The law, before retention; after it, for every moment that retention keeps."""
    with TemporaryDirectory() as folder:
        catalog = SqliteCatalog(Path(folder) / "c.sqlite", limits=Limits(segment_entries=3))
        catalog.create("s")
        catalog.load("s", [put(uri, 9) for uri in sorted(loaded)])
        catalog.open("s", START)
        history = History(catalog, "s")
        history.begin()
        now = START
        for batch in batches:
            now += dt.timedelta(seconds=1 + batch[0][2])
            events: list[Event] = [Delete(uri) if number is None else put(uri, number) for uri, number, _ in batch]
            catalog.record("s", events, now, state=history.update(events))
        truth: list[tuple[int, dict[str, int]]] = [(to_microseconds(START), dict.fromkeys(loaded, 9))]
        for one in catalog.changes("s"):
            state = dict(truth[-1][1])
            state.pop(one.uri, None)
            if one.metadata.hash:
                state[one.uri] = next(n for n in range(4) if digest_of(n) in str(one.metadata.hash))
            truth.append((to_microseconds(one.at), state))
        check(history, truth)
        assert verify(catalog, "s") == []
        prune(history, VersionRetention(seconds=kept_seconds), now)
        line = to_microseconds(now - dt.timedelta(seconds=kept_seconds))
        first = max((number for number, (at_us, _state) in enumerate(truth) if at_us <= line), default=0)
        check(history, truth[first:])
        prune(history, VersionRetention(octets=0), now)
        check(history, truth[-1:])
        catalog.close()


def check(history: History, truth: list[tuple[int, dict[str, int]]]) -> None:
    """Each state, at the moment of its beginning."""
    for at_us, state in truth:
        together = history.each_until(_URIS, at_us)
        for uri in _URIS:
            found = history.until(uri, at_us)
            assert together.get(uri) == (found[0] if found else None), (uri, at_us)
            is_there = bool(found) and found[0].keeping is Keeping.KEPT
            assert is_there == (uri in state), (uri, at_us)
            if is_there:
                assert found[0].digest == digest_of(state[uri])


def test_any_number_of_states_that_were_not_kept_hides_none_that_was(tmp_path: Path) -> None:
    catalog = SqliteCatalog(tmp_path / "c.sqlite")
    catalog.create("s")
    catalog.load("s", [put("a", 0)])
    catalog.open("s", START)
    history = History(catalog, "s")
    history.begin()
    lost = [Upsert("a", Metadata(hash=f"md5:{number:032x}")) for number in range(1_100)]
    for number, events in enumerate(([put("a", 1)], lost, [put("a", 2)], lost), 1):
        catalog.record("s", events, START + dt.timedelta(seconds=number), state=history.update(events))
    kept = [one.at_us for one in history.after("a", -(1 << 62), 5_000) if one.is_kept]
    assert len(kept) == 3
    found = [kept_after(history, "a", at) for at in (-(1 << 62), *kept)]
    assert [one and one.at_us for one in found] == [*kept, None]
    found = [kept_until(history, "a", at) for at in (1 << 62, *(at - 1 for at in reversed(kept)))]
    assert [one and one.at_us for one in found] == [*reversed(kept), None]
    catalog.close()


def test_changes_that_nobody_noted_begin_it_anew(tmp_path: Path) -> None:
    catalog = SqliteCatalog(tmp_path / "c.sqlite")
    catalog.create("s")
    catalog.load("s", [put("a", 0)])
    catalog.open("s", START)
    history = History(catalog, "s")
    catalog.record("s", [put("a", 1)], START, state=history.update([put("a", 1)]))
    assert len(history.until("a", to_microseconds(START) + 10, 9)) == 2
    catalog.record("s", [put("a", 2)], START)
    catalog.record("s", [put("a", 3)], START, state=history.update([put("a", 3)], {digest_of(3)}))
    found = history.until("a", to_microseconds(START) + 10, 9)
    assert [(one.digest, one.keeping) for one in found] == [
        (digest_of(3), Keeping.LOST),
        (digest_of(2), Keeping.KEPT),
    ]


def test_nothing_is_claimed_of_what_was_there_before_and_never_kept(tmp_path: Path) -> None:
    """Of a push set, which no scan reads, and of files that change before the first scan that keeps them."""
    catalog = SqliteCatalog(tmp_path / "c.sqlite")
    kept = {digest_of(0)}
    history = History(catalog, "s", kept.__contains__)
    catalog.create("s")
    catalog.load("s", [put("a", 0), put("b", 1)])
    catalog.open("s", START)
    history.begin()
    states = history.each_until(["a", "b"], to_microseconds(START))
    assert {uri: one.keeping for uri, one in states.items()} == {"a": Keeping.KEPT, "b": Keeping.LOST}
    kept.add(digest_of(2))
    for events in ([put("a", 2), put("b", 2)], [Delete("a"), Delete("b")]):
        catalog.record("s", events, START, state=history.update(events))
    found = [[one.keeping for one in history.until(uri, 1 << 62, 9)] for uri in "ab"]
    assert found == [[Keeping.DELETED, Keeping.KEPT, first] for first in (Keeping.KEPT, Keeping.LOST)]
    catalog.close()


@pytest.mark.parametrize(
    ("text", "seconds", "octets"),
    [("30 days", 2_592_000.0, None), ("90min", 5_400.0, None), ("1.5 h", 5_400.0, None), ("20 GB", None, 20 * 10**9),
     ("2 KiB", None, 2_048), ("7", 7.0, 7), ("-1 day", None, None), ("ten", None, None), ("1e9", None, None),
     ("", None, None), ("9" * 99, None, None)],
)  # fmt: skip
def test_quantities_are_read_as_people_write_them(text: str, seconds: float | None, octets: int | None) -> None:
    assert (seconds_from(text), octets_from(text)) == (seconds, octets)
