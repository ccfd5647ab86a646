"""Faults of repositories that once kept hidden files public, lost changes, or stopped every later run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import StoreFault
from headwater.ingest import harvested as taking
from tests.dspace.fake_dspace import Bitstream, FakeDSpace, Item, _bundle_id, fake_dspace
from tests.dspace.harvested_set import HarvestedSet
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
