"""Sets that move onto real engines and off them: the contract, dumps between backends, restores that end early."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tools.engines.engine import Engine

from headwater.catalog.cluster.catalog import ClusterCatalog, WaitTimes
from headwater.catalog.cluster.schema import remove
from headwater.catalog.dump import DumpReader, DumpWriter
from headwater.catalog.faults import SetExists, UnknownSet
from headwater.catalog.interface import Catalog, Delete, Limits, Part, SetSnapshot, SetState
from headwater.catalog.sqlite.catalog import SqliteCatalog
from headwater.catalog.verify import verify
from headwater.errors import Exit, StoreFault
from headwater.spec.times import from_microseconds
from headwater.storage.cluster import Cluster
from tests.contract.catalog.cases import SMALL, at, opened, up
from tests.contract.catalog.model import observed
from tests.contract.catalog.moving import STORIES, PortableContract, told
from tests.support.engines import LAYOUT, ClusterBackend, Scoped, access, prefix
from tests.support.failing import failing

pytestmark = pytest.mark.long(25)

NOW = from_microseconds(0)


class Portables(ClusterBackend):
    """As `ClusterBackend`; whole sets lose their scope on the way out and are given it on the way in."""

    def fresh(self, limits: Limits | None = None) -> Any:
        return Moving(cast(Scoped, super().fresh(limits)))

    def again(self, catalog: Catalog, limits: Limits | None = None) -> Any:
        return Moving(cast(Scoped, super().again(cast(Moving, catalog).scoped, limits)))


class Moving:
    """A scoped catalog whose sets can be moved."""

    def __init__(self, scoped: Scoped) -> None:
        self.scoped = scoped

    def dump(self, name: str) -> Iterator[Part]:
        parts = self.scoped.catalog.dump(self.scoped.scope + name)
        return (_named(part, lambda held: held.removeprefix(self.scoped.scope)) for part in parts)

    def restore(self, parts: Iterable[Part]) -> SetState:
        scope = self.scoped.scope
        state = self.scoped.catalog.restore(_named(part, lambda name: name and scope + name) for part in parts)
        return replace(state, name=state.name.removeprefix(scope))

    def __getattr__(self, method: str) -> Any:
        return getattr(self.scoped, method)


def _named(part: Part, change: Callable[[str], str]) -> Part:
    return (
        replace(part, state=replace(part.state, name=change(part.state.name)))
        if isinstance(part, SetSnapshot)
        else part
    )


@pytest.fixture(scope="module")
def on_opensearch(opensearch: Engine) -> Iterator[Portables]:
    backend = Portables(opensearch)
    yield backend
    backend.close()


class TestOpenSearch(PortableContract):
    @pytest.fixture
    def backend(self, on_opensearch: Portables) -> Iterator[Portables]:
        yield on_opensearch
        on_opensearch.end()


@pytest.fixture
def make(opensearch: Engine) -> Iterator[Callable[..., ClusterCatalog]]:
    """Handles on one catalog of its own."""
    name, made = prefix(), list[ClusterCatalog]()

    def handle(**options: float) -> ClusterCatalog:
        made.append(ClusterCatalog(access(opensearch), name, SMALL, layout=LAYOUT, wait_times=WaitTimes(**options)))
        return made[-1]

    yield handle
    for one in made:
        one.close()
    cluster = Cluster(access(opensearch))
    remove(cluster, name)
    cluster.close()


def moved(origin: Catalog, target: Catalog) -> bytes:
    """The dump by which the set was moved."""
    out = io.BytesIO()
    writer = DumpWriter(out, ["s"], NOW, "test")
    writer.add("s", origin.dump("s"))
    writer.finish()
    out.seek(0)
    for _, parts in DumpReader(out).sets():
        target.restore(parts)
    return out.getvalue()


@pytest.mark.parametrize("engine_name", ["opensearch", "elasticsearch"])
@pytest.mark.parametrize("story", [case[1] for case in STORIES], ids=[case[0] for case in STORIES])
def test_from_sqlite_to_a_cluster_and_back_nothing_is_another(
    request: pytest.FixtureRequest, tmp_path: Path, story: Callable[[Catalog], Catalog], engine_name: str
) -> None:
    engine, name = request.getfixturevalue(engine_name), prefix()
    origin, back = (SqliteCatalog(tmp_path / f"{one}.db", SMALL) for one in ("origin", "back"))
    story(origin)
    cluster = ClusterCatalog(access(engine), name, SMALL, layout=LAYOUT)
    there = moved(origin, cluster)
    assert observed(cluster, "s") == observed(origin, "s")
    assert moved(cluster, back) == there
    assert observed(back, "s") == observed(origin, "s")
    assert verify(cluster, "s") == []
    for catalog in (origin, cluster, back):
        catalog.open("s", at(100))
        catalog.record("s", [up("r1"), Delete("r0"), up("newest")], at(101))
        catalog.close()
    remover = Cluster(access(engine))
    remove(remover, name)
    remover.close()


def test_a_fence_is_no_change_of_the_set(make: Callable[..., ClusterCatalog]) -> None:
    """Whoever scans or feeds puts one up now and then: a dump goes on meanwhile, and none of it goes elsewhere."""
    catalog, other = make(), make()
    opened(catalog, [up("a"), up("b")])
    other.fence("s")
    parts = catalog.dump("s")
    snapshot = next(parts)
    assert isinstance(snapshot, SetSnapshot)
    assert snapshot.state.fence == 0
    other.fence("s")
    assert len(list(parts)) == 2
    assert catalog.state("s").fence == 2


def test_a_restore_that_was_killed_is_void_when_its_lease_is_over(
    make: Callable[..., ClusterCatalog], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = told(SqliteCatalog(tmp_path / "origin.db", SMALL))
    killed, other = make(lease_seconds=1.0), make()
    with monkeypatch.context() as patch:
        patch.setattr("headwater.catalog.cluster.writer.SetWriter.put", _only_lease(killed))
        with pytest.raises(_Killed):
            killed.restore(origin.dump("s"))
    assert other.sets() == []
    with pytest.raises(UnknownSet):
        other.pages("s")
    other.restore(origin.dump("s"))
    assert observed(other, "s") == observed(origin, "s")
    assert [state.name for state in killed.sets()] == ["s"]
    with pytest.raises(SetExists):
        killed.restore(origin.dump("s"))


class _Killed(BaseException):
    """The writer is gone, and gives nothing back."""


def _only_lease(catalog: ClusterCatalog) -> Callable[..., None]:
    """Stands in for `SetWriter.put`: takes the lease, and at the commit is gone."""
    from headwater.catalog.cluster.writer import SetWriter

    put = SetWriter.put

    def stand_in(self: Any, head: Any) -> None:
        if head.lease is None:
            raise _Killed
        put(self, head)

    return stand_in


def test_a_set_may_be_created_where_a_restore_has_failed(make: Callable[..., ClusterCatalog], tmp_path: Path) -> None:
    origin = told(SqliteCatalog(tmp_path / "origin.db", SMALL))
    catalog = make()
    parts = list(origin.dump("s"))[:-1]

    def ending() -> Iterator[Part]:
        yield from parts
        raise StoreFault("cut off", code="HW-DMP-03")

    with failing("HW-DMP-03"):
        catalog.restore(ending())
    opened(catalog, [up("r1"), up("x")])
    catalog.record("s", [up("r0"), Delete("x")], at(3))
    assert [one.uri for one in catalog.resources("s")] == ["r0", "r1"]
    assert verify(catalog, "s") == []
    again = make()
    assert observed(again, "s") == observed(catalog, "s")


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
    assert observed(back, "s") == observed(origin, "s")
    for catalog in (origin, back):
        catalog.close()
    remove(cluster, name)
    cluster.close()
