"""Sets of repositories followed by a server, published once or as a static tree, with the files of their records."""

from __future__ import annotations

import json
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tools.engines.engine import Engine

from headwater.catalog.interface import Resource
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.ingest.oai import repository as oai_repository
from headwater.source.config import SetConfig, SourceConfig
from headwater.transport.access import Level
from headwater.transport.fetch import TransportOptions
from tests.support.copying import check, go, tree
from tests.support.engines import prefix
from tests.support.fake_repository import DC, FakeRepository, repository
from tests.support.program import run_here
from tests.support.scripted_server import answer
from tests.support.serving import Face, Process, request, source_at_work
from tests.support.waiting import until


def followed(repo: FakeRepository, state: Path) -> SourceConfig:
    root = str(state / "harvested" / "s")
    one = SetConfig(name="s", feed="oai", url=repo.url, poll_seconds=0.2, resource_root=root)
    return SourceConfig(state=str(state), sets=(one,))


def status(config: SourceConfig) -> tuple[int, Any]:
    done = run_here("status", config.state, "--json")
    return done.returncode, json.loads(done.stdout)


def test_a_server_follows_a_repository(tmp_path: Path) -> None:
    with repository(250) as repo:
        config = followed(repo, tmp_path / "state")
        with source_at_work(Face, lambda url: SourceConfig(state=config.state, sets=config.sets, base_url=url)) as face:
            until(lambda: len(tree(go_again(face.url, tmp_path / "copy"))) == 250, what="the first harvest")
            found = face.get("/s/resources/oai_dc/oai%3Aexample.org%3A7.xml")
            assert (found.status, found.headers["content-type"]) == (200, "application/xml")
            assert b"item 7" in found.body
            repo.put(7, "new", "2024-06-01T10:00:00Z")
            repo.put(8, at="2024-06-01T10:00:00Z", deleted=True)
            repo.now = "2024-06-02T00:00:00Z"
            until(lambda: b"new" in face.get("/s/resources/oai_dc/oai%3Aexample.org%3A7.xml").body, what="the change")
            until(lambda: face.get("/s/resources/oai_dc/oai%3Aexample.org%3A8.xml").status in (404, 410), what="it")
            until(lambda: len(tree(go_again(face.url, tmp_path / "copy"))) == 249, what="the copy")
            assert check(face.url, tmp_path / "copy").exit_status == 0

            def failing() -> bool:
                told = json.loads(face.get("/health").body)["sets"][0]
                return "HW-OAI" in str(told)

            repo.spoil = lambda _query, _sent: answer(b"", "404 Not Found")
            until(failing, what="the failure in /health")
            until(lambda: status(config)[0] == 4, what="the failure in its status")
            (told,) = status(config)[1]["feeds"]
            assert told["set"] == "s"
            assert "HTTP status 404" in told["fault"]
            asked = len(repo.asked)
            time.sleep(1.5)
            assert len(repo.asked) <= asked + 3  # pauses grow
            repo.spoil = lambda _query, sent: sent
            until(lambda: status(config)[0] == 0, what="the end of the failure")
            assert "feeds" not in status(config)[1]


def test_sets_of_one_repository_never_ask_it_at_once(tmp_path: Path) -> None:
    with repository(250) as repo:
        root = tmp_path / "state" / "harvested"
        more = {"feed": "oai", "url": repo.url, "poll_seconds": 0.05}
        sets = tuple(SetConfig(name=name, resource_root=str(root / name), **more) for name in "abc")  # type: ignore[arg-type]
        with source_at_work(Face, lambda url: SourceConfig(state=str(tmp_path / "state"), sets=sets, base_url=url)):
            until(lambda: len([*root.glob("*/oai_dc/*.xml")]) == 750, what="three harvests")
            asked = len(repo.asked)
            until(lambda: len(repo.asked) > asked + 20, what="polls")
        assert repo.server.busiest == 1  # type: ignore[attr-defined]


def go_again(url: str, copy: Path) -> Path:
    go(url, copy)
    return copy


@pytest.mark.parametrize("to", [True, False])
def test_one_round_publishes_what_was_harvested(tmp_path: Path, to: bool) -> None:
    with repository(120) as repo:
        config = tmp_path / "config.toml"
        place = 'to = "out"' if to else 'state = "state"'
        text = f'{place}\nbase_url = "http://example.org"\n[[set]]\nname = "s"\nfeed = "oai"\nurl = "{repo.url}"\n'
        config.write_text(text)
        done = run_here("publish", config, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)["sets"][0]
        assert (told["resources"], told["created"]) == (120, 120)
        root = tmp_path / ("out/s/resources" if to else "state/harvested/s")
        assert len(list((root / "oai_dc").iterdir())) == 120
        documents = tmp_path / ("out" if to else "state/documents")
        assert "oai_dc/oai%3Aexample.org%3A5.xml" in (documents / "s/resourcelist.xml").read_text()
        repo.put(5, at="2024-06-01T10:00:00Z", deleted=True)
        repo.now = "2024-06-02T00:00:00Z"
        done = run_here("publish", config, "--json")
        assert (done.returncode, json.loads(done.stdout)["sets"][0]["deleted"]) == (0, 1)
        assert not (root / "oai_dc/oai:example.org:5.xml").exists()
        for number in range(60):
            del repo.items[f"oai:example.org:{number}"]
        repo.deletions = "no"
        config.write_text(text + "compare_seconds = 0.1\n")
        time.sleep(0.2)
        done = run_here("publish", config, "--json")
        assert (done.returncode, json.loads(done.stdout)["sets"][0]["resources"]) == (4, 119)
        assert "too many" in json.loads(done.stdout)["sets"][0]["held_back"]
        repo.items.clear()
        assert run_here("publish", config).returncode == 3


