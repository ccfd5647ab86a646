"""Changes at equal times: whatever a source states no finer than a second or a day, no change is lost (DST-5.2)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from headwater.copy_state import SCHEMA
from headwater.progress import silent
from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Document, Entry, Link
from headwater.spec.times import parse_datetime, to_microseconds
from headwater.storage.database import Database
from headwater.sync.connection import Scope
from headwater.sync.lists.change_lists import ChangeListReader, ReadingOutcome
from headwater.sync.lists.documents import DocumentRead, EntryConsumer, MissingDocument, UnchangedDocument
from headwater.sync.lists.entries import ListContext
from headwater.sync.lists.position import Position, is_past
from headwater.sync.state import TEMPORARY, Offer, Validators
from tests.support.copying import DONE, go, tree
from tests.support.examples import examples
from tests.support.fake_source import Reply, Site, Source, at, document, ln, sha, url
from tests.support.waiting import START

SECOND = 1_000_000


# the rules, as tables


@pytest.mark.parametrize(
    ("moment", "since", "past"),
    [
        (5 * SECOND, 6 * SECOND, True),
        (5 * SECOND, 5 * SECOND, False),
        (5 * SECOND, 5 * SECOND + 1, False),  # a whole second, and T within it
        (5 * SECOND + 1, 5 * SECOND + 2, True),
        (5 * SECOND + 3, 5 * SECOND + 2, False),
    ],
)
def test_what_lies_before_t(moment: int, since: int, *, past: bool) -> None:
    """DST-5.2, AMB-06: a source that writes whole seconds has not said which moment of them."""
    assert is_past(moment, since) is past


# the law: a source of coarse times, read by what reads real ones


class Coarse:
    """A source of two resources. Times of changes are whole seconds (or days), however often it changes in one."""

    def __init__(self, unit: int, *, exact_lists: bool, hashes: str) -> None:
        self.unit = unit
        self.exact_lists = exact_lists
        self.hashes = hashes
        self.now = to_microseconds(START) + 10 * 86_400 * SECOND
        self.state: dict[str, int] = {}
        self.count = 0
        self.number = 0
        self.lists: list[dict[str, Any]] = []
        self.read_before: dict[str, list[Entry]] = {}
        self.begin()

    def moment(self, number: int) -> dt.datetime:
        return START + dt.timedelta(microseconds=number - to_microseconds(START))

    def border(self) -> int:
        """Where a list ends and the next one begins, by the source's own clock or as coarse as its changes."""
        return self.now if self.exact_lists else self.now // self.unit * self.unit

    def begin(self) -> None:
        self.number += 1
        self.lists.append({"uri": f"http://h.example/{self.number}", "from": self.border(), "until": None, "told": []})

    def change(self, name: str, *, delete: bool) -> None:
        uri = f"http://h.example/r/{name}"
        kind = ChangeKind.UPDATED if uri in self.state else ChangeKind.CREATED
        self.count += 1
        if delete:
            kind = ChangeKind.DELETED
            self.state.pop(uri, None)
        else:
            self.state[uri] = self.count
        hashed = self.hashes == "all" or (self.hashes == "some" and self.count % 2)
        stated = self.now // self.unit * self.unit
        day = self.unit > 2 * SECOND and self.count % 3
        when = parse_datetime(self.moment(stated).date().isoformat())[0] if day else self.moment(stated)
        told = f"md5:{self.count:032x}" if hashed and not delete else None
        self.lists[-1]["told"].append((self.now, Entry(loc=uri, change=kind, datetime=when, hash=told)))

    def close(self) -> None:
        self.lists[-1]["until"] = self.border()
        self.begin()

    def move(self) -> None:
        self.number += 1
        self.lists[-1]["uri"] = f"http://h.example/{self.number}"

    def window(self) -> None:
        """The open list begins later by now, and tells what was since then."""
        one = self.lists[-1]
        one["from"] = max(one["from"], self.border() - 2 * self.unit)
        one["told"] = [(done, entry) for done, entry in one["told"] if done >= one["from"]]

    def trim(self) -> None:
        """The open list was rewritten: its first change, which was read, is told no more."""
        one = self.lists[-1]
        if one["told"] and one["told"][0][1] in self.read_before.get(one["uri"], ()):
            del one["told"][:1]

    # what a destination asks of it

    def read(
        self, uri: str, consumer: EntryConsumer, _held: Validators | None, **_: object
    ) -> DocumentRead | UnchangedDocument | MissingDocument:
        consumer.begin()
        if uri == "http://h.example/changes":
            head = Document(kind=Kind.CHANGE_LIST_INDEX)
            told = [
                Entry(
                    loc=one["uri"],
                    from_=self.moment(one["from"]),
                    until=None if one["until"] is None else self.moment(one["until"]),
                )
                for one in self.lists
            ]
        else:
            one = next((one for one in self.lists if one["uri"] == uri), None)
            if one is None:
                return MissingDocument(404)
            until = None if one["until"] is None else self.moment(one["until"])
            index = (Link(rel="index", href="http://h.example/changes"),)
            head = Document(kind=Kind.CHANGE_LIST, from_=self.moment(one["from"]), until=until, links=index)
            told = [entry for _, entry in one["told"]]
            before = self.read_before.get(uri)
            if before is not None and one.get("spoilt"):
                assume(told[: len(before)] != before)  # nobody could see that something was left out
            self.read_before[uri] = told
        consumer.take(head, told)
        moment = self.moment(self.now)
        return DocumentRead(
            uri=uri, final=uri, document=head, etag=None, last_modified=None, read_at=moment, count=0, octets=0,
            skipped=0,
        )  # fmt: skip

    def warn(self, *_: object) -> None: ...


