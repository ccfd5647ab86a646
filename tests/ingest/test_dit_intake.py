"""Documents of the DIT-ES protocol in a set: joined, late, doubled, in one second, from one post or from two."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headwater.catalog.interface import StateRow, StateUpdate
from headwater.ingest.dit.intake import DocumentRecords, tell
from headwater.ingest.dit.late_documents import read_note
from headwater.ingest.push.submission import Submission, SubmissionLimits
from headwater.progress import Notice, Progress
from headwater.spec.times import to_microseconds
from tests.support.failing import failing
from tests.support.push_set import PREFIX, PushSet, at, change, resource
from tests.support.waiting import START

A, B = "md5:" + "a" * 32, "md5:" + "b" * 32


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[PushSet]:
    made = PushSet(tmp_path)
    yield made
    made.close()


def test_dit_02_an_event_is_two_documents_and_one_change(fed: PushSet) -> None:
    """DIT-02, DIT-A13: what the change does not say is taken from the resource."""
    taken = fed.documents(resource("a", 1), change("a", "created", 1))
    assert [(one.status, one.seq) for one in taken] == [(200, 1), (200, 1)]
    fed.documents(change("a", "updated", 2), resource("a", 2, "b"))
    fed.documents(change("a", "deleted", 3))
    assert fed.log() == [("created", "a"), ("updated", "a"), ("deleted", "a")]
    assert [one.metadata.hash for one in fed.catalog.changes("s")] == [A, B, None]
    assert fed.settle() == 0


def test_dit_a3_a_change_gets_the_time_that_it_states(fed: PushSet) -> None:
    """Where that leaves the order: not before what was published, never in the future; `timestamp` stands in."""
    fed.later(60)
    fed.documents(resource("a", 20), change("a", "created", 20), resource("b", 20), change("b", "created", 20))
    late = change("c", "created", 30, timestamp=at(25))
    fed.documents(resource("c", 30), {name: value for name, value in late.items() if name != "datetime"})
    fed.catalog.mark("s", START + dt.timedelta(seconds=40))
    fed.documents(change("a", "deleted", 35))
    fed.documents(change("b", "deleted", 4_000))
    tick = dt.timedelta(microseconds=1)
    times = [one.at - START for one in fed.catalog.changes("s")]
    seconds = [dt.timedelta(seconds=second) for second in (20, 20, 25, 40, 60)]
    assert times == [seconds[0], seconds[1] + tick, seconds[2], seconds[3] + tick, seconds[4]]


@pytest.mark.parametrize("state_first", [True, False])
def test_dit_a11_two_posts_are_applied_whichever_comes_first(fed: PushSet, state_first: bool) -> None:
    """A change that comes before its resource says no digest, and the resource corrects that."""
    pair = [resource("a", 1), change("a", "created", 1)]
    first, second = pair if state_first else reversed(pair)
    assert [(one.status, one.seq) for one in fed.documents(first)] == [(200, 1)]
    assert fed.state() == {"a": A if state_first else None}
    fed.documents(second)
    assert fed.log() == [("created", "a")] + [("updated", "a")] * (not state_first)
    assert fed.state() == {"a": A}


def test_dit_a11_a_resource_alone_is_applied_and_its_late_change_is_not_logged_again(fed: PushSet) -> None:
    fed.documents(resource("a", 1))
    assert fed.log() == [("created", "a")]
    taken = fed.documents(change("a", "created", 1))
    assert taken[0].seq is None
    assert fed.log() == [("created", "a")]
    fed.documents(change("a", "updated", 9), resource("a", 9, "b"))  # the next one counts
    assert fed.log() == [("created", "a"), ("updated", "a")]


def test_dit_a13_a_change_alone_states_nothing_that_may_be_false(fed: PushSet) -> None:
    fed.documents(resource("a", 1), change("a", "created", 1))
    fed.documents(change("a", "updated", 5))
    assert fed.state() == {"a": None}
    fed.documents(change("a", "updated", 6, lastmod=None), resource("b", 1), change("b", "created", 1))
    fed.documents(change("b", "updated", 7, lastmod=resource("b", 1)["lastmod"]))
    fed.settle()
    assert fed.state()["b"] == A  # the same lastmod: the state is still the one that is known
    assert [kind for kind, uri in fed.log() if uri == "b"] == ["created", "updated"]


def test_dit_a14_every_change_is_logged_in_the_order_of_its_time(fed: PushSet) -> None:
    """DIT-A3, DIT-A6, DIT-A14: by datetime, then arrival; never grouped by kind, never collapsed."""
    fed.documents(
        change("a", "updated", 3),
        change("b", "created", 2),
        change("a", "updated", 2),
        change("a", "created", 1),
        change("b", "deleted", 2),
        resource("a", 3, "b"),
    )
    fed.settle()
    assert fed.log() == [
        ("created", "a"),
        ("created", "b"),
        ("updated", "a"),
        ("deleted", "b"),
        ("updated", "a"),
    ]
    assert fed.state() == {"a": B}


def test_dit_a12_what_really_happened_is_logged_and_the_same_only_once(fed: PushSet) -> None:
    fed.documents(change("a", "updated", 1), resource("a", 1), change("gone", "deleted", 1))
    assert fed.log() == [("created", "a")]
    again = fed.documents(change("a", "updated", 1), change("a", "updated", 1), resource("a", 1))
    assert [one.seq for one in again] == [None, None, None]
    fed.documents(change("a", "created", 2), resource("a", 2, "b"))
    fed.settle()
    assert fed.log() == [("created", "a"), ("updated", "a")]


def test_a_late_change_is_logged_and_undoes_nothing(fed: PushSet) -> None:
    fed.documents(resource("a", 9, "b"), change("a", "created", 9))
    fed.documents(change("a", "updated", 5), change("a", "deleted", 4))
    fed.settle()
    assert fed.log() == [("created", "a"), ("updated", "a")]
    assert fed.state() == {"a": B}
    fed.documents(change("a", "deleted", 10))
    fed.documents(change("a", "updated", 8), resource("a", 8))
    fed.settle()
    assert fed.state() == {}, "what is older than a deletion brings nothing back"


def test_a_clock_that_runs_ahead_or_back_costs_no_update(fed: PushSet) -> None:
    future = {"datetime": "9999-12-31T23:59:59+0000"}
    fed.documents(resource("a", 1), change("a", "created", 1, **future))
    fed.later(60)
    fed.documents(resource("a", 59, "b"), change("a", "updated", 59))
    assert fed.state() == {"a": B}
    back = {"datetime": change("a", "updated", -3600)["datetime"]}  # an hour back, the content is newer all the same
    fed.documents(resource("a", 70, "c"), change("a", "updated", 70, **back))
    assert fed.state() == {"a": "md5:" + "c" * 32}
    assert len(fed.log()) == 3


def test_dit_a9_documents_of_one_uri_are_merged_with_a_warning(fed: PushSet) -> None:
    one = resource("a", 1, mime=None)
    other = resource("a", 1, length=None, location={"value": "/srv/data/a", "type": "abs_path"})
    taken = fed.documents(one, other, change("a", "created", 1))
    assert [outcome.seq for outcome in taken] == [None, 1, 1]
    told: list[Progress | Notice] = []
    tell(taken, told.append)
    assert [one.rule for one in told if isinstance(one, Notice) and "DIT-A9" in one.message] == ["HW-ING-51"]
    (held,) = fed.catalog.resources("s")
    assert (held.metadata.type, held.metadata.length) == ("text/plain", 10)
    assert fed.settle() == 0


def test_dit_a10_a_document_that_leads_outside_is_refused_and_blocks_no_other(fed: PushSet) -> None:
    bad = resource("../../etc/passwd", 1)
    taken = fed.documents(bad, resource("a", 1), change("a", "created", 1))
    assert [(one.line, one.status) for one in taken] == [(1, 422), (2, 200), (3, 200)]
    assert fed.state() == {"a": A}


def test_dit_a19_unknown_fields_are_kept_beside_the_resource(fed: PushSet) -> None:
    fed.documents(resource("a", 1, licence="CC0"), change("a", "created", 1))
    (held,) = fed.catalog.resources("s")
    assert read_note(held.memo).kept == b'{"licence":"CC0"}'


def test_dit_24_links_of_documents_are_resolved_and_given_back(fed: PushSet) -> None:
    ln = [{"rel": "described by", "href": {"value": "a.xml", "type": "rel_path"}, "mime": "text/xml"}]
    fed.documents(resource("a.pdf", 1, ln=ln), change("a.pdf", "created", 1))
    fed.documents(resource("a.xml", 1), change("a.xml", "created", 1))
    held = fed.catalog.get("s", ["a.xml", "a.pdf"])
    assert [(one.rel, one.href, one.type) for one in held["a.pdf"].metadata.links] == [
        ("describedby", PREFIX + "a.xml", "text/xml")
    ]
    assert [(one.rel, one.href) for one in held["a.xml"].metadata.links] == [("describes", PREFIX + "a.pdf")]
    fed.documents(resource("a.xml", 1))  # sent again: no news, although the catalog has a link more than it says
    assert fed.settle() == 0


def test_dit_24_a_resource_that_describes_itself_is_no_news_when_it_comes_again(fed: PushSet) -> None:
    own = resource("a", 1, ln=[{"rel": "describedby", "href": {"value": "a", "type": "rel_path"}}])
    fed.documents(own, change("a", "created", 1))
    fed.documents(own)
    assert fed.settle() == 0
    assert fed.log() == [("created", "a")]


def test_dit_24_a_change_without_its_resource_leaves_what_belongs_together_linked(fed: PushSet) -> None:
    fed.documents(described_by("a.pdf", 1), change("a.pdf", "created", 1))
    fed.documents(change("a.xml", "created", 2))
    fed.settle()
    assert links_of(fed) == {"a.pdf": [("describedby", "a.xml")], "a.xml": [("describes", "a.pdf")]}
    fed.documents(change("a.pdf", "updated", 3))
    fed.settle()
    assert links_of(fed) == {"a.pdf": [("describedby", "a.xml")], "a.xml": [("describes", "a.pdf")]}
    fed.documents(change("a.pdf", "updated", 4), resource("a.pdf", 4))  # says so no longer
    assert links_of(fed) == {"a.pdf": [], "a.xml": []}


def test_dit_24_what_is_said_while_a_resource_waits_counts(fed: PushSet) -> None:
    fed.documents(resource("a.xml", 2))
    fed.documents(described_by("a.pdf", 1), change("a.pdf", "created", 1))
    fed.settle()
    assert links_of(fed) == {"a.pdf": [("describedby", "a.xml")], "a.xml": [("describes", "a.pdf")]}
    fed.documents(resource("a.xml", 5, "b"))
    fed.documents(change("a.pdf", "updated", 4), resource("a.pdf", 4))
    fed.settle()
    assert links_of(fed) == {"a.pdf": [], "a.xml": []}


def described_by(path: str, second: float) -> dict[str, object]:
    return resource(path, second, ln=[{"rel": "described by", "href": {"value": "a.xml", "type": "rel_path"}}])


def links_of(fed: PushSet) -> dict[str, list[tuple[str, str]]]:
    return {
        one.uri: [(link.rel, link.href.removeprefix(PREFIX)) for link in one.metadata.links]
        for one in fed.catalog.resources("s")
    }


@pytest.mark.parametrize("lastmod", ["2026", "2026-01-01", "2026-01-01T00:00Z", "0001-01-01T00:00:00Z", None])
def test_dit_a5_odd_times_wait_for_their_partner_too(fed: PushSet, lastmod: str | None) -> None:
    fed.documents(resource("a", 1, lastmod=lastmod))
    fed.documents(change("a", "created", 1, lastmod=lastmod))
    assert (fed.log(), fed.state()) == ([("created", "a")], {"a": A})
    fed.documents(change("b", "created", 1, lastmod=lastmod))
    fed.documents(resource("b", 1, lastmod=lastmod, ln=[{"rel": "up", "href": "http://x/", "lastmod": lastmod}]))
    assert set(fed.state()) == {"a", "b"}


def test_dit_03_a_load_takes_resources_as_the_snapshot_and_changes_as_history(tmp_path: Path) -> None:
    fed = PushSet(tmp_path, loading=True)
    history = [change("a", "created", 1), change("gone", "deleted", 2), change("a", "deleted", 3)]
    fed.documents(*history, resource("a", 4), change("a", "created", 4), resource("b", 5))
    fed.feed.open()
    assert fed.state() == {"a": A, "b": A}
    fed.documents(*history, change("a", "created", 4), change("b", "created", 5))  # the same export once more
    fed.settle()
    assert fed.log() == []
    assert fed.state() == {"a": A, "b": A}
    fed.close()


@pytest.mark.parametrize("seed", range(6))
def test_documents_that_come_late_doubled_and_in_any_batches_are_neither_lost_nor_doubled(
    tmp_path: Path, seed: int
) -> None:
    """A harvester's history, its two kinds of documents delivered by different ways, cut into batches at random."""
    chance = random.Random(seed)
    fed = PushSet(tmp_path)
    pairs: list[list[dict[str, object]]] = []
    expected: dict[str, str | None] = {}
    count = 0
    for second in range(60):
        path, digest = f"r{chance.randrange(8)}", chance.choice("abcdef")
        if expected.get(path) is not None and chance.random() < 0.3:
            pairs.append([change(path, "deleted", second)])
            expected[path] = None
        else:
            kind = "created" if expected.get(path) is None else "updated"
            pairs.append([change(path, kind, second), resource(path, second, digest)])
            expected[path] = f"md5:{digest * 32}"
        count += 1
    delivered = [(place + chance.random() * 3, one) for place, pair in enumerate(pairs) for one in pair]
    delivered += [(place + 3, one) for place, one in chance.sample(delivered, 20)]
    documents = [one for _, one in sorted(delivered, key=lambda item: item[0])]
    while documents:
        size = chance.randrange(1, 9)
        fed.documents(*documents[:size])
        documents = documents[size:]
        fed.settle(0.5)
    fed.settle()
    assert fed.state() == {path: digest for path, digest in expected.items() if digest is not None}
    logged = [uri for _, uri in fed.log()]
    assert len(logged) <= 2 * count, "nothing is told more often than once by each of its documents"
    # What is not logged is what came after its resource was deleted: it was outdone before it was heard of.
    assert len(logged) >= count - sum(1 for pair in pairs if len(pair) == 1) * 2
    fed.close()