# -- files of records


def with_file(repo: FakeRepository, number: int, metadata: str, *, at: str = "2024-02-02T00:00:00Z") -> None:
    repo.put(number, at=at).metadata["oai_dc"] = metadata.replace("BASE", repo.server.base)  # type: ignore[attr-defined]


METS = (
    '<m:mets xmlns:m="http://www.loc.gov/METS/" xmlns:x="http://www.w3.org/1999/xlink"><m:fileSec><m:fileGrp><m:file>'
    '<m:FLocat LOCTYPE="URL" x:href="BASE/file.pdf"/></m:file></m:fileGrp></m:fileSec></m:mets>'
)
ORE = (
    '<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:o="http://www.openarchives.org/ore/terms/">'
    '<r:Description><o:aggregates r:resource="BASE/file.pdf"/></r:Description></r:RDF>'
)
ATOM = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><link rel="http://www.openarchives.org/ore/terms/aggregates"'
    ' href="BASE/file.pdf"/><link rel="alternate" href="BASE/page"/></entry>'
)
MODIFIED = "Tue, 02 Jan 2024 00:00:00 GMT"
FILE = f"<oai_dc:dc {DC}><dc:identifier>BASE/file.pdf</dc:identifier><dc:identifier>x</dc:identifier></oai_dc:dc>"
PAGE = f"<oai_dc:dc {DC}><dc:identifier>BASE/page</dc:identifier></oai_dc:dc>"


def test_a_tree_is_not_published_without_the_records_that_lie_elsewhere(tmp_path: Path) -> None:
    """`to` came after the first harvest: the tree would list what it does not have."""
    with repository(20) as repo:
        config = tmp_path / "config.toml"
        text = f'base_url = "http://example.org"\n[[set]]\nname = "s"\nfeed = "oai"\nurl = "{repo.url}"\n'
        config.write_text(f'state = "state"\n{text}')
        assert run_here("publish", config).returncode == 0
        done = run_here("publish", config, "--to", tmp_path / "out")
        assert done.returncode == 2, done
        assert b"in another folder" in done.stderr
        assert not (tmp_path / "out" / "s" / "resourcelist.xml").exists()
        config.write_text(f'state = "other"\n{text}')
        assert run_here("publish", config, "--to", tmp_path / "out").returncode == 0
        assert len(list((tmp_path / "out/s/resources/oai_dc").iterdir())) == 20


