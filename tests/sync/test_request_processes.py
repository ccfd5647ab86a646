"""Plain resources by processes beside the run: what they bring, what they leave, and how they ask (DST-F1, DST-F7)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headwater.sync.copy.file_tree import DestinationLocked
from headwater.transport.scheduler import CLOSING_LIMIT, FIRST_LIMIT
from tests.support.copying import DONE, IMPATIENT, Ran, check, go, tree
from tests.support.fake_source import Handler, Page, Reply, Site, Source
from tests.support.waiting import until
from tests.sync.test_destination_rules import test_a_source_that_asks_for_patience_gets_it

__all__ = ["test_a_source_that_asks_for_patience_gets_it"]  # the rule holds for processes as well

FILES = 300


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.sync.transfer.request_processes.FROM", 10)
    monkeypatch.setattr("headwater.processes.pool.processors", lambda: 2)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many resources a run has asked for itself, in the order of its rounds."""
    from headwater.sync.transfer import resources

    counts: list[int] = []
    whole = resources.ResourceTransfer._settle

    def settle(self: resources.ResourceTransfer, fetched: object) -> None:
        counts.append(1)
        whole(self, fetched)  # type: ignore[arg-type]

    monkeypatch.setattr(resources.ResourceTransfer, "_settle", settle)
    return counts


@pytest.fixture
def many(source: Source) -> Site:
    """Some hundred files in folders, published."""
    site, chance = Site(source), random.Random(1)
    for number in range(FILES):
        site.put(f"d{number % 7}/f{number}", chance.randbytes(number))
    return site.publish(since=10.0)


def page_of(site: Site, name: str) -> str:
    return f"/set/resources/{name}"


def test_processes_bring_everything_and_the_run_asks_for_nothing(many: Site, dest: Path, asked: list[int]) -> None:
    ran = go(many.source.base, dest)
    assert ran.status == DONE
    assert tree(dest) == many.files
    assert ran.one.created == FILES
    assert ran.one.octets == sum(map(len, many.files.values()))
    assert asked == []
    assert check(many.source.base, dest).exit_status == DONE
    assert go(many.source.base, dest).one.process == "none"


def test_what_is_not_as_listed_is_left_to_the_run(many: Site, dest: Path, asked: list[int]) -> None:
    source, names = many.source, sorted(many.files)
    bodies = {page_of(many, name): many.files[name] for name in names}
    other, gone, longer, once = (page_of(many, name) for name in names[10:14])
    first = iter([b"not yet it"])
    source.pages[other] = Reply(b"something else")
    source.pages[gone] = Reply(b"", 404)
    source.pages[longer] = Reply(bodies[longer] + b"x" * 700_000)
    source.pages[once] = lambda _handler: Reply(next(first, bodies[once]))
    ran = go(source.base, dest)
    assert ran.status == 4
    assert ran.one.created == FILES - 3
    assert ran.one.failed == 3
    assert tree(dest) == {name: many.files[name] for name in names if name not in names[10:13]}
    assert {failure.uri for failure in ran.one.failures} == {many.uri(name) for name in names[10:13]}
    assert len(asked) < 20, "only what was left is asked for again"


@pytest.mark.parametrize(
    "answer",
    [
        Reply(b"busy", 503, {"Retry-After": "0"}),
        Reply(b"", 500),
        Reply(b"", 403),
        Reply(b"", 302, {"Location": "/elsewhere"}),
    ],
    ids=["503", "500", "403", "redirect"],
)
def test_who_answers_otherwise_is_asked_by_the_run_alone(
    many: Site, dest: Path, asked: list[int], answer: Reply
) -> None:
    source, names = many.source, sorted(many.files)
    source.pages["/elsewhere"] = Reply(b"elsewhere")
    bodies = {page_of(many, name): many.files[name] for name in names}
    left = iter(range(12))

    def page(path: str) -> Page:
        return lambda _handler: answer if next(left, None) is not None else Reply(bodies[path])

    for path in bodies:
        source.pages[path] = page(path)
    ran = go(source.base, dest)
    assert set(tree(dest).values()) <= set(many.files.values())
    assert ran.one.created + ran.one.failed == FILES
    assert ran.one.failed <= 12
    assert len(asked) >= FILES - 100, "the processes leave what they have not asked for yet"


def test_a_source_is_not_asked_more_at_a_time_than_by_one(many: Site, dest: Path) -> None:
    source, lock, state = many.source, threading.Lock(), {"open": 0, "most": 0, "answered": 0}

    def page(body: bytes) -> Page:
        def answer(_handler: Handler) -> Reply:
            with lock:
                state["open"] += 1
                if not state["answered"]:
                    state["most"] = max(state["most"], state["open"])
            time.sleep(0.3)
            with lock:
                state["open"] -= 1
                state["answered"] += 1
            return Reply(body)

        return answer

    for name in list(many.files)[:40]:
        source.pages[page_of(many, name)] = page(many.files[name])
    for name in list(many.files)[40:]:
        many.drop(name)
    many.publish(since=10.0)
    for name, body in many.files.items():
        source.pages[page_of(many, name)] = page(body)
    assert go(source.base, dest).status == DONE
    assert 1 < state["most"] <= FIRST_LIMIT


