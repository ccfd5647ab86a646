"""A publication of changes alone: what pages cost is no matter to who waits for a change."""

from __future__ import annotations

from pathlib import Path

from headwater.publish.plan import Refresh
from headwater.publish.site import SetSettings
from tests.support.published import PublishedCatalog, put


def test_pages_that_are_due_wait_and_are_counted(tmp_path: Path) -> None:
    world = PublishedCatalog(tmp_path, sets=(SetSettings(refresh_seconds=60.0),))
    world.begin(9)
    world.publish()
    world.clock.sleep(3_600)
    world.record(put("r1", 1), put("r5", 1))
    world.clock.sleep(3_600)
    alone = world.publisher.publish("files", world.now(), Refresh.CHANGES)
    assert set(alone.written) == {"files/changelist.xml", "files/changelist/open.xml"}
    assert (alone.pages_rendered, alone.pages_stale, alone.pages_left) == (0, 2, 2)
    assert world.look().state == world.truth(), "AMB-63"
    whole = world.publish()
    assert (whole.pages_rendered, whole.pages_stale, whole.pages_left) == (2, 0, 0)
    assert world.look().state == world.truth()


def test_a_set_that_is_not_published_yet_is_published_as_a_whole(tmp_path: Path) -> None:
    world = PublishedCatalog(tmp_path)
    world.begin(9)
    first = world.publisher.publish("files", world.now(), Refresh.CHANGES)
    assert (first.pages_rendered, first.pages_left) == (3, 0)
    assert world.look().state == world.truth()
