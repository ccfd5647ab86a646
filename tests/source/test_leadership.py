"""One process publishes a source, wherever the others run: they stand by, and take over when it is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools.engines.engine import Engine

from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import remove
from headwater.catalog.interface import Accepted, ClusterOptions, Moved
from headwater.catalog.lease import NotLeader, SharedCatalog
from headwater.errors import HeadwaterError, StoreFault
from headwater.http.metrics import MetricsPage, RequestCounters
from headwater.progress import Notice, Progress
from headwater.publish.publisher import Publisher
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.configured_source import utc_now
from headwater.source.health import report, report_without_catalog
from headwater.source.leadership import Leadership
from headwater.source.published_folder import PublishedFolder
from headwater.source.set_folders import scan_settings
from headwater.source.set_health import Failures, SetHealth
from headwater.source.source import Source
from headwater.source.worker import SetWorker, SourceContext
from headwater.storage.cluster import Cluster, ClusterUnreachable
from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import CannotWrite
from tests.catalog.cluster_proxy import Proxy
from tests.support.engines import access, prefix
from tests.support.published import look
from tests.support.waiting import DEADLINE, until

pytestmark = pytest.mark.long(20)

BASE = "http://source.example/sync"
LEASE = 2.0


class Role:
    """A role that several leases want, with a clock of its own that tests move."""

    def __init__(self) -> None:
        self.owner: FakeLease | None = None
        self.broken = False
        self.now = 0.0
        self.pace = 0.0
        """So much time passes with each question."""


class FakeLease:
    """A lease without a cluster: what the turn does with it is all that is looked at."""

    seconds = 0.3
    turn = 0

    def __init__(self, role: Role, who: str) -> None:
        self.role, self.who = role, who
        self.until = 0.0
        self.holder = ""
        self.asked = 0

    def holds(self) -> bool:
        return self.role.now < self.until

    def take(self) -> bool:
        self.asked += 1
        if self.role.pace:
            self.role.now += self.role.pace
        now = self.role.now
        if self.role.broken:
            raise ClusterUnreachable("nobody is there")
        owner = self.role.owner
        self.holder = owner.who if owner else ""
        if owner is not None and owner is not self and now < owner.until:
            return False
        self.turn += owner is not self
        self.role.owner, self.until = self, now + self.seconds
        return True

    def release(self) -> None:
        self.until = 0.0
        self.role.owner = None


def _turns(role: Role) -> tuple[list[str], Leadership, list[Progress | Notice]]:
    said: list[Progress | Notice] = []
    turn = Leadership(FakeLease(role, "me"), said.append)
    events: list[str] = []
    turn.whenever(lambda: events.append("begin"), lambda: events.append("end"))
    return events, turn, said


def asked_since(lease: FakeLease, count: int) -> bool:
    return lease.asked > count


def test_without_a_lease_it_is_always_our_turn() -> None:
    turn, events = Leadership(None), list[str]()
    turn.take()
    turn.whenever(lambda: events.append("begin"), lambda: events.append("end"))
    turn.check()
    turn.halt()
    turn.release()
    assert events == ["begin"]


def test_it_begins_when_the_other_one_lets_go() -> None:
    role = Role()
    other = FakeLease(role, "the other")
    other.until, role.owner = 60, other
    events, turn, _ = _turns(role)
    until(lambda: turn.words.startswith("the other"))
    with pytest.raises(NotLeader, match="the other publishes"):
        turn.check()
    assert events == []
    other.release()
    until(lambda: events == ["begin"])
    turn.check()
    turn.halt()
    turn.release()
    assert role.owner is None


def test_what_is_lost_ends_and_begins_again_later() -> None:
    role = Role()
    events, turn, said = _turns(role)
    until(lambda: events == ["begin"])
    role.broken = True
    role.now += FakeLease.seconds
    until(lambda: events == ["begin", "end"])
    assert len(said) == 1, "said once, not every second"
    with pytest.raises(NotLeader, match="the catalog has not said in time"):  # and not: "me" publishes
        turn.check()
    role.broken = False
    until(lambda: events == ["begin", "end", "begin"])
    turn.halt()


def test_who_has_run_out_of_time_is_not_told_to_publish() -> None:
    """While the question to the catalog is under way, which may take a minute."""
    role = Role()
    lease = FakeLease(role, "me")
    lease.seconds = 1e6  # the next question is far away
    turn = Leadership(lease)
    turn.whenever(lambda: None, lambda: None)
    until(lambda: turn.is_ours)
    role.now += 2e6
    with pytest.raises(NotLeader, match="the catalog has not said in time"):
        turn.check()
    turn.halt()


def test_what_cannot_begin_is_tried_again_and_lets_others_lead_meanwhile() -> None:
    """A disk that is away when it is our turn: else nobody would ever publish again."""
    role, said = Role(), list[Progress | Notice]()
    lease, tries, held = FakeLease(role, "me"), list[bool](), list[bool]()
    turn = Leadership(lease, said.append)
    take = lease.take

    def asked() -> bool:
        held.append(lease.holds())
        return take()

    def begin() -> None:
        tries.append(lease.holds())
        if len(tries) < 3:
            raise CannotWrite("cannot write")

    lease.take = asked  # type: ignore[method-assign]
    turn.whenever(begin, lambda: None)
    until(lambda: len(tries) == 3)
    assert tries == [True] * 3
    assert held[:3] == [False] * 3, "given back after each that failed"
    turn.check()
    assert [one.rule for one in said if isinstance(one, Notice)] == ["HW-STO-11"], "said once"
    turn.halt()


def test_a_run_does_not_wait_for_one_that_lives() -> None:
    role = Role()
    other = FakeLease(role, "the other")
    other.until, role.owner = 60, other
    with pytest.raises(NotLeader, match="the other"):
        Leadership(FakeLease(role, "me")).take()
    other.until, role.pace = 0.1, 0.06
    lease = FakeLease(role, "me")
    turn = Leadership(lease)
    turn.take()
    assert lease.asked > 1, "it was waited for"
    role.pace = 0.0
    for _ in range(3):  # it is kept
        role.now += 0.6 * FakeLease.seconds
        asked = lease.asked
        until(partial(asked_since, lease, asked + 1))
        turn.check()
    turn.halt()


@pytest.fixture
def place(opensearch: Engine) -> Iterator[str]:
    """The URL of a catalog with short leases, whose indices are there."""
    name = prefix()
    ClusterCatalog(access(opensearch), name, options=ClusterOptions(replicas=0)).close()
    yield f"opensearch://{opensearch.url.removeprefix('http://')}/{name}?lease_seconds={LEASE}"
    cluster = Cluster(access(opensearch))
    remove(cluster, name)
    cluster.close()


def test_leases_of_roles_on_a_cluster(place: str, opensearch: Engine) -> None:
    role = "r"
    name = place.rpartition("/")[2].partition("?")[0]
    one = ClusterCatalog(access(opensearch), name, options=ClusterOptions(lease_seconds=LEASE))
    two = ClusterCatalog(access(opensearch), name, options=ClusterOptions(lease_seconds=LEASE))
    assert isinstance(one, SharedCatalog)
    first, second, elsewhere = one.lease(role, "one"), two.lease(role, "two"), two.lease(f"other {role}", "two")
    assert not first.holds()
    assert first.take()
    assert first.holds()
    assert not second.take()
    assert second.holder == "one"
    assert elsewhere.take()
    began = time.monotonic()
    while time.monotonic() - began < 1.5 * LEASE:  # as long as it is renewed it stays where it is
        renewed = time.monotonic()
        assert first.take()
        if second.take():  # a machine that stands still for so long has lost it
            assert time.monotonic() - renewed > LEASE
            break
        time.sleep(0.2)
    until(second.take, what="the end of a lease that nobody renews")
    assert not first.holds()
    assert not first.take()
    second.release()
    assert first.take()
    winners = [lease.take() for lease in (one.lease(f"race for {role}", "a"), two.lease(f"race for {role}", "b"))]
    assert winners == [True, False]
    assert [state.name for state in one.sets()] == [], "a lease is no set"
    one.close()
    two.close()


def test_of_many_that_ask_at_once_one_gets_it(place: str, opensearch: Engine) -> None:
    name = place.rpartition("/")[2].partition("?")[0]
    catalog = ClusterCatalog(access(opensearch), name, options=ClusterOptions(lease_seconds=30))
    got: list[bool] = []
    threads = [
        threading.Thread(target=lambda number=number: got.append(catalog.lease("race", str(number)).take()))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(got) == 1
    catalog.close()


class Site:
    """A folder, published from two machines that share a catalog and the documents."""

    def __init__(self, base: Path, place: str) -> None:
        self.folder, self.documents = base / "files", base / "documents"
        self.folder.mkdir()
        self.place = place
        self.base = base

    def config(self, machine: str) -> Path:
        path = self.base / f"{machine}.toml"
        path.write_text(
            f'state = "{machine}"\ncatalog = "{self.place}"\ndocuments = "documents"\nbase_url = "{BASE}"\n'
            '\n[[set]]\nname = "files"\nfiles = "files"\nrescan_seconds = 1\n'
        )
        return path

    @contextmanager
    def publishing(self, machine: str) -> Iterator[subprocess.Popen[str]]:
        with (self.base / f"{machine}.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "headwater", "publish", str(self.config(machine)), "--watch", "--json"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["event"] == "watching"
            yield process
        finally:
            process.kill()
            process.communicate()

    def put(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def shows(self) -> bool:
        """Whether who reads the documents comes to what the folder holds."""
        try:
            state = look(self._fetch, base=BASE, midway=True).state
        except AssertionError:
            return False
        return {uri.rpartition("/")[2] for uri in state} == set(os.listdir(self.folder))

    def _fetch(self, url: str) -> bytes | None:
        path = self.documents / url.removeprefix(BASE + "/")
        return path.read_bytes() if path.is_file() else None

    def log(self, machine: str) -> str:
        return (self.base / f"{machine}.log").read_text()


def test_the_one_that_stands_by_takes_over(place: str, tmp_path: Path) -> None:
    site = Site(tmp_path, place)
    site.put("a", "1")
    with site.publishing("one") as one:
        until(site.shows, what="the first publication")
        with site.publishing("two") as two:
            site.put("b", "2")
            until(site.shows, what="a change while two stands by")
            assert "published" not in site.log("two")
            one.kill()
            site.put("c", "3")
            until(site.shows, what="the change after the first one was killed")
            assert "published" in site.log("two")
            two.send_signal(signal.SIGTERM)
            assert two.wait(DEADLINE) == 0


def test_one_that_slept_through_its_time_writes_nothing_more(place: str, tmp_path: Path) -> None:
    site = Site(tmp_path, place)
    site.put("a", "1")
    with site.publishing("one") as one:
        until(site.shows, what="the first publication")
        with site.publishing("two"):
            one.send_signal(signal.SIGSTOP)
            try:
                site.put("b", "2")
                until(site.shows, what="a change, published by the other one")
            finally:
                one.send_signal(signal.SIGCONT)
            until(lambda: "HW-OWN-11" in site.log("one"), what="the first one stands by")
            said = site.log("one").count("published")
            site.put("c", "3")
            until(site.shows, what="what comes later")
            assert site.log("one").count("published") == said


def test_a_single_publication_does_not_cut_in(place: str, tmp_path: Path) -> None:
    site = Site(tmp_path, place)
    site.put("a", "1")
    with site.publishing("one"):
        until(site.shows, what="the first publication")
        config = SourceConfig(
            state=str(tmp_path / "three"),
            catalog=place,
            documents=str(site.documents),
            base_url=BASE,
            sets=(SetConfig(files=str(site.folder)),),
        )
        with Source(config) as source, pytest.raises(NotLeader, match=r"process \d+ on"):
            source.run_once()


def test_who_stands_by_after_a_fault_is_well_when_it_could_take_over(
    place: str, opensearch: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed while it published is over with its turn; that it cannot begin to publish is not."""
    site = Site(tmp_path, place)
    site.put("a", "1")
    with Proxy(opensearch.url, seed=1, rarity=None) as proxy:
        through = place.replace(opensearch.url.removeprefix("http://"), proxy.url.removeprefix("http://"))
        shared = SourceConfig(
            state=str(tmp_path / "one"),
            catalog=f"{through}&patience_seconds=1",
            documents=str(site.documents),
            base_url=BASE,
            sets=(SetConfig(files=str(site.folder), rescan_seconds=1),),
        )
        other = msgspec.structs.replace(shared, state=str(tmp_path / "two"), catalog=place)
        with Source(shared) as one, Source(other) as two:
            one.start()
            until(site.shows, what="the first publication")
            two.start()
            proxy.go_away()
            site.put("b", "2")
            until(lambda: one.leadership.is_ours is False and two.leadership.is_ours, what="the other one's turn")
            until(site.shows, what="the change")
            assert report_without_catalog(one, None)[0] == 503
            proxy.come_back()
            until(lambda: _well(one) and _well(two), what="the health of both")
            told = json.loads(report(one)[1])
            assert told["turn"] == "standing by"
            assert [(each["phase"], each["failures"], each["error"]) for each in told["sets"]] == [
                ("standing by", 0, None)
            ]
            assert b'headwater_set_failures{set="files"} 0' in MetricsPage(one, RequestCounters()).page()
            monkeypatch.setattr(one.publisher, "begin", _fails)
            assert two.stop()
            until(lambda: one.leadership.failed.error_code == "HW-STO-01", what="that it cannot begin")
            assert not _well(one)
            monkeypatch.undo()
            until(lambda: _well(one) and json.loads(report(one)[1])["turn"] == "ours", what="its turn")


