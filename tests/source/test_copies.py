"""A copy that is a source again: what a destination places is announced, with its origin (RS-REL-12, DST-S9)."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import apsw
import msgspec
import pytest

from headwater.catalog.interface import Metadata
from headwater.cli import run
from headwater.copy_state import SCHEMA, CopyStateReader
from headwater.errors import Exit, StoreFault
from headwater.ingest.copy_intake import copy_lags
from headwater.source.published_copy import CopyWatch
from headwater.source.set_folders import names_in_copy
from headwater.source.source import ReadOnlySource
from headwater.spec.records import Link
from headwater.storage.database import Database
from headwater.storage.lock import lock_exclusive
from headwater.storage.transaction import SchemaTooNew
from headwater.versions.history import History, kept_until
from tests.support.copying import DONE, check, go, tree
from tests.support.fake_source import Reply, Site, Source, ln, sha, url
from tests.support.republishing import Hub, hub
from tests.support.waiting import until


@pytest.fixture
def origin() -> Iterator[Source]:
    with Source() as running:
        yield running


@pytest.fixture
def site(origin: Source) -> Site:
    made = Site(origin)
    for number in range(3):
        made.put(f"f{number}.txt", b"body %d\n" % number)
    made.clock = 10.0
    return made.publish(since=10.0)


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def state_of(dest: Path) -> Path:
    return dest / ".headwater" / "state.sqlite"


def codes(running: Hub) -> list[str]:
    return [notice.rule for notice in running.notices]


def test_what_is_placed_is_announced_once_and_with_its_origin(
    origin: Source, site: Site, dest: Path, tmp_path: Path
) -> None:
    """Creations, updates and deletions; `via` with what the origin stated, times of our own."""
    assert go(origin.base, dest).status == DONE
    with hub(dest, tmp_path / "state") as running:
        running.shows({"f0.txt", "f1.txt", "f2.txt"})
        held = running.resources()["f0.txt"].metadata
        body = site.files["f0.txt"]
        assert (held.hash, held.length) == (sha(body), len(body))
        assert held.links == (
            Link(rel="via", href=site.uri("f0.txt"), hash=sha(body), length=len(body), modified=held.lastmod),
        )
        site.put("f0.txt", b"other\n")
        site.put("f9.txt", b"new\n")
        site.drop("f1.txt")
        site.publish(since=10.0)
        assert go(origin.base, dest, max_delete=1.0).status == DONE
        running.shows({"f0.txt", "f2.txt", "f9.txt"})
        told = {(change.change.value, change.uri) for change in running.changes()}
        assert told == {("updated", "f0.txt"), ("created", "f9.txt"), ("deleted", "f1.txt")}
        assert len(running.changes()) == 3
        (gone,) = [change for change in running.changes() if change.change.value == "deleted"]
        assert gone.metadata == Metadata(links=(Link(rel="via", href=site.uri("f1.txt")),)), "without its last hash"
        assert b'change="deleted"' in (listed := running.get("/files/changelist.xml").body)
        assert site.uri("f1.txt").encode() in listed
        assert running.get("/files/resources/f9.txt").body == b"new\n"
        assert b'"last_look_at": "' in running.get("/health").body
        assert go(running.url, tmp_path / "mirror").status == DONE
        assert tree(tmp_path / "mirror") == tree(dest)
        assert check(running.url, tmp_path / "mirror").exit_status == DONE
    with hub(dest, tmp_path / "state") as running:  # nothing is announced again
        running.shows({"f0.txt", "f2.txt", "f9.txt"})
        assert len(running.changes()) == 3


def test_names_do_not_grow_however_often_they_are_published(
    origin: Source, site: Site, dest: Path, tmp_path: Path
) -> None:
    """A URI with a query has an escaped name, which is a file name like others to whoever copies the copy."""
    uri, body = site.uri("record?id=1"), b"a record\n"
    site.publish_list([url(uri, hash=sha(body), length=len(body))], 20.0)
    site.publish_changes(20.0, entries=[])
    origin.pages["/set/resources/record?id=1"] = Reply(body)
    names: list[str] = []
    where = origin.base
    with ExitStack() as stack:
        for level in range(3):
            copy = dest.with_name(f"copy{level}")
            assert go(where, copy).status == DONE
            (name,) = tree(copy)
            names.append(name)
            running = stack.enter_context(hub(copy, tmp_path / f"state{level}"))
            until(lambda: len(running.resources()) == 1 and running.is_settled(), what="the record")  # noqa: B023
            (held,) = running.resources().values()
            assert held.metadata.links[0].href == uri
            where = running.url
    escaped = names[0].removeprefix("%uri/")
    assert names == [f"%uri/{escaped}", f"%uri%/{escaped}", f"%uri%/{escaped}"]


def test_links_types_and_a_given_via_are_kept(origin: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    """A hub's `via` leads to the origin, not to the hub (RS-REL-12); what is not right here goes (RS-REL-20)."""
    kept = ln("via", "http://first.example/f0", hash="md5:" + "0" * 32) + ln(
        "describedby", "http://first.example/f0.xml"
    )
    dropped = ln("canonical", "http://first.example/f") + ln("timegate", "http://first.example/tg/f0")
    own = ' xmlns:o="urn:own" o:level="4"'  # an attribute of another namespace (RS-DOC-13)
    told = site.resource("f0.txt", type="text/plain").replace("</url>", kept + dropped + "</url>")
    told = told.replace("<rs:md", f"<rs:md{own}")
    site.publish_list([told], 20.0)
    site.publish_changes(20.0, entries=[])
    assert go(origin.base, dest).status == DONE
    with hub(dest, tmp_path / "state") as running:
        running.shows({"f0.txt"})
        stated = running.resources()["f0.txt"].metadata
        assert stated.type == "text/plain"
        assert stated.extra == (("{urn:own}level", "4"),)
        until(lambda: b'level="4"' in running.get("/files/resourcelist.xml").body, what="the attribute in the list")
        assert stated.links == (
            Link(rel="via", href="http://first.example/f0", hash="md5:" + "0" * 32),
            Link(rel="describedby", href="http://first.example/f0.xml"),
        )
        assert running.get("/files/resources/f0.txt").headers["content-type"].startswith("text/plain")


