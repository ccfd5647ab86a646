"""What a handle may take for done: answers that were lost, and heads that a node has shown and nobody acknowledged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
from tools.engines.engine import Engine

from headwater.catalog.cluster.documents import to_json
from headwater.catalog.cluster.head import STAMPS, SetHead
from headwater.catalog.interface import Accepted, Metadata, Upsert
from headwater.catalog.verify import verify
from headwater.storage.cluster import ClusterAnswer, ClusterUnreachable
from tests.catalog.cluster_ground import Ground
from tests.catalog.recorder import START


@pytest.fixture
def ground(opensearch: Engine) -> Iterator[Ground]:
    ground = Ground(opensearch)
    yield ground
    ground.remove()


def test_an_answer_that_is_lost_while_others_write_a_lot_doubles_nothing(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has waited half a minute for the answer finds out that the batch was committed, and not at once again."""
    slow, quick = ground.open(), ground.open()
    slow.create("s")
    slow.open("s", START)
    accepted = [slow.record("s", [Upsert("slow", Metadata(length=0))], START)]
    ask = slow.cluster.ask
    lost: list[str] = []
    puts: list[str] = []

    def losing(method: str, path: str, body: bytes | None = None, *, accept: Sequence[int] = ()) -> ClusterAnswer:
        puts.extend([path] * (method == "PUT"))
        if len(puts) == 2 and not lost:  # after the lease, the commit
            lost.append(ask(method, path, body, accept=accept).body)
            for number in range(2 * STAMPS):
                quick.record("s", [Upsert("quick", Metadata(length=number))], START)
        return ask(method, path, body, accept=accept)

    monkeypatch.setattr(slow.cluster, "ask", losing)
    accepted.append(slow.record("s", [Upsert("slow", Metadata(length=1))], START))
    assert lost
    assert accepted == [Accepted(1, 1), Accepted(2, 2)]
    log = [(change.uri, change.metadata.length) for change in quick.changes("s")]
    assert log == [("slow", 0), ("slow", 1), *(("quick", number) for number in range(2 * STAMPS))]
    assert verify(quick, "s") == []
    slow.close()
    quick.close()


def test_of_a_head_that_was_never_acknowledged_nothing_is_applied(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A primary shows what its copies do not have yet. When its node goes, that head is gone, and what it said too."""
    gone, other = ground.open(), ground.open()
    gone.create("s")
    gone.open("s", START)
    said: list[bytes] = []

    def unheard(head: SetHead, _version: object) -> None:
        said.append(to_json(head))
        raise ClusterUnreachable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(gone._indices, "put_head", unheard)
        with pytest.raises(ClusterUnreachable):
            gone.record("s", [Upsert("gone", Metadata())], START)
    ask = other.cluster.ask
    shown: list[ClusterAnswer] = []

    def showing(method: str, path: str, body: bytes | None = None, *, accept: Sequence[int] = ()) -> ClusterAnswer:
        answer = ask(method, path, body, accept=accept)
        if method == "GET" and not shown:
            found = json.loads(answer.body)
            found |= {"_seq_no": found["_seq_no"] + 1, "_source": json.loads(said[0])}
            shown.append(ClusterAnswer(answer.status, json.dumps(found)))
            return shown[0]
        return answer

    monkeypatch.setattr(other.cluster, "ask", showing)
    assert other.record("s", [Upsert("here", Metadata())], START) == Accepted(1, 1)
    assert shown
    assert [change.uri for change in other.changes("s")] == ["here"]
    assert other.get("s", ["gone", "here"]).keys() == {"here"}
    assert verify(gone, "s") == []
    for catalog in (gone, other):
        catalog.close()
