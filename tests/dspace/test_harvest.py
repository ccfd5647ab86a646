"""A DSpace repository is harvested by the command: what changes there, what is hidden there, and what goes wrong."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.version import __version__
from tests.dspace.fake_dspace import PASSWORD, USER, Bitstream, FakeDSpace, Item, fake_dspace
from tests.dspace.harvested_set import HarvestedSet
from tests.support.scripted_server import Request, answer

pytestmark = pytest.mark.long(40)


@pytest.fixture
def dspace() -> Iterator[FakeDSpace]:
    with fake_dspace() as server:
        yield server
        assert server.busiest <= 1, "more than one request was under way"


@pytest.fixture
def harvested(tmp_path: Path, dspace: FakeDSpace) -> HarvestedSet:
    return HarvestedSet(tmp_path, dspace)


def fill(dspace: FakeDSpace, count: int = 12) -> list[Item]:
    """Items of two collections, the first with two files, some mapped to both."""
    first, second = dspace.collection(), dspace.collection()
    made = [dspace.add((first, second)[number % 2], Bitstream(b"file %d" % number)) for number in range(count)]
    made[0].bundles["ORIGINAL"].append(Bitstream(b"data", name="data set.csv", mime="text/csv"))
    made[0].bundles["LICENSE"] = [Bitstream(b"grant", name="license.txt", mime="text/plain")]
    made[2].mapped = (second,)
    return made


def asked(dspace: FakeDSpace, pattern: str, method: str = "GET") -> int:
    return sum(one.method == method and re.search(pattern, one.target) is not None for one in dspace.received)


def test_a_repository_is_harvested_once_and_then_asked_for_news(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    items = fill(dspace)
    status, told = harvested.run()
    assert (status, told["records"], told["created"], told["unreadable"], told["held_back"]) == (0, 12, 25, 0, None)
    assert harvested.holds() == dspace.truth()
    dspace.received.clear()
    assert harvested.run()[1]["changed"] == 0
    assert len(dspace.received) == 1, "one request where nothing is new"
    dspace.edit(items[3], "Another title")
    added = dspace.add(items[0].collection, Bitstream(b"new"))
    dspace.received.clear()
    assert harvested.run()[1]["changed"] == 3
    assert asked(dspace, "/core/items/") == 2, "only what is new"
    assert harvested.holds() == dspace.truth()
    assert ("updated", f"items/{items[3].uuid}.json") in harvested.changes()
    assert ("created", f"items/{added.uuid}.json") in harvested.changes()


def test_resources_say_what_they_are_and_are_linked(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    item = fill(dspace)[0]
    harvested.run()
    found = harvested.resources()
    metadata = found[f"items/{item.uuid}.json"]
    files = item.bundles["ORIGINAL"]
    paths = [f"bitstreams/{files[0].uuid}/paper.pdf", f"bitstreams/{files[1].uuid}/data~20set.csv"]
    links = {(link.rel, link.href.partition("/resources/")[2] or link.href) for link in metadata.links}
    collection = ("collection", f"{dspace.url}/core/collections/{item.collection}")
    assert links == {collection, ("describes", paths[0]), ("describes", paths[1])}
    assert metadata.type == "application/json"
    assert metadata.lastmod.isoformat(timespec="milliseconds") == item.modified
    data = found[paths[1]]
    assert [(link.rel, link.href.partition("/resources/")[2]) for link in data.links] == [
        ("describedby", f"items/{item.uuid}.json")
    ]
    assert (data.type, data.length) == ("text/csv", 4)
    assert data.hash.startswith(f"md5:{files[1].md5} sha-256:")


def test_a_changed_file_is_found_by_its_checksum_alone(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    """It does not touch the item (DSpace #10190): polls see nothing of it, comparisons do."""
    item = fill(dspace)[1]
    harvested.run()
    item.bundles["ORIGINAL"][0].content = b"corrected"
    assert harvested.run()[1]["changed"] == 0
    assert harvested.run("--audit")[1]["changed"] == 1
    assert harvested.holds() == dspace.truth()
    views = dspace.views
    dspace.received.clear()
    assert harvested.run("--audit")[1]["changed"] == 0
    assert asked(dspace, "/content", "HEAD") == 13
    assert asked(dspace, "/content") == 0
    assert dspace.views == views, "to ask whether a file is open counts as no view"


HIDDEN = {
    "hard deleted": lambda dspace, item: dspace.delete(item),
    "withdrawn": lambda _dspace, item: setattr(item, "is_withdrawn", True),
    "private": lambda _dspace, item: setattr(item, "is_private", True),
    "restricted": lambda _dspace, item: setattr(item, "is_restricted", True),
}


@pytest.mark.parametrize("how", HIDDEN)
def test_an_item_that_is_hidden_is_deleted_with_its_files(
    how: str, dspace: FakeDSpace, harvested: HarvestedSet
) -> None:
    items = fill(dspace)
    harvested.run()
    HIDDEN[how](dspace, items[0])
    status, told = harvested.run("--audit")
    assert (status, told["deleted"]) == (0, 3)
    assert harvested.holds() == dspace.truth()
    paths = {uri.split("/")[1] for change, uri in harvested.changes() if change == "deleted"}
    assert paths == {f"{items[0].uuid}.json", *(one.uuid for one in items[0].bundles["ORIGINAL"])}


def test_a_day_later_the_lists_alone_tell_of_hidden_items(dspace: FakeDSpace, tmp_path: Path) -> None:
    """No file is asked for: only the items that the lists do not have any longer are."""
    harvested = HarvestedSet(tmp_path, dspace)
    items = fill(dspace)
    harvested.run()
    items[5].is_withdrawn = True
    _age(harvested, "number")
    dspace.received.clear()
    assert harvested.run()[1]["deleted"] == 2
    assert harvested.holds() == dspace.truth()
    assert asked(dspace, "/core/items/") == 1
    assert asked(dspace, "/content", "HEAD") == asked(dspace, "/content") == 0


def _age(harvested: HarvestedSet, *what: str) -> None:
    """Let the last reading of the lists, or comparison, have been ten years ago."""
    from headwater.catalog.interface import StateRow, StateUpdate
    from headwater.catalog.sqlite_catalog import SqliteCatalog
    from tests.support.waiting import START

    catalog = SqliteCatalog(harvested.state / "catalog.sqlite")
    row = catalog.rows("d", [("position", "dspace")])["position", "dspace"]
    position = json.loads(row.value)
    for name in what:
        position[name] = 1
    update = StateUpdate(put=[StateRow("position", "dspace", json.dumps(position).encode())])
    catalog.record("d", [], START, state=update)
    catalog.close()


def test_a_comparison_comes_when_its_time_is_over(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    item = fill(dspace)[1]
    harvested.run()
    item.bundles["ORIGINAL"][0].content = b"corrected"
    _age(harvested, "whole")
    assert harvested.run()[1]["changed"] == 1
    assert harvested.holds() == dspace.truth()


def test_restricted_and_embargoed_files_are_not_published(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    items = fill(dspace)
    embargoed, open_ = items[4].bundles["ORIGINAL"][0], items[6].bundles["ORIGINAL"][0]
    embargoed.is_restricted = True
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()
    assert embargoed.uuid not in harvested.holds()
    embargoed.is_restricted, open_.is_restricted = False, True
    status, told = harvested.run("--audit")
    assert (status, told["deleted"]) == (0, 1)
    assert harvested.holds() == dspace.truth()


def test_files_of_an_item_come_go_move_and_change_their_names(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    items = fill(dspace)
    harvested.run()
    files = items[0].bundles["ORIGINAL"]
    moved = items[1].bundles["ORIGINAL"].pop()
    items[2].bundles["ORIGINAL"].append(moved)
    files.pop()
    files[0].name = "final.pdf"
    files.append(Bitstream(b"", name="empty.txt", mime="no media type"))
    assert harvested.run("--audit")[0] == 0
    assert harvested.holds() == dspace.truth()
    assert moved.uuid in harvested.holds()
    found = harvested.resources()
    assert f"bitstreams/{files[0].uuid}/final.pdf" in found
    links = {link.href.rpartition("/resources/")[2] for link in found[f"items/{items[0].uuid}.json"].links[1:]}
    assert links == {f"bitstreams/{one.uuid}/{one.name}" for one in files}
    assert harvested.run("--audit")[1]["changed"] == 0


def test_bundles_are_chosen(dspace: FakeDSpace, tmp_path: Path) -> None:
    fill(dspace)
    harvested = HarvestedSet(tmp_path, dspace, 'bundles = ["ORIGINAL", "LICENSE"]')
    harvested.run()
    assert harvested.holds() == dspace.truth("ORIGINAL", "LICENSE")


def test_an_item_of_many_files_and_odd_names_is_read_by_pages(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    names = ["a/b.pdf", "../../etc/passwd", ".hidden", "he1234 1", "x" * 400, "ü.pdf", "CON", "a\u202eb", "~", " "]
    files = [Bitstream(b"%d" % number, name=names[number % 10]) for number in range(250)]
    item = dspace.add(dspace.collection(), *files)
    item.bundles |= {f"B{number}": [Bitstream(b"other")] for number in range(120)}
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()
    assert harvested.run("--audit")[1]["changed"] == 0


# lists that move or lie


@pytest.mark.parametrize("is_newest_first", [True, False])
def test_deletions_between_two_pages_cost_no_item(
    is_newest_first: bool, dspace: FakeDSpace, harvested: HarvestedSet
) -> None:
    """Case 10: three items vanish between pages 2 and 3, so that three others move to a page that was read."""
    collection, dspace.is_newest_first = dspace.collection(), is_newest_first
    items = [dspace.add(collection) for _ in range(450)][:: -1 if is_newest_first else 1]

    def move(request: Request) -> None:
        if "page=2" in request.target and len(dspace.items) == 450 and "search" in request.target:
            for item in items[:3]:
                dspace.delete(item)

    dspace.before = move
    assert harvested.run()[0] == 0
    assert len(dspace.items) == 447
    assert harvested.holds().keys() - dspace.truth().keys() == {one.uuid for one in items[:3]}, "seen before"
    assert harvested.run("--audit")[1]["deleted"] == 3
    assert harvested.holds() == dspace.truth()


@pytest.mark.parametrize("total", [lambda _total: 0, lambda total: total - 101, lambda total: total + 250])
def test_wrong_totals_cost_no_item(total: object, dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    collection = dspace.collection()
    for _ in range(230):
        dspace.add(collection, Bitstream(b"x"))
    dspace.total = lambda true: max(0, total(true)) if true > 100 else true  # type: ignore[operator]
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()


def test_small_pages_cost_no_item(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    fill(dspace, 50)
    dspace.most = 7
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()


def test_an_index_that_is_late_deletes_nothing(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    """An item that no list has is asked for by its own address before it counts as gone."""
    items = fill(dspace)
    harvested.run()
    dspace.unindexed = {one.uuid for one in items}
    status, told = harvested.run("--audit")
    assert (status, told["deleted"], told["records"]) == (0, 0, 12)
    assert harvested.holds() == dspace.truth()


def test_an_index_that_cannot_tell_what_was_modified_is_told(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    items = fill(dspace)
    dspace.knows_modified = False
    harvested.run()
    dspace.edit(items[0], "Another title")
    assert harvested.run()[0] == 0
    assert "HW-DSP-05" in harvested.said
    assert harvested.run("--audit")[1]["changed"] == 1
    assert harvested.holds() == dspace.truth()


# mass deletions


def _wall(request: Request) -> bytes | None:
    return answer(b"no robots", "403 Forbidden") if "/core/items/" in request.target else None


def _empty_list(dspace: FakeDSpace) -> None:
    dspace.items.clear()


def _wall_of_items(dspace: FakeDSpace) -> None:
    dspace.unindexed = set(dspace.items)
    dspace.instead = _wall


def _wall_of_files(dspace: FakeDSpace) -> None:
    dspace.instead = lambda request: answer(b"no", "401 No") if "/content" in request.target else None


@pytest.mark.parametrize(
    ("happens", "exit_status", "said"),
    [(_empty_list, 3, "HW-DSP-04"), (_wall_of_items, 3, "HW-DSP-04"), (_wall_of_files, 4, "stay listed")],
)
def test_a_repository_that_suddenly_shows_nothing_is_held_back(
    happens: object, exit_status: int, said: str, dspace: FakeDSpace, harvested: HarvestedSet
) -> None:
    fill(dspace, 40)
    harvested.run()
    before, items = harvested.holds(), dict(dspace.items)
    happens(dspace)  # type: ignore[operator]
    assert harvested.run("--audit")[0] == exit_status
    assert said in harvested.said
    assert harvested.run()[1]["deleted"] == 0
    assert harvested.holds() == before
    dspace.items, dspace.unindexed, dspace.instead = items, set(), lambda _request: None
    assert harvested.run("--audit")[0] == 0
    assert harvested.holds() == before


def test_consent_lets_deletions_go(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    from tests.support.program import run_here

    items = fill(dspace, 40)
    harvested.run()
    for item in items[:20]:
        item.is_withdrawn = True
    assert harvested.run("--audit")[0] == 4
    assert run_here("allow-deletions", harvested.config, "d").returncode == 0
    status, told = harvested.run()
    assert (status, told["deleted"]) == (0, 41)
    assert harvested.holds() == dspace.truth()
    for item in items[20:]:
        item.is_withdrawn = True
    assert harvested.run("--audit", "--max-delete", "100%")[:1] == (0,)
    assert harvested.holds() == {}


def test_news_that_delete_much_are_left_to_the_comparison(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    items = fill(dspace, 40)
    harvested.run()
    for item in items:
        item.bundles["ORIGINAL"].clear()
        dspace.edit(item, "Without files")
    status, told = harvested.run()
    assert (status, told["deleted"]) == (4, 0)
    assert told["updated"] == 40
    assert harvested.run("--audit", "--max-delete", "1")[0] == 0
    assert harvested.holds() == dspace.truth()


def test_an_empty_repository_is_not_published(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    dspace.collection()
    assert harvested.run()[0] == 3
    assert "HW-DSP-04" in harvested.said
    fill(dspace)
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()


# an account


@pytest.mark.parametrize("is_new", [False, True])
def test_an_account_lists_the_items_and_publishes_no_more(
    is_new: bool, dspace: FakeDSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its list is complete where the index is not; what only it could see is not published."""
    dspace.is_new = is_new
    items = fill(dspace, 130)
    items[1].is_private, items[2].is_restricted = True, True
    dspace.unindexed = {one.uuid for one in items[:20]}
    harvested = HarvestedSet(tmp_path, dspace, f'user = "{USER}"\npassword_env = "DSPACE_PASSWORD"')
    assert harvested.run()[0] == 2
    monkeypatch.setenv("DSPACE_PASSWORD", "wrong")
    assert harvested.run()[0] == 2
    assert "HW-DSP-03" in harvested.said
    monkeypatch.setenv("DSPACE_PASSWORD", PASSWORD)
    expire = iter(range(1_000))

    def before(request: Request) -> None:
        if next(expire) == 60:
            dspace.tokens.clear()

    dspace.before = before
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()
    with_token = [one.target for one in dspace.received if "authorization" in one.headers]
    assert with_token
    assert not [one for one in with_token if "/core/items?" not in one], "it is for lists alone"
    assert PASSWORD not in harvested.said


# a repository that is busy, broken or hostile


@pytest.mark.parametrize("status", ["503 Busy", "429 Too Many Requests"])
def test_a_busy_repository_is_waited_for(status: str, dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    import time

    fill(dspace)
    refused: list[float] = []
    times: list[float] = []

    def instead(request: Request) -> bytes | None:
        times.append(time.monotonic())
        if len(times) in (3, 10) or ("/content" in request.target and len(refused) == 2):
            refused.append(times[-1])
            return answer(b"", status, Retry_After="1")
        return None

    dspace.instead = instead
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()
    assert len(refused) == 3
    for at in refused:
        following = next(one for one in times if one > at)
        assert following - at > 0.95


def _html(request: Request) -> bytes | None:
    return answer(b"<!DOCTYPE html><title>Are you a robot?</title>", Content_Type="text/html")


def _huge(request: Request) -> bytes | None:
    return answer(b" " * (33 << 20))


def _deep(request: Request) -> bytes | None:
    return answer(b'{"metadata":' + b"[" * 200_000 + b"]" * 200_000 + b"}")


def _other_json(request: Request) -> bytes | None:
    return answer(b'{"status": "ok"}')


def _bad_id(request: Request) -> bytes | None:
    listed = {"_embedded": {"collections": [{"uuid": "../../../etc"}]}, "page": {"size": 20, "totalElements": 1}}
    return answer(json.dumps(listed).encode())


def _redirected(request: Request) -> bytes | None:
    return answer(b"", "302 Found", Location="http://127.0.0.2:9/server/api")


def _endless(request: Request) -> bytes | None:
    one = {"uuid": "00000000-0000-0000-0000-000000000001"}
    return answer(json.dumps({"_embedded": {"collections": [one]}, "page": {"size": 1, "totalPages": 9}}).encode())


@pytest.mark.parametrize("instead", [_html, _huge, _deep, _other_json, _bad_id, _redirected, _endless])
def test_a_hostile_answer_ends_the_run_and_loses_nothing(
    instead: object, dspace: FakeDSpace, harvested: HarvestedSet
) -> None:
    fill(dspace)
    harvested.run()
    before = harvested.holds()
    dspace.instead = instead  # type: ignore[assignment]
    dspace.received.clear()
    status, _ = harvested.run("--audit")
    assert status == 3
    assert "HW-DSP-0" in harvested.said
    assert len(dspace.received) < 20
    dspace.instead = lambda _request: None
    assert harvested.holds() == before
    assert harvested.run("--audit")[0] == 0
    assert harvested.holds() == before


@pytest.mark.parametrize("instead", [_html, _deep, _other_json, _redirected])
def test_a_hostile_answer_for_every_item_ends_the_run_and_loses_nothing(
    instead: object, dspace: FakeDSpace, harvested: HarvestedSet
) -> None:
    fill(dspace, 40)
    harvested.run()
    before = harvested.holds()
    dspace.instead = lambda request: instead(request) if "/core/items/" in request.target else None  # type: ignore[operator]
    dspace.received.clear()
    assert harvested.run("--audit")[0] == 3
    assert len(dspace.received) < 40
    assert harvested.holds() == before


def test_nobody_else_is_asked(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    """Every link of an answer leads to another host, and every list has a next page for ever: none is followed."""
    fill(dspace, 120)
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()
    agents = {str(one.headers.get("user-agent")) for one in dspace.received}
    assert agents == {f"headwater/{__version__} (repository harvest)"}


def test_the_contact_is_named(dspace: FakeDSpace, tmp_path: Path) -> None:
    fill(dspace)
    harvested = HarvestedSet(tmp_path, dspace, 'contact = "mailto:me@library.example"')
    harvested.run()
    assert all("mailto:me@library.example" in str(one.headers.get("user-agent")) for one in dspace.received)
    wrong = HarvestedSet(tmp_path, dspace, 'contact = "me\\r\\nCookie: x"')
    assert wrong.run()[0] == 2


@pytest.mark.parametrize("wrong", [b"other", b"file 7 and more", b"", b"<html>"])
def test_a_file_that_is_not_what_is_said_is_not_taken(
    wrong: bytes, dspace: FakeDSpace, harvested: HarvestedSet
) -> None:
    items = fill(dspace)
    file = items[7].bundles["ORIGINAL"][0]
    file.sent = wrong
    status, told = harvested.run()
    assert (status, told["unreadable"]) == (4, 1)
    assert "HW-DSP-06" in harvested.said
    assert harvested.holds() == {uuid: one for uuid, one in dspace.truth().items() if uuid != file.uuid}
    file.sent = None
    assert harvested.run()[0] == 0, "the next run tries again what failed"
    assert harvested.holds() == dspace.truth()
    file.content, file.sent = b"corrected", wrong
    before = harvested.holds()
    assert harvested.run("--audit")[0] == 4
    assert harvested.holds() == before, "its last state stays"


def test_a_file_without_a_checksum_is_fetched_by_each_comparison(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    items = fill(dspace)
    file = items[0].bundles["ORIGINAL"][0]
    file.has_checksum = False
    harvested.run()
    file.content = b"FILE 0"
    dspace.received.clear()
    assert harvested.run("--audit")[1]["changed"] == 1
    assert harvested.holds() == dspace.truth()
    assert asked(dspace, "/content") == 1
    assert harvested.run("--audit")[1]["changed"] == 0


def test_a_file_that_the_server_cannot_read_costs_no_other(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    items = fill(dspace)
    items[3].bundles["ORIGINAL"][0].status = 500
    assert harvested.run()[0] == 4
    assert len(harvested.holds()) == len(dspace.truth()) - 1


def test_a_file_that_broke_off_is_continued(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    large = Bitstream(bytes(range(256)) * 40_000, name="large.bin")
    dspace.add(dspace.collection(), large)
    sent: list[str] = []
    right = dspace.respond

    def respond(request: Request, connection: socket.socket) -> bytes | None:
        made = right(request, connection)
        if "/content" in request.target and made is not None:
            sent.append(str(request.headers.get("range", "")))
            if len(sent) == 1:
                connection.sendall(made[: len(made) // 2])
                return None
        return made

    dspace.respond = respond  # type: ignore[method-assign]
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()
    assert [bool(one) for one in sent] == [False, True]


def test_a_file_that_is_missing_here_is_fetched_again(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    items = fill(dspace)
    harvested.run()
    for path in (harvested.files / "bitstreams" / items[0].bundles["ORIGINAL"][0].uuid).iterdir():
        path.unlink()
    assert harvested.run("--audit")[1]["changed"] == 0
    assert harvested.holds() == dspace.truth()


def test_another_address_of_the_source_is_no_loss(dspace: FakeDSpace, tmp_path: Path) -> None:
    """Links to the old address are renewed, and what is hidden later is deleted all the same."""
    items = fill(dspace)
    HarvestedSet(tmp_path, dspace).run()
    items[0].bundles["ORIGINAL"][0].is_restricted = True
    moved = HarvestedSet(tmp_path, dspace, address='base_url = "https://new.example/here"')
    assert moved.run("--audit")[0] == 0
    assert moved.holds() == dspace.truth()
    links = [link.href for one in moved.resources().values() for link in one.links if link.rel != "collection"]
    assert links
    assert {link.partition("/d/")[0] for link in links} == {"https://new.example/here"}
    assert moved.run("--audit")[1]["changed"] == 0


def test_files_that_a_kill_has_left_are_removed(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    fill(dspace)
    harvested.run()
    for left in ("bitstreams/x/old.pdf", "items/old.json", ".headwater/x", ".headwater/x-y"):
        (harvested.files / left).parent.mkdir(exist_ok=True)
        (harvested.files / left).write_bytes(b"withdrawn")
    assert harvested.run("--audit")[0] == 0
    assert harvested.holds() == dspace.truth()


# estimates and wrong calls


def test_an_estimate_takes_five_requests(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    fill(dspace, 300)
    status, told = harvested.run("--dry-run")
    assert status == 0
    assert len(dspace.received) == 5
    assert (told["records"], told["lists"]) == (300, 2)
    assert not harvested.state.exists()
    dspace.received.clear()
    harvested.run()
    assert 0.7 < told["requests"] / len(dspace.received) < 1.4
    assert told["octets"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "other"], "no push set 'other'"),
        (["ftp://127.0.0.1/server/api"], "not the root of a REST API"),
        (["http://127.0.0.1:9/server/api"], "HW-DSP-01"),
    ],
)
def test_a_wrong_call_is_told(arguments: list[str], said: str, dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    assert harvested.run(*arguments)[0] in (2, 3)
    assert said in harvested.said
