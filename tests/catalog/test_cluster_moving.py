"""Sets that move onto real engines and off them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.engines.engine import Engine

from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import remove
from headwater.catalog.dump import DumpReader, DumpWriter
from headwater.catalog.interface import Catalog, Delete
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.errors import Exit
from headwater.spec.times import from_microseconds
from headwater.storage.cluster import Cluster
from tests.contract.catalog.cases import SMALL, at, opened, up
from tests.contract.catalog.moving import STORIES, moved, told
from tests.support.engines import LAYOUT, access, prefix

pytestmark = pytest.mark.long(25)

NOW = from_microseconds(0)


def move(origin: Catalog, target: Catalog) -> bytes:
    """The dump by which the set was moved."""
    out = io.BytesIO()
    writer = DumpWriter(out, ["s"], NOW, "test")
    writer.add(origin)
    writer.finish()
    out.seek(0)
    assert [one.name for one in DumpReader(out).load(target, ["s"])] == ["s"]
    return out.getvalue()


@pytest.mark.parametrize("engine_name", ["opensearch", "elasticsearch"])
@pytest.mark.parametrize("story", [case[1] for case in STORIES], ids=[case[0] for case in STORIES])
def test_from_sqlite_to_a_cluster_and_back_nothing_is_another(
    request: pytest.FixtureRequest, tmp_path: Path, story: Callable[[Catalog], Catalog], engine_name: str
) -> None:
    engine, name = request.getfixturevalue(engine_name), prefix()
    origin, back = (SqliteCatalog(tmp_path / f"{one}.db", SMALL) for one in ("origin", "back"))
    story(origin)
    cluster = ClusterCatalog(access(engine), name, SMALL, options=LAYOUT)
    move(origin, cluster)
    assert moved(cluster, "s") == moved(origin, "s")
    assert verify(cluster, "s") == []
    move(cluster, back)
    assert moved(back, "s") == moved(origin, "s")
    for catalog in (origin, cluster, back):
        catalog.open("s", at(100))
        catalog.record("s", [up("r1"), Delete("r0"), up("newest")], at(101))
        assert verify(catalog, "s") == []
    assert moved(cluster, "s") == moved(back, "s")
    for catalog in (origin, cluster, back):
        catalog.close()
    remover = Cluster(access(engine))
    remove(remover, name)
    remover.close()


def test_a_fence_is_no_change_of_the_set(opensearch: Engine) -> None:
    """Whoever scans or feeds puts one up now and then: a dump goes on meanwhile."""
    name = prefix()
    catalog = ClusterCatalog(access(opensearch), name, SMALL, options=LAYOUT)
    opened(catalog, [up("a"), up("b")])
    writer = DumpWriter(io.BytesIO(), ["s"], NOW, "test")

    def put_up(*_: object) -> None:
        catalog.fence("s")

    assert writer.add(catalog, put_up).resources == 2
    assert catalog.state("s").fence > 0
    remove(catalog.cluster, name)
    catalog.close()


def headwater(*args: object) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "headwater", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def test_commands_take_a_cluster_s_url(opensearch: Engine, tmp_path: Path) -> None:
    name = prefix()
    url = f"{opensearch.url.replace('http', 'opensearch')}/{name}?replicas=0"
    told(SqliteCatalog(tmp_path / "origin.db", SMALL)).close()
    cluster = Cluster(access(opensearch))
    for command in (("status", url), ("catalog", "export", url, "-o", tmp_path / "none"), ("catalog", "verify", url)):
        status, _, said = headwater(*command)
        assert (status, "HW-CLI-01" in said) == (Exit.USAGE, True)
    assert cluster.ask("GET", f"/{name}-*").body == "{}"  # to look makes nothing
    for args in (
        ("export", tmp_path / "origin.db", "-o", tmp_path / "dump.gz"),
        ("import", tmp_path / "dump.gz", url),
        ("verify", url),
        ("export", url, "-o", tmp_path / "back.gz"),
        ("import", tmp_path / "back.gz", tmp_path / "back.db"),
    ):
        status, _, said = headwater("catalog", *args)
        assert status == Exit.DONE, said
    status, shown, _ = headwater("status", url, "--json")
    told_of = json.loads(shown)
    assert (status, told_of["catalog_octets"], [one["last_seq"] for one in told_of["sets"]]) == (Exit.DONE, None, [12])
    origin, back = (SqliteCatalog(tmp_path / f"{one}.db", SMALL) for one in ("origin", "back"))
    assert moved(back, "s") == moved(origin, "s")
    for catalog in (origin, back):
        catalog.close()
    remove(cluster, name)
    cluster.close()