class Follower:
    """A copy: which state of each resource it holds."""

    def __init__(self, database: Database, source: Coarse, *, lag: int) -> None:
        self.database = database
        self.source = source
        self.held = dict(source.state)
        source.lists[0]["from"] -= 2 * source.unit
        self.position = Position(time=source.border() - lag * source.unit)

    def poll(self) -> None:
        offer = Offer(identity="c", name="set", documents={"changelist": "http://h.example/changes"})
        scope = Scope(frozenset(), any_host=True)
        context = ListContext(self.source, self.database, scope, silent)  # type: ignore[arg-type]
        reading = ChangeListReader(context, 1, offer, self.position).read()
        if reading.outcome in (ReadingOutcome.GAP, ReadingOutcome.MISSING):  # a baseline
            self.held = dict(self.source.state)
            self.position = Position(time=self.source.border())
            return
        assert reading.outcome is ReadingOutcome.READ, reading.reason
        with self.database.write() as t:
            pending = list(t.rows("SELECT uri, change FROM temp.changed WHERE pending"))
        for uri, change in pending:
            if change == "deleted" or uri not in self.source.state:
                self.held.pop(uri, None)
            else:
                self.held[uri] = self.source.state[uri]
        self.position = reading.position


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with Database(tmp_path_factory.mktemp("law") / "state.sqlite", SCHEMA) as opened:
        with opened.write() as t:
            t.run(TEMPORARY)
        yield opened


STEPS = st.sampled_from(
    ["a", "b", "a", "b", "delete a", "tick", "day", "poll", "poll", "close", "close", "move", "window", "trim"]
)


@settings(max_examples=examples(250), deadline=None)
@example(steps=["delete a", "close", "a", "poll", "close"], unit=SECOND, exact_lists=False, hashes="none", lag=0)
@given(
    steps=st.lists(STEPS, max_size=14),
    unit=st.sampled_from([SECOND, 86_400 * SECOND]),
    exact_lists=st.booleans(),
    hashes=st.sampled_from(["all", "none", "some"]),
    lag=st.integers(0, 1),
)
def test_nothing_is_lost_at_equal_times(
    steps: list[str], unit: int, *, exact_lists: bool, hashes: str, lag: int, database: Database
) -> None:
    """DST-5.2: lists that close, move and are rewritten within a second or a day, from a baseline made in it."""
    source = Coarse(unit, exact_lists=exact_lists, hashes=hashes)
    source.change("a", delete=False)
    follower = Follower(database, source, lag=lag)
    for step in steps:
        if step in ("a", "b", "delete a"):
            source.change(step[-1], delete=step.startswith("delete"))
        elif step == "poll":
            follower.poll()
            for one in source.lists:
                one.pop("spoilt", None)
        elif step == "tick":
            source.now += unit // 4
        elif step == "day":
            source.now += unit
        elif step == "close":
            source.close()
        else:
            if step == "trim":
                source.lists[-1]["spoilt"] = True
            {"move": source.move, "window": source.window, "trim": source.trim}[step]()
    follower.poll()
    assert follower.held == source.state


