"""Whatever order the documents of a harvest arrive in, the set ends as the harvest did (DIT-A11, DIT-A12, DIT-A14)."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.catalog.verify import verify
from headwater.ingest.dit.late_documents import read_note
from headwater.spec.times import to_microseconds
from tests.support.examples import examples
from tests.support.push_set import PushSet, at, change, resource
from tests.support.waiting import START

A, B = "md5:" + "a" * 32, "md5:" + "b" * 32


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[PushSet]:
    made = PushSet(tmp_path)
    made.later(3_600)
    yield made
    made.close()


def test_a_late_change_does_not_undo_a_state_that_has_gone_ahead(fed: PushSet) -> None:
    fed.documents(resource("a", 1), change("a", "created", 1))
    fed.documents(resource("a", 7, "b"))
    fed.documents(change("a", "updated", 2))  # its resource was replaced before anybody saw it
    assert fed.state() == {"a": B}
    fed.documents(change("a", "updated", 7))
    assert fed.state() == {"a": B}
    assert fed.log() == [("created", "a"), ("updated", "a"), ("updated", "a")]


def test_a_late_deletion_does_not_undo_a_state_that_has_gone_ahead(fed: PushSet) -> None:
    fed.documents(resource("a", 1), change("a", "created", 1))
    fed.documents(resource("a", 9, "b"))
    fed.settle(6)
    fed.documents(change("a", "deleted", 5))
    fed.documents(change("a", "created", 9))
    fed.settle(6)
    assert fed.state() == {"a": B}


def test_a_lastmod_in_the_future_hides_no_deletion(fed: PushSet) -> None:
    fed.documents(resource("a", 1_000_000))
    fed.settle(6)
    fed.documents(change("a", "deleted", 5))
    assert fed.state() == {}


def test_a_pair_that_comes_again_is_no_news_after_the_state_went_ahead(fed: PushSet) -> None:
    fed.documents(resource("a", 1))
    fed.settle(6)
    fed.documents(resource("a", 1), change("a", "created", 1))
    assert fed.log() == [("created", "a")]


def harvest(chance: random.Random) -> tuple[list[dict[str, object]], dict[str, str | None]]:
    """Documents in the order in which they are written, and the state they come to."""
    documents: list[dict[str, object]] = []
    live: dict[str, str | None] = {}
    second = 1
    latest: dict[str, int] = {}
    for number in range(chance.randrange(1, 25)):
        path = f"r{chance.randrange(4)}"
        second = max(second + chance.choice([0, 0, 1, 1, 5]), latest.get(path, 0) + 1)
        latest[path] = second
        if path in live and chance.random() < 0.35:
            del live[path]
            documents.append(change(path, "deleted", second))
            continue
        kind = "updated" if path in live else "created"
        live[path] = f"md5:{number:032x}"
        documents += [resource(path, second, md5=f"{number:032x}"), change(path, kind, second)]
    return documents, live


@pytest.mark.parametrize("far", [3, 1_000])
def test_any_order_comes_to_the_same_state(far: int, tmp_path: Path) -> None:
    for seed in range(examples(40)):
        chance = random.Random(seed)
        documents, live = harvest(chance)
        places = [place for place in range(len(documents)) for _ in range(chance.choice([1, 1, 2]))]  # some come twice
        places.sort(key=lambda place: place + chance.random() * far)
        folder = tmp_path / str(seed)
        folder.mkdir()
        fed = PushSet(folder)
        fed.later(3_600)
        while places:
            size = chance.randrange(1, 6)
            fed.documents(*(documents[place] for place in places[:size]))
            del places[:size]
            fed.later(chance.choice([0, 1, 3, 6]))
            if chance.random() < 0.5:
                fed.settle(0)
        fed.settle()
        replayed: dict[str, str | None] = {}
        for one in fed.catalog.changes("s"):
            if one.metadata.hash is None and one.change.value == "deleted":
                del replayed[one.uri]
            else:
                replayed[one.uri] = one.metadata.hash
        assert (seed, fed.state()) == (seed, live)
        assert (seed, replayed) == (seed, live)
        assert verify(fed.catalog, "s") == []
        fed.close()


def old_files(chance: random.Random) -> tuple[list[list[dict[str, object]]], dict[str, str | None]]:
    """Events whose files are of any age, each with its documents in either order, and the state they come to."""
    events: list[list[dict[str, object]]] = []
    live: dict[str, str | None] = {}
    for number in range(chance.randrange(2, 16)):
        path, second = f"r{chance.randrange(2)}", 10 * number
        if path in live and chance.random() < 0.4:
            del live[path]
            events.append([change(path, "deleted", second, lastmod=None)])
            continue
        moment = at(-1_000 * chance.randrange(1, 9) - number)
        pair = [
            resource(path, second, lastmod=moment, md5=f"{number:032x}"),
            change(path, "updated" if path in live else "created", second, lastmod=moment),
        ]
        live[path] = f"md5:{number:032x}"
        events.append(chance.choice([pair, pair[::-1]]))
    return events, live


def test_files_of_any_age_come_to_the_same_resources_and_to_no_false_digest(tmp_path: Path) -> None:
    """Posted one by one or in batches, also once more: what is there is right, and a digest is right or missing."""
    for seed in range(examples(60)):
        chance = random.Random(seed)
        events, live = old_files(chance)
        documents = [one for event in events for one in event]
        folder = tmp_path / str(seed)
        folder.mkdir()
        fed = PushSet(folder)
        fed.later(3_600)
        for _again in range(2):
            place = 0
            while place < len(documents):
                size = chance.choice([1, 1, 2, 3, 9])
                fed.documents(*documents[place : place + size])
                place += size
            state = fed.state()
            assert (seed, set(state)) == (seed, set(live))
            assert {uri: state[uri] or digest for uri, digest in live.items()} == live, seed
        assert verify(fed.catalog, "s") == []
        fed.close()


SECOND = {
    "made, removed, made": (["created", "deleted", "created"], True),
    "removed after it was made twice": (["created", "deleted", "created", "deleted"], False),
    "made and changed twice": (["created", "updated", "updated"], True),
    "changed, removed, made, changed": (["created", "updated", "deleted", "created", "updated"], True),
    "removed, made, removed, of what is there": (["deleted", "created", "deleted"], False),
    "replaced": (["deleted", "created"], True),
    "replaced twice": (["deleted", "created", "deleted", "created"], True),
    "changed and replaced and removed": (["updated", "deleted", "created", "deleted"], False),
}


@pytest.mark.parametrize(("kinds", "is_live"), SECOND.values(), ids=SECOND)
@pytest.mark.parametrize("size", [1, 2, 3, 99])
def test_dit_a6_events_of_one_second_are_all_heard(fed: PushSet, kinds: list[str], is_live: bool, size: int) -> None:
    """However they are cut into batches; sent again as a whole they are no news (DIT-A12).

    In pieces a deletion that is told again may be another one: then the log has more, and the state is the same.
    """
    documents: list[dict[str, object]] = []
    if kinds[0] != "created":
        fed.documents(resource("a", -9, "e"), change("a", "created", -9))
    for number, kind in enumerate(kinds):
        documents += [resource("a", 1, md5=f"{number:032x}")] * (kind != "deleted") + [change("a", kind, 1)]
    state = {"a": f"md5:{len(kinds) - 1:032x}"} if is_live else {}
    for again in range(2):
        for start in range(0, len(documents), size):
            fed.documents(*documents[start : start + size])
        fed.settle(6)
        assert (again, fed.state()) == (again, state)
    log = fed.log()
    for start in range(0, len(documents), size):
        fed.documents(*documents[start : start + size])
    fed.settle(6)
    assert fed.state() == state
    if size == 99:
        assert fed.log() == log


OLDER = {
    "one batch": (resource("a", -500, "b"), change("a", "updated", 20, lastmod=at(-500))),
    "the resource first": (resource("a", -500, "b"), None, change("a", "updated", 20, lastmod=at(-500))),
    "the change first": (change("a", "updated", 20, lastmod=at(-500)), None, resource("a", -500, "b")),
    "created": (resource("a", -500, "b"), change("a", "created", 20, lastmod=at(-500))),
    "long before the change": (resource("a", -500, "b"), 60, change("a", "updated", 20, lastmod=at(-500))),
    "of the next second": (resource("a", -101, "b"), change("a", "updated", -99, lastmod=at(-101))),
}


@pytest.mark.parametrize("is_loaded", [True, False], ids=["loaded", "gone ahead"])
@pytest.mark.parametrize("documents", OLDER.values(), ids=OLDER)
def test_dit_a11_a_file_older_than_the_one_that_was_loaded_takes_its_place(
    tmp_path: Path, documents: tuple[dict[str, object] | int | None, ...], is_loaded: bool
) -> None:
    """Where the time of the change is newer."""
    fed = PushSet(tmp_path, loading=is_loaded)
    fed.later(3_600)
    fed.documents(resource("a", -100))
    fed.feed.open()
    fed.settle()
    for one in documents:
        if isinstance(one, dict):
            fed.documents(one)
        else:
            fed.settle(one or 2)
    fed.settle(60)
    assert fed.state() == {"a": B}
    fed.documents(resource("a", -100), change("a", "updated", -100))  # from before
    fed.settle(60)
    assert fed.state() == {"a": B}
    fed.close()


@pytest.mark.parametrize("stored_at", [None, at(30)], ids=["without timestamp", "with timestamp"])
@pytest.mark.parametrize("size", [1, 2, 3, 99])
def test_dit_a13_a_resource_before_the_whole_log_is_joined_after_a_deletion(
    fed: PushSet, size: int, stored_at: str | None
) -> None:
    """Exports give every `resource` before the first `change`, and files are often older than what happened to them."""
    documents = [
        resource("a", -500, timestamp=stored_at),
        change("a", "created", 10, lastmod=at(-900)),
        change("a", "deleted", 20, lastmod=None),
        change("a", "created", 30, lastmod=at(-500)),
    ]
    for start in range(0, len(documents), size):
        fed.documents(*documents[start : start + size])
    fed.settle()
    assert fed.state() == {"a": A}
    assert [kind for kind, _ in fed.log() if kind != "updated"] == ["created", "deleted", "created"]


@pytest.mark.parametrize("lastmod", [at(-500), None], ids=["old", "without lastmod"])
def test_dit_a11_a_resource_from_before_a_deletion_brings_nothing_back(fed: PushSet, lastmod: str | None) -> None:
    fed.documents(resource("a", 1), change("a", "created", 1))
    fed.documents(resource("a", 5, "b", lastmod=lastmod))
    fed.documents(change("a", "deleted", 20))
    fed.settle()
    assert fed.state() == {}
    fed.documents(resource("a", 5, "b", lastmod=lastmod), change("a", "deleted", 20))
    fed.documents(change("a", "created", 30), resource("a", 30))  # another one, and not what came before
    fed.settle()
    assert fed.state() == {"a": A}


HISTORY = [
    change("a", "created", 10, lastmod=at(-900)),
    change("a", "deleted", 20, lastmod=None),
    change("a", "created", 30, lastmod=at(-700)),
    change("a", "deleted", 40, lastmod=at(-700)),
    change("a", "updated", 50, lastmod=at(-500)),
]


def test_dit_a11_a_history_after_the_snapshot_has_gone_ahead_comes_to_the_snapshot(fed: PushSet) -> None:
    """One file of all `resource` documents, and one of all `change` documents, are a usual export."""
    linked = [{"rel": "describedby", "href": {"value": "b", "type": "rel_path"}}]
    fed.documents(resource("a", -500, ln=linked, licence="CC0"), resource("b", -500))
    fed.settle()
    before = {one.uri: (one.metadata, read_note(one.memo).kept) for one in fed.catalog.resources("s")}
    for one in HISTORY:
        fed.documents(one)
        fed.settle(60)
    assert {one.uri: (one.metadata, read_note(one.memo).kept) for one in fed.catalog.resources("s")} == before
    assert [kind for kind, uri in fed.log() if uri == "a"][-2:] == ["deleted", "created"]
    fed.documents(change("a", "deleted", 60))
    fed.settle()
    assert fed.state() == {"b": A}


def test_dit_a11_what_was_deleted_comes_back_by_its_own_change_only_and_not_for_ever(fed: PushSet) -> None:
    fed.documents(resource("a", -500))
    fed.settle(6)
    fed.documents(*HISTORY[:2])
    fed.documents(change("a", "created", 25, lastmod=None))  # it tells of no state
    fed.settle(6)
    assert fed.state() == {"a": None}
    fed.documents(change("a", "deleted", 26))
    fed.later(2 * 3_600)
    fed.settle(0)
    fed.documents(HISTORY[-1])
    fed.settle(6)
    assert fed.state() == {"a": None}


@pytest.mark.parametrize("again", [False, True])
def test_dit_a11_an_older_file_in_place_of_a_newer_one_is_heard(fed: PushSet, again: bool) -> None:
    """Its `lastmod` goes back; the document of before may come once more with it, and its change late."""
    fed.documents(resource("a", -100), change("a", "created", 10, lastmod=at(-100)))
    fed.documents(*[resource("a", -100)] * again, resource("a", -500, "b"))
    fed.settle(60)
    fed.documents(change("a", "updated", 20, lastmod=at(-500)))
    fed.settle(60)
    assert fed.state() == {"a": B}
    assert fed.log() == [("created", "a"), ("updated", "a")]


@pytest.mark.parametrize("size", [1, 3, 99])
@pytest.mark.parametrize("kind", ["updated", "deleted"])
def test_dit_a12_what_comes_again_after_an_older_file_took_its_place_is_no_news(
    fed: PushSet, kind: str, size: int
) -> None:
    """The documents of before have a later `lastmod` than what is there now."""
    documents = [
        change("a", "created", 10, lastmod=at(-100)),
        resource("a", -100),
        change("a", "updated", 20, lastmod=at(-50)),
        resource("a", -50, "c"),
        *[change("a", "deleted", 25)] * (kind == "deleted"),
        change("a", "updated", 30, lastmod=at(-500)),
        resource("a", -500, "b"),
        change("a", "updated", 40, lastmod=at(-400)),
        resource("a", -400, "d"),
    ]
    fed.documents(*documents)
    log = fed.log()
    for start in range(0, len(documents), size):
        fed.documents(*documents[start : start + size])
        fed.settle(60)
    assert fed.state() == {"a": "md5:" + "d" * 32}
    assert fed.log() == log
    fed.documents(resource("a", 50, "b"), change("a", "updated", 50))
    fed.settle(60)
    assert fed.state() == {"a": B}
    assert fed.log() == [*log, ("updated", "a")]


@pytest.mark.parametrize("size", [1, 2, 99])
@pytest.mark.parametrize("first", ["resource", "change"])
@pytest.mark.parametrize("lastmod", [None, at(20)], ids=["without lastmod", "of one second"])
@pytest.mark.parametrize("end", ["deleted", "updated"])
def test_dit_a12_what_comes_again_without_a_telling_lastmod_is_no_news(
    fed: PushSet, end: str, lastmod: str | None, first: str, size: int
) -> None:
    """Neither what was deleted nor what was replaced comes back; its own change brings it back at any time."""
    pairs = [(resource("a", 0, "c", lastmod=lastmod), change("a", "created", 20, lastmod=lastmod))]
    pairs.append((resource("a", 0, lastmod=lastmod), change("a", "updated", 20, lastmod=lastmod)))
    if end == "updated":
        pairs.append((resource("a", 0, "b", lastmod=lastmod), change("a", "updated", 21, lastmod=lastmod)))
    documents = [one for pair in pairs for one in (pair if first == "resource" else reversed(pair))]
    documents += [change("a", "deleted", 20, lastmod=None)] * (end == "deleted")
    for start in range(0, len(documents), 2):
        fed.documents(*documents[start : start + 2])
    log, state = fed.log(), fed.state()
    assert state == ({} if end == "deleted" else {"a": B})
    for start in range(0, len(documents), size):
        fed.documents(*documents[start : start + size])
        fed.settle(60)
    assert (fed.log(), fed.state()) == (log, state)
    fed.documents(resource("a", 0, lastmod=lastmod))
    fed.settle(60)
    fed.documents(change("a", "created", 200, lastmod=lastmod))
    fed.settle(60)
    assert fed.state() == {"a": A}
    assert len(fed.log()) == len(log) + 1


def test_dit_a12_what_was_replaced_comes_not_back_when_a_resource_came_after_its_change_was_taken(fed: PushSet) -> None:
    before = [resource("a", 0, "c", lastmod=None), change("a", "created", 1, lastmod=None)]
    fed.documents(*before)
    fed.documents(change("a", "deleted", 2), change("a", "created", 3, lastmod=None))
    fed.settle(60)
    fed.documents(resource("a", 0, lastmod=None))
    fed.settle(60)
    assert fed.state() == {"a": A}
    fed.documents(*before)
    fed.settle(60)
    assert fed.state() == {"a": A}


def test_resources_that_come_without_changes_may_become_what_they_were(fed: PushSet) -> None:
    for digest in ("a", "b", "a"):
        fed.documents(resource("a", 0, digest, lastmod=None))
        fed.settle(60)
    assert fed.state() == {"a": A}


def test_dit_09_the_time_of_storage_tells_which_of_two_resources_is_the_newer(fed: PushSet) -> None:
    fed.documents(
        change("a", "created", 30, lastmod=at(-300)),
        resource("a", -700, "b", timestamp=at(31)),
        resource("a", -300, timestamp=at(30)),
    )
    fed.documents(change("a", "updated", 31, lastmod=at(-700)))
    assert fed.state() == {"a": B}


def versions(fed: PushSet) -> list[tuple[str, str | None]]:
    """The log: what happened, and the digest that was stated."""
    return [(one.change.value, one.metadata.hash) for one in fed.catalog.changes("s")]


def alike(kind: str, tenth: int, moment: str | None) -> dict[str, object]:
    """A change with a time of its own, and a `lastmod` that tells nothing."""
    return change("a", kind, 100, lastmod=moment, datetime=at(100).replace("+", f".{tenth}+"))


@pytest.mark.parametrize("moment", [at(100), at(-5_000), None], ids=["of that second", "of an old file", "none"])
@pytest.mark.parametrize("size", [1, 2, 3, 99])
def test_dit_a13_a_resource_is_joined_with_the_change_that_left_it(fed: PushSet, moment: str | None, size: int) -> None:
    """As an index holds them, where each `resource` document has replaced the one before; all of one `lastmod`."""
    fed.documents(resource("a", 1, "b"), change("a", "created", 1))
    documents = [
        alike("updated", 1, moment),
        alike("deleted", 2, moment),
        resource("a", 100, lastmod=moment),
        alike("created", 3, moment),
    ]
    for start in range(0, len(documents), size):
        fed.documents(*documents[start : start + size])
    fed.settle(6)
    assert versions(fed)[1:] == [("updated", None), ("deleted", None), ("created", A)]


@pytest.mark.parametrize("moment", [at(100), at(-5_000)], ids=["of that second", "of an old file"])
@pytest.mark.parametrize("is_alone", [False, True])
def test_dit_a13_a_resource_that_comes_before_all_changes_is_that_of_the_last(
    fed: PushSet, moment: str, is_alone: bool
) -> None:
    """It was deleted and made again twice, with the same `lastmod` each time; then changed once more.

    One that came alone is that of the first change; what is made after it was deleted gets nothing of it.
    """
    fed.documents(resource("a", 1, "b"), change("a", "created", 1))
    kinds = ["updated", "deleted", "created", "deleted", "created", "updated"]
    documents = [resource("a", 100, lastmod=moment), *(alike(kind, n, moment) for n, kind in enumerate(kinds))]
    if is_alone:
        fed.documents(documents.pop(0))
    fed.documents(*documents)
    fed.settle(6)
    assert [kind for kind, _ in fed.log()][1:] == kinds
    last = None if is_alone else A
    assert fed.state() == {"a": last}
    assert versions(fed)[-1] == ("updated", last)
    assert {digest for _, digest in versions(fed)[2:-1]} == {None}


@pytest.mark.parametrize("size", [1, 2, 3, 99])
def test_dit_a13_every_change_that_came_with_its_resource_keeps_it(fed: PushSet, size: int) -> None:
    fed.documents(resource("a", 1, "b"), change("a", "created", 1))
    moment = at(-5_000)
    documents = [
        resource("a", 100, "c", lastmod=moment),
        alike("updated", 1, moment),
        alike("deleted", 2, moment),
        resource("a", 100, "d", lastmod=moment),
        alike("created", 3, moment),
    ]
    for start in range(0, len(documents), size):
        fed.documents(*documents[start : start + size])
    fed.settle(6)
    assert versions(fed)[1:] == [("updated", "md5:" + "c" * 32), ("deleted", None), ("created", "md5:" + "d" * 32)]


def test_dit_a6_a_second_change_of_one_second_is_corrected_by_its_resource(fed: PushSet) -> None:
    fed.documents(resource("a", 5), change("a", "created", 5))
    fed.documents(change("a", "updated", 5))
    fed.documents(resource("a", 5, "b"))
    assert versions(fed) == [("created", A), ("updated", A), ("updated", B)]


@pytest.mark.parametrize("apart", [False, True], ids=["in one batch", "one after another"])
def test_dit_a13_what_is_made_with_the_lastmod_of_what_was_deleted_is_corrected(fed: PushSet, apart: bool) -> None:
    """A resource of the load is deleted and made again, with another content and the same `lastmod` (DIT-A13)."""
    fed.documents(resource("a", -500))
    documents = [change("a", "deleted", 20), change("a", "created", 30, lastmod=at(-500))]
    for batch in [[one] for one in documents] if apart else [documents]:
        fed.documents(*batch)
    fed.documents(resource("a", -500, "b"))
    assert versions(fed) == [("created", A), ("deleted", None), ("created", A), ("updated", B)]
    assert fed.state() == {"a": B}


def test_dit_a3_the_time_of_a_resource_never_goes_back(fed: PushSet) -> None:
    """A late change whose file is newer is taken, and a change from between the two times is no newer for that."""
    fed.documents(resource("a", 100), change("a", "created", 100))
    fed.documents(resource("a", 200, "b"), change("a", "updated", 50, lastmod=at(200)))
    assert fed.state() == {"a": B}
    (held,) = fed.catalog.resources("s")
    assert read_note(held.memo).at_us == to_microseconds(START + dt.timedelta(seconds=100))
    fed.documents(resource("a", 60, "c"), change("a", "updated", 75, lastmod=at(60)))
    fed.settle(60)
    assert fed.state() == {"a": B}
    fed.documents(change("a", "deleted", 80))
    fed.settle(60)
    assert fed.state() == {"a": B}
