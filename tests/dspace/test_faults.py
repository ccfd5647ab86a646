"""Faults of repositories that once kept hidden files public, lost changes, or stopped every later run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import StoreFault
from headwater.ingest import harvested as taking
from headwater.ingest.dspace import harvester, repository
from headwater.ingest.push.feed import Feed
from tests.dspace.fake_dspace import PASSWORD, USER, Bitstream, FakeDSpace, Item, _bundle_id, fake_dspace
from tests.dspace.harvested_set import HarvestedSet
from tests.support.program import run_here
from tests.support.scripted_server import Request, answer

pytestmark = pytest.mark.long(40)


@pytest.fixture
def dspace() -> Iterator[FakeDSpace]:
    with fake_dspace() as server:
        yield server


@pytest.fixture
def harvested(tmp_path: Path, dspace: FakeDSpace) -> HarvestedSet:
    return HarvestedSet(tmp_path, dspace)


def fill(dspace: FakeDSpace, count: int = 12) -> list[Item]:
    collection = dspace.collection()
    return [dspace.add(collection, Bitstream(b"file %d" % number)) for number in range(count)]


def file_of(item: Item) -> Bitstream:
    return item.bundles["ORIGINAL"][0]


def changed_json(dspace: FakeDSpace, request: Request, change: object) -> bytes:
    """The right answer to a request, after `change` has changed what its JSON says."""
    told = json.loads(dspace._right(request).partition(b"\r\n\r\n")[2])
    change(told)  # type: ignore[operator]
    return answer(json.dumps(told).encode())


@pytest.mark.parametrize("name", ["Report: final.pdf", "a@b.pdf"])
def test_a_file_with_reserved_characters_is_known_and_hidden(
    name: str, dspace: FakeDSpace, harvested: HarvestedSet
) -> None:
    withdrawn, restricted, *_ = items = fill(dspace)
    for item in (withdrawn, restricted, items[2]):
        file_of(item).name = name
    harvested.run()
    dspace.received.clear()
    withdrawn.is_withdrawn = file_of(restricted).is_restricted = True
    assert harvested.run("--audit")[1]["deleted"] == 3
    assert not [one for one in dspace.received if "/content" in one.target and one.method == "GET"]
    found = {uri.split("/")[1].removesuffix(".json") for uri in harvested.resources()}
    assert found == dspace.truth().keys()


def test_a_hidden_bundle_hides_its_files(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    item = fill(dspace)[3]
    harvested.run()

    def hide(told: dict[str, object]) -> None:
        bundle = told["_embedded"]["bundles"]["_embedded"]["bundles"][0]  # type: ignore[index]
        bundle["_embedded"] = {"bitstreams": None}

    def instead(request: Request) -> bytes | None:
        if f"/core/items/{item.uuid}?" in request.target:
            return changed_json(dspace, request, hide)
        return answer(b"{}", "401 No") if _bundle_id(item, "ORIGINAL") in request.target else None

    dspace.instead = instead
    file_of(item).is_restricted = True
    assert harvested.run("--audit")[0] == 0
    assert harvested.holds() == dspace.truth()


def test_a_changed_file_that_was_not_placed_is_taken_by_the_next_run(
    dspace: FakeDSpace, harvested: HarvestedSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = fill(dspace)[4]
    harvested.run()
    file_of(item).content = b"changed"

    def full(_folder: Path, found: list[object]) -> None:
        if found:
            raise StoreFault("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(taking, "_place", full)
        assert harvested.run("--audit")[0] != 0
    assert harvested.run("--audit")[0] == 0
    assert harvested.holds() == dspace.truth()


def test_a_bitstream_or_item_that_is_listed_twice_is_taken_once(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    items = fill(dspace)
    files = items[0].bundles["ORIGINAL"]
    files.append(Bitstream(files[0].content, name="other.pdf", uuid=files[0].uuid))

    def twice(told: dict[str, object]) -> None:
        listed = told["_embedded"]["searchResult"]["_embedded"]["objects"]  # type: ignore[index]
        listed.append(listed[0])

    dspace.instead = lambda request: changed_json(dspace, request, twice) if "/discover/" in request.target else None
    assert harvested.run()[0] == 0, harvested.said
    assert harvested.holds() == dspace.truth()


@pytest.mark.parametrize("to", [0, 2])
def test_news_of_a_file_that_moves_to_another_item_keep_it(
    to: int, dspace: FakeDSpace, harvested: HarvestedSet
) -> None:
    items = fill(dspace)
    harvested.run()
    items[to].bundles["ORIGINAL"].append(moved := items[1].bundles["ORIGINAL"].pop())
    for item in (items[1], items[to]):
        dspace.edit(item, "Moved")
    assert harvested.run()[0] == 0, harvested.said
    assert harvested.holds() == dspace.truth()
    assert moved.uuid in harvested.holds()


def test_a_new_item_that_fails_is_told_and_tried_again(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    item = fill(dspace)[3]
    dspace.instead = lambda request: answer(b"{}") if f"/core/items/{item.uuid}?" in request.target else None
    for arguments in ([], ["--audit"], []):
        status, told = harvested.run(*arguments)
        assert (status, told["unreadable"]) == (4, 1), arguments
    dspace.instead = lambda _request: None
    status, told = harvested.run()
    assert (status, told["unreadable"], told["created"]) == (0, 0, 2)
    assert harvested.holds() == dspace.truth()


def age(harvested: HarvestedSet, **more: object) -> None:
    """Change the position up to which the repository was read."""
    from headwater.catalog.interface import StateRow, StateUpdate
    from headwater.catalog.sqlite_catalog import SqliteCatalog
    from tests.support.waiting import START

    catalog = SqliteCatalog(harvested.state / "catalog.sqlite")
    row = catalog.rows("d", [("position", "dspace")])["position", "dspace"]
    octets = json.dumps(json.loads(row.value) | more).encode()
    catalog.record("d", [], START, state=StateUpdate(put=[StateRow("position", "dspace", octets)]))
    catalog.close()


@pytest.mark.parametrize("how", ["is_private", "is_restricted", "is_withdrawn"])
def test_with_an_account_the_lists_alone_tell_that_an_item_is_hidden(
    how: str, dspace: FakeDSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every day, as without one: the account would see restricted items as ever."""
    monkeypatch.setenv("DSPACE_PASSWORD", PASSWORD)
    item = fill(dspace)[1]
    harvested = HarvestedSet(tmp_path, dspace, f'user = "{USER}"\npassword_env = "DSPACE_PASSWORD"')
    harvested.run()
    setattr(item, how, True)
    age(harvested, number=1)
    assert harvested.run()[1]["deleted"] == 2
    assert harvested.holds() == dspace.truth()


