"""When a resource that failed is asked for again: over runs, by a service that follows, and as the server wishes."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from headwater.sync.options import SyncOptions
from headwater.sync.reports import SyncReport
from headwater.transport.fetch import Fetch, TransportOptions
from headwater.transport.scheduler import FetchBatch, RequestScheduler, ScheduledFetch
from headwater.transport.transport import Transport
from tests.support.copying import DONE, FAILED, IMPATIENT, go, run_over, tree
from tests.support.fake_source import Reply, Site, Source
from tests.support.waiting import START

PATH = "/set/resources/f2.txt"


def run(source: Source, dest: Path, seconds: float, **options: object) -> SyncReport:
    """One run so many seconds after the first one."""
    now = START + dt.timedelta(days=300, seconds=seconds)
    with Transport(IMPATIENT) as wire:
        return run_over(wire, source.base, dest, SyncOptions(**options), now=lambda: now)  # type: ignore[arg-type]


def asked(source: Source, dest: Path, seconds: float, **options: object) -> bool:
    source.forget()
    report = run(source, dest, seconds, **options)
    assert (report.exit_status, report.total("failed")) == (FAILED, 1)
    return bool(source.requests(PATH))


def test_a_source_that_was_away_for_a_moment_is_asked_soon(source: Source, site: Site, dest: Path) -> None:
    """DST-F6: a request that fell into the restart of a server does not keep a copy behind for a minute."""
    source.pages[PATH] = Reply(b"", 503)
    assert asked(source, dest, 0, patient=True)
    assert not asked(source, dest, 4, patient=True)
    source.pages[PATH] = Reply(site.files["f2.txt"])
    assert run(source, dest, 6, patient=True).exit_status == DONE


def test_a_service_that_follows_asks_ever_later(source: Source, site: Site, dest: Path) -> None:
    """DST-F6: tries add up over runs, and between them only the clock decides: five seconds, doubled each time."""
    source.pages[PATH] = Reply(b"", 403)
    assert asked(source, dest, 0, patient=True)
    polls = [(4, False), (6, True), (6 + 9, False), (6 + 11, True), (6 + 11 + 19, False)]
    polls += [(6 + 11 + 21, True), (6 + 11 + 21 + 39, False)]
    for seconds, due in polls:
        assert asked(source, dest, seconds, patient=True) is due, seconds
    (failure,) = run(source, dest, 70, patient=True).sets[0].failures
    assert failure.tries == 4
    source.pages[PATH] = Reply(site.files["f2.txt"])
    assert run(source, dest, 10_000, patient=True).exit_status == DONE
    source.pages[PATH] = Reply(b"", 403)
    site.put("f2.txt", b"newer")
    source.pages[PATH] = Reply(b"", 403)
    site.publish_changes(10)
    assert asked(source, dest, 10_001, patient=True)
    assert asked(source, dest, 10_007, patient=True)  # a new failure begins anew


@pytest.mark.parametrize("held", [True, False], ids=["held", "new"])
def test_a_list_that_says_the_same_does_not_turn_the_clock(
    source: Source, site: Site, dest: Path, *, held: bool
) -> None:
    """DST-F6: a source without Change Lists names what failed in every list anew."""
    site.publish_capabilities("resourcelist")
    if held:
        assert run(source, dest, -10).exit_status == DONE
        site.put("f2.txt", b"newer")
        site.publish_list()
    source.pages[PATH] = Reply(b"", 403)
    for seconds, due in [(0, True), (4, False), (6, True), (6 + 9, False), (6 + 11, True)]:
        site.clock += 1
        site.publish_list()
        assert asked(source, dest, seconds, patient=True) is due, seconds
    site.put("f2.txt", b"newest")
    site.publish_list()
    assert run(source, dest, 190, patient=True).exit_status == DONE
    assert tree(dest) == dict(site.files)


def test_a_list_of_what_is_held_ends_a_failure(source: Source, site: Site, dest: Path) -> None:
    """DST-F6: the change that could not be had was taken back."""
    go(source.base, dest)
    before = site.files["f2.txt"]
    site.put("f2.txt", b"newer")
    site.publish_changes(10)
    source.pages[PATH] = Reply(b"", 403)
    assert go(source.base, dest).status == FAILED
    site.put("f2.txt", before, change=False)
    site.publish_list()
    assert go(source.base, dest, baseline=True).status == DONE
    assert go(source.base, dest).status == DONE


def test_a_change_is_tried_at_once_whatever_the_clock_says(source: Source, site: Site, dest: Path) -> None:
    """DST-F6: the clock is for what has failed, not for another state of it."""
    source.pages[PATH] = Reply(b"", 403)
    assert asked(source, dest, 0, patient=True)
    site.put("f2.txt", b"newer")
    site.publish_changes(10)
    assert run(source, dest, 1, patient=True).exit_status == DONE
    assert tree(dest) == dict(site.files)


def test_single_runs_try_every_failure_again(source: Source, site: Site, dest: Path) -> None:
    """DST-F6: and tell how often it was tried."""
    source.pages[PATH] = Reply(b"", 403)
    tries = [run(source, dest, seconds).sets[0].failures[0].tries for seconds in range(4)]
    assert tries == [1, 2, 3, 4]


def test_one_run_tries_what_fails_once(source: Source, site: Site, dest: Path) -> None:
    """DST-F6: the increment after a baseline does not ask again for what has just failed."""
    source.pages[PATH] = Reply(b"", 403)
    for baseline in (False, True, False):
        source.forget()
        assert go(source.base, dest, baseline=baseline).status == FAILED
        assert len(source.requests(PATH)) == 1


def test_one_resource_of_two_sets_is_tried_for_each(source: Source, site: Site, dest: Path) -> None:
    """AMB-59: what has failed for one set is still due for the other."""
    other = Site(source, "other")
    other.publish_list([site.resource("f2.txt")], when=10)
    other.publish_changes(10)
    other.publish_capabilities("resourcelist", "changelist")
    site.publish_description("set", "other")
    source.pages[PATH] = Reply(b"", 403)
    for _ in range(2):
        source.forget()
        assert go(source.base, dest).status == FAILED
        assert len(source.requests(PATH)) == 2


@pytest.mark.parametrize("news", ["the same list", "a new list", "a new state", "a change"])
@pytest.mark.parametrize("patient", [False, True])
def test_no_news_are_a_reason_to_ask_before_retry_after(
    news: str, source: Source, site: Site, dest: Path, *, patient: bool
) -> None:
    """DST-F1: not when a list names the resource again, nor with another hash; then that one is what is tried."""
    if news != "a change":
        site.publish_capabilities("resourcelist")
    source.pages[PATH] = Reply(b"", 503, {"Retry-After": "3600"})
    assert asked(source, dest, 0, patient=patient)
    if news in ("a new state", "a change"):
        site.put("f2.txt", b"newer")
    else:
        site.clock += 1
    if news == "a change":
        site.publish_changes(10)
    elif news != "the same list":
        site.publish_list()
    source.pages[PATH] = Reply(site.files["f2.txt"])
    assert not asked(source, dest, 3_500, patient=patient)
    assert not asked(source, dest, 3_590, patient=patient, baseline=True)
    assert run(source, dest, 3_601, patient=patient).exit_status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("wait", ["31536000", "9" * 30, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_retry_after_is_honoured_for_a_day_at_most(wait: str, source: Source, site: Site, dest: Path) -> None:
    """DST-F1: a proxy that asks for years does not keep a resource from the copy for years."""
    source.pages[PATH] = Reply(b"", 503, {"Retry-After": wait})
    assert asked(source, dest, 0)
    source.pages[PATH] = Reply(site.files["f2.txt"])
    assert not asked(source, dest, 86_390)
    assert run(source, dest, 86_410).exit_status == DONE
    assert tree(dest) == dict(site.files)


def job(path: str) -> ScheduledFetch:
    return ScheduledFetch(Fetch(f"http://h.example/{path}"), FetchBatch())


@pytest.mark.parametrize(("status", "rests"), [(429, True), (503, True), (500, False), (408, False)])
def test_a_host_that_asks_for_rest_is_given_it_for_every_resource(status: int, *, rests: bool) -> None:
    """DST-F1: by 429 and 503 the host speaks for itself, by others for one resource."""
    queue = RequestScheduler(TransportOptions(retries=2, chance=lambda: 0.0, first_backoff_seconds=0.5), 64)
    first, second = job("first"), job("second")
    assert queue.admit(first) is None
    assert queue.next(100.0, room=True) is first
    assert queue.admit(second) is None
    queue.landed(first, status, None, 100.0)
    assert queue.repeat(first, status, None, 5.0, 100.0)
    assert (queue.next(104.9, room=True) is None) is rests
    if rests:
        assert queue.next_start(100.0) == 105.0
        assert queue.next(105.0, room=True) is second
    assert queue.next(105.1, room=True) is first


def test_another_host_is_asked_meanwhile() -> None:
    """DST-F1: one host's rest holds up no other."""
    queue = RequestScheduler(TransportOptions(retries=2), 64)
    first, other = job("first"), ScheduledFetch(Fetch("http://other.example/"), FetchBatch())
    assert queue.admit(first) is None
    assert queue.next(100.0, room=True) is first
    assert queue.repeat(first, 503, None, 5.0, 100.0)
    assert queue.admit(other) is None
    assert queue.next(100.0, room=True) is other


def test_a_copy_is_whole_again_after_all(source: Source, site: Site, dest: Path) -> None:
    source.pages[PATH] = Reply(b"", 503, {"Retry-After": "0"})
    assert go(source.base, dest).status == FAILED
    source.pages[PATH] = Reply(site.files["f2.txt"])
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
