"""Sources whose hubs notify a service: polled at once, not too often, and by the word of nobody else."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tools.engines.launch import free_port

from headwater.aggregator import pushed_sources
from headwater.aggregator.configuration import AggregatorConfig, FollowedSource
from headwater.aggregator.pages import Pages
from headwater.errors import HeadwaterError
from headwater.notify.subscriber_hubs import PAYLOAD_OCTETS
from headwater.notify.subscriber_store import push_status
from headwater.sync.options import SyncOptions
from headwater.sync.run import utcnow
from tests.aggregator.following import Service
from tests.notify.following.pushing import Hub, PushedSite, get, post, pushed_site, signed
from tests.support.fake_source import Handler, Reply, Source
from tests.support.serving import Process
from tests.support.waiting import until

pytestmark = pytest.mark.long(60)

SECONDS = 40.0
PAUSE = 1.0


def states(copy: Path) -> list[str]:
    """How far subscriptions have come, as `headwater status` reads them."""
    found = push_status(copy / ".headwater")
    return [] if found is None else [one.state for one in found.subscriptions]


def test_a_source_with_a_hub_is_polled_at_once_also_after_a_kill(tmp_path: Path) -> None:
    """`headwater serve --hub`, and a service whose interval is an hour."""
    files, copy, port = tmp_path / "files", tmp_path / "agg" / "museum", free_port()
    files.mkdir()
    (files / "a.txt").write_text("a")
    with Process("--files", str(files), "--state", str(tmp_path / "state"), "--port", "0", "--hub") as server:
        config = tmp_path / "aggregate.toml"
        config.write_text(
            f'state = "agg"\nkeep_free = 0\nlisten = "127.0.0.1:{port}"\npush = "http://127.0.0.1:{port}/push"\n'
            f'[[source]]\nname = "museum"\nurl = "{server.ready()}"\nevery = "1h"\n'
        )
        for name in ("b.txt", "c.txt"):
            service = subprocess.Popen([sys.executable, "-m", "headwater", "follow", str(config)])
            try:
                until(lambda: states(copy) == ["active", "active"], SECONDS)
                (files / name).write_text(name)
                until(lambda name=name: any(copy.rglob(name)), SECONDS)  # type: ignore[misc]
            finally:
                service.kill()
                service.wait()


class Pushed:
    """A source with a hub, a service whose interval is an hour, and its pages."""

    def __init__(self, folder: Path, source: Source, **more: Any) -> None:
        self.hub = Hub(source)
        self.site: PushedSite = pushed_site(source, self.hub.url)
        port = free_port()
        self.base = f"http://127.0.0.1:{port}/push"
        values: dict[str, Any] = {"url": source.base, "every": 3600.0, "options": SyncOptions(retries=0)} | more
        self.config = AggregatorConfig(
            path=folder / "aggregate.toml",
            state=folder,
            keep_free=0,
            listen=f"127.0.0.1:{port}",
            push=f"{self.base}/",
            sources=(FollowedSource(name="museum", **values),),
        )
        self.faults: list[HeadwaterError] = []
        self.service = Service(self.config)
        self.pages = Pages(self.config, self.service.store, on_fault=self.faults.append)
        self.pages.start()

    def stop(self) -> None:
        self.pages.stop()
        self.service.close()

    def at_rest(self) -> None:
        """Wait until the subscription holds, and the poll that follows upon that is done."""
        self.service.until(lambda: self.service.runs("museum") >= 2)
        assert [one.callback.startswith(f"{self.base}/museum/") for one in self.hub.asked] == [True]

    def runs_within(self, seconds: float) -> int:
        """How many runs end in a time."""
        before, ends = self.service.runs("museum"), time.monotonic() + seconds
        self.service.until(lambda: time.monotonic() > ends)
        return self.service.runs("museum") - before

    def change(self, name: str) -> bytes:
        """A change that the lists have, and its notification."""
        self.site.put(name, name.encode())
        self.site.publish_changes(10.0)
        return self.site.notification()

    def tell(self, name: str = "new.txt") -> None:
        assert self.hub.deliver(self.site.topic(), self.change(name)) == 202

    def holds(self, name: str) -> bool:
        return any((self.config.state / "museum").rglob(name))


@pytest.fixture
def source() -> Iterator[Source]:
    with Source() as running:
        yield running


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushed_sources, "PAUSE_SECONDS", PAUSE)


@pytest.fixture
def pushed(tmp_path: Path, source: Source) -> Iterator[Pushed]:
    made = Pushed(tmp_path, source)
    made.at_rest()
    yield made
    made.stop()
    assert made.faults == []


def test_only_who_knows_the_secret_has_a_source_polled(pushed: Pushed) -> None:
    asked, body = pushed.hub.subscription(pushed.site.topic()), pushed.change("new.txt")
    good = signed(asked.secret, body)
    verification = {"hub.mode": "subscribe", "hub.topic": pushed.site.topic(), "hub.challenge": "x"}
    token = asked.callback.rpartition("/")[2]
    for path in ("/", "/museum", "/other/" + token, "/museum/a/" + token, "/%6Duseum/" + token):
        assert get(pushed.base + path, verification)[0] == 404, path
        assert post(pushed.base + path, body, good) == 404, path
    assert get(f"{pushed.base}/museum/guess", verification)[0] == 404
    assert post(f"{pushed.base}/museum/guess", body, good) == 410
    assert post(asked.callback, body, {}) == 403
    assert post(asked.callback, body, signed(b"a guess", body)) == 202
    assert pushed.runs_within(3 * PAUSE) == 0
    assert get(asked.callback, verification) == (200, b"x")
    assert post(asked.callback, body, good) == 202
    pushed.service.until(lambda: pushed.holds("new.txt"))


def test_a_notification_that_is_too_long_is_not_read(pushed: Pushed) -> None:
    asked = urlsplit(pushed.hub.subscription(pushed.site.topic()).callback)
    with closing(HTTPConnection(asked.netloc, timeout=20)) as connection:
        connection.putrequest("POST", asked.path)
        connection.putheader("Content-Length", str(PAYLOAD_OCTETS + 1))
        connection.endheaders()
        assert connection.getresponse().status == 413


def test_a_storm_has_a_source_polled_now_and_then(pushed: Pushed) -> None:
    began = time.monotonic()
    asked, body = pushed.hub.subscription(pushed.site.topic()), pushed.change("new.txt")
    before = pushed.service.runs("museum")
    while time.monotonic() - began < 5 * PAUSE:
        for _ in range(20):
            assert post(asked.callback, body, signed(asked.secret, body)) == 202
        pushed.service.dispatcher.look()
        assert len(pushed.service.store.running()) <= 1
    assert 2 <= pushed.service.runs("museum") - before <= 5


def test_what_is_told_during_a_run_is_polled_after_it(pushed: Pushed, source: Source) -> None:
    """The run may have passed by what has changed."""
    path, waits = "/set/changelist.xml", [True]
    stale = source.pages[path]
    assert isinstance(stale, Reply)
    asked = pushed.hub.subscription(pushed.site.topic())

    def slow(_handler: Handler) -> Reply:
        until(lambda: not waits, SECONDS)
        return stale

    source.pages[path] = slow
    source.forget()
    pushed.service.store.change("museum", is_wanted_now=True)
    pushed.service.until(lambda: source.requests(path))
    body = pushed.change("new.txt")
    assert post(asked.callback, body, signed(asked.secret, body)) == 202
    time.sleep(2 * PAUSE)
    waits.clear()
    pushed.service.until(lambda: pushed.holds("new.txt"))


@pytest.mark.parametrize("fields", [{"is_paused": True}, {"failures": 1}])
def test_pauses_hold(pushed: Pushed, fields: dict[str, Any]) -> None:
    """So do the longer intervals of a source that fails."""
    pushed.service.store.change("museum", **fields)
    asked, body = pushed.hub.subscription(pushed.site.topic()), pushed.change("new.txt")
    assert post(asked.callback, body, signed(asked.secret, body)) in (202, 404)
    assert pushed.runs_within(3 * PAUSE) == 0
    if "is_paused" in fields:
        until(lambda: post(asked.callback, body, signed(asked.secret, body)) == 404)
        pushed.service.store.change("museum", is_paused=False)
        until(lambda: get(asked.callback, {})[0] == 404 and post(asked.callback, b"", {}) == 403)


def test_windows_hold(tmp_path: Path, source: Source) -> None:
    now = dt.datetime.now()
    opens = [f"{now + dt.timedelta(hours=hours):%H:%M}" for hours in (2, 3)]
    made = Pushed(tmp_path, source, window="-".join(opens))
    try:
        made.service.until(lambda: made.service.store.source("museum"))
        made.service.store.change("museum", is_wanted_now=True)
        made.service.until(lambda: made.service.runs("museum"))
        made.tell()
        until(lambda: not (made.service.state("museum").next_at or dt.datetime.max.replace(tzinfo=dt.UTC)) > utcnow())
        assert made.runs_within(1.5) == 0
    finally:
        made.stop()


def test_a_subscription_is_renewed_by_the_service(tmp_path: Path, source: Source) -> None:
    made = Pushed(tmp_path, source)
    made.hub.lease = "2"
    try:
        made.service.until(lambda: len(made.hub.of(made.site.topic())) >= 3)
    finally:
        made.stop()


@pytest.mark.parametrize("more", [{"push": False}, {"enabled": False}])
def test_a_source_may_be_left_out(tmp_path: Path, source: Source, more: dict[str, bool]) -> None:
    made = Pushed(tmp_path, source, **more)
    try:
        if "push" in more:
            made.service.until(lambda: made.service.runs("museum"))
        assert made.runs_within(1.5) == 0
        assert made.hub.asked == []
    finally:
        made.stop()
