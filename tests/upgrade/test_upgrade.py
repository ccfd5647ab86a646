"""What an older version has left behind is gone on from, or refused with what is to be done (tests/data/upgrade)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.catalog.interface import Change
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.files.folder_marks import TREE_MARK
from tests.support.copying import DONE, FAILED, USAGE, tree
from tests.support.program import Done, run_here
from tests.support.published import look
from tests.support.serving import Process, request
from tests.support.waiting import until

DATA = Path(__file__).resolve().parent.parent / "data" / "upgrade"
SITE = "http://source.example"
AUTHORIZED = {"Authorization": "Bearer a-token-of-the-tests"}
SETS = ("articles", "files", "harvested")


FIRST, SECOND = "5916edd", "216391f"


@pytest.fixture
def version(request: pytest.FixtureRequest) -> str:
    """The older program."""
    return getattr(request, "param", FIRST)


@pytest.fixture
def left(tmp_path: Path, version: str) -> Path:
    """The folder as the older program left it."""
    with tarfile.open(DATA / f"{version}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="fully_trusted")
    return tmp_path


@pytest.fixture
def source(left: Path) -> Path:
    """The same, without what push sets remembered where that was in a file of its own."""
    (left / "state/ingest.sqlite").unlink(missing_ok=True)
    return left


of_both = pytest.mark.parametrize("version", [FIRST, SECOND], indirect=True)
of_the_second = pytest.mark.parametrize("version", [SECOND], indirect=True)


def logs(folder: Path) -> dict[str, list[Change]]:
    """The change log of each set."""
    with closing(SqliteCatalog(folder / "state/catalog.sqlite")) as catalog:
        assert [problem for name in SETS for problem in verify(catalog, name)] == []
        return {name: catalog.changes(name) for name in SETS}


def count(folder: Path, name: str) -> int:
    """How many changes a set has; also while somebody writes, when `verify` cannot be asked."""
    with closing(SqliteCatalog(folder / "state/catalog.sqlite")) as catalog:
        return len(catalog.changes(name))


def told(log: list[Change]) -> list[tuple[int, str, str]]:
    return [(one.seq, one.change.value, one.uri) for one in log]


@contextmanager
def serving(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Iterator[Process]:
    """The source's server, which is the proxy of who syncs in this process meanwhile."""
    with Process(str(folder / "source.toml"), "--port", "0", *options) as server:
        server.listening()
        until(lambda: request(server.address, "/health").status == 200)
        monkeypatch.setenv("http_proxy", server.address)
        yield server


def sync(folder: Path, status: int = DONE) -> dict[str, Any]:
    """What one run did with each set."""
    sets = ("--set", "files", "--set", "articles")
    done = run_here("sync", f"{SITE}/.well-known/resourcesync", folder / "copy", *sets, "--json")
    assert done.returncode == status, done.stderr
    return {one["name"]: one for one in json.loads(done.stdout)["sets"]}


def counts(one: dict[str, Any]) -> tuple[int, int, int]:
    return one["created"], one["updated"], one["deleted"]


def publish(folder: Path) -> Done:
    return run_here("publish", folder / "source.toml")


def test_an_older_catalog_is_brought_forward_and_says_so(left: Path) -> None:
    with closing(sqlite3.connect(left / "state/catalog.sqlite")) as old, old:
        assert old.execute("PRAGMA user_version").fetchone() == (1,)
    done = run_here("status", left / "state")
    assert done.returncode == DONE
    assert b"HW-CAT-11" in done.stderr
    assert [told(log) for log in logs(left).values()] == [
        [
            (1, "created", "one.txt"),
            (2, "created", "two.txt"),
            (3, "created", "three.txt"),
            (4, "deleted", "three.txt"),
            (5, "updated", "two.txt"),
        ],
        [
            (1, "deleted", "d/gone.txt"),
            (2, "updated", "b.txt"),
            (3, "updated", "b.txt"),
            (4, "created", "missing.txt"),
            (5, "created", "new.txt"),
        ],
        [(1, "created", "one.txt"), (2, "created", "two.txt"), (3, "created", "three.txt")],
    ]


