"""Documents that engines store and return, and that strict readers of JSON refuse: each is judged alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headwater.ingest.dit import texts as json_texts
from headwater.ingest.dit.documents import BadDocument
from headwater.ingest.dit.follower import DitFollower
from headwater.ingest.dit.index import Index
from headwater.ingest.dit.intake import DocumentRecords
from headwater.ingest.dit.texts import Texts, decoded
from headwater.ingest.push.feed import Line
from headwater.ingest.push.submission import Submission
from headwater.storage.cluster import Access, Cluster, Node
from tests.ingest.test_dit_index import Harvester
from tests.support.push_set import PushSet, change, resource

ODD = {
    "half a surrogate pair": rb'"\ud83d"',
    "half a surrogate pair in octets": b'"\xed\xa0\x80"',
    "a number beyond all bounds": b"1e999",
    "more digits than a number has": b"1" * 5_000,
    "too many levels": b'{"a":' * 950 + b"7" + b"}" * 950,
}


def odd_document(value: bytes) -> bytes:
    """A resource with the value in a field of the harvester's own."""
    return msgspec.json.encode(resource("odd", 1))[:-1] + b',"title":' + value + b"}"


@pytest.mark.long(10)
@pytest.mark.parametrize("engine_name", ["opensearch", "elasticsearch"])
def test_an_index_with_odd_documents_is_read_to_its_end(
    engine_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Both engines take them: what comes after one that cannot be read is taken, and the others with it."""
    cluster = Cluster(Access(nodes=(Node("127.0.0.1", request.getfixturevalue(engine_name).port),)))
    harvester = Harvester(cluster, "odd-values", "anything", 1)
    harvester.post(resource("before", 1), change("before", "created", 1))
    stored = 0
    for value in ODD.values():
        stored += cluster.ask("POST", "/odd-values/_doc", odd_document(value), accept=(400,)).status == 201
    harvester.post(resource("after", 1), change("after", "created", 1))
    harvester.refresh()
    assert stored >= 4
    fed = PushSet(tmp_path)
    follower = DitFollower(fed.feed, Index(cluster, "odd-values"), frozenset({"s"}))
    follower.poll()
    assert {("created", "before"), ("created", "after")} <= set(fed.log())
    assert follower.tally.rejected == 1, "the one of too many levels"
    fed.close()
    cluster.close()


@pytest.mark.parametrize("wrapper", [b'{"hits":{"hits":[%s]}}', b"[%s]"], ids=["search", "array"])
@pytest.mark.parametrize("name", ODD)
def test_an_odd_document_does_not_affect_others_of_its_text(tmp_path: Path, name: str, wrapper: bytes) -> None:
    fed = PushSet(tmp_path)
    documents = [odd_document(ODD[name]), msgspec.json.encode(resource("a", 1))]
    if b"hits" in wrapper:
        documents = [b'{"_source":%s}' % one for one in documents]
    submission = Submission(DocumentRecords(lambda _name: fed.feed))
    submission.push(wrapper % b",".join(documents))
    submission.finish()
    told = {one["item"]: one for one in json.loads(submission.body)["results"]}
    assert (told[1]["status"], told[2]["status"]) == (422 if "levels" in name else 200, 200)
    if "surrogate" in name:
        assert told[1]["left_out"] == ["unknown fields with a text that is not Unicode were not kept"]
    fed.settle()
    assert "a" in fed.state()
    fed.close()


def test_a_resource_set_that_is_not_unicode_is_refused(tmp_path: Path) -> None:
    fed = PushSet(tmp_path)
    submission = Submission(DocumentRecords(lambda _name: fed.feed))
    submission.push(rb'{"resource_set":"\udcfc","location":{"value":"a","type":"rel_path"}}')
    submission.finish()
    (told,) = json.loads(submission.body)["results"]
    assert (told["status"], told["code"]) == (422, "HW-ING-41")
    fed.close()


@pytest.mark.parametrize("text", [b"NaN", b"[-Infinity]", b"[" * 300, b"]" * 300, b'[[["' + b'\\"' * 2_000, b'"\xff"'])
def test_what_is_no_json_stays_none(text: bytes) -> None:
    with pytest.raises(BadDocument):
        decoded(text)


def seconds_of(read: Callable[[], object]) -> float:
    """The least processor time of three tries."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        with pytest.raises(ValueError):
            read()
        taken.append(time.process_time() - began)
    return min(taken)


def test_many_numbers_in_a_broken_text_cost_little_more_than_in_the_standard_reader() -> None:
    """A body of a few compressed octets may have millions, and whoever reads them holds up all threads."""
    text = b"[" + b"1," * 300_000 + b"x]"

    def ours() -> None:
        try:
            decoded(text)
        except BadDocument as cause:
            raise ValueError from cause

    assert seconds_of(ours) < 8 * seconds_of(lambda: json.loads(text))


def test_a_broken_text_is_read_once_however_many_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is complete by its brackets and broken does not heal; those after it are taken as they are."""
    read: list[int] = []
    real = json_texts.decoded

    def counted(text: bytes | str) -> object:
        read.append(len(text))
        return real(text)

    monkeypatch.setattr(json_texts, "decoded", counted)
    broken = [b"[", *(b" %d," % number for number in range(1_000)), b"]"]
    lines = [*broken, *([b"{", b' "a": 1', b"}"] * 500)]
    texts = Texts(1 << 20)
    given = [one for number, line in enumerate(lines, 1) for one in texts.push(Line(number, line))]
    given += texts.finish()
    assert [one.number for one in given if one.text == b'{\n "a": 1\n}'] == [1_003 + 3 * turn for turn in range(500)]
    assert len(given) == len(broken) + 500
    assert sum(read) < 10 * sum(map(len, lines))