# whole runs


def told(site: Site, name: str, when: float, kind: str = "updated", *, hashed: bool) -> str:
    more = {"hash": sha(site.files[name])} if hashed and kind != "deleted" else {}
    return url(site.uri(name), change=kind, datetime=at(when), **more)


@pytest.mark.parametrize("hashed", [True, False], ids=["hash", "no hash"])
def test_the_second_change_of_a_second(source: Source, site: Site, dest: Path, *, hashed: bool) -> None:
    """DST-5.2: one resource changes twice at one moment, and there is a poll between."""
    go(source.base, dest)
    site.put("x", b"first")
    first = told(site, "x", 20, "created", hashed=hashed)
    site.publish_changes(10, entries=[first])
    assert go(source.base, dest).status == DONE
    site.put("x", b"second")
    site.publish_changes(10, entries=[first, told(site, "x", 20, hashed=hashed)])
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("hashed", [True, False], ids=["hash", "no hash"])
@pytest.mark.parametrize("way", ["index", "same address", "moved"])
def test_a_list_that_ends_amid_a_second(way: str, source: Source, site: Site, dest: Path, *, hashed: bool) -> None:
    """DST-5.2: an equal entry in a later list is another change."""
    go(source.base, dest)
    index = ln("index", f"{site.root}/changelist.xml") if way == "index" else site.up()

    def publish(name: str, entries: list[str], since: float, until: float | None) -> None:
        more: dict[str, Any] = {"from": at(since), "until": until and at(until)}
        site.serve(f"/set/{name}", document(entries, links=index, capability="changelist", **more))

    def list_them(*lists: tuple[str, float, float | None]) -> None:
        if way == "index":
            parts = [
                url(f"{site.root}/{name}", tag="sitemap", from_=at(since), until=until and at(until))
                for name, since, until in lists
            ]
            site.serve("/set/changelist.xml", document(parts, "sitemapindex", capability="changelist"))
        elif way == "moved":
            entries = [url(f"{site.root}/resourcelist.xml", capability="resourcelist")]
            entries += [url(f"{site.root}/{lists[-1][0]}", capability="changelist")]
            site.serve("/set/capabilitylist.xml", document(entries, capability="capabilitylist"))

    first_name = {"index": "one.xml"}.get(way, "changelist.xml")
    second_name = {"index": "two.xml", "moved": "two.xml"}.get(way, "changelist.xml")
    site.put("x", b"first")
    site.put("y", b"y")
    first = told(site, "x", 20, "updated", hashed=hashed)
    publish(first_name, [first], 10, None)
    list_them((first_name, 10, None))
    assert go(source.base, dest).status == DONE
    site.put("x", b"second")
    site.put("z", b"z")
    closed = [first, told(site, "y", 20, "created", hashed=hashed)]
    later = [told(site, "z", 20, "created", hashed=hashed), told(site, "x", 20, hashed=hashed)]
    if way == "index":
        publish(first_name, closed, 10, 20)
    else:  # what the first list told last is told again, where nothing else is left of it
        later = [closed[1], *later]
        source.pages.pop(f"/set/{first_name}")
    publish(second_name, later, 20, None)
    list_them((first_name, 10, 20), (second_name, 20, None))
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("hashed", [True, False], ids=["hash", "no hash"])
@pytest.mark.parametrize("again", [False, True], ids=["first", "known before"])
def test_a_change_at_the_moment_of_the_list(
    source: Source, site: Site, dest: Path, *, again: bool, hashed: bool
) -> None:
    """DST-5.2, DST-B2: T is the list's `at`; what was changed at just that moment may be in the list or not."""
    if again:
        go(source.base, dest)
    site.put("new", b"new")
    site.put("f1.txt", b"one, newer")
    site.drop("f2.txt")
    changes = [
        told(site, "new", 10, "created", hashed=hashed),
        told(site, "f1.txt", 10, hashed=hashed),
        url(site.uri("f2.txt"), change="deleted", datetime=at(10)),
    ]
    site.publish_changes(10, entries=changes)
    assert go(source.base, dest).status in (DONE, 4)  # what the list says of two of them holds no more
    assert tree(dest) == dict(site.files)
    assert go(source.base, dest, baseline=True).status in (DONE, 4)
    assert tree(dest) == dict(site.files)
    assert go(source.base, dest).status == DONE