@pytest.mark.parametrize("command", ["publish", "serve"])
def test_what_push_sets_remembered_is_refused_until_it_is_removed(left: Path, command: str) -> None:
    """It is not taken over: no version with it was released, and all that it costs is said in the advice."""
    refused = run_here(command, left / "source.toml")
    assert refused.returncode == USAGE
    assert b"HW-ING-62" in refused.stderr
    assert os.fsencode(left / "state/ingest.sqlite") in refused.stderr
    assert b"Remove it to continue without it" in refused.stderr
    (left / "state/ingest.sqlite").unlink()
    assert publish(left).returncode == DONE


@of_both
def test_a_source_goes_on_where_it_was(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is logged again, numbers and times go on, and a destination in step reads the new changes alone."""
    before = logs(source)
    publish(source)
    assert logs(source) == before
    with serving(source, monkeypatch) as server:
        assert counts(sync(source)["files"]) == (1, 0, 0)
        (source / "files/newer.txt").write_text("newer")
        (source / "files/e.txt").unlink()
        line = b'{"path": "four.txt", "length": 4}\n{"path": "two.txt", "change": "deleted"}\n'
        (source / "articles/four.txt").write_text("four")
        answer = request(server.address, "/articles/changes", "POST", AUTHORIZED, line)
        assert [one.get("seq") for one in json.loads(answer.body)["results"]] == [6, 7]
        until(lambda: count(source, "files") == 7)
        until(lambda: all(one["changes"] == one["published_changes"] for one in health(server)))
        ran = sync(source)
        assert [counts(ran[name]) for name in ("files", "articles")] == [(1, 0, 1), (1, 0, 1)]
        assert {one["process"] for one in ran.values()} == {"increment"}
    after = logs(source)
    for name, log in before.items():
        assert after[name][: len(log)] == log
        assert [one.seq for one in after[name]] == [*range(1, len(after[name]) + 1)]
        times = [one.at for one in after[name]]
        assert times == sorted(set(times))
    assert sorted(uri for _, _, uri in told(after["files"])[5:]) == ["e.txt", "newer.txt"]


def health(server: Process) -> list[dict[str, int]]:
    sets: list[dict[str, int]] = json.loads(request(server.address, "/health").body)["sets"]
    return sets


def test_announcements_go_on_without_what_was_remembered(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A used key is a new one, and what was announced with it is no news; the document that waited comes again."""
    with serving(source, monkeypatch) as server:
        key = {"Idempotency-Key": "second"}
        line = b'{"path": "three.txt", "change": "deleted"}\n'
        again = request(server.address, "/articles/changes", "POST", AUTHORIZED | key, line)
        assert json.loads(again.body)["ignored"] == 1
        document = {"resource_set": "harvested", "location": {"value": "two.txt", "type": "rel_path"}}
        document |= {"lastmod": "2026-01-01T00:01:00+0000"}
        change = document | {"change": "updated", "datetime": "2026-01-01T00:01:00+0000"}
        pair = "".join(json.dumps(one) + "\n" for one in (change, document | {"length": 19})).encode()
        taken = json.loads(request(server.address, "/ingest/dit", "POST", AUTHORIZED, pair).body)
        assert (taken["taken"], taken["waiting"]) == (2, 0)
    assert told(logs(source)["harvested"])[3:] == [(4, "updated", "two.txt")]


@of_the_second
def test_what_push_sets_remembered_goes_on(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A used key is known; a document that waited is no news twice and is not lost when its partner comes."""
    before = logs(source)
    with serving(source, monkeypatch) as server:
        names = ("one.txt", "two.txt", "three.txt")
        lines = [announced(source / "articles", name) for name in names]
        body = "".join(json.dumps(one) + "\n" for one in lines).encode()
        again = request(server.address, "/articles/changes", "POST", AUTHORIZED | {"Idempotency-Key": "first"}, body)
        assert again.status == 200
        (source / "harvested/two.txt").write_text("what it is now\n")
        document: dict[str, object] = {"resource_set": "harvested", "lastmod": "2026-01-01T00:01:00+0000", "length": 15}
        document |= {"location": {"value": "two.txt", "type": "rel_path"}}
        answer = request(server.address, "/ingest/dit", "POST", AUTHORIZED, json.dumps(document).encode() + b"\n")
        assert answer.status == 200
        until(lambda: count(source, "harvested") > 3)
    after = logs(source)
    assert after["articles"] == before["articles"]
    assert [one[1:] for one in told(after["harvested"])[3:]] == [("updated", "two.txt")]


def announced(folder: Path, name: str) -> dict[str, object]:
    body = (folder / name).read_bytes()
    return {"path": name, "sha-256": hashlib.sha256(body).hexdigest(), "length": len(body)}


@of_the_second
def test_past_states_are_served_and_verified(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions that lay in packs are read, are counted and verified, and new ones come to them."""
    texts = [f"the {number} of b\n".encode() for number in ("first", "second", "third")]
    with serving(source, monkeypatch) as server:
        assert mementos(server, "b.txt") == texts
        assert mementos(server, "d/c.txt") == [b"the first of d/c\n"]
        (source / "files/b.txt").write_text("the fourth of b\n")
        (source / "files/d/c.txt").unlink()
        until(lambda: count(source, "files") == 7)
        until(lambda: mementos(server, "b.txt") == [*texts, b"the fourth of b\n"])
    done = run_here("versions", source / "state", "--verify")
    assert done.returncode == DONE, done.stderr


def mementos(server: Process, path: str) -> list[bytes]:
    """The bodies of all past states of a resource, by its TimeMap."""
    resource = request(server.address, f"/files/resources/{path}")
    (gate,) = re.findall(r'<([^>]*)>;[^,]*rel="[^"]*timemap', resource.headers["link"])
    links = request(server.address, gate.removeprefix(SITE)).body.decode()
    found = re.findall(r'<([^>]*)>;[^,]*rel="[^"]*memento"', links)
    return [request(server.address, url.removeprefix(SITE)).body for url in found]


@of_both
def test_a_copy_goes_on_and_transfers_what_it_lacks(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transfer that failed is tried again; what is held is neither compared with the whole list nor sent again."""
    copy = source / "copy"
    held = tree(copy)
    assert "files/missing.txt" not in held
    publish(source)
    with serving(source, monkeypatch, "--no-publish") as server:
        missing = (source / "files/missing.txt").rename(source / "missing.txt")
        (failure,) = sync(source, FAILED)["files"]["failures"]
        assert failure["uri"] == f"{SITE}/files/resources/missing.txt"
        missing.rename(source / "files/missing.txt")
        ran = sync(source)
        assert counts(ran["files"]) == (1, 0, 0)
        assert ran["files"]["octets"] == len("cannot be had for a while\n")
        audit = run_here("audit", f"{SITE}/.well-known/resourcesync", copy, "--set", "files", "--set", "articles")
        assert (audit.returncode, b"in sync" in audit.stdout) == (DONE, True)
        asked = server.stop()[1]
    bodies = [line for line in asked.splitlines() if "/resources/" in line]
    assert all("missing.txt" in line for line in bodies)
    assert tree(copy) == held | {"files/missing.txt": b"cannot be had for a while\n"}


@of_both
def test_a_published_tree_is_published_again_in_place(left: Path) -> None:
    """Without news no document changes; with one, only it is added, and all that was said before still is."""
    tree_folder = left / "tree"
    command = ("publish", "--files", left / "photos", "--to", tree_folder, "--base-url", f"{SITE}/tree")
    before = tree(tree_folder)
    assert run_here(*command).returncode == DONE
    mark = {TREE_MARK.decode(): (tree_folder / TREE_MARK.decode()).read_bytes()}  # the first had none
    assert tree(tree_folder) == before | mark
    first = look(lambda url: (tree_folder / url.removeprefix(f"{SITE}/tree/")).read_bytes(), base=f"{SITE}/tree")
    (left / "photos/new.txt").write_text("new")
    assert run_here(*command).returncode == DONE
    then = look(lambda url: (tree_folder / url.removeprefix(f"{SITE}/tree/")).read_bytes(), base=f"{SITE}/tree")
    assert then.changes[: len(first.changes)] == first.changes
    assert [one.loc for one in then.changes[len(first.changes) :]] == [f"{SITE}/tree/files/resources/new.txt"]
    assert then.at >= first.at
    assert set(then.state) == {*first.state, f"{SITE}/tree/files/resources/new.txt"}
    assert before.keys() <= tree(tree_folder).keys()
