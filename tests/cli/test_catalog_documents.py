"""`headwater catalog export --format dit`: what it writes, `headwater ingest dit` and `POST /ingest/dit` take again."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.engines.engine import Engine

from headwater.catalog.interface import Catalog, Metadata
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.errors import Exit
from headwater.storage.cluster import Access, Cluster, Node
from tests.contract.catalog.cases import opened, up
from tests.http.announcing import OTHER, serving
from tests.support.program import Done, run_here
from tests.support.push_set import PREFIX, PushSet, change, resource

pytestmark = pytest.mark.long(10)

MANY = 1_200
"""More than one batch of anything."""


def headwater(*args: object, status: int = 0, octets: bytes = b"") -> Done:
    done = run_here(*args, octets=octets)
    assert done.returncode == status, (done.stdout[-500:], done.stderr.decode())
    return done


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PushSet]:
    """A push set with a past: created, updated, deleted, linked, with fields that are unknown to us."""
    (tmp_path / "state").mkdir()
    fed = PushSet(tmp_path / "state")
    ln = [{"rel": "described by", "href": {"value": "m.xml", "type": "rel_path"}}]
    for start in range(0, MANY, 300):
        pairs = [(f"r/{number}", number) for number in range(start, start + 300)]
        fed.documents(
            *(one for path, second in pairs for one in (resource(path, second), change(path, "created", second)))
        )
    fed.later(2_000)
    fed.documents(resource("r/1", 1_500, "b", ln=ln, licence="CC0"), change("r/1", "updated", 1_500))
    fed.documents(change("r/2", "deleted", 1_501))
    fed.documents(resource("m.xml", 1_502), change("m.xml", "created", 1_502))
    fed.settle()
    yield fed
    fed.close()


def live(catalog: Catalog, name: str = "s") -> dict[str, Metadata]:
    return {one.uri: one.metadata for one in catalog.resources(name)}


def log(catalog: Catalog, name: str = "s") -> list[tuple[str, str, Metadata]]:
    return [(one.uri, one.change.value, one.metadata) for one in catalog.changes(name)]


def exported(world: PushSet, tmp_path: Path, *options: object) -> tuple[Path, dict[str, Any]]:
    out = tmp_path / "documents.ndjson"
    told = headwater("catalog", "export", world.folder, "--format", "dit", "-o", out, "--json", *options).stdout
    return out, json.loads(told)


def test_dit_a19_a_file_is_taken_again_as_the_same_set(world: PushSet, tmp_path: Path) -> None:
    out, told = exported(world, tmp_path)
    assert told["sets"] == [{"name": "s", "resources": MANY, "changes": MANY + 3}]
    assert told["octets"] == out.stat().st_size
    assert out.stat().st_mode & 0o077 == 0
    state = tmp_path / "again"
    taking = ("ingest", "dit", out, "--set", "s", "--state", state, "--url-prefix", PREFIX, "--json")
    told = json.loads(headwater(*taking).stdout)
    assert (told["rejected"], told["waiting"]) == (0, 0)
    again = SqliteCatalog(state / "catalog.sqlite")
    assert live(again) == live(world.catalog)
    assert log(again) == log(world.catalog)
    assert b"CC0" in again.get("s", ["r/1"])["r/1"].memo
    headwater(*taking)
    assert len(log(again)) == MANY + 3
    again.close()


@pytest.mark.parametrize("dates", ["exact", "seed"])
def test_requests_are_taken_as_the_same_set(world: PushSet, tmp_path: Path, dates: str) -> None:
    """In several requests to a server at work, of any size."""
    lines = headwater("catalog", "export", world.folder, "--format", "dit", "--dates", dates).stdout.splitlines(True)
    assert (b"+0000" in lines[0]) == (dates == "seed")
    with serving(tmp_path / "served") as fed:
        for start in range(0, len(lines), 777):
            answer = fed.post("/ingest/dit", b"".join(lines[start : start + 777]), OTHER)
            assert answer.status == 200, answer.body[-500:]
        assert log(fed.source.catalog, "d") == log(world.catalog)
        assert list(live(fed.source.catalog, "d")) == list(live(world.catalog))


def test_a_load_takes_the_resources_and_logs_nothing(world: PushSet, tmp_path: Path) -> None:
    out, _ = exported(world, tmp_path, "--url-prefix", PREFIX)
    assert f'"location":{{"value":"{PREFIX}r/0","type":"url"}}'.encode() in out.read_bytes()
    state = tmp_path / "again"
    headwater("ingest", "dit", out, "--set", "s", "--state", state, "--url-prefix", PREFIX, "--load")
    again = SqliteCatalog(state / "catalog.sqlite")
    assert (live(again), log(again)) == (live(world.catalog), [])
    again.close()


def test_a_cluster_gives_the_same_lines(world: PushSet, tmp_path: Path, opensearch: Engine) -> None:
    """DIT-A20: nothing depends on how many results a search may have; and an index of them is the same snapshot."""
    host = f"127.0.0.1:{opensearch.port}"
    headwater("catalog", "export", world.folder, "-o", tmp_path / "dump")
    places = f"opensearch://{host}/documents", tmp_path / "moved.sqlite"
    for place in places:
        headwater("catalog", "import", tmp_path / "dump", place)
    lines, others = (headwater("catalog", "export", place, "--format", "dit").stdout for place in places)
    assert lines == others
    cluster = Cluster(Access(nodes=(Node("127.0.0.1", opensearch.port),)), patience_seconds=20)
    bulk = b"".join(b'{"index":{}}\n' + line for line in lines.splitlines(keepends=True))
    assert b'"errors":false' in cluster.ask("POST", "/harvested/_bulk?refresh=true", bulk).body.encode()
    cluster.close()
    state = tmp_path / "again"
    taking = ("--set", "s", "--state", state, "--url-prefix", PREFIX, "--once")
    headwater("ingest", "dit", f"http://{host}/harvested", *taking)
    again = SqliteCatalog(state / "catalog.sqlite")
    assert (live(again), log(again)) == (live(world.catalog), [])
    again.close()


def test_what_cannot_be_written_is_told(world: PushSet, tmp_path: Path) -> None:
    catalog = SqliteCatalog(tmp_path / "odd.db")
    opened(catalog, [up("a%0Ab")])
    catalog.close()
    odd, out = tmp_path / "odd.db", tmp_path / "x"
    export = ("catalog", "export")
    for args, code in (
        ((odd, "--format", "dit", "-o", out), "HW-ING-54"),
        ((odd, "--format", "dit", "-o", out, "--url-prefix", "no"), "HW-ING-49"),
        ((odd, "--format", "dit", "-o", out, "--url-prefix", ""), "HW-ING-49"),
        ((odd, "--dates", "seed", "-o", out), "HW-USE-01"),
        ((odd, "--url-prefix", PREFIX, "-o", out), "HW-USE-01"),
        ((odd, "--format", "xml", "-o", out), "HW-USE-01"),
        ((odd, "--format", "dit", "--json"), "HW-USE-01"),
        ((tmp_path / "none.db", "--format", "dit"), "HW-CLI-01"),
    ):
        assert code in headwater(*export, *args, status=Exit.USAGE).stderr.decode()
        assert not out.exists()
    done = headwater(*export, odd, "--format", "dit", "-o", tmp_path / "x.gz", "--url-prefix", PREFIX)
    assert b"exported s: resources 1, changes 0" in done.stderr
    (line,) = gzip.decompress((tmp_path / "x.gz").read_bytes()).splitlines()
    assert json.loads(line)["location"] == {"value": PREFIX + "a%0Ab", "type": "url"}
