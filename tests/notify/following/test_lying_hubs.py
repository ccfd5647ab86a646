"""What a hub tells that is not so, with a right signature, is wrong until the lists have led further, and no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.sync.options import SyncOptions
from headwater.sync.run import SyncTask, synchronise
from tests.notify.following.pushing import CHANGES, Hub, PushedSite, following, text
from tests.support.fake_source import Reply, at, document, url
from tests.support.waiting import until

pytestmark = pytest.mark.long(15)


def tell(site: PushedSite, hub: Hub, *entries: str) -> None:
    """A payload that continues the chain of intervals."""
    from_, site.until = site.until, site.clock
    body = document(entries, links=site.up(), capability=CHANGES, **{"from": at(from_), "until": at(site.until)})
    assert hub.deliver(site.topic(), body) == 202


def test_what_no_list_tells_is_judged_by_the_resource_list(site: PushedSite, hub: Hub, dest: Path) -> None:
    """A deletion, and a file that the source has and does not list."""
    site.source.pages["/set/resources/unlisted.txt"] = Reply(b"unlisted")
    with following((site.source.base, dest), seconds=0.3, longest=0.3) as copy:
        copy.at_rest()
        site.clock += 1
        gone = site.change(site.clock, "deleted", "f0.txt")
        tell(site, hub, gone, url(site.uri("unlisted.txt"), change="created", datetime=at(site.clock)))
        until(lambda: text(dest / "f0.txt") is None and text(dest / "unlisted.txt") == "unlisted")
        site.put("new.txt", b"new")
        site.publish_changes(10.0)
        until(lambda: text(dest / "f0.txt") == "body 0\n" and text(dest / "unlisted.txt") is None)
        assert text(dest / "new.txt") == "new"
        assert copy.heard("told what no list tells")


def test_a_later_time_of_a_payload_stands_against_no_list(site: PushedSite, hub: Hub, dest: Path) -> None:
    """What the copy has, told once more with a time after those of an update and of a deletion."""
    with following((site.source.base, dest), seconds=0.3, longest=0.3) as copy:
        copy.at_rest()
        late = site.clock + 6
        lies = [site.change(late, "updated", name, site.files[name]) for name in ("f0.txt", "f1.txt")]
        site.clock += 1
        tell(site, hub, *lies, site.change(late, "deleted", "f2.txt"))
        until(lambda: text(dest / "f2.txt") is None)
        site.put("f0.txt", b"updated")
        site.drop("f1.txt")
        site.put("f2.txt", b"still there")
        site.publish_changes(10.0)
        before = len(copy.reports)
        until(lambda: len(copy.reports) > before + 1)  # they pass for done, as they would if the list were older
        site.clock = late
        site.put("new.txt", b"new")
        site.publish_changes(10.0)
        until(lambda: text(dest / "f0.txt") == "updated" and text(dest / "f1.txt") is None)
        until(lambda: text(dest / "f2.txt") == "still there")


def test_deletions_that_no_list_tells_wait_for_no_consent(site: PushedSite, hub: Hub, dest: Path) -> None:
    with following((site.source.base, dest), seconds=0.3, longest=0.3) as copy:
        copy.at_rest()
        site.clock += 1
        tell(site, hub, *(site.change(site.clock, "deleted", name) for name in site.files))
        until(lambda: copy.heard("deletions are held back"))
        site.put("new.txt", b"new")
        site.publish_changes(10.0)
        until(lambda: text(dest / "new.txt") == "new")
        until(lambda: copy.reports[-1].sets[0].held_back == 0 and copy.reports[-1].exit_status == 0)
    assert len([path for path in dest.iterdir() if path.is_file()]) == 4


def test_a_list_that_is_older_than_a_payload_deletes_nothing(site: PushedSite, hub: Hub, dest: Path) -> None:
    """It tells of the deletion, and not yet that the resource has come again, which a payload has told."""
    with following((site.source.base, dest), seconds=0.3, longest=0.3) as copy:
        copy.at_rest()
        site.drop("f0.txt")
        deleted = list(site.changes)
        site.put("f0.txt", b"again")
        assert hub.deliver(site.topic(), site.notification()) == 202
        until(lambda: text(dest / "f0.txt") == "again")
        seen = len(copy.reports)
        site.publish_changes(10.0, entries=[site.change(*one) for one in deleted if one[0] > 10.0])
        until(lambda: len(copy.reports) > seen + 3)
        assert text(dest / "f0.txt") == "again"
        site.publish_changes(10.0)
        until(lambda: len(copy.reports) > seen + 6)
        assert text(dest / "f0.txt") == "again"
        assert all(one.sets[0].deleted == 0 for one in copy.reports[seen:])


def test_a_baseline_goes_by_no_payload(site: PushedSite, hub: Hub, dest: Path) -> None:
    """A deletion that payloads told, and no list: where nothing else changes, a baseline that is asked for restores."""
    with following((site.source.base, dest)) as copy:
        copy.at_rest()
        site.clock += 1
        tell(site, hub, site.change(site.clock, "deleted", "f0.txt"))
        until(lambda: text(dest / "f0.txt") is None)
    options = SyncOptions(baseline=True, retries=0)
    assert synchronise(SyncTask(url=site.source.base, destination=dest, options=options)).exit_status == 0
    assert text(dest / "f0.txt") == "body 0\n"
