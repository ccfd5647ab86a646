"""Delivery to sinks: positions, filters, retries, dead letters, quarantine, replay, kills."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from headwater.aggregator.configuration import AggregatorConfig, FollowedSource, SinkConfig
from headwater.aggregator.service import FollowingService
from headwater.aggregator.sinks import Delivery, Failure, SinkFault, SinkThreads, replay, replay_dead, replay_held
from headwater.aggregator.sqlite_store import FILE, SqliteStore
from headwater.aggregator.store import Event, Run, UnknownSource
from headwater.errors import StoreFault
from headwater.progress import Notice, Progress
from headwater.sync.run import sync as sync_folder
from tests.aggregator.store_contract import LEASE, T0, event
from tests.support.fake_source import Site, Source

pytestmark = pytest.mark.long(15)


class Recorder:
    """A sink that keeps batches of paths; `answers` say what becomes of each call."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.taken: list[str] = []
        self.judge: Callable[[Sequence[Event]], Mapping[int, str] | None] = lambda _events: None
        self.closed = False

    def apply(self, events: Sequence[Event]) -> Mapping[int, str] | None:
        self.calls.append([one.path for one in events])
        refused = self.judge(events)
        self.taken += [one.path for one in events if one.number not in (refused or {})]
        return refused

    def close(self) -> None:
        self.closed = True


