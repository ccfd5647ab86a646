"""The loop of a service over real sources: runs, lives, questions, kills, limits."""

from __future__ import annotations

import datetime as dt
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.aggregator.configuration import HostLimits
from headwater.aggregator.dispatcher import lock_state
from headwater.aggregator.store import Answer, Life, Question, RunRecord
from headwater.errors import StoreFault
from headwater.progress import Notice
from tests.aggregator.following import Fleet, fleet, service
from tests.support.fake_source import Reply

pytestmark = pytest.mark.long(60)


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path / "agg") as found:
        yield found


def slow(body: bytes) -> Reply:
    def script(handler: Any) -> None:
        time.sleep(2)
        handler.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    return Reply(script=script)


def hangs() -> Reply:
    return Reply(script=lambda _handler: time.sleep(600))


def test_sources_are_copied_and_followed(many: Fleet) -> None:
    for name in ("a", "b", "c"):
        many.add(name)
    with service(many.config()) as at_work:
        at_work.until(lambda: all(many.is_same(name) for name in many.sites))
        at_work.until(lambda: all(at_work.state(name).life is Life.FOLLOWING for name in many.sites))
        assert len(at_work.events()) == 9
        site = many.sites["b"]
        site.put("000.txt", b"newer")
        site.drop("001.txt")
        site.publish()
        at_work.until(lambda: many.is_same("b"))
        at_work.after_runs("b", 2)
        assert [(one.source, one.action) for one in at_work.events()[9:]] == [("b", "updated"), ("b", "deleted")]
        state = at_work.state("b")
        assert (state.resources, state.failed, state.hosts) == (2, 0, ("127.0.0.1",))
        assert state.sound_at is not None
        (record, *_) = at_work.store.runs("b")
        assert (record.exit_status, record.reason) == (0, "")
        assert record.report is not None


def test_an_idle_poll_costs_two_requests_at_most(many: Fleet) -> None:
    many.add("a")
    with service(many.config()) as at_work:
        at_work.after_runs("a", 2)
        many.servers["a"].forget()
        at_work.after_runs("a", 3)
        assert len(many.servers["a"].requests()) <= 2 * 4
        assert at_work.store.runs("a")[0].requests <= 2


def test_a_source_that_cannot_be_read_fails_and_comes_back(many: Fleet) -> None:
    site = many.add("a", dead_after=0.5)
    pages, many.servers["a"].pages = many.servers["a"].pages, {}
    with service(many.config()) as at_work:
        state = at_work.after_runs("a")
        assert (state.life, state.failures, state.sound_at) == (Life.FAILING, 1, None)
        (record,) = at_work.store.runs("a")
        assert (record.exit_status, record.code) == (3, "HW-SYN-02")
        assert "no ResourceSync document was found" in record.reason
        at_work.until(lambda: at_work.state("a").life is Life.DEAD)
        due = at_work.state("a").next_at
        assert due is not None
        assert due > dt.datetime.now(dt.UTC) + dt.timedelta(hours=23)
        many.servers["a"].pages = pages
        at_work.store.change("a", is_wanted_now=True)
        state = at_work.after_runs("a")
        assert (state.life, state.failures, state.failing_since) == (Life.FOLLOWING, 0, None)
        assert len(many.files("a")) == len(site.files)


def test_a_source_with_failures_is_never_called_well(many: Fleet) -> None:
    many.add("a")
    many.servers["a"].pages["/set/resources/001.txt"] = Reply(b"gone", 404)
    with service(many.config()) as at_work:
        state = at_work.after_runs("a")
        assert (state.life, state.failed, state.sound_at) == (Life.DEGRADED, 1, None)
        assert at_work.store.runs("a")[0].reason.startswith("1 resource failed, the first: ")


def test_deletions_wait_for_a_person(many: Fleet) -> None:
    site = many.add("a", files=40)
    with service(many.config()) as at_work:
        at_work.after_runs("a")
        for number in range(30):
            site.drop(f"{number:03}.txt")
        site.publish()
        at_work.until(lambda: at_work.state("a").question is not None)
        state = at_work.state("a")
        assert (state.question, state.life, state.held_back) == (Question.DELETIONS, Life.DEGRADED, 30)
        assert state.question_text == "30 of 40 files would be deleted: 000.txt, 001.txt, 002.txt, …"
        at_work.store.change("a", answer=Answer.REFUSED, is_wanted_now=True)
        state = at_work.after_runs("a", 2)
        assert (state.question, state.answer, state.life) == (None, None, Life.DEGRADED)
        assert len(many.files("a")) == 40
        site.drop("030.txt")
        site.publish()
        at_work.until(lambda: at_work.state("a").question is Question.DELETIONS)
        at_work.store.change("a", answer=Answer.APPROVED, is_wanted_now=True)
        at_work.until(lambda: at_work.state("a").life is Life.FOLLOWING)
        assert (at_work.state("a").question, at_work.state("a").held_back) == (None, 0)
        assert len(many.files("a")) == 9
        assert sum(one.action == "deleted" for one in at_work.events()) == 31


