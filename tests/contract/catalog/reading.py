"""The contract of reads, and of several handles at once."""

from __future__ import annotations

import threading

import msgspec
import pytest

from headwater.catalog.interface import Accepted, Catalog, Delete, Upsert
from headwater.catalog.verify import verify
from tests.contract.catalog.cases import (
    BARE,
    BIG,
    HEAVY,
    METADATA,
    at,
    opened,
    up,
)
from tests.contract.catalog.model import Backend, observed


class ReadingContract:
    """The contract of reads, and of several handles at once."""

    @pytest.mark.parametrize("number", [-1, 1, 99])
    def test_a_page_that_is_not_there_is_empty(self, small: Catalog, number: int) -> None:
        opened(small, [up("a")])
        assert list(small.page("s", number)) == []

    def test_a_page_is_read_from_one_snapshot_while_others_write(self, small: Catalog, backend: Backend) -> None:
        opened(small, [up(uri) for uri in "abcd"])
        reading = small.page("s", 0)
        assert next(reading).uri == "a"
        small.record("s", [up("b", BIG), Delete("c")], at(1))
        other = backend.again(small)
        other.record("s", [Delete("d"), up("e")], at(2))
        other.close()
        assert [(r.uri, r.seq) for r in reading] == [("b", 0), ("c", 0), ("d", 0)]
        assert [r.uri for r in small.page("s", 0)] == ["a", "b", "e"]

    def test_the_newest_changes_of_open_sets(self, small: Catalog, backend: Backend) -> None:
        assert small.newest() == {}
        opened(small, [up("a")])
        small.create("loading")
        assert small.newest() == {"s": 0}
        other = backend.again(small)
        for number in range(1, 4):
            other.record("s", [up("a")], at(number))
            assert small.newest() == {"s": number}
            small.mark("s", at(number))
            assert small.newest() == {"s": number}
        other.close()
        small.open("loading", at(9))
        assert small.newest() == {"loading": 0, "s": 3}

    def test_dropped_iterators_hold_nothing(self, small: Catalog) -> None:
        opened(small, [up(uri) for uri in "abcd"])
        for n in range(200):
            next(small.page("s", 0))
            small.page("s", 0)
            small.record("s", [up("a")], at(n))
        assert small.state("s").last_seq == 200

    def test_nested_reads_on_one_thread(self, small: Catalog) -> None:
        opened(small, [up(f"r{n}") for n in range(8)])
        pairs = [(one.uri, other.uri) for one in small.page("s", 0) for other in small.page("s", 1)]
        assert len(pairs) == 16
        for resource in small.page("s", 0):
            small.record("s", [Upsert(resource.uri, BARE)], at(1))
            assert small.get("s", [resource.uri])[resource.uri].seq > 0

    def test_get_finds_what_lives(self, catalog: Catalog) -> None:
        opened(catalog, [up("a"), up("b")])
        catalog.record("s", [Delete("b"), up("c")], at(1))
        found = catalog.get("s", ["a", "b", "c", "c", "", "\udcff", "A", "d\0"])
        assert {uri: resource.uri for uri, resource in found.items()} == {"a": "a", "c": "c"}
        assert catalog.get("s", []) == {}
        assert len(catalog.get("s", [f"x{n}" for n in range(5_000)] + ["a"])) == 1

    def test_resources_in_the_order_of_their_octets(self, small: Catalog) -> None:
        uris = ["", "\U0001f600", "\uffee", "é", "z", "a/b", "a b", "a", "Z", "%41"]
        opened(small, [up(uri) for uri in uris if uri])
        listed = [resource.uri for resource in small.resources("s")]
        assert listed == ["%41", "Z", "a", "a b", "a/b", "z", "é", "\uffee", "\U0001f600"]
        assert [r.uri for r in small.resources("s", "a", 3)] == ["a b", "a/b", "z"]
        assert [r.uri for r in small.resources("s", "a!", 1)] == ["a/b"]
        assert small.resources("s", "\U0001f600") == []
        assert small.resources("s", "", 0) == small.resources("s", "", -1) == []

    def test_memos_are_those_of_the_resources(self, small: Catalog) -> None:
        uris = ["a", "a b", "a/b", "z", "é", "\uffee", "\U0001f600"]
        opened(small, [Upsert(uri, BARE, uri.encode()[:-1]) for uri in [*uris, "gone"]])
        small.record("s", [Delete("gone"), Upsert("z", BARE, b"anew")], at(1))
        small.remember("s", [("a b", b"\x00\xff")])
        expected = [(one.uri, one.memo) for one in small.resources("s")]
        assert small.memos("s") == expected
        assert expected[:4] == [("a", b""), ("a b", b"\x00\xff"), ("a/b", b"a/"), ("z", b"anew")]
        assert [uri for uri, _ in expected] == uris
        assert small.memos("s", "a/", 2) == expected[2:4]
        assert small.memos("s", "\U0001f600") == small.memos("s", "", 0) == small.memos("s", "", -1) == []

    def test_remember_changes_only_memos(self, small: Catalog) -> None:
        opened(small, [Upsert("a", BARE, b"old"), up("b")])
        before = observed(small, "s")
        small.remember("s", [("a", b"new"), ("nothing", b"x"), ("b", b"\x00\xff"), ("b", b"last"), ("\udcff", b"")])
        after = observed(small, "s")
        assert {r.uri: r.memo for r in after["resources"]} == {"a": b"new", "b": b"last"}
        assert [after[key] for key in ("state", "pages", "changes", "segments")] == [
            before[key] for key in ("state", "pages", "changes", "segments")
        ]
        assert [msgspec.structs.replace(r, memo=b"") for r in after["resources"]] == [
            msgspec.structs.replace(r, memo=b"") for r in before["resources"]
        ]
        small.remember("s", [("a", b"")])
        assert small.get("s", ["a"])["a"].memo == b""

    def test_note(self, catalog: Catalog) -> None:
        opened(catalog)
        catalog.note("s", b"\x00note")
        assert catalog.state("s").notes == b"\x00note"
        catalog.note("s", b"")
        assert catalog.state("s").notes == b""

    def test_what_was_accepted_is_there_for_the_next_handle(self, small: Catalog, backend: Backend) -> None:
        opened(small, [up(f"r{n}", METADATA[n][1]) for n in range(7)])
        small.record("s", [Delete("r1"), up("x", HEAVY)], at(1))
        before = observed(small, "s")
        other = backend.again(small)
        assert observed(other, "s") == before
        small.close()
        assert other.record("s", [up("y")], at(2)) == Accepted(3, 3)
        other.close()

    def test_many_writers_take_turns(self, small: Catalog, backend: Backend) -> None:
        opened(small)
        handles = [small, backend.again(small)]
        failures: list[BaseException] = []

        def write(number: int) -> None:
            try:
                for n in range(10):
                    batch = [up(f"w{number}-{n}"), up("shared"), up(f"w{number}-{n}")]
                    accepted = handles[number % 2].record("s", batch, at(n))
                    assert accepted.last - accepted.first == 2
            except BaseException as failure:
                failures.append(failure)
                raise

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        logged = [change.uri for change in small.changes("s")]
        assert len(logged) == 120
        assert all(logged[n] == logged[n + 2] and logged[n + 1] == "shared" for n in range(0, 120, 3))
        assert verify(small, "s") == []
        handles[1].close()

    def test_a_large_batch(self, catalog: Catalog) -> None:
        opened(catalog, [up(f"r{n:05}") for n in range(5_000)])
        batch = [up(f"r{n:05}") for n in range(0, 10_000, 2)] + [Delete(f"r{n:05}") for n in range(0, 10_000, 5)]
        assert catalog.record("s", batch, at(1)) == Accepted(
            1, 6_500, tuple(f"r{n:05}" for n in range(5_005, 10_000, 10))
        )
        assert catalog.state("s").count == 6_000
        assert verify(catalog, "s") == []
