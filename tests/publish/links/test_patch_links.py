"""Links to patches come as those of rules do: Change Lists are cut for them, and no list outgrows its room."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headwater.catalog.interface import StateUpdate
from headwater.publish import added_links, site
from headwater.publish.link_rules import LinkRules, UrlRule
from headwater.publish.patches import PublishedPatch
from headwater.publish.site import SetSettings
from headwater.spec.kinds import PATCH
from headwater.spec.records import ChangeKind
from tests.support.documents import read_bytes
from tests.support.published import BASE, PublishedCatalog, put

ROOM = 40_000
MIRROR = LinkRules(urls=(UrlRule(rel="duplicate", href="https://mirror.example/{path}"),))
COUNT = 150


def updated(folder: Path, settings: SetSettings, *, is_cut: bool) -> list[tuple[int, int, int]]:
    """Octets, entries and patches of the Change Lists of a set in which each resource is updated, with a patch."""
    world = PublishedCatalog(folder, page_entries=1_000, segment_entries=1_000, sets=(settings,))
    if is_cut:
        limits = {settings.name: (settings.links.document_octets, settings.segment_octets)}
        world.catalog.limits = msgspec.structs.replace(world.catalog.limits, octets_of_sets=limits)
    world.begin(COUNT)
    world.publish()
    for first in range(0, COUNT, 10):
        last = world.catalog.state("files").last_seq
        patches = [PublishedPatch(last + n, "application/json-patch+json", f"{n:064x}", 9).row() for n in range(1, 11)]
        events = [put(f"r{first + n}", 1, ChangeKind.UPDATED) for n in range(10)]
        world.catalog.record("files", events, world.now(), state=StateUpdate(patches))
        world.publish()
    found = []
    for segment in world.catalog.segments("files"):
        name = f"changelist/{segment.number:05d}" if len(world.catalog.segments("files")) > 1 else "changelist"
        octets = world.fetch(f"{BASE}/files/{name}.xml") or b""
        entries = list(read_bytes(octets)[1])
        found.append((len(octets), len(entries), sum(link.rel == PATCH for one in entries for link in one.links)))
    assert sum(entries for _octets, entries, _patches in found) == COUNT
    return found


@pytest.mark.parametrize("rules", [LinkRules(), MIRROR])
def test_full_change_lists_have_room_for_the_patch_of_each_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: LinkRules
) -> None:
    """RS-LIM-01, RS-REL-04."""
    for module in (site, added_links):
        monkeypatch.setattr(module, "ROOM", ROOM)
    found = updated(tmp_path, SetSettings(patch=("json",), links=rules), is_cut=True)
    assert len(found) > 1
    for octets, entries, patches in found:
        assert octets <= ROOM
        assert patches == entries


def test_what_was_filled_before_names_as_many_patches_as_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RS-LIM-01: no list becomes too large, whatever it held when patches were switched on."""
    monkeypatch.setattr(added_links, "ROOM", 100_000)
    ((octets, entries, patches),) = updated(tmp_path, SetSettings(patch=("json",)), is_cut=False)
    assert octets <= 100_000
    assert 0 < patches < entries