def test_deletions_of_comparisons_count_together(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    """A tenth at a time is a mass, too."""
    fill(dspace, 100)
    harvested.run()
    statuses = []
    for _ in range(4):
        for item in list(dspace.items.values())[: len(dspace.items) // 12]:
            dspace.delete(item)
        statuses.append(harvested.run("--audit")[0])
    assert statuses[0] == 0
    assert statuses[-1] == 4
    assert run_here("allow-deletions", harvested.config, "d").returncode == 0
    assert harvested.run("--audit")[0] == 0
    assert harvested.holds() == dspace.truth()


def test_an_audit_does_not_go_on_with_an_old_comparison(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    item = fill(dspace)[2]
    harvested.run()
    file_of(item).content = b"changed"
    age(harvested, scope="ffffffff", number=1)
    assert harvested.run("--audit")[1]["changed"] == 1
    assert harvested.holds() == dspace.truth()


def test_other_bundles_are_read_at_once(dspace: FakeDSpace, tmp_path: Path) -> None:
    item = fill(dspace)[2]
    item.bundles["TEXT"] = [Bitstream(b"text", name="text.txt")]
    HarvestedSet(tmp_path, dspace).run()
    harvested = HarvestedSet(tmp_path, dspace, 'bundles = ["ORIGINAL", "TEXT"]')
    assert harvested.run()[1]["created"] == 1
    assert harvested.holds() == dspace.truth("ORIGINAL", "TEXT")
    assert harvested.run()[1]["records"] == 0


def test_large_metadata_end_a_batch(
    dspace: FakeDSpace, harvested: HarvestedSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harvester, "_BATCH_OCTETS", 1_000)
    for item in fill(dspace):
        item.title = "t" * 900
    batches: list[int] = []
    take = taking.take_harvested

    def counted(feed: Any, folder: Path, found: Any, *others: Any) -> Any:
        batches.append(len(found))
        return take(feed, folder, found, *others)

    monkeypatch.setattr(harvester, "take_harvested", counted)
    assert harvested.run()[0] == 0
    assert max(batches) == 2


def test_a_list_that_is_too_long_to_be_read_at_once_is_refused(
    dspace: FakeDSpace, harvested: HarvestedSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "_MOST_ENTRIES", 150)
    fill(dspace)
    for _ in range(200):
        dspace.collection()
    assert harvested.run()[0] == 3
    assert "more than 150 entries" in harvested.said


@pytest.mark.parametrize(
    ("where", "kind"), [("/core/items/", "text/html; charset=utf-8"), ("/core/items/", ""), ("/content", "text/html")]
)
def test_a_wall_against_robots_hides_nothing(
    where: str, kind: str, dspace: FakeDSpace, harvested: HarvestedSet
) -> None:
    """Nine of 60 items: too few for the guard."""
    items = fill(dspace, 60)
    harvested.run()
    before = harvested.holds()
    walled = [name for item in items[:9] for name in (item.uuid, file_of(item).uuid)]
    headers = {"Content_Type": kind} if kind else {}

    def instead(request: Request) -> bytes | None:
        is_walled = where in request.target and any(one in request.target for one in walled)
        return answer(b"\n<html>Are you a robot?", "403 No", **headers) if is_walled else None

    dspace.instead = instead
    status, told = harvested.run("--audit")
    assert (status, told["deleted"], told["unreadable"]) == (4, 0, 9)
    dspace.instead = lambda _request: None
    assert harvested.run()[0] == 0
    assert harvested.holds() == before


def test_what_came_before_a_long_pause_is_recorded(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    """A repository that takes 30 requests a day is harvested in some days."""
    fill(dspace, 40)
    requests = itertools.count(1)
    dspace.instead = lambda _request: answer(b"", "429 No", Retry_After="90000") if next(requests) % 30 == 0 else None
    statuses = [harvested.run()[0] for _ in range(6)]
    assert statuses[0] == 3
    assert statuses[-1] == 0
    assert harvested.holds() == dspace.truth()


@pytest.mark.parametrize("what", ["item", "file"])
def test_an_address_that_never_answers_costs_no_other(
    what: str, dspace: FakeDSpace, harvested: HarvestedSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is taken and published in the same run."""
    bad = fill(dspace, 8)[3]
    address = f"/core/items/{bad.uuid}?" if what == "item" else file_of(bad).uuid
    right = dspace.respond
    with monkeypatch.context() as patch:
        patch.setattr(dspace, "respond", lambda got, wire: None if address in got.target else right(got, wire))
        status, told = harvested.run()
    assert (status, told["unreadable"]) == (4, 1), harvested.said
    lost = {bad.uuid, file_of(bad).uuid} if what == "item" else {file_of(bad).uuid}
    assert harvested.holds().keys() == dspace.truth().keys() - lost
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()


def test_an_address_that_asks_for_long_pauses_costs_no_other(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    """Nothing is asked for in the pause; then the harvest goes on behind this address."""
    items = fill(dspace, 8)
    for number in range(5):
        items[3].bundles["ORIGINAL"].append(Bitstream(b"%d" % number))
    bad = file_of(items[3])
    dspace.instead = lambda request: answer(b"", "503 No", Retry_After="90000") if bad.uuid in request.target else None
    assert harvested.run()[0] == 3
    assert bad.uuid in dspace.received[-1].target, "something was asked for in the pause"
    assert harvested.run()[0] == 3, "it is asked for at the end"
    assert harvested.holds().keys() == dspace.truth().keys() - {bad.uuid} - {
        one.uuid for one in items[3].bundles["ORIGINAL"]
    }
    items[5].is_withdrawn = True
    assert [harvested.run("--audit")[0] for _ in range(2)] == [3, 3]
    assert items[5].uuid not in harvested.holds()
    dspace.instead = lambda _request: None
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()


def test_an_estimate_with_an_account_takes_five_requests(dspace: FakeDSpace, tmp_path: Path) -> None:
    """It needs no password."""
    fill(dspace, 300)
    harvested = HarvestedSet(tmp_path, dspace, f'user = "{USER}"\npassword_env = "PATH"')
    status, told = harvested.run("--dry-run")
    assert (status, told["records"]) == (0, 300)
    assert len(dspace.received) == 5


def test_consent_needs_no_second_look_at_what_is_gone(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    """It holds for an hour, and looking at many items may take longer."""
    items = fill(dspace, 40)
    harvested.run()
    for item in items[:20]:
        item.is_withdrawn = True
    file_of(items[30]).is_restricted = True
    assert harvested.run("--audit")[0] == 4
    assert harvested.run()[0] == 4, "it is told until somebody consents"
    assert run_here("allow-deletions", harvested.config, "d").returncode == 0
    dspace.received.clear()
    status, told = harvested.run()
    assert (status, told["deleted"]) == (0, 41)
    assert not [one for one in dspace.received if "/core/items/" in one.target]
    assert harvested.holds() == dspace.truth()


def test_what_comes_back_while_its_deletion_is_held_back_stays(dspace: FakeDSpace, harvested: HarvestedSet) -> None:
    items = fill(dspace, 40)
    harvested.run()
    for item in items[:20]:
        item.is_withdrawn = True
    assert harvested.run("--audit")[0] == 4
    for item in items[:20]:
        item.is_withdrawn = False
        dspace.edit(item, "Reinstated")
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()
    assert {*harvested.changes()} == {("updated", f"items/{one.uuid}.json") for one in items[:20]}


def test_files_on_their_way_lie_where_nothing_is_published(dspace: FakeDSpace, tmp_path: Path) -> None:
    """In a static tree, too: a web server has nothing of a file that is not complete."""
    fill(dspace, 60)
    tree = tmp_path / "tree"
    harvested = HarvestedSet(tmp_path, dspace, address='base_url = "http://source.example"\nto = "tree"')
    seen = set[Path]()
    dspace.before = lambda _request: seen.update(one.relative_to(tree) for one in tree.rglob("*") if one.is_file())
    assert run_here("publish", harvested.config).returncode == 0
    resources = {one.parts[2:] for one in seen if one.parts[:2] == ("d", "resources")}
    assert any(one[0] == ".headwater" for one in resources)
    assert {one[0] for one in resources} <= {".headwater", "items", "bitstreams"}
    assert not [one for one in resources if one[-1].startswith(".headwater-")]


def test_a_withdrawn_file_that_a_kill_has_left_is_removed_within_a_day(
    dspace: FakeDSpace, harvested: HarvestedSet
) -> None:
    """By the comparison of lists alone: in a static tree, anybody has it until then."""
    fill(dspace)
    harvested.run()
    left = harvested.files / "bitstreams" / "x" / "old.pdf"
    left.parent.mkdir()
    left.write_bytes(b"withdrawn")
    age(harvested, number=1)
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()


def test_a_first_harvest_that_ends_as_it_opens_the_set_looks_at_nothing_again(
    dspace: FakeDSpace, harvested: HarvestedSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(dspace)
    right, is_open = Feed.open, iter([False, True])

    def full(feed: Feed) -> None:
        if next(is_open):
            right(feed)
        raise StoreFault("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Feed, "open", full)
        assert harvested.run()[0] == 6
        dspace.received.clear()
        assert harvested.run()[0] == 6
    assert harvested.run()[0] == 0
    assert not [one for one in dspace.received if "/core/items/" in one.target]
    assert harvested.holds() == dspace.truth()


def test_a_file_that_came_before_its_item_was_whole_is_deleted_with_the_others(
    dspace: FakeDSpace, harvested: HarvestedSet
) -> None:
    collection = fill(dspace)[0].collection
    harvested.run()
    first, last = Bitstream(b"a draft"), Bitstream(b"final")
    item = dspace.add(collection, first, last)
    dspace.instead = lambda request: answer(b"", "503 No", Retry_After="90000") if last.uuid in request.target else None
    assert harvested.run("--audit")[0] == 3
    assert any(first.uuid in uri for uri in harvested.resources())
    dspace.instead = lambda _request: None
    item.bundles["ORIGINAL"].remove(first)
    assert harvested.run("--audit")[0] == 0
    assert harvested.holds() == dspace.truth()