def test_a_source_that_asks_for_authorisation(many: Fleet) -> None:
    many.add("a")
    pages, many.servers["a"].pages = (
        many.servers["a"].pages,
        {"/.well-known/resourcesync": Reply(b"", 401, {"WWW-Authenticate": "Basic"})},
    )
    with service(many.config()) as at_work:
        state = at_work.after_runs("a")
        assert (state.question, state.life) == (Question.AUTHORISATION, Life.FAILING)
        many.servers["a"].pages = pages
        at_work.store.change("a", answer=Answer.APPROVED, is_wanted_now=True)
        state = at_work.after_runs("a")
        assert (state.question, state.life) == (None, Life.FOLLOWING)


def test_an_address_that_is_of_another_source(many: Fleet) -> None:
    many.add("a")
    many.add("b", files=3)
    many.sites["b"].files.clear()
    for number in range(3):
        many.sites["b"].put(f"{number:03}.txt", f"a {number}".encode(), change=False)
    many.sites["b"].publish()
    with service(many.config()) as at_work:
        at_work.after_runs("a")
        many.set("a", url=many.servers["b"].base)
        at_work.dispatcher.use(many.config())
        at_work.until(lambda: at_work.state("a").question is Question.MOVED)
        assert at_work.state("a").life is Life.FAILING
        at_work.store.change("a", answer=Answer.APPROVED, is_wanted_now=True)
        at_work.until(lambda: at_work.state("a").life is Life.FOLLOWING)
        moved = [one for one in at_work.events() if one.action == "moved"]
        assert len(moved) == 3
        assert {one.uri for one in moved} == {many.sites["b"].uri(f"{number:03}.txt") for number in range(3)}


def test_paused_retired_and_disabled_sources_do_not_run(many: Fleet) -> None:
    for name in ("a", "b", "c"):
        many.add(name)
    many.set("b", enabled=False)
    with service(many.config()) as at_work:
        at_work.store.change("a", is_paused=True)
        at_work.after_runs("c", 3)
        assert (at_work.runs("a"), at_work.runs("b")) == (0, 0)
        at_work.store.change("a", is_paused=False)
        at_work.after_runs("a")


def test_a_run_that_hangs_ends_by_its_deadline(many: Fleet) -> None:
    many.add("a", deadline=1.0)
    many.servers["a"].pages["/set/resourcelist.xml"] = hangs()
    with service(many.config()) as at_work:
        state = at_work.after_runs("a")
        (record,) = at_work.store.runs("a")
        assert (state.life, record.exit_status, record.code) == (Life.FAILING, 3, "HW-NET-02")


