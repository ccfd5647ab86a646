"""Renderers name what they have published, and each kind of refresh does what those before it do."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.publish.plan import Refresh
from headwater.publish.publication_state import decode_publication
from headwater.publish.publisher import published_names
from headwater.publish.site import SetSettings
from tests.support.published import PublishedCatalog, put


def test_a_renderer_names_just_the_documents_that_it_has_published(tmp_path: Path) -> None:
    """At every stage of a set: empty, one page and one list, several, an emptied page, many segments."""
    settings = SetSettings(classic=True, sitemap=True)
    world = PublishedCatalog(tmp_path, page_entries=2, segment_entries=3, sets=(settings,))
    world.begin(0)
    for number in range(9):
        world.publish(force=True)
        publication = decode_publication(world.catalog.state("files").notes)
        names = [*published_names("files", publication)]
        assert len(names) == len(set(names))
        retired = {name for name, _since in publication.retired}
        assert set(names) == set(world.store.names("files/")) - retired
        world.record(put(f"n{number}", 0), put("n0", number))
    assert len(names) > 8


CHANGED = {"changelist", "changelist/open"}
STALE = {"resourcelist", "resourcelist/00000"}
REST = {"resourcelist/00001"}
LOST = {"capabilitylist"}


@pytest.mark.parametrize(
    ("refresh", "usual", "repaired"),
    [
        (Refresh.CHANGES, CHANGED, CHANGED),
        (Refresh.DUE, CHANGED, CHANGED),
        (Refresh.REPAIR, CHANGED, CHANGED | STALE | REST | LOST),
        (Refresh.STALE, CHANGED | STALE, CHANGED | STALE | REST | LOST),
        (Refresh.ALL, CHANGED | STALE | REST, CHANGED | STALE | REST | LOST),
    ],
)
@pytest.mark.parametrize("is_damaged", [False, True], ids=["as it was left", "damaged"])
def test_each_refresh_does_what_those_before_it_do_and_more(
    tmp_path: Path, refresh: Refresh, usual: set[str], repaired: set[str], is_damaged: bool
) -> None:
    """Changes, pages that are due (none is), what was removed, what is stale, and everything."""
    world = PublishedCatalog(tmp_path, page_entries=2)
    world.begin(4)
    world.publish()
    world.record(put("r0", 1))
    if is_damaged:
        (world.store.root / "files/capabilitylist.xml").unlink()
    done = world.publisher.publish("files", world.catalog.mark("files", world.now()), refresh)
    assert set(done.written) == {f"files/{name}.xml" for name in (repaired if is_damaged else usual)}
    if not is_damaged or repaired >= LOST:
        assert world.look().state == world.truth()