def test_a_set_is_not_harvested_by_the_command_for_another_kind(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    one = '[[set]]\nname = "s"\nfeed = "dspace"\nurl = "http://127.0.0.1:9/server/api"\n'
    config.write_text(f'state = "state"\nbase_url = "http://example.org"\n{one}')
    done = run_here("ingest", "oai", "--set", "s", "--config", config, "--dry-run")
    assert done.returncode == 2
    assert b"headwater ingest dspace" in done.stderr


@pytest.mark.parametrize(
    ("rules", "metadata"),
    [
        (["identifier"], FILE),
        (["mets"], METS),
        (["ore"], ORE),
        (["ore"], ATOM),
        (["signposting"], PAGE),
        (["identifier", "signposting"], PAGE),
    ],
)
def test_files_are_fetched_and_linked(tmp_path: Path, rules: list[str], metadata: str) -> None:
    with repository(3) as repo:
        server = repo.server  # type: ignore[attr-defined]
        signposts = f'<{server.base}/file.pdf>; rel="item"; type="application/pdf", <{server.base}/x>; rel="author"'
        pages = {
            "/page": answer(b"<html></html>", Content_Type="text/html", Link=signposts),
            "/file.pdf": answer(
                b"%PDF", Content_Type="application/pdf; x=y", Last_Modified="Tue, 02 Jan 2024 00:00:00 GMT"
            ),
        }
        server.script = pages
        with_file(repo, 1, metadata)
        config = tmp_path / "config.toml"
        config.write_text(
            f'state = "state"\nbase_url = "http://example.org"\n[[set]]\nname = "s"\nfeed = "oai"\nurl = "{repo.url}"\n'
            f"content = {rules}\n"
        )
        command = ("ingest", "oai", "--set", "s", "--config", config, "--json")

        def run(status: int = 0) -> dict[str, object]:
            done = run_here(*command)
            assert done.returncode == status, done.stderr
            return json.loads(done.stdout)  # type: ignore[no-any-return]

        def links(uri: str) -> set[tuple[str, str]]:
            return {(one.rel, one.href) for one in held()[uri].metadata.links}

        def held() -> dict[str, Resource]:
            with closing(SqliteCatalog(tmp_path / "state/catalog.sqlite")) as catalog:
                return {one.uri: one for one in catalog.resources("s")}

        assert run()["created"] == 4
        found = {uri for uri in held() if uri.startswith("content/")}
        (uri,) = found
        base = "http://example.org/s/resources/"
        record = "oai_dc/oai%3Aexample.org%3A1.xml"
        assert links(uri) == {("describedby", base + record)}
        assert ("describes", base + uri) in links(record)
        one = held()[uri].metadata
        assert (one.type, one.length, str(one.lastmod)) == ("application/pdf", 4, "2024-01-02 00:00:00+00:00")
        assert [path.read_bytes() for path in (tmp_path / "state/harvested/s/content").iterdir()] == [b"%PDF"]
        before = server.targets().count("/file.pdf")
        assert run()["updated"] == 0
        run_here(*command, "--audit")
        assert (server.targets().count("/file.pdf"), held().keys() & found) == (before + 1, found)
        # a change of the record while its file cannot be had: what was there stays, and is tried again by a comparison
        script = dict(pages)
        server.script = {"/page": pages["/page"]}
        with_file(repo, 1, metadata.replace("BASE", "BASE", 1) + " ", at="2024-06-01T10:00:00Z")
        repo.now = "2024-06-02T00:00:00Z"
        assert run(4)["failed_files"] == 1
        assert links(uri) == {("describedby", base + record)}
        script["/file.pdf"] = answer(b"%PDF-2", Content_Type="application/pdf")
        server.script = script
        assert run()["updated"] == 0
        config.write_text(f"{config.read_text()}compare_seconds = 0.001\n")
        assert run()["updated"] == 1
        assert [path.read_bytes() for path in (tmp_path / "state/harvested/s/content").iterdir()] == [b"%PDF-2"]
        # the file goes with the record
        repo.put(1, at="2024-06-03T10:00:00Z", deleted=True)
        repo.now = "2024-06-04T00:00:00Z"
        assert run()["deleted"] == 2
        assert not list((tmp_path / "state/harvested/s").glob("content/*"))


def test_files_at_internal_addresses_are_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repository counts as public here, and the machine behind it does not."""
    levels = partial(TransportOptions, level_of=lambda ip: Level.PUBLIC if ip == "127.0.0.1" else Level.LOCAL)
    monkeypatch.setattr(oai_repository, "TransportOptions", levels)
    with repository(1) as repo:
        repo.put(1).metadata["oai_dc"] = FILE.replace("BASE", "http://127.0.0.2:9")
        config = tmp_path / "config.toml"
        config.write_text(
            f'state = "state"\n[[set]]\nname = "s"\nfeed = "oai"\nurl = "{repo.url}"\ncontent = "identifier"\n'
        )
        done = run_here("ingest", "oai", "--set", "s", "--config", config, "--json")
        assert (done.returncode, json.loads(done.stdout)["failed_files"]) == (4, 1)
        assert b"127.0.0.2" in done.stderr
        assert b"address of this machine" in done.stderr


def test_a_repository_is_harvested_into_a_catalog_on_a_cluster(opensearch: Engine, tmp_path: Path) -> None:
    """Served, also by OAI-PMH, then compared, changed and emptied."""
    with repository(250) as repo:
        config = tmp_path / "config.toml"
        text = f"""state = "state"
catalog = "opensearch://127.0.0.1:{opensearch.port}/{prefix()}?replicas=0"
[[set]]
name = "s"
feed = "oai"
url = "{repo.url}"
poll_seconds = 0.2
oai = true
oai_admin = "me@example.org"
"""
        config.write_text(text)
        with Process(str(config), "--port", "0") as process:
            url = process.ready()
            until(lambda: len(tree(go_again(url, tmp_path / "copy"))) == 250, what="the first harvest")
            repo.put(7, "new", "2024-06-01T10:00:00Z")
            repo.put(8, at="2024-06-01T10:00:00Z", deleted=True)
            repo.now = "2024-06-02T00:00:00Z"
            until(lambda: len(tree(go_again(url, tmp_path / "copy"))) == 249, what="the deletion")
            asked = "verb=GetRecord&metadataPrefix=oai_dc&identifier=oai:example.org:"
            until(lambda: b"new" in request(url, f"/s/oai?{asked}7").body, what="the change by OAI-PMH")
            until(lambda: b'status="deleted"' in request(url, f"/s/oai?{asked}8").body, what="the deletion by OAI-PMH")
            assert process.stop()[0] == 0
        for number in range(60):
            repo.items.pop(f"oai:example.org:{number}", None)
        done = run_here("ingest", "oai", "--set", "s", "--config", config, "--audit", "--json")
        assert (done.returncode, json.loads(done.stdout)["deleted"]) == (4, 0)
        done = run_here("ingest", "oai", "--set", "s", "--config", config, "--audit", "--json", "--max-delete", "50%")
        assert (done.returncode, json.loads(done.stdout)["deleted"]) == (0, 59)