def test_what_is_left_out_is_said_in_the_outcome_of_its_line(fed: PushSet) -> None:
    taken = fed.documents(resource("a", 1), resource("b", 1, length=-1, md5="?"), resource("../c", 1, length=-1))
    assert [(one.status, len(one.left_out)) for one in taken] == [(200, 0), (200, 2), (422, 0)]
    assert "length" in str(taken[1].left_out)


def test_lines_are_named_as_they_came_in_every_batch(fed: PushSet) -> None:
    told: list[object] = []
    submission = Submission(DocumentRecords(lambda _name: fed.feed, listener=told.append))
    lines = [b"", *(msgspec.json.encode(resource(f"r{n}", 1, length=-n)) for n in range(1_002))]
    submission.push(b"\n".join(lines))
    submission.finish()
    assert [one.line for one in submission.outcomes] == [n + 2 for n in range(1_002)]
    said = [one.message for one in told if isinstance(one, Notice)]
    assert "at line 4:" in said[1]
    assert "at line 1003:" in said[-1]


def test_many_documents_of_one_line_are_taken_in_batches(fed: PushSet) -> None:
    """And an action that nothing follows is named by its line."""
    submission = Submission(DocumentRecords(lambda _name: fed.feed))
    submission.push(b"\n" + msgspec.json.encode([resource(f"r{n}", 1) for n in range(2_500)]) + b"\n\n")
    assert len(submission.outcomes) == 2_000
    submission.push(b'{"index":{}}\n')
    submission.finish()
    told = sorted((one.line, one.item or 0, one.status) for one in submission.outcomes)
    assert told == [(2, item, 200) for item in range(1, 2_501)] + [(4, 0, 422)]