def test_a_file_that_was_changed_here_is_not_sent_as_if_it_were_right(
    origin: Source, site: Site, dest: Path, tmp_path: Path
) -> None:
    """Changed with its size and time kept: 503. Touched by a link alone: sent, after its digest was computed."""
    assert go(origin.base, dest).status == DONE
    with hub(dest, tmp_path / "state") as running:
        running.shows({"f0.txt", "f1.txt", "f2.txt"})
        damaged, linked = dest / "f0.txt", dest / "f1.txt"
        before = damaged.stat()
        damaged.write_bytes(b"BODY 0\n")
        os.utime(damaged, ns=(before.st_atime_ns, before.st_mtime_ns))
        os.link(linked, tmp_path / "another-name")
        (dest / "f2.txt").unlink()
        for _ in range(2):
            answer = running.get("/files/resources/f0.txt")
            assert (answer.status, answer.headers["retry-after"]) == (503, "10")
            answer = running.get("/files/resources/f1.txt")
            assert (answer.status, answer.headers["etag"]) == (200, f'"{sha(b"body 1" + bytes([10]))[8:]}"')
            assert running.get("/files/resources/f2.txt").status == 404
        assert go(origin.base, dest, repair=True).status == DONE
        until(lambda: running.get("/files/resources/f0.txt").status == 200)
        until(lambda: running.get("/files/resources/f2.txt").status == 200)
        assert running.changes() == []  # the resources are what they were


def test_what_is_not_as_placed_is_not_announced_and_told(
    origin: Source, site: Site, dest: Path, tmp_path: Path
) -> None:
    """Changed before we came, unconfirmed after a killed run, or of a name that no resource has: a hostile state."""
    assert go(origin.base, dest).status == DONE
    (dest / "f1.txt").write_bytes(b"something else")
    with Database(state_of(dest), SCHEMA) as database, database.write() as t:
        t.run("UPDATE resources SET recovered = 1 WHERE path = CAST('f2.txt' AS BLOB)")
        for number, path in enumerate((b"../outside", b"/etc/hostname", b".headwater/state.sqlite", b"a//b", b"nul\0")):
            t.run(
                "INSERT INTO resources(set_id, uri, path, size, mtime_ns, digest, run) VALUES (1, ?, ?, 1, 1, 'x', 1)",
                (f"http://h.example/{number}", path),
            )
        t.run("UPDATE resources SET type = 'no type', links = '{', listed_hash = 'crc:1' WHERE uri LIKE '%f0.txt'")
    with hub(dest, tmp_path / "state") as running:
        running.shows({"f0.txt"})
        until(lambda: {"HW-CPY-12", "HW-CPY-13", "HW-CPY-14"} <= set(codes(running)))
        stated = running.resources()["f0.txt"].metadata
        assert (stated.type, stated.hash) == (None, sha(site.files["f0.txt"]))
        assert [link.rel for link in stated.links] == ["via"]
        for name in ("../outside", ".headwater/state.sqlite", "%2e%2e/outside"):
            assert running.get(f"/files/resources/{name}").status in (400, 404)


