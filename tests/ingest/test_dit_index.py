"""A harvester's index followed, on real engines: snapshot, changes, late and same-second documents."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from headwater.catalog.catalog_url import Credentials
from headwater.ingest.deletion_guard import set_problems
from headwater.ingest.dit.follower import DitFollower, IndexAuditResult, _delete, audit
from headwater.ingest.dit.index import (
    Index,
    ShardPosition,
    fitting,
    index_at,
    index_credentials,
)
from headwater.progress import Notice
from headwater.storage.cluster import Access, Cluster, ClusterAnswer, Node
from tests.support.failing import failing
from tests.support.push_set import PushSet, change, resource

pytestmark = pytest.mark.long(25)

MAPPINGS = {
    "modern": {
        "dynamic": True,
        "properties": {
            "resource_set": {"type": "keyword"},
            "location": {"properties": {"value": {"type": "keyword"}, "type": {"type": "keyword"}}},
            "lastmod": {"type": "date", "format": "strict_date_optional_time||yyyy-MM-dd'T'HH:mm:ssZ"},
            "datetime": {"type": "date", "format": "strict_date_optional_time||yyyy-MM-dd'T'HH:mm:ssZ"},
        },
    },
    "dynamic": {"dynamic": True},
    "none": {},
    "anything": {"enabled": False},
    "text": {"dynamic": True, "properties": {"resource_set": {"type": "text"}}},
}


class Harvester:
    """Who writes the index: its own client, its own ids, never ours."""

    def __init__(self, cluster: Cluster, name: str, mapping: str, shards: int) -> None:
        self.cluster = cluster
        self.name = name
        cluster.ask("DELETE", f"/{name}", accept=(404,))
        settings = {"number_of_shards": shards, "number_of_replicas": 0, "refresh_interval": "-1"}
        self._send("PUT", f"/{name}", {"settings": settings, "mappings": MAPPINGS[mapping]})

    def post(self, *documents: dict[str, object]) -> None:
        """A resource replaces the one of its location, a change is added (DIT-02)."""
        for one in documents:
            location = one["location"]
            assert isinstance(location, dict)
            if "change" in one:
                self._send("POST", f"/{self.name}/_doc", one)
            else:
                self._send("PUT", f"/{self.name}/_doc/{location['value']}", one)

    def remove(self, path: str) -> None:
        self._send("DELETE", f"/{self.name}/_doc/{path}")

    def refresh(self) -> None:
        self._send("POST", f"/{self.name}/_refresh")

    def content(self) -> Any:
        self.refresh()
        body = {"size": 1_000, "seq_no_primary_term": True, "version": True, "sort": ["_doc"]}
        hits = msgspec.json.decode(self._send("POST", f"/{self.name}/_search", body).body)["hits"]["hits"]
        return sorted((one["_id"], one["_seq_no"], one["_version"]) for one in hits)

    def _send(self, method: str, path: str, body: object = None) -> ClusterAnswer:
        return self.cluster.ask(method, path, None if body is None else msgspec.json.encode(body))


@pytest.fixture(params=["opensearch", "elasticsearch"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    engine = request.getfixturevalue(request.param)
    made = Cluster(Access(nodes=(Node("127.0.0.1", engine.port),)), patience_seconds=20)
    yield made
    made.close()


def followed(fed: PushSet, harvester: Harvester) -> DitFollower:
    return DitFollower(fed.feed, Index(harvester.cluster, harvester.name), frozenset({"s"}))


def test_dit_03_the_snapshot_then_what_happens_once_each(cluster: Cluster, tmp_path: Path) -> None:
    """DIT-02, DIT-03, DIT-A11, DIT-A20; restarts at any time; documents of another set are none of ours."""
    harvester = Harvester(cluster, "harvest-one", "modern", 2)
    for number in range(60):
        harvester.post(resource(f"r{number}", number), change(f"r{number}", "created", number))
    harvester.post(resource("r0", 100, "b"), change("r0", "updated", 100), resource("other", 1, resource_set="x"))
    harvester.refresh()
    fed = PushSet(tmp_path, loading=True)
    assert followed(fed, harvester).poll() == 121  # the one of another set is not even sent
    assert (len(fed.state()), fed.log(), fed.feed.is_open) == (60, [], True)
    before = harvester.content()

    assert followed(fed, harvester).poll() == 0  # a new process finds nothing new
    harvester.post(change("r1", "updated", 200))  # the change first …
    harvester.refresh()
    follower = followed(fed, harvester)
    follower.poll()
    assert fed.log() == [("updated", "r1")]
    assert fed.state()["r1"] is None
    harvester.post(resource("r1", 200, "c"))  # … its resource in the next look
    harvester.remove("r2")
    harvester.post(change("r2", "deleted", 201), resource("new", 201, "d"), change("new", "created", 201))
    harvester.refresh()
    followed(fed, harvester).poll()
    assert sorted(fed.log()) == [("created", "new"), ("deleted", "r2"), ("updated", "r1"), ("updated", "r1")]
    assert fed.state()["r1"] == "md5:" + "c" * 32
    fed.later(60)
    assert followed(fed, harvester).poll() == 0
    assert len(fed.log()) == 4
    assert {one[0] for one in before} - {one[0] for one in harvester.content()} == {"r2"}, "we removed nothing"
    assert len(harvester.content()) == len(before) + 4 - 1
    fed.close()


def test_dit_a20_more_than_ten_thousand_resources_of_one_set(cluster: Cluster, tmp_path: Path) -> None:
    """DIT-A20, DIT-04: beyond what one search of an engine may give, of one shard; all are there, each once."""
    harvester = Harvester(cluster, "harvest-many", "modern", 1)
    count = 10_050
    for start in range(0, count, 2_500):
        lines = [
            line
            for number in range(start, min(start + 2_500, count))
            for line in (b'{"index":{}}', msgspec.json.encode(resource(f"r{number}", number)))
        ]
        cluster.ask("POST", f"/{harvester.name}/_bulk", b"\n".join([*lines, b""]))
    harvester.refresh()
    fed = PushSet(tmp_path, loading=True)
    assert followed(fed, harvester).poll() == count
    assert (fed.catalog.state("s").count, fed.log()) == (count, [])
    fed.close()


def test_late_and_same_second_documents_are_neither_lost_nor_doubled(cluster: Cluster, tmp_path: Path) -> None:
    """DIT-A6: changes with times from long ago arrive at any moment, many in one second, some sent twice."""
    harvester = Harvester(cluster, "harvest-two", "dynamic", 3)
    chance = random.Random(7)
    fed = PushSet(tmp_path)
    wanted: list[str] = []
    for _round in range(8):
        for _ in range(12):
            number = len(wanted)
            second = chance.choice([5, 5, 5, number, 1_000])
            pair = [resource(f"p{number}", second), change(f"p{number}", "created", second)]
            chance.shuffle(pair)
            harvester.post(*pair)
            if chance.random() < 0.3:
                harvester.post(pair[0] if "change" in pair[0] else pair[1])  # the harvester repeats itself
            wanted.append(f"p{number}")
        if chance.random() < 0.7:
            harvester.refresh()
        followed(fed, harvester).poll()
    harvester.refresh()
    followed(fed, harvester).poll()
    assert sorted(fed.log()) == sorted(("created", uri) for uri in wanted)
    assert set(fed.state().values()) == {"md5:" + "a" * 32}
    fed.close()


def test_dit_a11_an_audit_repairs_what_no_document_told(cluster: Cluster, tmp_path: Path) -> None:
    harvester = Harvester(cluster, "harvest-three", "dynamic", 2)
    harvester.post(*(resource(f"r{number}", number) for number in range(40)))
    harvester.refresh()
    fed = PushSet(tmp_path, loading=True)
    follower = followed(fed, harvester)
    follower.poll()
    assert audit(follower, 0.2) == IndexAuditResult(resources=40, repaired=0, deleted=0, held_back=None)
    for number in range(3):
        harvester.remove(f"r{number}")  # and no change says so
    harvester.refresh()
    fed.events({"path": "r5", "md5": "b" * 32})  # somebody else says otherwise
    fed.events({"path": "stray"})
    found = audit(followed(fed, harvester), 0.2)
    assert (found.resources, found.deleted, found.held_back) == (37, 4, None)
    assert set(fed.state()) == {f"r{number}" for number in range(3, 40)}
    assert set(fed.state().values()) == {"md5:" + "a" * 32}
    for number in range(3, 30):
        harvester.remove(f"r{number}")
    harvester.refresh()
    found = audit(followed(fed, harvester), 0.2)
    assert (found.deleted, len(fed.state())) == (0, 37)
    assert found.held_back is not None
    assert set_problems(fed.catalog).held_back[0].reason == str(found.held_back)
    assert audit(followed(fed, harvester), 1.0).deleted == 27
    assert not set_problems(fed.catalog).held_back
    assert len(fed.state()) == 10
    fed.close()


def test_dit_a11_an_audit_believes_the_snapshot(cluster: Cluster, tmp_path: Path) -> None:
    """DIT-03, DIT-04: also where a change says more than came of it, once that is long ago."""
    harvester = Harvester(cluster, "harvest-mismatch", "modern", 1)
    fed = PushSet(tmp_path)
    for path in ("kept", "other"):
        harvester.post(resource(path, 5), change(path, "created", 5))
    harvester.post(
        change("kept", "deleted", 6), change("other", "updated", 6)
    )  # and their resources stayed as they are
    harvester.refresh()
    follower = followed(fed, harvester)
    follower.poll()
    fed.settle(6)
    assert fed.state() == {"other": None}
    assert audit(follower, 1.0).repaired == 0  # it may be on its way
    fed.later(3_600)
    assert audit(follower, 1.0) == IndexAuditResult(resources=2, repaired=2, deleted=0, held_back=None)
    assert fed.state() == dict.fromkeys(["kept", "other"], "md5:" + "a" * 32)
    assert audit(follower, 1.0).repaired == 0
    assert follower.poll() == 0
    fed.close()


@pytest.mark.parametrize("mapping", ["modern", "dynamic", "text"])
def test_a_set_asks_for_its_own_documents_where_the_engine_can_tell(
    cluster: Cluster, tmp_path: Path, mapping: str
) -> None:
    """Documents of other sets are not even sent, but those without a set, or not indexed by it, are never lost."""
    harvester = Harvester(cluster, f"harvest-sets-{mapping}", mapping, 2)
    long = "x" * 300  # more than engines index of a text by themselves
    names = frozenset({"s", long})
    fed = PushSet(tmp_path)
    for start in range(0, 40, 20):
        for number in range(start, start + 20):
            name = ("s", "other", long, None)[number % 4]
            harvester.post(resource(f"r{number}", number, resource_set=name),
                           change(f"r{number}", "created", number, resource_set=name))  # fmt: skip
        harvester.refresh()
        follower = DitFollower(fed.feed, Index(cluster, harvester.name), names)
        while follower.poll():
            pass
        assert follower.tally.foreign == (10 if mapping == "text" else 0)
    assert sorted(fed.state()) == sorted(f"r{number}" for number in range(40) if number % 4 != 1)
    assert len(fed.log()) == 30
    fed.close()


def test_an_index_without_documents_is_an_empty_snapshot(cluster: Cluster, tmp_path: Path) -> None:
    """What comes into it later is news."""
    harvester = Harvester(cluster, "harvest-empty", "none", 2)
    fed = PushSet(tmp_path, loading=True)
    follower = followed(fed, harvester)
    assert (follower.poll(), fed.feed.is_open) == (0, True)
    assert audit(follower, 0.2).resources == 0
    harvester.post(resource("a", 1), change("a", "created", 1))
    harvester.refresh()
    follower.poll()
    assert fed.log() == [("created", "a")]
    fed.close()


@pytest.mark.parametrize("name", ["_all", "-x", "+x", "a,_all", "a,-b", "", "*", "a/b", "Upper"])
def test_what_is_no_name_of_an_index_is_not_asked_for(name: str) -> None:
    """An engine takes some of them for all indices, or for all but one."""
    with failing("HW-ING-46"):
        Index(cast(Cluster, None), name)


def test_an_index_that_is_not_there_is_said(cluster: Cluster) -> None:
    with failing("HW-ING-46"):
        Index(cluster, "harvest-nowhere").shards()


ODD: list[tuple[str, dict[str, Any], bool]] = [
    ("nothing", {}, True),
    ("no location", {"resource_set": "s"}, True),
    ("a location that is a number", {"resource_set": "s", "location": 7}, True),
    ("a location that leads out", resource("a/../b", 1), True),
    ("a change of no kind", change("odd", "moved", 1), True),
    ("the name of no set", resource("odd", 1, resource_set=["s"]), True),
    ("many levels", {"more": [[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]}, True),
    ("fields of a wrapper", {"_source": resource("odd", 1)}, True),
    ("what looks like an answer", {"hits": {"hits": [resource("odd", 1)]}}, True),
    ("a change that is null", resource("null", 1, change=None), False),
    ("odd fields", resource("forgiven", 1, length=-1, md5={"a": 1}, ln="x", mime=[1], lastmod="?"), False),
    ("a large document", resource("large", 1, note="x" * 3_000_000), False),
]


def test_odd_documents_of_an_index_hold_up_no_good_one(cluster: Cluster, tmp_path: Path) -> None:
    """Each with its reason, and all others taken, though an answer with them is long."""
    harvester = Harvester(cluster, "harvest-odd", "anything", 1)
    for number, (_, odd, _refused) in enumerate(ODD):
        cluster.ask("POST", f"/{harvester.name}/_doc", msgspec.json.encode(odd))
        harvester.post(resource(f"r{number}", 1), change(f"r{number}", "created", 1))
    harvester.refresh()
    fed = PushSet(tmp_path)
    told: list[object] = []
    follower = DitFollower(fed.feed, Index(cluster, harvester.name), frozenset({"s"}), listener=told.append)
    while follower.poll():
        pass
    fed.settle()
    refused = [name for name, _, is_refused in ODD if is_refused]
    assert follower.tally.rejected == len(refused)
    assert sum(isinstance(one, Notice) and "was refused" in one.message for one in told) == len(refused)
    assert set(fed.state()) == {"null", "forgiven", "large", *(f"r{number}" for number in range(len(ODD)))}
    fed.close()


@pytest.mark.parametrize(
    ("size", "octets", "following"),
    [(1_000, 10, 1_000), (1_000, 32 << 20, 500), (1, 99 << 20, 1), (8, 100, 16), (900, 1, 1_000)],
)
def test_large_documents_are_asked_for_a_few_at_a_time(size: int, octets: int, following: int) -> None:
    assert fitting(size, octets) == following


class Liar(Cluster):
    """A server that answers with something else."""

    def __init__(self, *bodies: str) -> None:
        self.bodies = list(bodies)

    def ask(self, method: str, path: str, body: bytes | None = None, *, accept: object = ()) -> ClusterAnswer:
        return ClusterAnswer(200, self.bodies.pop(0))


SHARDS = '{"i":{"settings":{"index":{"uuid":"u","number_of_shards":"1"}}}}'


@pytest.mark.parametrize(
    "body",
    [
        "<html>",
        "[]",
        "{}",
        '{"hits":{}}',
        '{"hits":{"hits":{}}}',
        '{"timed_out":true,"hits":{"hits":[]}}',
        '{"hits":{"hits":[7]}}',
        '{"hits":{"hits":[{"_source":{}}]}}',
        '{"hits":{"hits":[{"_seq_no":"x"}]}}',
        "[" * 100_000,
    ],
    ids=lambda body: body[:30],
)
def test_answers_that_are_none_are_the_server_s_fault(body: str) -> None:
    index = Index(Liar(SHARDS, body), "i")
    (shard,) = index.shards()
    with failing("HW-ING-47"):
        index.look(shard, ShardPosition())


@pytest.mark.parametrize("body", ['{"i":{}}', '{"i":{"settings":{"index":{"uuid":"u"}}}}', '{"i":7}', "7"])
def test_settings_that_are_none_are_the_server_s_fault(body: str) -> None:
    with failing("HW-ING-47"):
        Index(Liar(body), "i").shards()


def test_documents_that_are_none_are_refused_and_passed(tmp_path: Path) -> None:
    fed = PushSet(tmp_path)
    hits = [
        {"_seq_no": 0, "_id": "1", "_source": {"location": 7}},
        {"_seq_no": 1, "_id": "2", "_source": resource("a", 1)},
        {"_seq_no": 2, "_id": "3", "_source": change("a", "created", 1)},
    ]
    page = msgspec.json.encode({"hits": {"hits": hits}}).decode()
    told: list[object] = []
    follower = DitFollower(fed.feed, Index(Liar(SHARDS, page, '{"hits":{"hits":[]}}'), "i"), None, listener=told.append)
    follower.poll()
    assert (follower.tally.rejected, fed.log()) == (1, [("created", "a")])
    assert ["(_id '1')" in one.message for one in told if isinstance(one, Notice)] == [True]
    fed.close()


@pytest.mark.parametrize(
    "text", ["http://host:1", "http://host:1/", "http://host:x/i", "http://host/I", "http://host/a/b"]
)
def test_addresses_of_no_index(text: str) -> None:
    with failing("HW-ING-46"):
        index_at(text)


@pytest.mark.parametrize(
    ("address", "who"),
    [
        ("http://u:p@host/i", ("u", "p", None)),
        ("http://u@host/i", ("v", "q", "k")),
        ("http://host/i", ("v", "q", "k")),
    ],
)
def test_a_password_in_the_address_of_an_index_counts_before_the_environment(
    address: str, who: tuple[str, str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[Access] = []
    monkeypatch.setattr("headwater.storage.cluster.Cluster", lambda access, **_: ways.append(access))
    index_at(address, credentials=Credentials(user="v", password="q", api_key="k"))
    assert [(way.user, way.password, way.api_key) for way in ways] == [who]


INDEX_ENVIRONMENT = {"HEADWATER_INDEX_USER": "v", "HEADWATER_INDEX_PASSWORD": "q"}


@pytest.mark.parametrize(
    "indexes", [[], ["http://a/i"], ["http://a/i", "http://a/j"], ["http://a/i", "https://u:p@b/i", "http://w:p@c/i"]]
)
def test_credentials_of_the_environment_are_for_the_one_server_of_all_indexes(indexes: list[str]) -> None:
    assert index_credentials(INDEX_ENVIRONMENT, indexes) == Credentials(user="v", password="q")


def test_credentials_of_the_environment_are_not_sent_to_several_servers() -> None:
    with failing("HW-ING-46", match="one server"):
        index_credentials(INDEX_ENVIRONMENT, ["http://a/i", "http://b/i"])
    assert index_credentials({}, ["http://a/i", "http://b/i"]) == Credentials()


def test_an_index_is_not_told_the_credentials_of_the_catalog() -> None:
    catalog = {"HEADWATER_CLUSTER_USER": "v", "HEADWATER_CLUSTER_PASSWORD": "q", "HEADWATER_CLUSTER_API_KEY": "k"}
    assert index_credentials(catalog, ["http://a/i"]) == Credentials()


def test_an_audit_deletes_nothing_that_was_announced_meanwhile(tmp_path: Path) -> None:
    """Between the list of what is missing and its deletion others may record (the index was only late)."""
    fed = PushSet(tmp_path)
    fed.events({"path": "a"}, {"path": "b"})
    fed.events({"path": "b", "change": "updated"})
    _delete(fed.feed, ["a", "b", "c"], 2)
    assert set(fed.state()) == {"b"}
    fed.close()