def test_a_dry_run_names_lines_as_they_came(fed: PushSet) -> None:
    submission = Submission(DocumentRecords(lambda _name: fed.feed, dry_run=True))
    bad = resource("../a", 1)
    submission.push(b"\n" + msgspec.json.encode(resource("a", 1)) + b"\n\n" + msgspec.json.encode([bad, bad]))
    submission.finish()
    assert [(one.line, one.item, one.status) for one in submission.outcomes] == [
        (2, None, 200),
        (4, 1, 422),
        (4, 2, 422),
    ]
    assert fed.state() == {}


def test_documents_of_one_line_count_as_lines_do(fed: PushSet) -> None:
    submission = Submission(DocumentRecords(lambda _name: fed.feed), limits=SubmissionLimits(lines=10))
    submission.push(msgspec.json.encode([resource(f"r{n}", 1) for n in range(9)]) + b"\n")
    with failing("HW-ING-45"):
        submission.push(msgspec.json.encode([resource("x", 1), resource("y", 1)]) + b"\n")
    assert len(submission.outcomes) == 9


@pytest.mark.parametrize("waited", ["state", "happening"])
def test_what_an_older_version_had_wait_is_in_nobodys_way(fed: PushSet, waited: str) -> None:
    """Documents of before 0.2 waited for their partners, for some seconds: what is sent again is taken."""
    due = fed.now + dt.timedelta(seconds=5)
    told = {"uri": "a", "metadata": {"hash": A}, "change": "created", "doubted_until": None, "again": True}
    row = {"due": due, "state": None, "happening": None, waited: told}
    old = StateUpdate([StateRow("half", "a", msgspec.msgpack.encode(row), to_microseconds(due))])
    fed.catalog.record("s", [], fed.now, state=old)
    fed.documents(resource("a", 1), change("a", "created", 1))
    assert (fed.log(), fed.state()) == ([("created", "a")], {"a": A})
    assert fed.settle(6) == 0