def test_times_no_finer_than_their_list(source: Source, site: Site, dest: Path) -> None:
    """DST-5.2: `at`, `from` and `until` to the microsecond, changes to the second: these may look older."""
    site.publish_list(when=10.5)
    site.publish_changes(10.5)
    go(source.base, dest)
    site.put("f1.txt", b"one, newer")
    site.publish_changes(10.5, entries=[told(site, "f1.txt", 10, hashed=True)])
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize(("when", "stays"), [(20, True), (19, False), (20.1, False)])
def test_what_was_made_in_the_second_of_a_list(
    source: Source, site: Site, dest: Path, when: float, *, stays: bool
) -> None:
    """DST-4.4: told as of a whole second, it may have been made after the list; until one is sure it is not deleted."""
    go(source.base, dest)
    site.put("x", b"x")
    entry = url(site.uri("x"), change="created", datetime=at(when), hash=sha(b"x"))
    site.publish_changes(10, entries=[entry])
    assert go(source.base, dest).status == DONE
    del site.files["x"]
    site.publish_list(when=20.5)
    site.publish_changes(20.5, entries=[])
    assert go(source.base, dest, baseline=True).status == DONE
    assert ("x" in tree(dest)) is stays
    site.publish_list(when=22)
    site.publish_changes(22, entries=[])
    assert go(source.base, dest, baseline=True).status == DONE
    assert tree(dest) == dict(site.files)


def test_an_old_list_brings_no_deleted_resource_back(source: Source, site: Site, dest: Path) -> None:
    """DST-B2: what was deleted after the list was made is not even asked for."""
    go(source.base, dest)
    site.drop("f1.txt")
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    source.forget()
    ran = go(source.base, dest, baseline=True)
    assert (ran.status, ran.one.created, ran.one.failed) == (DONE, 0, 0)
    assert "/set/resources/f1.txt" not in source.requests()


def test_what_changed_last_at_the_moment_of_a_list_goes_with_it(source: Source, site: Site, dest: Path) -> None:
    """DST-B2, DST-4.4: the list of that moment does not name it, so it is deleted."""
    go(source.base, dest)
    site.put("x", b"x")
    site.publish_changes(10, entries=[told(site, "x", 20, "created", hashed=True)])
    assert go(source.base, dest).status == DONE
    del site.files["x"]
    site.source.pages.pop("/set/resources/x")
    site.publish_list(when=20)
    site.publish_changes(20, entries=[])
    assert go(source.base, dest, baseline=True).status == DONE
    assert tree(dest) == dict(site.files)


def test_a_change_that_finds_its_file_ends_a_failure(source: Source, site: Site, dest: Path) -> None:
    """DST-F6: what an old list wants and cannot have is not tried for ever, once a change says what is held."""
    go(source.base, dest)
    site.put("f1.txt", b"one, newer")
    source.pages["/set/resources/f1.txt"] = Reply(b"one, newer")
    site.publish_changes(10, entries=[told(site, "f1.txt", 10, hashed=True)])
    assert go(source.base, dest).status == DONE
    go(source.base, dest, baseline=True)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failed) == (DONE, 0)
    assert tree(dest) == dict(site.files)
