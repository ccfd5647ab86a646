"""Packages of resources as they were: what a set held at a moment comes, and what did not exist then is named."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.source.packing_and_version_removal import collect_versions
from headwater.spec.records import AbsenceReason
from headwater.versions.retention import VersionRetention
from tests.http.test_dumps import Unpacked, ask
from tests.support.copying import DONE, go, tree
from tests.support.serving import Face, face, request
from tests.support.waiting import settle

MANY = 30
JUST_AFTER = dt.timedelta(microseconds=1)


def uri(running: Face, name: str) -> str:
    return f"{running.url}/files/resources/{name}"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    for number in range(MANY):
        (made / f"f{number}.txt").write_bytes(b"first %d" % number)
    return made


@pytest.fixture
def running(files: Path, tmp_path: Path) -> Iterator[Face]:
    with face(files, tmp_path / "state", versions=True, max_delete=1.0) as one:
        yield one


def changed(running: Face, files: Path) -> tuple[dt.datetime, dt.datetime]:
    """Have every file changed but the last, which is deleted, and a new one; a moment before it and one after."""
    settle()
    (files / f"f{MANY - 1}.txt").unlink()
    for number in range(MANY - 1):
        (files / f"f{number}.txt").write_bytes(b"second %d" % number)
    (files / "new.txt").write_bytes(b"new")
    opened = running.source.catalog.state("files").opened_at
    assert opened is not None
    running.source.run_once()
    return opened, running.source.catalog.changes("files")[-1].at


def test_resources_come_as_they_were(files: Path, running: Face) -> None:
    """Each in the state of the moment, before and after its change, to the microsecond; RS-RDM-01 to RS-RDM-05."""
    before, after = changed(running, files)
    named = [uri(running, name) for name in ("f0.txt", f"f{MANY - 1}.txt", "new.txt", "none.txt")]
    elsewhere = "https://example.org/a.txt"
    package = Unpacked(ask(running.url, {"uris": [*named, elsewhere], "at": before.isoformat()}).body)
    assert package.content == {named[0]: b"first 0", named[1]: b"first %d" % (MANY - 1)}
    unknown = AbsenceReason.UNKNOWN
    assert package.absent == {named[2]: unknown, named[3]: unknown, elsewhere: AbsenceReason.ELSEWHERE}
    assert package.document.at == before
    package = Unpacked(ask(running.url, {"uris": named, "at": after.isoformat()}).body)
    assert package.content == {named[0]: b"second 0", named[2]: b"new"}
    assert package.absent == {named[1]: AbsenceReason.DELETED, named[3]: unknown}
    first = min(one.at for one in running.source.catalog.changes("files"))
    package = Unpacked(ask(running.url, {"uris": named[:1], "at": (first - JUST_AFTER).isoformat()}).body)
    assert package.content == {named[0]: b"first 0"}


def test_a_state_whose_octets_are_gone_is_named(files: Path, running: Face) -> None:
    before, _ = changed(running, files)
    source, later = running.source, dt.datetime.now(dt.UTC) + dt.timedelta(days=2)
    kept = {"files": VersionRetention(seconds=1.0)}
    assert collect_versions(source.catalog, source.versions, VersionRetention(seconds=0.0), lambda: later, kept).removed
    package = Unpacked(ask(running.url, {"uris": [uri(running, "f0.txt")], "at": before.isoformat()}).body)
    assert (package.content, set(package.absent)) == ({}, {uri(running, "f0.txt")})


@pytest.mark.parametrize(
    "asked",
    [
        {"page": 0, "at": "2026-01-01T00:00:00Z"},
        {"since": "2026-01-01T00:00:00Z", "at": "2026-01-01T00:00:00Z"},
        {"at": "2026-01-01T00:00:00Z"},
        {"uris": ["https://example.org/a"], "at": "2026-01-01"},
        {"uris": ["https://example.org/a"], "at": "yesterday"},
        {"uris": ["https://example.org/a"], "at": 7},
        {"uris": ["https://example.org/a"], "at": "9998-01-01T00:00:00Z"},
    ],
)
def test_requests_that_mean_nothing_are_refused(running: Face, asked: dict[str, object]) -> None:
    answer = ask(running.url, asked)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, "HW-SRV-06")


def test_only_a_set_with_versions_has_a_past(files: Path, running: Face, tmp_path: Path) -> None:
    assert json.loads(request(running.url, "/files/dump", "OPTIONS").body)["options"] == ["deflate", "at"]
    with face(files, tmp_path / "other") as other:
        assert json.loads(request(other.url, "/files/dump", "OPTIONS").body)["options"] == ["deflate"]
        now = dt.datetime.now(dt.UTC).isoformat()
        refused = ask(other.url, {"uris": [uri(other, "f0.txt")], "at": now})
        assert (refused.status, "versions" in json.loads(refused.body)["error"]["advice"]) == (400, True)


@pytest.mark.parametrize("refused", [False, True], ids=["given", "refused"])
def test_a_copy_of_the_past_asks_for_them(
    files: Path, running: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, refused: bool
) -> None:
    """What was there comes by one package; where a source refuses it, by mementos as before."""
    _, moment = changed(running, files)
    right = tree(files)
    settle()
    for name in right:
        (files / name).write_bytes(b"third")
    running.source.run_once()
    if refused:
        monkeypatch.setattr(running.dumps, "_past", None)
    running.served.clear()
    ran = go(running.url, tmp_path / "then", at=moment.isoformat())
    assert (ran.status, tree(tmp_path / "then")) == (DONE, right)
    asked = [one for one in running.served if "/memento/" in str(one)]
    assert sum(way.resources for way in ran.one.ways) == (0 if refused else MANY)
    assert len(asked) == (MANY if refused else 0)
    assert {notice.rule for notice in ran.notices} == ({"DST-F1"} if refused else set())


def test_of_what_retention_has_forgotten_nothing_is_known(files: Path, running: Face) -> None:
    """A deleted resource of which no state is left is told as one that never was; the others have their last state."""
    _, after = changed(running, files)
    kept, source = {"files": VersionRetention(seconds=86_400.0)}, running.source
    gone, there = f"f{MANY - 1}.txt", "f0.txt"
    assert [running.get(f"/files/timegate/{name}").status for name in (gone, there)] == [302, 302]
    collect_versions(source.catalog, source.versions, VersionRetention(), lambda: after + dt.timedelta(days=2), kept)
    early = "Tue, 20 Mar 2001 20:35:00 GMT"
    for name, status in ((gone, 404), ("never.txt", 404), (there, 302)):
        assert running.get(f"/files/timegate/{name}").status == status
        assert running.get(f"/files/timegate/{name}", accept_datetime=early).status == status
    assert [running.get(f"/files/timemap/{name}").status for name in (gone, there)] == [404, 200]
