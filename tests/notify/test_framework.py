"""Framework Notifications: what is told of documents that are new, changed or gone, and what of a source as it runs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.publish.notifications import (
    document_changes,
    document_named,
    framework_documents,
    framework_payload,
)
from headwater.publish.site import SetSettings, Site
from tests.notify.subscriber import Answer, Came, Subscriber
from tests.notify.test_publisher import Served, served
from tests.support.documents import read_bytes
from tests.support.serving import request
from tests.support.waiting import until

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SITE = Site(base_url="http://s.example", sets=(SetSettings(name="a"), SetSettings(name="b")))
OFTEN = "batch_seconds = 0.02\nframework_seconds = 0.05\n"

LIST, CAPABILITIES, DESCRIPTION = "a/resourcelist.xml", "a/capabilitylist.xml", ".well-known/resourcesync"
PAGES = ["a/resourcelist/00000.xml", "a/resourcelist/00001.xml", "a/resourcelist/00002.xml"]


@pytest.mark.parametrize(
    ("told", "there", "changes"),
    [
        ({}, {LIST: "1"}, [(LIST, "created")]),
        ({LIST: "1"}, {LIST: "1"}, []),
        ({LIST: "1"}, {LIST: "2"}, [(LIST, "updated")]),
        ({LIST: "1"}, {}, []),  # RS-FN-08: the Capability List says so
        ({LIST: "1"}, {LIST: "2", PAGES[0]: "3", PAGES[1]: "4"}, [(PAGES[1], "created")]),  # RS-FN-09, RS-FN-11
        ({PAGES[0]: "3"}, {LIST: "2", PAGES[0]: "5", PAGES[1]: "4"}, [(PAGES[0], "updated"), (PAGES[1], "created")]),
        ({"a/resourcedump.xml": "1"}, {"a/resourcedump.xml": "2"}, [("a/resourcedump.xml", "created")]),  # RS-FN-08
        ({"a/changedump.xml": "1"}, {"a/changedump.xml": "2"}, [("a/changedump.xml", "updated")]),
        ({CAPABILITIES: "1", LIST: "1"}, {}, [(CAPABILITIES, "deleted")]),
        (
            {DESCRIPTION: "1"},
            {DESCRIPTION: "2", CAPABILITIES: "1"},
            [(DESCRIPTION, "updated"), (CAPABILITIES, "created")],
        ),
    ],
)
def test_what_is_told(told: dict[str, str], there: dict[str, str], changes: list[tuple[str, str]]) -> None:
    found = document_changes(told, {one: there[one.name] for one in framework_documents("a", there)}, "a")
    assert [(one.document.name, one.kind.value) for one in found] == changes


@pytest.mark.parametrize(
    ("name", "capability", "index"),
    [
        (CAPABILITIES, "capabilitylist", None),
        (LIST, "resourcelist", None),
        (PAGES[0], "resourcelist", LIST),
        ("a/changelist/00007.xml", "changelist", "a/changelist.xml"),
        ("a/archive/changelist/part-00001.xml", "changelist-archive", "a/archive/changelist.xml"),
        (DESCRIPTION, "description", None),
        ("sourcedescription/00001.xml", "description", DESCRIPTION),
        ("a/changelist/open.xml", None, None),
        ("a/classic/resourcelist.xml", None, None),
        ("a/sitemap.xml", None, None),
        ("a/resourcedump/00000-000-0123456789abcdef.zip", None, None),
        ("b/resourcelist.xml", None, None),
        ("robots.txt", None, None),
    ],
)
def test_what_a_document_is_to_a_channel(name: str, capability: str | None, index: str | None) -> None:  # RS-FN-06
    found = document_named("a", name)
    assert (found and found.capability, found and found.index) == (capability, index)


@pytest.mark.parametrize(
    ("names", "up"),
    [
        ([LIST, PAGES[0]], "http://s.example/a/capabilitylist.xml"),
        ([CAPABILITIES], "http://s.example/.well-known/resourcesync"),
        ([CAPABILITIES, LIST], None),
        ([DESCRIPTION], None),
    ],
)
def test_what_is_above_what_has_changed(names: list[str], up: str | None) -> None:  # RS-FN-04
    there = dict.fromkeys(framework_documents("a", names), "1")
    payload = framework_payload(SITE, "a", document_changes({}, there, "a"), lambda _name: NOW)
    head, _, warned = read_bytes(payload)
    assert not warned
    assert next((link.href for link in head.links if link.rel == "up"), None) == up


def test_what_a_payload_says_of_each_document() -> None:  # RS-FN-02, RS-FN-03, RS-FN-05, RS-FN-07, RS-FN-10
    names = [f"a/resourcelist/{number:05}.xml" for number in range(300)]
    there = dict.fromkeys(framework_documents("a", names), "2")
    changes = document_changes(dict.fromkeys(names, "1"), there, "a")
    head, entries, warned = read_bytes(framework_payload(SITE, "a", changes, lambda _name: NOW))
    assert (head.capability, warned) == ("framework-notification", ())
    for one, name in zip(entries, names, strict=True):
        assert (one.loc, one.capability, one.datetime) == (f"http://s.example/{name}", "resourcelist", NOW)
        assert [(link.rel, link.href) for link in one.links] == [("index", "http://s.example/a/resourcelist.xml")]


@pytest.fixture
def far() -> Iterator[Subscriber]:
    one = Subscriber()
    yield one
    one.close()


def told(far: Subscriber, topic: str) -> list[tuple[str, str]]:
    """What a hub has been told on a framework channel: the path of each document, and what has become of it."""
    found: list[tuple[str, str]] = []
    for body in dict.fromkeys(one.body for one in frameworks(far) if f'<{topic}>; rel="self"' in one.headers["link"]):
        _, entries, warned = read_bytes(body)
        assert not warned
        found += [("/" + one.loc.split("/", 3)[3], str(one.change and one.change.value)) for one in entries]
    return found


def frameworks(far: Subscriber) -> list[Came]:
    return [one for one in far.deliveries("/hub") if b'"framework-notification"' in one.body]


def topic_of(source: Served, name: str) -> str:
    return f"{source.url}{name}/frameworknotification.xml"


SOURCE = "/.well-known/resourcesync"


def test_documents_that_appear_change_and_go(tmp_path: Path, far: Subscriber) -> None:
    with served(tmp_path, [f"{far.url}/hub"], OFTEN) as source:
        topic = topic_of(source, "files")
        listed = read_bytes(request(source.url, "/files/capabilitylist.xml").body)[1]
        channels = {one.capability: one.loc for one in listed if "notification" in str(one.capability)}
        assert channels == {"change-notification": source.topic, "framework-notification": topic}  # RS-CH-02, RS-CH-05
        first = {SOURCE, "/files/capabilitylist.xml", "/files/resourcelist.xml", "/files/changelist.xml"}
        far.wait(lambda: set(told(far, topic)) >= {(one, "created") for one in first})
        assert request(source.url, "/files/frameworknotification.xml").body == frameworks(far)[-1].body  # RS-NT-03

        source.write("a.txt")
        far.wait(lambda: ("/files/changelist.xml", "updated") in told(far, topic))

        (tmp_path / "more").mkdir()
        source.close()
        source.configure('dump = true\n[[set]]\nname = "more"\nfiles = "more"\n')
        source.start()
        more = topic_of(source, "more")
        far.wait(lambda: (SOURCE, "updated") in told(far, topic))  # RS-CH-04: on all framework channels
        far.wait(lambda: ("/files/capabilitylist.xml", "updated") in told(far, topic))
        far.wait(lambda: ("/files/resourcedump.xml", "created") in told(far, topic))
        far.wait(lambda: {("/more/capabilitylist.xml", "created"), (SOURCE, "created")} <= set(told(far, more)))
        before = len(told(far, more))

        source.close()
        source.configure("")
        source.start()
        far.wait(lambda: ("/more/capabilitylist.xml", "deleted") in told(far, more))
        far.wait(lambda: told(far, topic).count((SOURCE, "updated")) == 2)
        assert len(told(far, more)) == before + 1
        assert told(far, topic).count(("/files/resourcedump.xml", "created")) == 1
        assert not [one for one, _ in told(far, topic) + told(far, more) if "/archive/" in one or "open.xml" in one]


def test_what_is_announced_can_be_had_and_no_index_is(tmp_path: Path, far: Subscriber) -> None:  # RS-FN-09, RS-FN-11
    seen: list[tuple[str, int]] = []
    url: list[str] = []

    def look(came: Came) -> Answer:
        if b'"framework-notification"' in came.body and url:
            for one in read_bytes(came.body)[1]:
                name = one.loc.removeprefix(url[0])
                answer = request(url[0], f"/{name}")
                index = [link.href for link in one.links if link.rel == "index"]
                named = not index or one.loc.encode() in request(url[0], f"/{index[0].removeprefix(url[0])}").body
                seen.append((name, answer.status if named and b"<urlset" in answer.body else 0))
        return Answer(200, b"")

    far.answers["/hub"] = look
    with served(tmp_path, [f"{far.url}/hub"], OFTEN) as source:
        text = source.config.read_text()
        source.close()
        source.config.write_text(f"page_entries = 10\nsegment_entries = 15\n{text}")
        source.start()
        url.append(source.url)
        for number in range(40):
            source.write(f"{number:02}.txt")
        until(lambda: ("files/changelist/00002.xml", 200) in seen)
    lists = ("files/changelist.xml", "files/resourcelist.xml")
    assert {status for name, status in seen if name not in lists} == {200}
    for name in lists:  # a list when it was told of may be an index when it is looked at, and is not told of any more
        assert seen.count((name, 0)) <= 1


def test_a_hub_that_was_away_and_a_source_that_was_killed(tmp_path: Path, far: Subscriber) -> None:
    with served(tmp_path, [f"{far.url}/hub"], OFTEN) as source:
        topic = topic_of(source, "files")
        far.wait(lambda: ("/files/changelist.xml", "created") in told(far, topic))
        far.answers["/hub"] = lambda _came: Answer(503, b"")
        source.write("a.txt")
        far.wait(lambda: ("/files/changelist.xml", "updated") in told(far, topic))
        source.kill()
        refused = frameworks(far)[-1]
        del far.answers["/hub"]
        count = len(far.came)
        source.start()
        far.wait(lambda: [one for one in far.came[count:] if one.body == refused.body])  # the same octets
