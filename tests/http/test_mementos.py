"""Past states over HTTP, walked by a reader written from RFC 7089 alone: original, TimeGate, TimeMap, mementos."""

from __future__ import annotations

import datetime as dt
import hashlib
import http.client
import re
import time
from collections.abc import Iterator
from email.utils import format_datetime
from pathlib import Path

import pytest

from headwater.source.packing_and_version_removal import collect_versions
from headwater.versions.retention import VersionRetention
from tests.support.kept_versions import damage
from tests.support.serving import Answer, Face, face
from tests.support.waiting import settle

_LINK = re.compile(r'<([^<>]*)>((?:\s*;\s*[a-z]+="[^"]*")*)\s*(?:,|\Z)')
_PARAMETER = re.compile(r'([a-z]+)="([^"]*)"')


class Link(dict[str, str]):
    """One link: its parameters, and `href`."""

    @property
    def relations(self) -> set[str]:
        """The relations of `rel`."""
        return set(self["rel"].split())


def links(text: str) -> list[Link]:
    """What a `Link` header or a document in the link format says (RFC 8288, RFC 6690)."""
    found = [Link(dict(_PARAMETER.findall(params)), href=href) for href, params in _LINK.findall(text)]
    assert len(found) == text.count("<"), text
    return found


class Reader:
    """Goes from an original resource to its past, by links alone."""

    def __init__(self, running: Face, relative: str) -> None:
        self.running = running
        self.original = f"/files/resources/{relative}"

    def get(self, url: str, **headers: str) -> Answer:
        return self.running.get(url.removeprefix(self.running.url), **headers)

    def href(self, relation: str) -> str:
        answer = self.get(self.original)
        (found,) = [one for text in (answer.headers["link"],) for one in links(text) if relation in one.relations]
        return found["href"]

    def at(self, moment: dt.datetime | None) -> Answer:
        headers = {} if moment is None else {"accept_datetime": format_datetime(moment, usegmt=True)}
        gate = self.get(self.href("timegate"), **headers)
        assert gate.headers["vary"] == "accept-datetime"
        if gate.status != 302:
            return gate
        assert {"original", "timemap"} <= {rel for one in links(gate.headers["link"]) for rel in one.relations}
        memento = self.get(gate.headers["location"])
        assert "memento-datetime" in memento.headers
        return memento

    def mementos(self) -> list[Link]:
        url: str | None = self.href("timemap")
        found: list[Link] = []
        while url is not None:
            page = self.get(url)
            assert page.headers["content-type"] == "application/link-format"
            said = links(page.body.decode("ascii").strip())
            (own,) = [one for one in said if "self" in one.relations]
            assert own["href"] == url
            assert {"original", "timegate"} <= {rel for one in said for rel in one.relations}
            here = [one for one in said if "memento" in one.relations]
            assert (own["from"], own["until"]) == (here[0]["datetime"], here[-1]["datetime"])
            found += here
            url = next((one["href"] for one in said if "timemap" in one.relations), None)
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.txt").write_bytes(b"zero")
    return files


@pytest.fixture
def running(folder: Path, tmp_path: Path) -> Iterator[Face]:
    with face(folder, tmp_path / "state", versions=True, max_delete=1.0) as one:
        yield one


def change(running: Face, folder: Path, octets: bytes | None) -> dt.datetime:
    """Have the file changed, or deleted, and recorded; the time of that change."""
    settle()
    (folder / "a.txt").unlink() if octets is None else (folder / "a.txt").write_bytes(octets)
    running.source.run_once()
    return running.source.catalog.changes("files")[-1].at