def test_resources_of_several_hosts_are_asked_for_by_the_run_alone(many: Site, dest: Path, asked: list[int]) -> None:
    """Each host may have asked for a pace of its own."""
    entries = [many.resource(name) for name in many.files]
    entries[7] = entries[7].replace("127.0.0.1", "localhost")
    many.publish_list(entries)
    assert go(many.source.base, dest, any_host=True).one.created == FILES
    assert len(asked) == FILES


def test_a_source_that_closes_its_connections_is_asked_by_the_run_alone(
    many: Site, dest: Path, asked: list[int]
) -> None:
    """Four requests at a time are enough there, and not four of each process."""
    source, lock, state = many.source, threading.Lock(), {"open": 0, "most": 0, "answered": 0}

    def page(body: bytes) -> Page:
        def answer(_handler: Handler) -> Reply:
            with lock:
                state["open"] += 1
                if state["answered"] > 30:
                    state["most"] = max(state["most"], state["open"])
            time.sleep(0.02)
            with lock:
                state["open"] -= 1
                state["answered"] += 1
            return Reply(body, headers={"Connection": "close"})

        return answer

    for name, body in many.files.items():
        source.pages[page_of(many, name)] = page(body)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == many.files
    assert len(asked) > FILES - 60
    assert state["most"] <= CLOSING_LIMIT


@pytest.mark.parametrize("options", [{"max_total": 1 << 30}, {"largest": 1 << 16}, {"backup_dir": "old"}], ids=str)
def test_a_run_that_must_count_or_keep_fetches_by_itself(
    many: Site, dest: Path, asked: list[int], options: dict[str, object]
) -> None:
    if "backup_dir" in options:
        options = {"backup_dir": str(dest.parent / "old")}
    assert go(many.source.base, dest, IMPATIENT, **options).status == DONE
    assert len(asked) == FILES


@pytest.mark.parametrize(
    "options", [{"rate_per_second": 2000.0}, {"octets_per_second": 1 << 30}, {"concurrency": 1}], ids=str
)
def test_a_rate_is_kept_by_one_transport(
    many: Site, dest: Path, asked: list[int], options: dict[str, float | int]
) -> None:
    transport = msgspec.structs.replace(IMPATIENT, **options)
    assert go(many.source.base, dest, transport).status == DONE
    assert len(asked) == FILES


PROGRAM = """
from headwater.processes import pool
from headwater.sync.transfer import request_processes
request_processes.FROM, pool.processors = 1, lambda: 2
from headwater.cli import main; main()
"""


def start(url: str, dest: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, "sync", url, str(dest), "--max-delete", "1.0"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def finished(source: Source, dest: Path) -> Ran:
    """The last run, as soon as the processes of a killed one have seen that it is gone."""
    ran: list[Ran] = []

    def is_free() -> bool:
        ran.append(go(source.base, dest, max_delete=1.0))
        return not isinstance(ran[-1].error, DestinationLocked)

    until(is_free)
    return ran[-1]


def slow(body: bytes) -> Callable[[Handler], Reply]:
    def page(_handler: Handler) -> Reply:
        time.sleep(0.01)
        return Reply(body)

    return page


@pytest.mark.long(25)
def test_killed_again_and_again(many: Site, dest: Path) -> None:
    source, chance, killed = many.source, random.Random(7), 0
    ever = {name: {body} for name, body in many.files.items()}
    for _ in range(int(os.environ.get("HEADWATER_KILLS", "3"))):
        for name, body in many.files.items():
            source.pages[page_of(many, name)] = slow(body)
        source.forget()
        process, wanted = start(source.base, dest), chance.randrange(5, FILES)
        until(lambda: process.poll() is not None or len(source.requests()) > wanted, 60)  # noqa: B023
        process.send_signal(signal.SIGKILL)
        killed += process.wait(60) == -signal.SIGKILL
        assert all(body in ever.get(name, set()) for name, body in tree(dest).items()), "half a file has its place"
        for name in chance.sample(sorted(many.files), FILES // 4):
            many.put(name, chance.randbytes(chance.randrange(3_000)))
            ever[name].add(many.files[name])
        many.publish(since=10.0)
    assert killed
    assert finished(source, dest).status == DONE
    assert tree(dest) == many.files
    assert check(source.base, dest).exit_status == DONE


def test_processes_end_with_a_killed_run_that_waits(many: Site, dest: Path) -> None:
    """A source that hangs keeps no process of a run that is gone, and so no lock of the copy."""
    source, go_on = many.source, threading.Event()

    def hang(_handler: Handler) -> Reply:
        go_on.wait(30)
        return Reply(b"late")

    for name in many.files:
        source.pages[page_of(many, name)] = hang
    process = start(source.base, dest)
    until(lambda: any("/resources/" in path for path in source.requests()), 60)
    process.kill()
    process.wait(60)
    go_on.set()
    for name, body in many.files.items():
        source.pages[page_of(many, name)] = Reply(body)
    began = time.monotonic()
    assert finished(source, dest).status == DONE
    assert time.monotonic() - began < 20
    assert tree(dest) == many.files
