"""What a publisher decides: the next step for a hub, what an answer means, when to ask again, what a payload has."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path

import msgspec
import pytest

from headwater.catalog.catalog_url import open_catalog
from headwater.catalog.interface import Metadata, Upsert
from headwater.errors import UsageFault
from headwater.notify.websub import PostOutcome, outcome_of, pause_seconds, payload_head
from headwater.publish.notifications import PAYLOAD_OCTETS, change_payload
from headwater.publish.site import SetSettings, Site
from headwater.source.config import read_config
from headwater.source.notifier import HubPosition, chain_begin
from headwater.source.set_health import Publication
from headwater.spec.records import Link
from tests.support.documents import read_bytes

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
VISIBLE = Publication(name="a", is_first=True, history=0, history_first=1, first=1, last=9, resources=5)
AT_5 = HubPosition(history=0, after=2, seq=5, until=NOW)


@pytest.mark.parametrize(
    ("position", "visible", "begin", "waiting"),
    [
        (AT_5, VISIBLE, None, 4),
        (msgspec.structs.replace(AT_5, is_taken=False), VISIBLE, None, 7),
        (msgspec.structs.replace(AT_5, seq=9), VISIBLE, None, 0),
        (AT_5, msgspec.structs.replace(VISIBLE, history=3, history_first=7), 6, 3),
        (msgspec.structs.replace(AT_5, is_taken=False), msgspec.structs.replace(VISIBLE, history=3), 0, 9),
    ],
    ids=["more is visible", "not taken", "all is told", "a new history", "a new history, and what was not taken"],
)
def test_where_a_chain_begins(position: HubPosition, visible: Publication, begin: int | None, waiting: int) -> None:
    assert chain_begin(position, visible) == begin
    assert position.waiting(visible) == waiting


def test_a_new_hub_hears_of_what_comes() -> None:
    assert chain_begin(None, VISIBLE) == 9


def test_what_an_answer_means() -> None:  # RS-NT-06, AMB-31
    taken = [one for one in range(100, 600) if outcome_of(one) is PostOutcome.TAKEN]
    assert taken == list(range(200, 300))
    assert {one for one in range(300, 500) if outcome_of(one) is PostOutcome.FAILED} == {408, 425, 429}
    assert all(outcome_of(one) is PostOutcome.FAILED for one in range(500, 600))


def test_pauses_grow_and_the_hub_may_ask_for_more() -> None:
    pauses = [pause_seconds(PostOutcome.FAILED, number, 0.5) for number in range(1, 20)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 0.5
    assert pauses[-1] == 5.0, "a hub that is back is used within seconds"
    assert pause_seconds(PostOutcome.FAILED, 1, 1.0) < 1.0
    assert pause_seconds(PostOutcome.REFUSED, 1, 0.0) > 5.0
    assert pause_seconds(PostOutcome.FAILED, 1, 0.5, 7.0) == 7.0
    assert pause_seconds(PostOutcome.FAILED, 1, 0.5, 0.1) == 0.5
    assert pause_seconds(PostOutcome.FAILED, 1, 0.5, 1e9) == 3_600.0


def test_what_is_said_with_a_payload() -> None:  # RS-NT-04, RS-NT-05
    told = payload_head("http://h.example/", "http://s.example/t", "http://s.example/c", "x")
    links = '<http://s.example/t>; rel="self", <http://h.example/>; rel="hub", <http://s.example/c>; rel="resourcesync"'
    head = f"Content-Type: application/xml\r\nLink: {links}\r\nAuthorization: Bearer x\r\n"
    assert told.decode() == head


@pytest.mark.parametrize("links", [0, 40], ids=["many changes", "changes with many links"])
def test_payloads_are_bounded_and_follow_each_other(tmp_path: Path, links: int) -> None:  # RS-CN-02, RS-CN-05
    site = Site(base_url="http://s.example", sets=(SetSettings(name="a"),))
    catalog = open_catalog(tmp_path / "catalog.sqlite")
    catalog.create("a")
    catalog.open("a", NOW)
    more = tuple(Link(rel="related", href=f"http://l.example/{'l' * 1_000}{one}") for one in range(links))
    count = 6_000 if not links else 100
    catalog.record("a", [Upsert(f"{'n' * 200}{one}", Metadata(length=1, links=more)) for one in range(count)], NOW)
    after, from_, sent = 0, NOW, []
    while after < count:
        payload = change_payload(site, catalog, "a", from_, after=after, last=count, most=10_000)
        after, from_ = payload.last, payload.until
        sent.append(payload.octets)
    catalog.close()
    assert len(sent) > 1
    assert all(len(one) <= PAYLOAD_OCTETS for one in sent)
    read = [read_bytes(one) for one in sent]
    assert not [warned for *_, warned in read if warned]
    assert [entry.loc.rpartition("n")[2] for _, some, _ in read for entry in some] == [str(one) for one in range(count)]
    assert all(later.from_ == earlier.until for (earlier, *_), (later, *_) in itertools.pairwise(read))


def test_a_change_that_is_too_long_alone_is_told_of_by_a_gap(tmp_path: Path) -> None:  # RS-CN-07, RS-CN-17
    site = Site(base_url="http://s.example", sets=(SetSettings(name="a"),))
    catalog = open_catalog(tmp_path / "catalog.sqlite")
    catalog.create("a")
    catalog.open("a", NOW)
    more = tuple(Link(rel="related", href=f"http://l.example/{'l' * 1_000}{one}") for one in range(9))
    catalog.record("a", [Upsert(one, Metadata(length=1, links=more if one == "long" else ())) for one in "abc"], NOW)
    catalog.record("a", [Upsert("long", Metadata(length=1, links=more)), Upsert("d", Metadata(length=1))], NOW)
    after, from_, read = 0, NOW, []
    while after < 5:
        payload = change_payload(site, catalog, "a", from_, after=after, last=5, most=10, most_octets=4_096)
        after, from_ = payload.last, payload.until
        read.append(read_bytes(payload.octets))
    catalog.close()
    assert [[entry.loc[-1] for entry in entries] for _, entries, _ in read] == [["a", "b"], ["c"], [], ["d"]]
    assert not [warned for *_, warned in read if warned]
    heads = [head for head, *_ in read]
    assert heads[1].until is not None
    assert heads[2].from_ is not None
    assert heads[2].from_ > heads[1].until, "subscribers see at once that they have to read the Change List"
    assert (heads[3].from_, heads[2].from_) == (heads[2].until, heads[2].until)


@pytest.mark.parametrize(
    "table",
    [
        "hubs = []",
        'hubs = ["http://h.example/", "http://h.example/"]',
        'hubs = ["ftp://h.example/"]',
        'hubs = ["http://user:word@h.example/"]',
        'hubs = ["http://h.example/"]\nbatch_seconds = -1',
        'hubs = ["http://h.example/"]\nbatch_count = 0',
        'hub = "http://h.example/"',
        'token = "x"',
    ],
)
def test_tables_that_are_refused(tmp_path: Path, table: str) -> None:
    config = tmp_path / "source.toml"
    config.write_text(f'state = "s"\n[notify]\n{table}\n[[set]]\nfiles = "f"\n')
    with pytest.raises(UsageFault):
        read_config(config)


def test_a_token_comes_from_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")
    config = tmp_path / "source.toml"
    config.write_text(
        'state = "s"\n[notify]\nhubs = ["http://h.example/"]\ntoken_file = "token"\n[[set]]\nfiles = "f"\n'
    )
    notify = read_config(config).notify
    assert notify is not None
    assert notify.sent_token({}) == "0123456789abcdef"
