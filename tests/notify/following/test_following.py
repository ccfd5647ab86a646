"""A copy that is followed by push: a source, a hub and a subscriber on real sockets."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from headwater.copy_state import NotificationChannel
from headwater.errors import SourceFault
from headwater.http import follow_push
from headwater.http.callbacks import CallbackListener
from headwater.http.follow_push import PushedCopy
from headwater.notify.subscriber_store import ChannelProgress, QueuedDelivery
from headwater.spec.kinds import Kind
from headwater.spec.times import parse_datetime
from headwater.sync.push import LiveCopy
from headwater.sync.run import SyncTask
from headwater.sync.sets.polling import PollInterval
from headwater.sync.source_times import micros
from tests.notify.following.pushing import (
    CHANGES,
    FRAMEWORK,
    Following,
    Hub,
    PushedSite,
    following,
    polls,
    pushed_site,
    text,
)
from tests.support.copying import go
from tests.support.fake_source import Source, at, document, url
from tests.support.waiting import until

pytestmark = pytest.mark.long(12)


def test_an_acknowledged_payload_is_applied_while_the_change_list_is_still_stale(
    copy: Following, site: PushedSite, hub: Hub, dest: Path
) -> None:
    site.put("new.txt", b"new")
    site.put("f0.txt", b"other")
    site.drop("f1.txt")
    assert hub.deliver(site.topic(), site.notification()) == 202
    until(lambda: (text(dest / "new.txt"), text(dest / "f0.txt"), text(dest / "f1.txt")) == ("new", "other", None))
    until(lambda: any(one.total("created") for one in copy.reports))
    assert [one.sets[0].process for one in copy.reports if one.total("created")] == ["push"]
    assert polls(site) == 0  # nothing was read for it but the resources
    assert sorted(site.source.requests()) == ["/set/resources/f0.txt", "/set/resources/new.txt"]


def test_a_stale_change_list_undoes_nothing_and_a_new_one_does_nothing_twice(
    site: PushedSite, hub: Hub, dest: Path
) -> None:
    with following((site.source.base, dest), seconds=0.5, longest=0.5) as copy:
        copy.at_work()
        site.put("f0.txt", b"first")
        site.put("f0.txt", b"second")
        assert hub.deliver(site.topic(), site.notification()) == 202
        until(lambda: text(dest / "f0.txt") == "second")
        site.publish_changes(10.0, entries=[site.change(*site.changes[-2])])
        before = polls(site)
        until(lambda: polls(site) > before + 1)
        assert text(dest / "f0.txt") == "second"
        site.publish_changes(10.0)
        site.source.forget()
        until(lambda: polls(site) > 1)
        assert site.source.requests("/set/resources/f0.txt") == []
        assert text(dest / "f0.txt") == "second"


def test_after_a_gap_the_list_is_asked_for_until_it_can_be_read(source: Source, hub: Hub, dest: Path) -> None:
    """RS-CN-06: a poll that came to nothing closes no gap; the next one is not that of minutes later."""
    site = pushed_site(source, hub.url)
    with following((source.base, dest), seconds=600.0) as copy:
        copy.at_rest()
        site.put("missed.txt", b"missed")
        site.notification()  # is lost
        site.put("new.txt", b"new")
        site.serve("/set/changelist.xml", b"<urlset>")
        assert hub.deliver(site.topic(), site.notification()) == 202
        before = polls(site)
        until(lambda: polls(site) > before + 4)
        assert not (dest / "new.txt").exists()
        site.publish_changes(10.0)
        until(lambda: (text(dest / "missed.txt"), text(dest / "new.txt")) == ("missed", "new"))


def test_a_change_payload_at_the_framework_callback_does_nothing(source: Source, hub: Hub, dest: Path) -> None:
    site = pushed_site(source, hub.url, kinds=(CHANGES, FRAMEWORK))
    with following((source.base, dest)) as copy:
        copy.at_work()
        until(lambda: hub.of(site.topic(FRAMEWORK)) and len(hub.answers) == 2)
        site.put("new.txt", b"new")
        assert hub.deliver(site.topic(FRAMEWORK), site.notification()) == 202
        until(lambda: copy.heard("not a framework-notification"))
        before = polls(site)
        until(lambda: polls(site) > before)  # it is odd, so the list is read
        assert not (dest / "new.txt").exists()


def test_several_hubs_are_subscribed_at_and_one_that_is_dead_does_no_harm(source: Source, dest: Path) -> None:
    first, second = Hub(source, "/hub1"), Hub(source, "/hub2", status=503)
    site = pushed_site(source, first.url, second.url)
    with following((source.base, dest)) as copy:
        copy.at_work()
        until(lambda: second.asked)
        site.put("new.txt", b"new")
        assert first.deliver(site.topic(), site.notification()) == 202
        until(lambda: text(dest / "new.txt") == "new")
        assert copy.heard("HTTP status 503")


def test_without_a_hub_it_says_so_and_polls(source: Source, dest: Path) -> None:
    site = pushed_site(source)
    with following((source.base, dest), seconds=0.3) as copy:
        until(lambda: copy.heard("no hub is offered"))
        site.put("new.txt", b"new")
        site.publish_changes(10.0)
        until(lambda: text(dest / "new.txt") == "new")


def test_without_a_channel_it_says_so_and_polls(source: Source, dest: Path) -> None:
    site = pushed_site(source)
    site.publish_capabilities("resourcelist", "changelist")
    with following((source.base, dest), seconds=0.3) as copy:
        until(lambda: copy.heard("the source offers no notifications for set"))
        site.put("new.txt", b"new")
        site.publish_changes(10.0)
        until(lambda: text(dest / "new.txt") == "new")


@pytest.mark.parametrize("address", ["", "/set/capabilitylist.xml"])
def test_a_channel_that_a_copied_source_has_got_since_is_found_at_the_start(
    source: Source, hub: Hub, dest: Path, address: str
) -> None:
    """RS-CH-05: the Source Description says nothing new of it, and the day of the Capability List is far."""
    site = pushed_site(source)
    site.publish_capabilities("resourcelist", "changelist")
    assert go(source.base + address, dest).one.created == 3
    site.advertise(hub.url)
    with following((source.base + address, dest)) as copy:
        copy.at_work()
        assert not copy.heard("offers no notifications")


def test_what_could_not_be_had_is_asked_for_again_when_it_is_due(
    copy: Following, site: PushedSite, hub: Hub, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DST-F6: not with the next slow poll alone, of which push at work has one in ten minutes."""
    monkeypatch.setattr("headwater.sync.transfer.results_and_retries.FIRST_PAUSE_SECONDS", 1)
    site.put("late.txt", b"late")
    page = site.source.pages.pop("/set/resources/late.txt")
    site.publish_changes(10.0)
    assert hub.deliver(site.topic(), site.notification()) == 202
    until(lambda: any(one.total("failed") for one in copy.reports if one.requests))
    site.source.pages["/set/resources/late.txt"] = page
    until(lambda: text(dest / "late.txt") == "late")