def test_every_state_is_reached_from_the_resource(folder: Path, running: Face) -> None:
    """RFC 7089 2.2, 4.1, 5: by TimeGate and TimeMap, with relations that agree; RS-REL-08 to RS-REL-10."""
    reader = Reader(running, "a.txt")
    for octets in (b"one", b"two", b"three"):
        change(running, folder, octets)
    found = reader.mementos()
    assert [reader.get(one["href"]).body for one in found] == [b"zero", b"one", b"two", b"three"]
    assert len({one["href"] for one in found}) == 4, "several within one second have addresses of their own"
    assert "first" in found[0].relations
    assert "last" in found[-1].relations
    memento = reader.get(found[1]["href"])
    beside = {rel: one["href"] for one in links(memento.headers["link"]) for rel in one.relations - {"memento"}}
    assert beside == {
        "original": running.url + reader.original,
        "timegate": reader.href("timegate"),
        "timemap": reader.href("timemap"),
        "first": found[0]["href"],
        "prev": found[0]["href"],
        "next": found[2]["href"],
        "last": found[3]["href"],
    }
    assert memento.headers["memento-datetime"] == found[1]["datetime"]
    assert reader.at(None).body == b"three"


def test_a_memento_is_served_as_what_it_was(folder: Path, running: Face) -> None:
    """Media type, tag, ranges, conditions and HEAD as of any resource, and cached for good."""
    change(running, folder, b"one")
    reader = Reader(running, "a.txt")
    url = reader.mementos()[0]["href"]
    whole = reader.get(url)
    tag = f'"{hashlib.sha256(b"zero").hexdigest()}"'
    assert (whole.headers["content-type"], whole.headers["etag"]) == ("text/plain", tag)
    assert whole.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert (reader.get(url, range="bytes=1-2").status, reader.get(url, range="bytes=1-2").body) == (206, b"er")
    assert reader.get(url, if_none_match=tag).status == 304
    head = running.get(url.removeprefix(running.url), "HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "4")
    assert head.headers["memento-datetime"] == whole.headers["memento-datetime"]


def test_a_timegate_clamps_and_says_when_there_was_nothing(folder: Path, running: Face) -> None:
    """RFC 7089 4.5: before the first state the first one, after the last the last; 410 while it was deleted."""
    reader = Reader(running, "a.txt")
    assert reader.at(dt.datetime(1, 1, 1, tzinfo=dt.UTC)).body == b"zero"
    assert reader.at(dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)).body == b"zero"
    (folder / "b.txt").write_bytes(b"stays")
    time.sleep(1.1)
    running.source.run_once()
    gone = change(running, folder, None)
    assert reader.at(gone - dt.timedelta(seconds=1)).body == b"zero"
    deleted = reader.at(gone)
    assert (deleted.status, "deleted" in deleted.body.decode()) == (410, True)
    assert {"prev", "last"} <= {rel for one in links(deleted.headers["link"]) for rel in one.relations}
    assert reader.get(reader.original).status == 404
    assert [reader.get(one["href"]).body for one in reader.mementos()] == [b"zero"]
    assert reader.at(None).body == b"zero", "without a moment, the last that there is"


def test_what_is_gone_and_not_yet_listed_leads_to_its_past(folder: Path, running: Face) -> None:
    """A resource that is no longer there names its TimeGate, also before its deletion is recorded."""
    reader = Reader(running, "a.txt")
    (folder / "a.txt").unlink()
    assert reader.get(reader.original).status == 404
    assert reader.at(None).body == b"zero"


BAD_DATES = ["", "tomorrow", "2001-03-20T20:35:00Z", "Tue, 20 Mar 2001 25:35:00 GMT", "Tue, 31 Feb 2001 20:35:00 GMT",
             "Tue, 20 Mar 0000 20:35:00 GMT", "Tue, 20 Mar 2001 20:35:00 +0100", "Tue, 20 Mar 2001 20:35:00 GMT, x",
             "Tue, 20 Mar 12001 20:35:00 GMT", "x" * 5_000, "Tue, 20 Mär 2001 20:35:00 GMT"]  # fmt: skip


@pytest.mark.parametrize("text", BAD_DATES)
def test_a_bad_accept_datetime_is_told_with_what_is_right(running: Face, text: str) -> None:
    answer = running.get("/files/timegate/a.txt", accept_datetime=text)
    assert (answer.status, answer.headers["vary"]) == (400, "accept-datetime")
    assert b"right is: Tue, 20 Mar 2001 20:35:00 GMT" in answer.body


