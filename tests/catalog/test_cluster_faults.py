"""Faults, with real processes on real engines: nothing that was accepted is lost, doubled or reordered."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tools.engines.engine import Engine

from headwater.catalog.cluster import catalog as cluster_catalog
from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.head import Tail
from headwater.catalog.cluster.writer import SetWriter
from headwater.catalog.interface import Accepted, Catalog, Delete, Metadata, Resource, Upsert
from headwater.catalog.verify import verify
from headwater.spec.records import ChangeKind
from headwater.storage.cluster import ClusterReadOnly, ClusterUnreachable
from tests.catalog.cluster_ground import Ground, count_pauses
from tests.catalog.cluster_proxy import Proxy
from tests.catalog.cluster_writers import Told, WritingProcess, judge, left_by
from tests.catalog.recorder import START, batch
from tests.support.failing import failing

pytestmark = pytest.mark.long(85)

STEPS = ["write_ahead", "keep", "commit", "finish", "release"]


@pytest.fixture
def ground(opensearch: Engine) -> Iterator[Ground]:
    ground = Ground(opensearch)
    yield ground
    ground.remove()


def test_two_writers_take_turns_on_one_set(ground: Ground) -> None:
    with WritingProcess(ground.place, "one", end=12) as one, WritingProcess(ground.place, "two", end=12) as two:
        one.until("done")
        two.until("done")
        judge(ground.open(), one, two)


@pytest.mark.parametrize("step", STEPS)
def test_a_writer_killed_at_any_step_loses_doubles_and_halves_nothing(ground: Ground, step: str) -> None:
    catalog = ground.open()
    with WritingProcess(ground.place, "w", hold=f"{step} 3") as killed:
        killed.until("held").kill()
    committed = step in ("finish", "release")
    following = len(killed.said) + committed
    with WritingProcess(ground.place, "w", first=following, end=following + 2) as heir:
        heir.until("done")
        judge(catalog, killed, heir, unsaid=committed)
    catalog.close()


@pytest.mark.parametrize("step", ["write_ahead", "keep", "commit", "finish"])
def test_a_load_killed_at_any_step_is_whole_or_not_there(ground: Ground, step: str) -> None:
    with WritingProcess(ground.place, "w", "load", hold=f"{step} 2") as killed:
        killed.until("held").kill()
    with WritingProcess(ground.place, "w", "load", end=4) as again:
        again.until("done")
    catalog = ground.open()
    assert {resource.uri for resource in catalog.resources("s")} == left_by("w", 4)
    assert verify(catalog, "s") == []
    catalog.close()


def test_writers_killed_at_any_moment(ground: Ground) -> None:
    chance = random.Random(4)
    catalog = ground.open()
    writers: list[WritingProcess] = []
    following = 0
    for _ in range(4):
        with WritingProcess(ground.place, "w", first=following) as writer:
            writer.until("ready")
            time.sleep(chance.random() ** 2 * 2)  # a moment like any other
            writer.kill()
        writers.append(writer)
        following += len(writer.said)
        catalog.create("s")
        catalog.open("s", START)
        catalog.mark("s", START)  # waits for the lease: what was committed is applied
        if catalog.changes("s", limit=10**9)[-1:] and catalog.state("s").last_seq > seqs(writers):
            following += 1  # committed, but killed before it could say so
            writer.said.append([following - 1, seqs(writers) + 1, catalog.state("s").last_seq])
        judge(catalog, *writers)
    assert following > 0
    catalog.close()


def seqs(writers: list[WritingProcess]) -> int:
    """The last change that any of them was told."""
    return max((said[2] for writer in writers for said in writer.said), default=0)


@pytest.mark.parametrize("step", ["keep", "commit", "finish", "release"])
def test_a_writer_stopped_for_longer_than_its_lease_writes_nothing_more(ground: Ground, step: str) -> None:
    catalog = ground.open()
    with WritingProcess(ground.place, "slow", end=2, hold=f"{step} 2") as slow:
        slow.until("held").signal(signal.SIGSTOP)
        with WritingProcess(ground.place, "quick", end=2) as quick:
            quick.until("done")
        before = catalog.changes("s")
        slow.signal(signal.SIGCONT)
        slow.go_on()
        slow.until("done")  # what was not committed is recorded under a lease of its own, once
        assert catalog.changes("s")[: len(before)] == before
        judge(catalog, slow, quick)
    catalog.close()


def test_a_writer_that_waits_too_long_says_for_whom(ground: Ground) -> None:
    catalog = ground.open(f"{ground.place}&busy_seconds=0.5".replace("lease_seconds=1.0", "lease_seconds=60"))
    patient = f"{ground.place}".replace("lease_seconds=1.0", "lease_seconds=60")
    with WritingProcess(patient, "w", end=1, hold="commit 1") as holder:
        holder.until("held")
        with failing("HW-CAT-08", match=r"writer [0-9a-f]{32} has held the lease"):
            catalog.record("s", batch("x", 0), START)
        assert catalog.state("s").last_seq == 0  # reads do not wait
        holder.go_on()
        holder.until("done")
        judge(catalog, holder)
    catalog.close()


@pytest.mark.parametrize("kind", ["set", "resource", "change"])
def test_a_read_only_index_is_reported_and_loses_nothing(ground: Ground, kind: str) -> None:
    catalog = ground.open()
    catalog.create("s")
    catalog.open("s", START)
    accepted = [catalog.record("s", batch("w", 0), START)]
    block(ground, kind, "true")
    began = time.monotonic()
    if kind == "resource":  # accepted, to be applied later
        accepted.append(catalog.record("s", batch("w", 1), START))
    with pytest.raises(ClusterReadOnly, match="read-only") as said:
        catalog.record("s", batch("w", len(accepted)), START)
    assert time.monotonic() - began < 100, "half the patience that there is with a cluster"
    assert "flood stage" in said.value.todo
    block(ground, kind, "null")
    accepted += [catalog.record("s", batch("w", number), START) for number in range(len(accepted), 4)]
    judge(catalog, Told("w", accepted))
    assert (kind == "resource") == any("to be applied later" in notice.message for notice in ground.notices)
    catalog.close()


def block(ground: Ground, kind: str, value: str) -> None:
    body = b'{"index.blocks.read_only_allow_delete": %b}' % value.encode()
    ground.ask("PUT", f"/{ground.prefix}-{kind}/_settings", body)


@pytest.mark.parametrize("seed", [1, 2])
def test_requests_and_answers_that_are_lost_are_made_up_for(
    opensearch: Engine, ground: Ground, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("headwater.storage.cluster._LONGEST_PAUSE", 0.1)
    ground.open().close()
    with Proxy(opensearch.url, seed) as proxy:
        place = ground.place.replace(opensearch.url.removeprefix("http://"), proxy.url.removeprefix("http://"))
        catalogs = {name: ground.open(place) for name in ("one", "two")}
        catalogs["one"].create("s")
        catalogs["one"].open("s", START)
        told: dict[str, Told] = {}

        def write(name: str) -> None:
            said = [catalogs[name].record("s", batch(name, number), START) for number in range(5)]
            told[name] = Told(name, said)

        threads = [threading.Thread(target=write, args=(name,)) for name in catalogs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        judge(catalogs["one"], *told.values())
        memos = [(f"one/4/{n}", b"memo") for n in range(20)]
        catalogs["two"].remember("s", memos)
        assert {resource.memo for resource in catalogs["one"].get("s", [uri for uri, _ in memos]).values()} == {b"memo"}
        closed = catalogs["two"].close_segment("s", START)
        assert [segment.number for segment in catalogs["one"].segments("s")][-2:] == [closed.number, closed.number + 1]
        assert catalogs["one"].segments("s")[closed.number] == closed
        catalogs["two"].note("s", b"note")
        assert catalogs["one"].state("s").notes == b"note"
        judge(catalogs["two"], *told.values())
        for catalog in catalogs.values():
            catalog.close()
    assert {"request lost", "answer lost", "busy"} <= set(proxy.faults)


def test_who_takes_over_and_is_overtaken_himself_does_not_speak_of_damage(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first had left to do is done, and written over by what came next, when the second wakes up."""
    first, second, third = (ground.open() for _ in range(3))
    first.create("s")
    first.open("s", START)
    first.record("s", batch("w", 0), START)
    memos = [(f"w/0/{number}", b"memo") for number in range(5)]
    with monkeypatch.context() as patch:
        patch.setattr(SetWriter, "finish", killed)
        with pytest.raises(ClusterUnreachable):
            first.remember("s", memos)
    left = SetWriter._left
    paused: list[SetWriter] = []

    def slowly(turn: SetWriter, tail: Tail) -> Iterator[bytes]:
        if not paused:
            paused.append(turn)
            third.remember("s", [(uri, b"third") for uri, _ in memos])
        yield from left(turn, tail)

    monkeypatch.setattr(SetWriter, "_left", slowly)
    second.mark("s", START)
    assert paused
    assert {one.memo for one in second.get("s", [uri for uri, _ in memos]).values()} == {b"third"}
    assert verify(second, "s") == []
    for catalog in (first, second, third):
        catalog.close()