def test_what_comes_before_all_copies_are_taken_up_is_to_come_again(
    source: Source, hub: Hub, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WS-S-10, WS-H-13: 410 would have the hub end the subscription, and nobody would know before the next poll."""
    site = pushed_site(source, hub.url)
    with following((source.base, dest)) as copy:
        copy.at_work()
    site.put("late.txt", b"late")
    payload = site.notification()
    answers: list[int] = []

    def deliver_first(*arguments: Any, **options: Any) -> PushedCopy:
        answers.append(hub.deliver(site.topic(), payload))
        return PushedCopy(*arguments, **options)

    monkeypatch.setattr(follow_push, "PushedCopy", deliver_first)
    with following((source.base, dest)) as copy:
        copy.at_work()
        assert answers == [503]
        assert hub.deliver(site.topic(), payload) == 202
        until(lambda: text(dest / "late.txt") == "late")


def test_many_payloads_with_a_deletion_each_are_judged_as_one_list_is(source: Source, hub: Hub, dest: Path) -> None:
    """DST-B4, DST-F9: what was deleted since the lists were read to their end counts."""
    site = pushed_site(source, hub.url, files=60)
    site.clock = site.told = site.until = 100.0
    site.publish(since=100.0)
    site.advertise(hub.url)
    with following((source.base, dest)) as copy:
        copy.at_rest()
        for number in range(30):
            site.drop(f"f{number}.txt")
            assert hub.deliver(site.topic(), site.notification()) == 202
            gone = dest / f"f{number}.txt"
            until(lambda: not gone.exists() or copy.heard("held back"))  # noqa: B023
        until(lambda: copy.heard("18 deletions are held back"))
    assert len(list(dest.glob("f*.txt"))) == 60 - 12
    of_all = "held back until you consent (with 12 since the lists were read, of 60 held): headwater sync --max-delete"
    assert copy.heard(f"1 deletion is {of_all} 22% ")
    assert copy.heard(f"18 deletions are {of_all} 50% ")
    site.publish_changes(100.0)
    for _ in range(2):
        report = go(source.base, dest).one
        assert (report.deleted, report.held_back, len(list(dest.glob("f*.txt")))) == (0, 18, 48)
    assert go(source.base, dest, max_delete=0.5).one.deleted == 18


def test_a_step_that_is_blocked_keeps_nothing_from_ending(
    site: PushedSite, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has not done is done after the next start, as after a kill."""
    blocked, freed = threading.Event(), threading.Event()

    def step(_copy: PushedCopy) -> None:
        blocked.set()
        freed.wait()

    monkeypatch.setattr(PushedCopy, "step", step)
    monkeypatch.setattr(PushedCopy, "close", None)
    monkeypatch.setattr(follow_push, "_END_SECONDS", 0.2)
    with following((site.source.base, dest)):
        assert blocked.wait(30)
        (thread,) = (one for one in threading.enumerate() if one.name == "copy")
        assert thread.daemon
    freed.set()
    thread.join(30)


def test_steps_that_end_at_any_moment_end_nothing_else(
    site: PushedSite, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[PushedCopy] = []
    monkeypatch.setattr(PushedCopy, "step", lambda copy: steps.append(copy))
    monkeypatch.setattr(PushedCopy, "due_at", lambda _copy, now: now)
    with following((site.source.base, dest), (site.source.base, dest.with_name("other"))) as copy:
        until(lambda: len(steps) > 500)
        assert copy.fault is None


def test_lists_are_awaited_for_all_of_a_batch_that_cannot_be_applied(
    dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RS-CN-06: also for a payload beyond a gap, beside one that goes on where the changes that were told end."""

    def unusable(*_: object) -> int:
        raise SourceFault("odd")

    monkeypatch.setattr(LiveCopy, "apply", unusable)
    channel = NotificationChannel(Kind.CHANGE_NOTIFICATION, "http://s/capabilitylist.xml", "http://s/topic", ())
    bodies = [
        document(
            [url("http://s/f", change="updated", datetime=at(end))],
            capability=CHANGES,
            **{"from": at(end - 1), "until": at(end)},
        )
        for end in (10.0, 90.0)
    ]
    batch = [QueuedDelivery(n, channel.topic, time.time(), body) for n, body in enumerate(bodies)]
    copy = PushedCopy(
        SyncTask(url="http://s/", destination=dest), PollInterval(1.0), print, cast("CallbackListener", None), print
    )
    reached = micros(parse_datetime(at(9.0))[0])
    after = copy._applied(batch, channel, ChannelProgress(reached=reached))
    assert (after.reached, after.awaited, after.needs_poll) == (reached, micros(parse_datetime(at(90.0))[0]), True)