BAD_TARGETS = [
    ("/files/timegate/unknown.txt", 404),
    ("/files/timemap/unknown.txt", 404),
    ("/files/timegate/../../secret", 404),
    ("/files/timegate/a%00.txt", 404),
    ("/files/timegate/%2e%2e/a.txt", 404),
    ("/files/timegate/", 404),
    ("/other/timegate/a.txt", 404),
    ("/files/timemap/a.txt?page=1", 400),
    ("/files/timemap/a.txt?from=", 400),
    ("/files/timemap/a.txt?from=20269999000000000000", 400),
    ("/files/timemap/a.txt?from=99991231235959999999", 404),
    ("/files/memento/a.txt", 404),
    ("/files/memento/00000000000000000000/a.txt", 404),
    ("/files/memento/99999999999999999999/a.txt", 404),
    ("/files/memento/20260101000000000000/a.txt", 404),
    ("/files/memento/20260101000000000000/../a.txt", 404),
    ("/files/memento/2026/a.txt", 404),
]


@pytest.mark.parametrize(("target", "status"), BAD_TARGETS)
def test_a_hostile_target_leads_nowhere(running: Face, target: str, status: int) -> None:
    assert running.get(target).status == status


def test_what_is_excluded_later_is_no_longer_served(folder: Path, tmp_path: Path) -> None:
    with face(folder, tmp_path / "state", versions=True) as running:
        url = Reader(running, "a.txt").mementos()[0]["href"].removeprefix(running.url)
    with face(folder, tmp_path / "state", versions=True, exclude=("a.txt",)) as running:
        for target in (url, "/files/timegate/a.txt", "/files/timemap/a.txt"):
            assert running.get(target).status == 404
        assert "timegate" not in running.get("/files/resources/a.txt").headers.get("link", "")


def test_without_versions_nothing_is_advertised_or_answered(folder: Path, tmp_path: Path) -> None:
    with face(folder, tmp_path / "state") as running:
        assert "timegate" not in running.get("/files/resources/a.txt").headers["link"]
        assert b"timegate" not in running.get("/files/resourcelist.xml").body
        assert running.get("/files/timegate/a.txt").status == 404
        assert running.source.catalog.row_counts("files") == {}


def test_lists_lead_to_timegate_and_timemap(folder: Path, running: Face) -> None:
    """RS-REL-09, RS-REL-10: of each entry, and what they name answers."""
    change(running, folder, b"one")
    for name in ("resourcelist.xml", "changelist.xml"):
        text = running.get(f"/files/{name}").body.decode()
        for relation in ("timegate", "timemap"):
            (href,) = set(re.findall(rf'<rs:ln rel="{relation}" href="([^"]*)"', text))
            assert running.get(href.removeprefix(running.url)).status in (200, 302)


def test_a_change_leads_to_the_state_that_it_left(folder: Path, running: Face) -> None:
    """RS-REL-08, as example 28 of core section 14.6: time, hash, length and type of that very state."""
    change(running, folder, b"one")
    change(running, folder, b"two!")
    text = running.get("/files/changelist.xml").body.decode()
    found = [
        dict(re.findall(r'([a-z]+)="([^"]*)"', one)) for one in re.findall(r'<rs:ln rel="memento" ([^>]*)/>', text)
    ]
    assert [running.get(one["href"].removeprefix(running.url)).body for one in found] == [b"one", b"two!"]
    assert [(one["length"], one["type"]) for one in found] == [("3", "text/plain"), ("4", "text/plain")]
    assert [one["hash"] for one in found] == [
        f"sha-256:{hashlib.sha256(data).hexdigest()}" for data in (b"one", b"two!")
    ]
    assert re.findall(r'datetime="([^"]*)"', text) == [one["modified"] for one in found]
    assert "memento" not in running.get("/files/resourcelist.xml").body.decode().replace("/memento/", "")