def test_a_process_that_hears_nothing_is_killed(many: Fleet) -> None:
    many.add("a", deadline=4.0)
    many.servers["a"].pages["/set/resourcelist.xml"] = hangs()
    with service(many.config(), grace_seconds=0.5) as at_work:
        at_work.until(lambda: many.servers["a"].requests("/set/resourcelist.xml"))
        (pid,) = children(at_work.dispatcher.template.pid)
        os.kill(pid, signal.SIGSTOP)
        state = at_work.after_runs("a")
        (record,) = at_work.store.runs("a")
        assert (state.life, record.exit_status, record.code) == (Life.FAILING, 3, "HW-NET-02")
        assert "killed" in record.reason
        assert at_work.store.running() == []


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_over(pid: int) -> bool:
    """Whether a process is no more, or waits for nothing but that somebody asks how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


def test_a_run_that_is_killed_goes_on(many: Fleet) -> None:
    many.add("a")
    page = many.servers["a"].pages
    whole, page["/set/resourcelist.xml"] = page["/set/resourcelist.xml"], hangs()
    with service(many.config()) as at_work:
        at_work.until(lambda: many.servers["a"].requests("/set/resourcelist.xml"))
        (pid,) = children(at_work.dispatcher.template.pid)
        page["/set/resourcelist.xml"] = whole
        os.kill(pid, signal.SIGKILL)
        at_work.until(lambda: at_work.state("a").life is Life.FOLLOWING)
        assert [one.exit_status for one in at_work.store.runs("a")][-2:] == [0, 6]
        assert at_work.store.runs("a")[-1].code == "HW-AGG-24"


def test_a_template_that_is_killed_is_begun_anew(many: Fleet) -> None:
    many.add("a")
    many.servers["a"].pages["/set/resourcelist.xml"] = hangs()
    many.add("b")
    with service(many.config()) as at_work:
        at_work.until(lambda: many.servers["a"].requests("/set/resourcelist.xml"))
        template = at_work.dispatcher.template.pid
        (pid, *_) = children(template)
        os.kill(template, signal.SIGKILL)
        at_work.until(lambda: at_work.runs("a") == 1)
        at_work.after_runs("b", 2)
        assert at_work.dispatcher.template.pid != template
        at_work.until(lambda: is_over(pid))


def test_a_service_that_is_gone_leaves_nothing_running(many: Fleet) -> None:
    many.add("a")
    many.servers["a"].pages["/set/resourcelist.xml"] = hangs()
    config = many.config()
    with service(config) as at_work:
        at_work.until(lambda: many.servers["a"].requests("/set/resourcelist.xml"))
        assert [one.name for one in at_work.store.running()] == ["a"]
        began = time.monotonic()
        at_work.dispatcher.close()
        assert time.monotonic() - began < 5
        assert at_work.store.running() == []
        state = at_work.state("a")
        assert (state.life, at_work.store.runs("a")[0].exit_status) == (Life.FIRST_COPY, 130)
    with service(config) as again:
        again.until(lambda: again.store.running())


def test_a_source_that_is_stopped_again_and_again_says_why_it_fails(many: Fleet) -> None:
    many.add("a")
    many.servers["a"].pages["/set/resourcelist.xml"] = hangs()
    with service(many.config()) as at_work:
        at_work.store.change("a", fruitless=2)
        at_work.until(lambda: many.servers["a"].requests("/set/resourcelist.xml"))
        at_work.dispatcher.close()
        state, record = at_work.state("a"), at_work.store.runs("a")[0]
        assert (state.life, state.failures, record.exit_status) == (Life.FAILING, 1, 130)
        assert record.reason == "3 runs in a row were stopped before anything came of them"


def test_what_hangs_costs_the_others_nothing(many: Fleet) -> None:
    for name in ("h1", "h2", "h3"):
        many.add(name)
        many.servers[name].pages["/set/resourcelist.xml"] = hangs()
    for name in ("a", "b", "c", "d"):
        many.add(name)
    with service(many.config(parallel=2)) as at_work:
        at_work.until(lambda: all(at_work.runs(name) for name in "abcd"), 40)
        before = sum(at_work.runs(name) for name in "abcd")
        began = time.monotonic()
        at_work.until(lambda: sum(at_work.runs(name) for name in "abcd") >= before + 20)
        assert time.monotonic() - began < 15


def test_once_each_first_copy_is_whole_however_long(many: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.aggregator.schedule.LEAST_TURN_SECONDS", 0.1)
    for name in ("a", "b"):
        many.add(name)
        page = many.servers[name].pages
        whole = page["/set/resourcelist.xml"]
        assert isinstance(whole, Reply)
        page["/set/resourcelist.xml"] = slow(whole.body)
    with service(many.config(parallel=1)) as at_work:
        at_work.dispatcher.once(threading.Event())
        assert [at_work.store.runs(name)[0].exit_status for name in "ab"] == [0, 0]


def test_a_host_that_many_share_is_asked_as_it_allows(many: Fleet) -> None:
    for name in ("a", "b", "c"):
        many.add(name, files=20, options={"allow_hosts": ("127.0.0.1",)})
    busy: list[int] = []
    now = [0]

    def counting(body: bytes) -> Reply:
        def script(handler: object) -> None:
            now[0] += 1
            busy.append(now[0])
            time.sleep(0.02)
            now[0] -= 1
            handler.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)  # type: ignore[attr-defined]

        return Reply(script=script)

    for name, site in many.sites.items():
        for file, body in site.files.items():
            many.servers[name].pages[f"/set/resources/{file}"] = counting(body)
    hosts = {"127.0.0.1": HostLimits(concurrency=2)}
    with service(many.config(hosts=hosts)) as at_work:
        at_work.until(lambda: all(many.is_same(name) for name in many.sites))
    assert max(busy) <= 2
    assert len(busy) >= 60


def test_a_host_that_asks_to_wait_is_left_alone_by_all(many: Fleet) -> None:
    for name in ("a", "b"):
        many.add(name)
    refused: list[float] = []

    def refuses(_handler: object) -> None:
        refused.append(time.monotonic())
        _handler.send(b"HTTP/1.1 429 Slow\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n")  # type: ignore[attr-defined]

    with service(many.config()) as at_work:
        at_work.until(lambda: all(many.is_same(name) for name in many.sites))
        pages, many.servers["a"].pages = (
            many.servers["a"].pages,
            dict.fromkeys(many.servers["a"].pages, Reply(script=refuses)),
        )
        at_work.until(lambda: refused)
        many.servers["a"].pages = pages
        time.sleep(0.5)  # what was under way is over
        many.servers["b"].forget()
        at_work.until(lambda: many.servers["b"].requests())
        assert time.monotonic() - refused[0] > 2.9


def test_a_host_has_its_requests_a_second_over_all_processes(many: Fleet) -> None:
    for name in ("a", "b"):
        many.add(name, files=5)
    began = time.monotonic()
    with service(many.config(hosts={"127.0.0.1": HostLimits(rate=20)})) as at_work:
        at_work.until(lambda: all(many.is_same(name) for name in many.sites))
    asked = sum(len(server.requests()) for server in many.servers.values())
    assert asked <= 20 * (time.monotonic() - began) + 1


def test_no_run_begins_on_a_full_disk_which_is_told_once(many: Fleet) -> None:
    many.add("a")
    with service(many.config(keep_free=1 << 60)) as at_work:
        for _ in range(5):
            at_work.dispatcher.look()
        assert [one.rule for one in at_work.told if isinstance(one, Notice)] == ["HW-AGG-23"]
        assert at_work.runs("a") == 0
        at_work.dispatcher.use(many.config())
        at_work.after_runs("a")


def test_an_end_that_the_store_does_not_take_is_recorded_later(many: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    many.add("a")
    whole = many.servers["a"].pages["/set/resourcelist.xml"]
    many.servers["a"].pages["/set/resourcelist.xml"] = hangs()
    with service(many.config()) as at_work:
        at_work.until(lambda: many.servers["a"].requests("/set/resourcelist.xml"))
        many.servers["a"].pages["/set/resourcelist.xml"] = whole
        real = at_work.store.end

        def full(*_: object) -> None:
            raise StoreFault("the disk is full")

        monkeypatch.setattr(at_work.store, "end", full)
        (pid,) = children(at_work.dispatcher.template.pid)
        os.kill(pid, signal.SIGKILL)
        at_work.until(lambda: [one for one in at_work.told if isinstance(one, Notice)])
        assert at_work.runs("a") == 0
        monkeypatch.setattr(at_work.store, "end", real)
        at_work.until(lambda: at_work.state("a").life is Life.FOLLOWING)
        assert [one.message for one in at_work.told if isinstance(one, Notice)] == [
            "no run can begin, and it is tried again: the disk is full"
        ]


def test_a_source_stops_at_its_quota_alone(many: Fleet) -> None:
    many.add("a", options={"max_total": 5})
    many.add("b")
    with service(many.config()) as at_work:
        assert at_work.after_runs("a").life is Life.FAILING
        assert at_work.store.runs("a")[0].exit_status == 6
        at_work.until(lambda: at_work.state("b").life is Life.FOLLOWING)


def test_a_clock_that_was_set_back_stops_no_source(many: Fleet) -> None:
    many.add("a", every=60.0, jitter=0.0)
    ahead = [dt.timedelta(days=300)]
    with service(many.config(), now=lambda: dt.datetime.now(dt.UTC) + ahead[0]) as at_work:
        at_work.after_runs("a")
        moment = dt.datetime.now(dt.UTC) + ahead[0]
        at_work.store.change("a", next_at=moment + dt.timedelta(minutes=1), planned_at=moment)
        for _ in range(5):
            at_work.dispatcher.look()
        assert at_work.runs("a") == 1
        ahead[0] = dt.timedelta(0)
        at_work.after_runs("a")


def test_each_run_is_told(many: Fleet) -> None:
    many.add("a")
    with service(many.config()) as at_work:
        at_work.after_runs("a", 2)
        at_work.until(lambda: len([one for one in at_work.told if isinstance(one, RunRecord)]) >= 2)


def test_two_services_never_work_on_one_state(many: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.aggregator.dispatcher._LOCK_SECONDS", 0.1)
    many.add("a")
    held = lock_state(many.config())
    with pytest.raises(StoreFault, match="another service works on this state"):
        lock_state(many.config())
    os.close(held)
    os.close(lock_state(many.config()))