class Service:
    """A store with a run, a configuration with one sink, and a clock that stands until it is set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = SqliteStore(folder / FILE)
        self.store.enrol([("museum", "u:m"), ("archive", "u:a")], T0)
        self.store.enrol_sinks(["index"], T0)
        self.time = T0
        self.sink = Recorder()
        self.told: list[Notice | Progress] = []

    def config(self, **fields: object) -> AggregatorConfig:
        return AggregatorConfig(
            path=self.folder / "aggregate.toml",
            state=self.folder,
            sources=(
                FollowedSource(name="museum", url="u:m", tags=("de", "art")),
                FollowedSource(name="archive", url="u:a", tags=("fr",)),
            ),
            sinks=(SinkConfig(name="index", kind="test", **fields),),  # type: ignore[arg-type]
        )

    def delivery(self, **fields: object) -> Delivery:
        return Delivery(
            self.config(**fields), "index", self.sink, self.store, listener=self.told.append, now=lambda: self.time
        )

    def add(self, *paths: str, source: str = "museum", **fields: object) -> None:
        run = self.store.lease(source, "sync", "w", T0, LEASE) or self._running(source)
        self.store.append(run, [event(path, source=source, **fields) for path in paths], T0)  # type: ignore[arg-type]

    def _running(self, source: str) -> Run:
        return next(one for one in self.store.running() if one.name == source)

    def settle(self, delivery: Delivery, most: int = 1_000) -> None:
        """Steps, with time that passes, until nothing waits."""
        for _ in range(most):
            if self.store.sink("index").waiting == 0:
                return
            self.pass_time(delivery)
        raise AssertionError(f"{self.store.sink('index')} after {most} steps")

    def pass_time(self, delivery: Delivery) -> None:
        delivery.step()
        self.time = max(self.time, self.store.sink("index").next_at or self.time)

    def lines(self) -> list[str]:
        """What the log has of the sink."""
        return [one.message for one in self.told if isinstance(one, Notice) and one.where == "index"]

    def dead(self) -> list[tuple[int, str, int]]:
        return [(one.number, one.reason, one.tries) for one in self.store.dead_letters("index")[::-1]]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    one = Service(tmp_path)
    yield one
    one.store.close()


def test_events_are_delivered_in_batches_in_order(service: Service) -> None:
    delivery = service.delivery(batch=2)
    assert delivery.step() > 0
    service.add(*"abcde")
    service.settle(delivery)
    assert service.sink.calls == [["a", "b"], ["c", "d"], ["e"]]
    assert service.store.sink("index").acknowledged == 5
    assert delivery.step() > 0
    assert len(service.sink.calls) == 3


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "abcdefg"),
        ({"sources": ("mus*",)}, "abcdg"),
        ({"tags": ("fr", "xx")}, "ef"),
        ({"types": ("text/*", "application/pdf")}, "acdfg"),
        ({"types": ("TEXT/xml",)}, "acg"),
        ({"sources": ("museum",), "types": ("application/pdf",)}, "dg"),
        ({"sources": ("nobody",)}, ""),
    ],
)
def test_filters_leave_events_out(service: Service, fields: dict[str, object], expected: str) -> None:
    service.add("a", type="text/xml; charset=utf-8")
    service.add("b")
    service.add("c", type="text/xml")
    service.add("d", type="application/pdf")
    service.add("e", source="archive", type="image/png")
    service.add("f", source="archive", type="text/plain")
    service.add("g", action="deleted")
    service.settle(service.delivery(batch=2, **fields))
    assert "".join(service.sink.taken) == expected
    assert service.store.sink("index").acknowledged == 7


def test_deletions_of_a_source_that_is_no_longer_followed_come(service: Service) -> None:
    service.store.enrol([("former", "u:f")], T0)
    service.add("a", source="former")
    service.add("b", source="former", action="deleted")
    service.settle(service.delivery(tags=("de",)))
    assert service.sink.taken == ["b"]


def test_a_sink_that_cannot_be_reached_is_waited_for(service: Service) -> None:
    delivery = service.delivery(tries=3)
    down = True

    def judge(_events: Sequence[Event]) -> None:
        if down:
            raise SinkFault("no answer", failure=Failure.UNAVAILABLE)

    service.sink.judge = judge
    service.add("a", "b")
    pauses = []
    for n in range(20):
        delivery.step()
        state = service.store.sink("index")
        assert (state.failures, state.failure, state.acknowledged) == (n + 1, "no answer", 0)
        assert state.next_at is not None
        assert 0 < delivery.step() <= 0.5  # not yet
        pauses.append((state.next_at - service.time).total_seconds())
        service.time = state.next_at
    assert pauses[:3] == [1, 2, 4]
    assert max(pauses) == 300
    down = False
    delivery.step()
    assert service.sink.taken == ["a", "b"]
    assert service.store.sink("index").failures == 0
    assert service.dead() == []


def test_a_sink_that_asks_for_patience_gets_it(service: Service) -> None:
    def judge(_events: Sequence[Event]) -> None:
        raise SinkFault("busy", failure=Failure.UNAVAILABLE, wait_seconds=1_000)

    service.sink.judge = judge
    service.add("a")
    service.delivery().step()
    assert service.store.sink("index").next_at == service.time + dt.timedelta(seconds=1_000)


@pytest.mark.parametrize("fault", [SinkFault("boom"), KeyError("boom")])
def test_an_event_that_a_sink_fails_with_becomes_a_dead_letter_alone(service: Service, fault: Exception) -> None:
    def judge(events: Sequence[Event]) -> None:
        if any(one.path in "bd" for one in events):
            raise fault

    service.sink.judge = judge
    service.add(*"abcdef")
    service.settle(service.delivery(tries=3, batch=5))
    assert service.sink.taken == ["a", "c", "e", "f"]
    assert [(number, tries) for number, _, tries in service.dead()] == [(2, 3), (4, 3)]
    assert service.sink.calls == [list("abcde"), *(list(one) for one in "abbbcdddef")]
    said = "boom" if isinstance(fault, SinkFault) else "KeyError: 'boom'"
    assert service.lines() == [
        *[f"the sink has not taken a batch: {said}"] * 5,
        f"the sink has refused 1 of 3 events, the first: {said}",
    ]


@pytest.mark.parametrize("batch", [1, 500])
def test_an_event_that_fails_waits_until_the_sink_takes_a_later_one(service: Service, batch: int) -> None:
    def judge(events: Sequence[Event]) -> None:
        if events[0].path == "a":
            raise SinkFault("boom")

    service.sink.judge = judge
    service.add("a")
    delivery = service.delivery(tries=4, batch=batch)
    for n in range(10):
        service.pass_time(delivery)
        assert service.store.sink("index").failures == n + 1
    assert (service.sink.calls, service.dead()) == ([["a"]] * 10, [])
    service.add("b")
    service.settle(delivery)
    assert [one[:2] for one in service.dead()] == [(1, "boom")]
    assert service.sink.taken == ["b"]


def test_each_event_has_its_own_tries(service: Service) -> None:
    """What fails once, after another has used up its tries, is taken; of two in a row each fails as often as it may."""
    tried: Counter[str] = Counter()

    def judge(events: Sequence[Event]) -> None:
        (path,) = [one.path for one in events]
        tried[path] += 1
        if path in "ade" or (path == "c" and tried["c"] == 1):
            raise SinkFault("boom")

    service.sink.judge = judge
    service.add(*"abcdef")
    service.settle(service.delivery(tries=3, batch=1))
    assert service.sink.taken == ["b", "c", "f"]
    assert [(number, tries) for number, _, tries in service.dead()] == [(1, 3), (4, 5), (5, 3)]


def test_events_that_come_while_the_journal_is_read_come_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = service.store.last_number

    def last_number() -> int:
        number = last()
        if number == 1:
            service.add("b")
        return number

    monkeypatch.setattr(service.store, "last_number", last_number)
    service.add("a")
    service.settle(service.delivery())
    assert service.sink.calls == [["a", "b"]]


def test_an_outage_makes_no_dead_letters(service: Service) -> None:
    """The sink is away for half an hour, answers 500 to everything for an hour, is away once more, and is back."""

    def judge(_events: Sequence[Event]) -> None:
        minutes = (service.time - T0).total_seconds() / 60
        if minutes < 120:
            raise SinkFault("away", failure=Failure.FAILED if 30 < minutes < 90 else Failure.UNAVAILABLE)

    service.sink.judge = judge
    service.add(*"abcdefghi")
    service.settle(service.delivery(tries=3))
    assert service.sink.taken == list("abcdefghi")
    assert service.dead() == []


def test_one_failure_in_an_outage_makes_no_dead_letter(service: Service) -> None:
    answers = [Failure.UNAVAILABLE] * 20 + [Failure.FAILED]

    def judge(_events: Sequence[Event]) -> None:
        if answers:
            raise SinkFault("away", failure=answers.pop(0))

    service.sink.judge = judge
    service.add(*"abc")
    service.settle(service.delivery(tries=3))
    assert (service.sink.taken, service.dead()) == (["a", "b", "c"], [])


def test_a_service_that_stops_ends_a_delivery_of_single_events(service: Service) -> None:
    stopped = threading.Event()

    def judge(events: Sequence[Event]) -> None:
        if len(events) > 1:
            raise SinkFault("bad", failure=Failure.REFUSED)
        if events[0].path == "b":
            stopped.set()

    service.sink.judge = judge
    service.add(*"abcd")
    service.delivery().run(stopped)
    assert service.sink.taken == ["a", "b"]
    assert service.store.sink("index").acknowledged == 2


def test_what_a_sink_refuses_as_a_batch_is_delivered_event_by_event(service: Service) -> None:
    def judge(events: Sequence[Event]) -> None:
        if any(one.path == "b" for one in events):
            raise SinkFault("bad", failure=Failure.REFUSED)

    service.sink.judge = judge
    service.add(*"abc")
    began = service.time
    service.settle(service.delivery())
    assert service.sink.taken == ["a", "c"]
    assert service.dead() == [(2, "bad", 1)]
    assert service.time == began
    assert service.lines() == ["the sink has refused 1 of 3 events, the first: bad"]


def test_what_a_sink_refuses_by_number_is_a_dead_letter(service: Service) -> None:
    service.sink.judge = lambda events: {one.number: "no mapping" for one in events if one.path == "b"}
    service.add(*"abc")
    service.settle(service.delivery())
    assert service.sink.taken == ["a", "c"]
    assert service.dead() == [(2, "no mapping", 1)]


def test_a_failure_while_events_are_delivered_one_by_one_has_its_tries(service: Service) -> None:
    failures = 3

    def judge(events: Sequence[Event]) -> None:
        nonlocal failures
        if len(events) > 1:
            raise SinkFault("bad", failure=Failure.REFUSED)
        if events[0].path == "b" and failures:
            failures -= 1
            raise SinkFault("boom")

    service.sink.judge = judge
    service.add(*"abc")
    service.settle(service.delivery(tries=5))
    assert service.sink.taken == ["a", "b", "c"]
    assert service.dead() == []


def test_an_event_in_quarantine_is_a_dead_letter(service: Service) -> None:
    folder = service.folder / "museum"
    folder.mkdir()
    (folder / "good.xml").write_bytes(b"<a/>")
    (folder / "page.xml").write_bytes(b"<html><body>error</body></html>")
    service.add("page.xml", "good.xml", type="text/xml")
    service.add("page.xml", type="text/xml", action="deleted")
    service.settle(service.delivery(quarantine=("html",)))
    assert service.sink.taken == ["good.xml", "page.xml"]
    assert service.dead() == [(1, "held back: the file is an HTML page, listed is text/xml", 0)]


def test_a_sink_is_told_again_from_a_number(service: Service) -> None:
    service.add(*"abc")
    delivery = service.delivery()
    service.settle(delivery)
    assert replay(service.store, service.config(), "index", 1) == 2
    service.settle(delivery)
    assert service.sink.calls == [["a", "b", "c"], ["b", "c"]]
    with pytest.raises(UnknownSource):
        replay(service.store, service.config(), "nobody", 1)
    with pytest.raises(UnknownSource):
        replay_held(service.store, service.config(), "nobody")


def test_a_replay_during_a_delivery_is_not_undone(service: Service) -> None:
    def judge(_events: Sequence[Event]) -> None:
        if len(service.sink.calls) == 2:
            replay(service.store, service.config(), "index", 0)

    service.sink.judge = judge
    service.add("a")
    delivery = service.delivery()
    service.settle(delivery)
    service.add("b")
    service.settle(delivery)
    assert service.sink.calls == [["a"], ["b"], ["a", "b"]]


def test_dead_letters_are_told_again_as_things_are_by_now(service: Service) -> None:
    broken = True
    service.sink.judge = lambda events: {one.number: "bad" for one in events} if broken else None
    service.add("a", "b", "c")
    service.add("d", action="deleted")
    delivery = service.delivery()
    service.settle(delivery)
    assert len(service.dead()) == 4
    broken = False
    service.add("b", action="deleted")
    service.add("c", action="updated", digest="sha-256:02")
    service.settle(delivery)
    service.sink.taken.clear()
    assert replay_dead(service.store, service.config(), "index") == 4
    service.settle(delivery)
    assert service.sink.taken == ["a", "c", "d"]
    assert service.dead() == []
    assert replay_dead(service.store, service.config(), "index") == 0


def test_all_that_copies_hold_is_told_to_one_sink(service: Service) -> None:
    with Source() as source:
        site = Site(source)
        for n in range(3):
            site.put(f"{n}.xml", b"<a/>")
        site.publish()
        sync_folder(source.base, service.folder / "museum")
    delivery = service.delivery()
    service.settle(delivery)
    assert replay_held(service.store, service.config(sources=("archive",)), "index") == 0
    assert replay_held(service.store, service.config(), "index") == 3
    service.settle(delivery)
    assert sorted(service.sink.taken) == ["0.xml", "1.xml", "2.xml"]
    (one, *_) = service.store.events(0, sink="index")
    assert (one.action, one.source, one.run) == ("created", "museum", 0)
    assert one.hash is not None
    assert service.store.events(0) == []


def test_a_store_that_fails_is_asked_again(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.aggregator.sinks._FAULT_SECONDS", 0.01)
    service.add("a")
    state, faults = service.store.sink, [StoreFault("the disk is full")] * 2

    def failing(name: str) -> object:
        if faults:
            raise faults.pop()
        return state(name)

    monkeypatch.setattr(service.store, "sink", failing)
    stopped = threading.Event()
    thread = threading.Thread(target=service.delivery().run, args=(stopped,))
    thread.start()
    wait_for(lambda: service.sink.taken == ["a"])
    stopped.set()
    thread.join()
    assert service.sink.closed


def test_a_sink_that_hangs_or_fails_stops_no_other(service: Service) -> None:
    release = threading.Event()
    good, hanging, failing = Recorder(), Recorder(), Recorder()

    def hang(_events: Sequence[Event]) -> None:
        release.wait(30)

    def fail(_events: Sequence[Event]) -> None:
        raise RuntimeError("bug")

    hanging.judge, failing.judge = hang, fail
    made = {"good": good, "hanging": hanging, "failing": failing}
    config = AggregatorConfig(
        path=service.folder / "aggregate.toml",
        state=service.folder,
        sources=(),
        sinks=tuple(SinkConfig(name=name, kind="test") for name in made),
    )
    threads = SinkThreads(config, service.store, lambda sink, *_: made[sink.name])
    threads.start()
    for path in "abcde":
        service.add(path)
        wait_for(lambda: "".join(good.taken)[-1:] == path)  # noqa: B023
    threads.close(seconds=0.2)
    assert good.closed
    assert not hanging.closed
    assert service.store.sink("failing").failures > 0
    assert service.store.sink("hanging").acknowledged == 0
    release.set()
    wait_for(lambda: hanging.closed)


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_after_a_hundred_kills_a_sink_that_keeps_the_last_number_has_each_event_once(tmp_path: Path) -> None:
    """So has the file, the table, and what a command and a keeper of numbers have got."""
    command = [sys.executable, "-m", "tests.aggregator.killed_deliveries", str(tmp_path), "100"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=300)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert "kills 100" in done.stdout


def test_a_sink_that_is_not_configured_any_more_is_told(service: Service) -> None:
    service.add("a", "b")
    service.store.acknowledge("index", 1)
    config = service.config()
    renamed = SinkConfig(name="records", kind="test")
    threads = SinkThreads(
        msgspec.structs.replace(config, sinks=(renamed,)), service.store, lambda *_: Recorder(), service.told.append
    )
    threads.start()
    threads.close()
    assert service.lines() == ["the sink is no longer configured: its place after event 1 is kept for a while"]
    threads = SinkThreads(config, service.store, lambda *_: service.sink)
    threads.start()
    wait_for(lambda: service.sink.taken == ["b"])
    threads.close()


def test_a_reload_while_the_store_takes_nothing_leaves_the_sinks_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreFault("the disk is full")

    out = tmp_path / "out"
    config = AggregatorConfig(
        path=tmp_path / "aggregate.toml",
        state=tmp_path,
        sources=(FollowedSource(name="museum", url="http://127.0.0.1:1/", enabled=False),),
        sinks=(SinkConfig(name="index", kind="file", path=str(out)),),
    )
    service = FollowingService(config, lambda _told: None)
    service.begin()
    for name in ("enrol_sinks", "enrol"):
        with monkeypatch.context() as patch:
            patch.setattr(service.store, name, full)
            with pytest.raises(StoreFault):
                service.use(config)
    run = service.store.lease("museum", "sync", "w", T0, LEASE)
    assert run is not None
    service.store.append(run, [event("a")], T0)
    wait_for(lambda: out.exists() and out.read_bytes() != b"")
    service.use(config)
    service.store.append(run, [event("b")], T0)
    wait_for(lambda: out.read_bytes().count(b"\n") == 2)
    service.close()