def killed(_turn: SetWriter, _operations: Iterator[bytes]) -> None:
    """The writer ends, and keeps its lease."""
    raise ClusterUnreachable("killed")


def test_two_who_wait_for_a_dead_writer_wait_for_it_once(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes after the one that has taken over does not bear the dead one's silence anew."""
    slept = count_pauses(monkeypatch)
    place = ground.place.replace("lease_seconds=1.0", "lease_seconds=3")
    with WritingProcess(place, "w", hold="commit 3") as dead:
        dead.until("held").kill()
    catalogs = [ground.open(place) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        writes = [pool.submit(one.record, "s", batch(f"x{n}", 0), START) for n, one in enumerate(catalogs)]
        assert [write.result().first > 0 for write in writes] == [True] * 3
    judge(catalogs[0], dead, unsaid=3)
    for catalog in catalogs:
        catalog.close()
    assert 2 < max(slept.values()) < 5


CALLS: list[tuple[str, Callable[[Catalog], object], object]] = [
    ("remember", lambda c: c.remember("s", [("a", b"memo")]), None),
    ("a deletion", lambda c: c.record("s", [Delete("a")], START), Accepted(2, 2)),
    ("a deletion of nothing", lambda c: c.record("s", [Delete("b")], START), Accepted(0, 0, ("b",))),
    ("a read", lambda c: [one.uri for one in alone(c)], ["a"]),
]


def alone(catalog: Catalog) -> list[Resource]:
    """A read that holds the lease, because all attempts without it have met somebody who writes."""
    assert isinstance(catalog, ClusterCatalog)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_catalog, "_ATTEMPTS", 0)
        return list(catalog.page("s", 0))


@pytest.mark.parametrize(("call", "said"), [row[1:] for row in CALLS], ids=[row[0] for row in CALLS])
def test_what_a_call_finds_after_it_was_overtaken_does_not_count(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, call: Callable[[Catalog], object], said: object
) -> None:
    """Paused as soon as it has the lease: what others have written since is beyond its head, and looks like nothing."""
    slow, quick = ground.open(), ground.open()
    quick.create("s")
    quick.load("s", [Upsert("a", Metadata())])
    quick.open("s", START)
    take = SetWriter._take
    paused: list[SetWriter] = []

    def slowly(turn: SetWriter, started: float) -> None:
        take(turn, started)
        if turn.writer is slow._writer and not paused:
            paused.append(turn)
            quick.record("s", [Upsert("a", Metadata(length=7))], START)

    monkeypatch.setattr(SetWriter, "_take", slowly)
    assert call(slow) == said
    assert paused
    if said is None:
        assert quick.get("s", ["a"])["a"].memo == b"memo"
    judged = [(one.uri, one.change) for one in quick.changes("s")]
    assert judged == [("a", ChangeKind.UPDATED), ("a", ChangeKind.DELETED)][: quick.state("s").last_seq]
    assert verify(quick, "s") == []
    slow.close()
    quick.close()
