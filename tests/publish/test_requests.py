"""What an event costs on a real search engine, in requests: each is work for it, for us, and a wait."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.engines.engine import Engine

from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import remove
from headwater.catalog.interface import Delete, Event
from headwater.publish.plan import Refresh
from headwater.publish.publisher import Publisher
from headwater.publish.site import SetSettings, Site
from headwater.storage.cluster import Access, Cluster, ClusterAnswer
from headwater.storage.folder_store import FolderStore
from tests.support.engines import LAYOUT, access, prefix
from tests.support.published import put

SETS = ("a", "b", "c")


class Counted:
    """What was asked since it was looked at last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._asked: list[str] = []
        ask = Cluster.ask

        def counting(cluster: Cluster, method: str, path: str, *rest: object, **named: object) -> ClusterAnswer:
            self._asked.append(f"{method} {path}")
            return ask(cluster, method, path, *rest, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(Cluster, "ask", counting)

    def take(self) -> list[str]:
        asked, self._asked = self._asked, []
        return asked


class Host:
    """A catalog of its own over the indices that all hosts share, and a publisher over documents that they share."""

    def __init__(self, way: Access, name: str, folder: Path) -> None:
        self.catalog = ClusterCatalog(way, name, options=LAYOUT)
        self.store = FolderStore(folder, durable=False)
        site = Site(base_url="http://source.example", sets=tuple(SetSettings(name=one) for one in SETS))
        self.publisher = Publisher(self.catalog, self.store, site, now)

    def record(self, name: str, *events: Event) -> int:
        return self.catalog.record(name, events, now()).last

    def publish(self, name: str, newest: int) -> None:
        """As whoever keeps sets current does when there are news."""
        assert self.publisher.publish(name, now(), Refresh.CHANGES).seq == newest

    def says(self, name: str, uri: str) -> bool:
        return f"/{uri}<" in (self.store.root / name / "changelist" / "open.xml").read_text()


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@pytest.fixture
def hosts(opensearch: Engine, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Two hosts with sets that are loaded, open and published."""
    way, name = access(opensearch), prefix()
    made = Host(way, name, tmp_path), Host(way, name, tmp_path)
    for one in SETS:
        made[0].catalog.create(one)
        made[0].catalog.load(one, [put(f"r{number}", 0) for number in range(5)])
        made[0].catalog.open(one, now())
        made[0].publisher.publish(one, now())
    yield made
    for host in made:
        host.catalog.close()
    cluster = Cluster(way)
    remove(cluster, name)
    cluster.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


EVENTS: list[tuple[str, tuple[Event, ...]]] = [
    ("a new resource", (put("n1", 1),)),
    ("an update", (put("r1", 1),)),
    ("a deletion", (Delete("r1"),)),
    ("several", (put("n1", 1), put("r1", 1), Delete("r2"))),
]


@pytest.mark.parametrize("events", [row[1] for row in EVENTS], ids=[row[0] for row in EVENTS])
def test_an_event_costs_seven_requests_to_record_and_five_to_publish(
    hosts: tuple[Host, Host], asked: Counted, events: tuple[Event, ...]
) -> None:
    host = hosts[0]
    for name in SETS:
        asked.take()
        last = host.record(name, *events)
        assert len(asked.take()) <= 7, "the head; the lease; its place; the log; the head; its places; the lease"
        host.publish(name, last)
        assert len(asked.take()) <= 5, "the snapshot; the head, the log; the head, the note"
        assert host.says(name, events[-1].uri)


def test_many_changes_are_read_in_one_request_more(hosts: tuple[Host, Host], asked: Counted) -> None:
    host = hosts[0]
    for number in range(5):
        last = host.record("a", put(f"n{number}", 1))
    asked.take()
    host.publish("a", last)
    assert len(asked.take()) <= 5
    assert all(host.says("a", f"n{number}") for number in range(5))


def test_what_another_host_has_recorded_costs_no_more(hosts: tuple[Host, Host], asked: Counted) -> None:
    ours, other = hosts
    ours.record("b", put("n0", 1))
    last = other.record("b", put("n1", 1))
    asked.take()
    ours.publish("b", last)
    assert len(asked.take()) <= 5
    assert ours.says("b", "n0")
    assert ours.says("b", "n1")
    assert ours.record("b", put("n2", 1)) == last + 1
    asked.take()
    assert other.record("b", put("n3", 1)) == last + 2
    assert len(asked.take()) <= 7


def test_a_look_when_nothing_is_new_costs_nothing_but_the_look(hosts: tuple[Host, Host], asked: Counted) -> None:
    host = hosts[0]
    host.publish("a", 0)
    for refresh in (Refresh.CHANGES, Refresh.REPAIR):
        asked.take()
        host.publisher.publish("a", now(), refresh)
        assert len(asked.take()) <= 1, "the head as it is now"


def test_a_lookup_of_resources_costs_three_requests(hosts: tuple[Host, Host], asked: Counted) -> None:
    host = hosts[0]
    host.record("a", put("r1", 7))
    asked.take()
    assert host.catalog.get("a", ["r1", "r2", "none"])["r1"].metadata.length == 7
    assert len(asked.take()) <= 3