def test_a_turn_that_was_over_begins_anew_though_nobody_looked_meanwhile() -> None:
    """Others may have published between two looks of ours: what is known of the documents is not relied on."""
    done: list[str] = []
    lease = _Lapsing()
    leadership = Leadership(lease)
    leadership.whenever(lambda: done.append("begin"), lambda: done.append("end"))
    until(lambda: done == ["begin"])
    lease.lapse()
    until(lambda: done == ["begin", "end", "begin"])
    lease.is_slow = True
    until(lambda: done == ["begin", "end", "begin", "end", "begin"])
    assert leadership.halt()


class _Lapsing:
    """A lease that is had at each look, and may be over between two."""

    seconds = 0.3
    holder = "another process"
    turn = 0
    is_slow = False

    def __init__(self) -> None:
        self._is_held = False

    def holds(self) -> bool:
        return self._is_held

    def take(self) -> bool:
        if self.is_slow:  # it is over, and another one's, while this is being asked
            self._is_held = self.is_slow = False
        self.turn += not self._is_held
        self._is_held = True
        return True

    def release(self) -> None:
        self._is_held = False

    def lapse(self) -> None:
        self._is_held = False


def _well(source: Source) -> bool:
    try:
        return report(source)[0] == 200
    except HeadwaterError:
        return False