def test_a_circle_is_noticed_by_via_and_told(origin: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    """What came from this very source is left out, and nothing grows (RS-REL-12)."""
    assert go(origin.base, dest).status == DONE
    with hub(dest, tmp_path / "state") as first:
        first.shows({"f0.txt", "f1.txt", "f2.txt"})
        port = int(first.url.rpartition(":")[2])
        assert go(first.url, tmp_path / "second").status == DONE
    with Database(state_of(tmp_path / "second"), SCHEMA) as database, database.write() as t:
        t.run("UPDATE resources SET links = NULL WHERE uri LIKE '%f0.txt'")  # as if it came from ourselves alone
    with hub(tmp_path / "second", tmp_path / "other", port=port) as itself:
        itself.shows({"f1.txt", "f2.txt"})
        assert codes(itself) == ["HW-CPY-11"]
        assert go(itself.url, tmp_path / "third").status == DONE
        assert len(tree(tmp_path / "third")) == 2


def test_a_copy_made_from_scratch_takes_nothing_away_before_it_is_whole(
    origin: Source, site: Site, dest: Path, tmp_path: Path
) -> None:
    """The state deleted, replaced, or away: what is published stays until a baseline has said what is gone."""
    assert go(origin.base, dest).status == DONE
    with hub(dest, tmp_path / "state") as running:
        running.shows({"f0.txt", "f1.txt", "f2.txt"})
        shutil.move(dest, tmp_path / "away")
        until(lambda: b"HW-CPY-01" in running.get("/health").body)
        assert running.resources().keys() == {"f0.txt", "f1.txt", "f2.txt"}
        site.drop("f1.txt")
        site.publish()
        whole = site.source.pages["/set/resources/f2.txt"]
        site.publish_changes(0.0, entries=[])
        assert go(origin.base, dest).status == DONE
        running.shows({"f0.txt", "f2.txt"})
        assert [(one.change.value, one.uri) for one in running.changes()] == [("deleted", "f1.txt")]
        assert whole is not None
        # by the library that the server uses: another one in this process would give up its locks with its own
        with closing(apsw.Connection(str(state_of(dest)))) as state, state:  # a baseline that has not ended
            state.execute("UPDATE sets SET baseline_done = 0")
            state.execute("UPDATE facts SET value = 'another' WHERE name = 'journal id'")
            state.execute("DELETE FROM resources WHERE uri LIKE '%f2.txt'")
        until(lambda: "HW-CPY-15" in codes(running))
        assert running.resources().keys() == {"f0.txt", "f2.txt"}
        with closing(apsw.Connection(str(state_of(dest)))) as state, state:
            state.execute("UPDATE sets SET baseline_done = 1")
        running.shows({"f0.txt"})


def test_a_set_that_the_copy_has_forgotten_is_gone(origin: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    assert go(origin.base, dest).status == DONE
    with hub(dest, tmp_path / "state") as running:
        running.shows({"f0.txt", "f1.txt", "f2.txt"})
        assert run(["forget", str(dest), "--set", "set"]) == DONE
        running.shows(set())
        assert go(origin.base, dest).status == DONE
        running.shows({"f0.txt", "f1.txt", "f2.txt"})
        assert len(running.changes()) == 6


def test_several_sets_of_a_copy_and_a_server_beside_them(tmp_path: Path) -> None:
    """Each under its own name, from its own folder; a set that comes later is told; status says how far behind."""
    with Source() as origin:
        sites = [Site(origin, name) for name in ("one", "two")]
        for one in sites:
            one.put("a/f.txt", one.name.encode())
            one.clock = 10.0
            one.publish(since=10.0)
        sites[0].publish_description("one", "two")
        dest, state = tmp_path / "copy", tmp_path / "state"
        assert go(origin.base, dest).status == DONE
        assert names_in_copy(dest) == {"one": "one", "two": "two"}
        told: list[object] = []
        for known in ({"one", "two"}, {"one"}):  # what whoever has read the sets before the first look does not know
            assert told == []
            CopyWatch(dest, [], told.append, frozenset(known)).run()
        assert "two" in str(told)
        with hub(dest, state, "one", "two") as running:
            for one in sites:
                running.shows({"f.txt"} if (dest / one.name / "f.txt").exists() else {"a/f.txt"}, one.name)
                uri = next(iter(running.resources(one.name)))
                assert running.get(f"/{one.name}/resources/{uri}").body == one.name.encode()
            with ReadOnlySource(running.source.config) as beside:
                assert beside.roots == running.source.roots
                assert beside.copied_names == {"one", "two"}
            third = Site(origin, "three")
            third.put("f.txt", b"three")
            third.clock = 10.0
            third.publish(since=10.0)
            third.publish_description("one", "two", "three")
            assert go(origin.base, dest).status == DONE
            until(lambda: "HW-CPY-16" in codes(running))
            (one_lag, two_lag) = copy_lags(running.source.catalog)
            assert (one_lag.set, one_lag.copy, one_lag.waiting) == ("one", str(dest), 0)
            assert two_lag.origin == f"{origin.base}/two/capabilitylist.xml"
        assert run(["status", str(state)]) == DONE
        dest.rename(tmp_path / "away")
        assert run(["status", str(state)]) == Exit.TRANSFERS_FAILED, "what is published can no longer be read"
        third.source.close()


def test_a_copy_of_an_older_version_is_read_when_no_run_is_at_work(
    origin: Source, site: Site, dest: Path, tmp_path: Path
) -> None:
    """Another process with the lock is not disturbed; a state of a newer version is left alone."""
    (dest / ".headwater").mkdir(parents=True)
    older = msgspec.structs.replace(SCHEMA, migrations=SCHEMA.migrations[:7])
    Database(state_of(dest), older).close()
    lock = lock_exclusive(dest / ".headwater" / "lock")
    with pytest.raises(StoreFault, match="HW-CPY-02"):
        CopyStateReader(dest)
    os.close(lock)
    CopyStateReader(dest).close()
    assert go(origin.base, dest).status == DONE
    with closing(sqlite3.connect(state_of(dest))) as state, state:
        state.execute(f"PRAGMA user_version = {SCHEMA.version + 1}")
    with pytest.raises(SchemaTooNew):
        CopyStateReader(dest)
    (tmp_path / "none").mkdir()
    with pytest.raises(StoreFault, match="HW-CPY-01"):
        CopyStateReader(tmp_path / "none")


def test_a_source_is_not_ready_before_the_copy_is_loaded(
    origin: Source, site: Site, dest: Path, tmp_path: Path
) -> None:
    """A load balancer must not lead to a set that has nothing to show yet; nobody is waited for but the copy."""
    dest.mkdir()
    with hub(dest, tmp_path / "state") as running:
        answer = running.get("/health")
        told = msgspec.json.decode(answer.body)
        assert (answer.status, told["ready"], told["sets"][0]["waiting"]) == (503, False, False)
        assert run(["sync", "-q", "http://127.0.0.1:9/", str(dest)]) == Exit.SOURCE
        until(lambda: "HW-CPY-03" in codes(running))
        until(lambda: run(["status", str(tmp_path / "state")]) == Exit.TRANSFERS_FAILED, what="the status says so")
        (lag,) = copy_lags(running.source.catalog)
        assert (lag.copy, lag.fault) == ("", f"the copy has no set 'files' so far ({dest})")
        assert go(origin.base, dest).status == DONE
        running.shows({"f0.txt", "f1.txt", "f2.txt"})
        until(lambda: running.get("/health").status == 200, what="the source is ready")
        assert run(["status", str(tmp_path / "state")]) == DONE


def test_what_a_load_cannot_keep_is_noted_as_lost(origin: Source, site: Site, dest: Path, tmp_path: Path) -> None:
    """HW-ING-23: on a full disk a copy is published as ever, and no TimeMap names a state without octets."""
    assert go(origin.base, dest).status == DONE
    with pytest.MonkeyPatch.context() as full:
        full.setattr("headwater.files.file_copies.RESERVE_OCTETS", 1 << 60)
        with hub(dest, tmp_path / "state", versions=True) as running:
            running.shows({"f0.txt", "f1.txt", "f2.txt"})
            assert codes(running).count("HW-ING-23") == 3
            assert not kept_until(
                History(running.source.catalog, "files", running.source.versions.has), "f0.txt", 1 << 60
            )
    with hub(dest, tmp_path / "kept", versions=True) as running:
        running.shows({"f0.txt", "f1.txt", "f2.txt"})
        assert kept_until(History(running.source.catalog, "files", running.source.versions.has), "f0.txt", 1 << 60)
