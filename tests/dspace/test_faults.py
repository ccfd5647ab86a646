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