def _fails() -> None:
    raise StoreFault("this machine cannot")


def test_that_another_process_publishes_is_no_failure() -> None:
    health = SetHealth(name="s")
    failures = Failures(health, utc_now, lambda _event: None)
    assert failures.add("publication", NotLeader("another process publishes this source")) > 0
    assert (health.failures, health.failing_since, health.error) == (0, None, None)
    assert failures.add("publication", StoreFault("the disk is full")) > 0
    assert (health.failures, health.error_code) == (1, "HW-STO-01")


def _worker(catalog: ClusterCatalog, base: Path, may_record: Callable[[], None] = lambda: None) -> SetWorker:
    config = SetConfig(files=str(base / "files"))
    whole = SourceConfig(state=str(base / "state"), base_url=BASE, sets=(config,))
    site = whole.site()
    publisher = Publisher(catalog, FolderStore(base / "documents"), site, utc_now)
    folder = scan_settings(config, site, whole)
    context = SourceContext(
        catalog=catalog, publisher=publisher, site=site, clock=utc_now, state=base / "state", may_record=may_record
    )
    return SetWorker(context, PublishedFolder(context, "files", folder))


@pytest.mark.parametrize("meanwhile", ["other content", "the old content", "back"])
def test_what_a_scan_had_in_hand_is_refused_when_another_one_has_scanned_since(
    place: str, opensearch: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """RS-RL-09, RS-CL-10: paused before it records, it would have said what no longer was, till the next full scan."""
    name = place.rpartition("/")[2].partition("?")[0]
    catalogs = [ClusterCatalog(access(opensearch), name, options=ClusterOptions(lease_seconds=LEASE)) for _ in range(2)]
    one, two = (_worker(catalog, tmp_path) for catalog in catalogs)
    file, aside = tmp_path / "files" / "f", tmp_path / "aside"
    file.parent.mkdir()
    file.write_text("1")
    (tmp_path / "files" / "other").write_text("so that deletions are believed")
    os.link(file, aside)
    one.once()
    record = catalogs[0].record

    def wake_up_late(*args: Any, **options: Any) -> Accepted:
        monkeypatch.undo()
        os.replace(aside, file) if meanwhile == "the old content" else file.write_text("333")
        two.once()
        return record(*args, **options)

    monkeypatch.setattr(catalogs[0], "record", wake_up_late)
    file.unlink()
    if meanwhile != "back":
        file.write_text("22")
    with pytest.raises(Moved):
        one.once()
    lengths = [one.metadata.length for one in catalogs[1].changes("files")]
    assert lengths == ([] if meanwhile == "the old content" else [3])
    one.once()
    assert [one.metadata.length for one in catalogs[1].changes("files")] == lengths
    file.write_text("4444")
    one.look_again([b"f"])
    assert catalogs[1].get("files", ["f"])["f"].metadata.length == 4
    for catalog in catalogs:
        catalog.close()


def test_nothing_is_read_into_the_catalog_when_it_is_not_our_turn(
    place: str, opensearch: Engine, tmp_path: Path
) -> None:
    catalog = ClusterCatalog(
        access(opensearch), place.rpartition("/")[2].partition("?")[0], options=ClusterOptions(lease_seconds=LEASE)
    )
    allowed = iter([None, None])  # for the fence, and for the beginning of the load

    def may_record() -> None:
        if next(allowed, 0) is not None:
            raise NotLeader("somebody else publishes this source")

    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "f").write_text("1")
    with pytest.raises(NotLeader):
        _worker(catalog, tmp_path, may_record).once()
    assert catalog.get("files", ["f"]) == {}
    assert catalog.state("files").opened_at is None
    catalog.close()


def test_who_stands_by_shows_every_set_that_the_other_one_has_named_since(tmp_path: Path) -> None:
    """RS-SD-05: push sets are named one by one; those that came later got 503 until its own turn came."""
    sets = tuple(SetConfig(name=name, feed="events", resource_base="http://f.example/") for name in ("a", "b", "c"))

    def source(machine: str) -> Source:
        return Source(
            SourceConfig(
                state=str(tmp_path / machine),
                catalog=str(tmp_path / "catalog.sqlite"),
                documents=str(tmp_path / "documents"),
                base_url=BASE,
                sets=sets,
            )
        )

    with source("one") as one, source("two") as two:
        two.leadership = Leadership(FakeLease(Role(), "two"))
        assert not two.is_site_published()
        for name in ("a", "b"):
            assert not two.is_published(name)
            one.push_sets.by_set[name].open()
            one.publisher.publish(name, utc_now())
            one.publisher.site_documents.name_published()
            assert two.is_site_published()
            assert two.is_published(name)
            assert two.is_known_published(name)
            assert two.is_known_published(None)
        assert not two.is_published("c"), "it is not there"
        assert not two.is_known_published("c")
