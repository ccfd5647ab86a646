"""Which beginnings of URIs a move exchanges, and what becomes of everything that is remembered under them (DST-F10)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headwater.copy_state import SCHEMA
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.lists.position import Position
from headwater.sync.sets.moved_sets import (
    LISTED,
    ListAgreement,
    UriPrefixes,
    agreement,
    prefixes_of,
    rename,
    suffices,
    take_along,
)
from headwater.sync.state import TEMPORARY, Move, Offer, SetRow, add_set, former_bases, keep_position, one_set

A, B = "http://a.example/", "https://b.example/"


@pytest.mark.parametrize(
    ("old", "new", "prefixes"),
    [
        (f"{A}x/f.txt", f"{B}x/f.txt", (A, B)),
        (f"{A}f.txt", f"{B}f.txt", (A, B)),
        (f"{A}f.txt", f"{B}rs/f.txt", (A, f"{B}rs/")),
        (f"{A}rs/f.txt", f"{B}f.txt", (f"{A}rs/", B)),
        (f"{A}old/x/f.txt", f"{A}new/x/f.txt", (f"{A}old/", f"{A}new/")),
        (f"{A}f.txt", f"{A}below/f.txt", (A, f"{A}below/")),
        (f"{A}x/", f"{B}x/", (A, B)),
        (f"{A}f.txt", f"{A}f.txt", None),
        (f"{A}f.txt", "http://a.example:8080/f.txt", (A, "http://a.example:8080/")),
        ("http://a.example", "https://b.example", (A, B)),
    ],
)
def test_prefixes(old: str, new: str, prefixes: tuple[str, str] | None) -> None:
    assert prefixes_of(old, new) == (None if prefixes is None else UriPrefixes(*prefixes))


@pytest.mark.parametrize(
    ("held", "same", "open_", "by_redirect", "by_hash", "said"),
    [
        (10, 10, 0, True, True, True),
        (10, 5, 0, True, True, True),
        (10, 4, 0, False, False, True),
        (10, 0, 10, True, False, True),
        (10, 4, 1, True, False, True),
        (10, 1, 0, False, False, True),
        (10, 0, 0, False, False, False),
        (1, 0, 0, False, False, False),
        (0, 0, 0, True, False, True),
    ],
)
def test_how_much_has_to_agree(held: int, same: int, open_: int, by_redirect: bool, by_hash: bool, said: bool) -> None:
    found, offer = ListAgreement(held, same, open_), Offer(identity=A, name="x")
    assert suffices(found, Move(offer)) == by_redirect
    assert suffices(found, None) == by_hash
    assert suffices(found, Move(offer, said=True)) == said


# over a state


def offer_at(base: str) -> Offer:
    return Offer(
        identity=f"{base}cl.xml", name="x", capability_list=f"{base}cl.xml", documents={"resourcelist": f"{base}rl.xml"}
    )


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "state.sqlite", SCHEMA) as opened:
        with opened.write() as t:
            t.run(TEMPORARY)
        yield opened


def hold(t: Transaction, base: str, *uris: str, names: str | None = None, deleted: tuple[str, ...] = ()) -> SetRow:
    """A set at `base` that holds these, each with a hash made of its last name."""
    row = add_set(t, offer_at(base), "")
    for uri in (*uris, *deleted):
        path = None if uri in deleted else f"p{len(uri)}{uri}".encode()
        t.run(
            "INSERT INTO resources(set_id, uri, path, listed_hash, digest, run) VALUES (?, ?, ?, ?, ?, 1)",
            (row.id, uri, path, digest(uri), digest(uri)),
        )
    t.run("UPDATE sets SET base = ? WHERE id = ?", (base if names is None else names, row.id))
    keep_position(t, row.id, Position(time=7, list_uri=f"{base}chl.xml", count=3, last="x"))
    return one_set(t, row.id)


def digest(uri: str) -> str:
    return "sha-256:" + uri.rpartition("/")[2].encode().hex().ljust(64, "0")


def offer_there(t: Transaction, *uris: str) -> None:
    t.many("INSERT INTO temp.listed(uri, hash, refused) VALUES (?, ?, 0)", [(uri, digest(uri)) for uri in uris])
    t.run("CREATE INDEX IF NOT EXISTS temp.listed_uri ON listed(uri)")


def held(t: Transaction, row: SetRow) -> dict[str, str | None]:
    """The URI that each path holds by now, and tombstones."""
    rows = t.rows("SELECT uri, path FROM resources WHERE set_id = ? ORDER BY uri", (row.id,))
    return {uri: None if path is None else path.decode() for uri, path in rows}


def moved(row: SetRow) -> SetRow:
    return msgspec.structs.replace(row, move=Move(row.offer))


@pytest.mark.parametrize(("old", "new"), [(A, B), (A, f"{A}below/"), (f"{A}below/", A), (f"{A}x/", f"{A}xx/")])
def test_everything_takes_the_new_beginning(old: str, new: str, database: Database) -> None:
    """Also where one address lies in the other: no URI is lost, and none is renamed twice."""
    names = ("a", "below/a", "below/below/b", "x/c", "xx/x/c", "d d", "%41")
    with database.write() as t:
        row = hold(t, old, *(old + name for name in names), deleted=(f"{old}gone",))
        before = held(t, row)
        offer_there(t, *(new + name for name in names))
        found, taken = take_along(t, moved(row), offer_at(new), LISTED)
        assert (taken, found) == (True, ListAgreement(7, 7, 0, UriPrefixes(old, new)))
        assert held(t, row) == {new + uri[len(old) :]: path for uri, path in before.items()}
        after = one_set(t, row.id)
        assert (after.base, after.offer.identity, after.name) == (new, f"{new}cl.xml", "x")
        assert after.position == Position(time=7)
        assert former_bases(t, row.id) == [old]


def test_what_is_still_listed_keeps_its_uri(database: Database) -> None:
    """Some of the resources stay on the old host."""
    with database.write() as t:
        row = hold(t, A, f"{A}a", f"{A}b", f"{A}c")
        offer_there(t, f"{B}a", f"{A}b", f"{B}c")
        _, taken = take_along(t, moved(row), offer_at(B), LISTED)
        assert taken
        assert set(held(t, row)) == {f"{B}a", f"{A}b", f"{B}c"}


def test_a_tombstone_makes_room_and_a_file_does_not(database: Database) -> None:
    """What had been doubled before: what is held under the new URI stays, the other is left for the list to judge."""
    with database.write() as t:
        row = hold(t, A, f"{A}a", f"{A}b", f"{A}c", f"{B}b", deleted=(f"{B}a",))
        offer_there(t, f"{B}a", f"{B}b", f"{B}c")
        rename_all = take_along(t, moved(row), offer_at(B), LISTED)
        assert rename_all[1]
        assert held(t, row) == {
            f"{A}b": f"p{len(A) + 1}{A}b",
            f"{B}a": f"p{len(A) + 1}{A}a",
            f"{B}b": f"p{len(B) + 1}{B}b",
            f"{B}c": f"p{len(A) + 1}{A}c",
        }


def test_failures_go_along(database: Database) -> None:
    with database.write() as t:
        row = hold(t, A, f"{A}a")
        for uri in (f"{A}b", f"{A}c", f"{B}c"):
            t.run(
                "INSERT INTO failures(set_id, uri, loc, reason, tries, first_at, last_at, next_at)"
                " VALUES (?, ?, ?, '', 1, 0, 0, 0)",
                (row.id, uri, uri),
            )
        offer_there(t, f"{B}a", f"{B}b", f"{B}c")
        assert take_along(t, moved(row), offer_at(B), LISTED)[1]
        assert list(t.rows("SELECT uri, loc FROM failures ORDER BY uri")) == [(f"{B}b", f"{B}b"), (f"{B}c", f"{B}c")]


def test_a_base_that_is_not_taken_along(database: Database) -> None:
    """All files went from one folder to another below the base: these are other names, and no move of the base."""
    with database.write() as t:
        row = hold(t, A, *(f"{A}one/{n}" for n in "abc"))
        offer_there(t, *(f"{A}two/{n}" for n in "abc"))
        assert take_along(t, row, row.offer, LISTED) == (None, False)
        found = agreement(t, row, offer_at(B), LISTED)
        assert (found.same, found.prefixes) == (0, None)


def test_names_that_begin_with_the_host(database: Database) -> None:
    """Without a base whole origins move, and no folders of them."""
    with database.write() as t:
        row = hold(t, A, f"{A}one/a", f"{A}two/b", names="")
        offer_there(t, f"{B}one/a", f"{B}two/b")
        assert take_along(t, moved(row), offer_at(B), LISTED)[1]
        assert set(held(t, row)) == {f"{B}one/a", f"{B}two/b"}
        assert one_set(t, row.id).base == ""


def test_other_content_changes_nothing(database: Database) -> None:
    with database.write() as t:
        row = hold(t, A, *(f"{A}{n}" for n in "abcd"))
        before = held(t, row), one_set(t, row.id)
        offer_there(t, f"{B}a", *(f"{B}x{n}" for n in "abcdef"))
        found, taken = take_along(t, moved(row), offer_at(B), LISTED)
        assert (taken, found) == (False, ListAgreement(4, 1, 0, UriPrefixes(A, B)))
        assert (held(t, row), one_set(t, row.id)) == before


def test_a_list_that_is_the_same_only_renames_the_set(database: Database) -> None:
    with database.write() as t:
        row = hold(t, A, f"{A}a", f"{A}b")
        offer_there(t, f"{A}a", f"{A}b")
        found = agreement(t, row, offer_at(B), LISTED)
        rename(t, row, offer_at(B), found.prefixes)
        assert (found.same, found.prefixes) == (2, None)
        assert set(held(t, row)) == {f"{A}a", f"{A}b"}
        assert one_set(t, row.id).base == A