def test_what_retention_has_removed_is_gone(folder: Path, running: Face) -> None:
    """410 for a memento that was; the others stay, and nothing that a state names is removed."""
    change(running, folder, b"one")
    change(running, folder, b"two")
    reader, source = Reader(running, "a.txt"), running.source
    first, second, last = (one["href"] for one in reader.mementos())
    later = source.catalog.changes("files")[-1].at + dt.timedelta(days=2)
    kept = {"files": VersionRetention(seconds=86_400.0)}
    counts = collect_versions(source.catalog, source.versions, VersionRetention(), lambda: later, kept, dry_run=True)
    assert counts.removed == 0 or counts.removed == 2
    assert len(reader.mementos()) == 3
    counts = collect_versions(source.catalog, source.versions, VersionRetention(), lambda: later, kept)
    assert (counts.needed, counts.removed) == (1, 2)
    assert [reader.get(url).status for url in (first, second, last)] == [410, 410, 200]
    assert [one["href"] for one in reader.mementos()] == [last]
    assert reader.at(dt.datetime(2000, 1, 1, tzinfo=dt.UTC)).body == b"two"


def test_a_large_past_is_paged(folder: Path, running: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.http.mementos.PAGE_STATES", 2)
    for number in range(4):
        change(running, folder, b"%d" % number)
    assert [Reader(running, "a.txt").get(one["href"]).body for one in Reader(running, "a.txt").mementos()] == [
        b"zero", b"0", b"1", b"2", b"3",
    ]  # fmt: skip


def test_no_page_of_a_timemap_is_empty(folder: Path, running: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 7089 5: deletions between states make no page without a memento, and hide none."""
    monkeypatch.setattr("headwater.http.mementos.PAGE_STATES", 1)
    for octets in (None, b"one", None, b"two", None):
        change(running, folder, octets)
    reader = Reader(running, "a.txt")
    found = reader.mementos()
    assert [reader.get(one["href"]).body for one in found] == [b"zero", b"one", b"two"]
    assert ["first" in one.relations for one in found] == [True, False, False]
    assert ["last" in one.relations for one in found] == [False, False, True]


@pytest.mark.parametrize("octets", [b"zero", b"x" * 100_000], ids=["small", "in a pack"])
def test_a_damaged_version_is_not_served(folder: Path, running: Face, tmp_path: Path, octets: bytes) -> None:
    change(running, folder, octets + b"!")
    change(running, folder, b"one")
    url = Reader(running, "a.txt").mementos()[1]["href"]
    assert Reader(running, "a.txt").get(url).body == octets + b"!"
    damage(tmp_path / "state" / "versions", octets + b"!")
    assert Reader(running, "a.txt").get(url).status == 410


def test_a_large_version_that_is_damaged_is_never_sent_whole(folder: Path, running: Face, tmp_path: Path) -> None:
    """Its octets are hashed as they are sent: what does not have its digest is cut off before its end."""
    octets = b"large" * 400_000
    change(running, folder, octets)
    change(running, folder, b"one")
    reader = Reader(running, "a.txt")
    url = reader.mementos()[1]["href"]
    assert reader.get(url).body == octets
    assert reader.get(url, range="bytes=5-9").body == b"large"
    damage(tmp_path / "state" / "versions", octets)
    with pytest.raises(http.client.IncompleteRead):
        reader.get(url)


def test_switched_on_later_the_present_state_is_kept_and_the_history_begins(folder: Path, tmp_path: Path) -> None:
    with face(folder, tmp_path / "state") as running:
        change(running, folder, b"one")
    settle()  # what was written a moment ago is kept by a later look
    with face(folder, tmp_path / "state", versions=True) as running:
        change(running, folder, b"two")
        reader = Reader(running, "a.txt")
        assert [reader.get(one["href"]).body for one in reader.mementos()] == [b"one", b"two"]
    with face(folder, tmp_path / "state") as running:
        change(running, folder, b"three")
        change(running, folder, b"four")
    settle()
    with face(folder, tmp_path / "state", versions=True) as running:
        reader = Reader(running, "a.txt")
        assert [reader.get(one["href"]).body for one in reader.mementos()] == [b"four"], "nothing is guessed"
