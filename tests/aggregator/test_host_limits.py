"""Limits of hosts that processes share: slots, moments, windows, kills."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.aggregator.configuration import HostLimits
from headwater.aggregator.host_limits import HostGate

HOST = "repo.example.org"


def gate(folder: Path, now: list[float] | None = None, **limits: object) -> HostGate:
    kept = {HOST: HostLimits(**limits)}  # type: ignore[arg-type]
    return HostGate(folder, kept) if now is None else HostGate(folder, kept, lambda: now[0])


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_host_without_limits_is_noted_and_costs_no_file(tmp_path: Path) -> None:
    with closing(gate(tmp_path / "hosts")) as one:
        assert one.take("other.example.org") == 0.0
        one.give("other.example.org", 429)
        assert (one.hosts, one.requests) == ({"other.example.org": (1, 1)}, 1)
        assert not (tmp_path / "hosts").exists()


def test_a_host_that_asks_to_wait_is_asked_by_nobody(tmp_path: Path) -> None:
    now, other = [1_000_000.0], "other.example.org"
    with closing(gate(tmp_path / "hosts", now)) as one, closing(gate(tmp_path / "hosts", now)) as two:
        assert one.take(other) == 0.0
        one.give(other, 429)
        one.rest(other, 20.0)
        assert two.take(other) == one.take(other) == 20.0
        assert two.take(HOST) == 0.0
        one.rest(other, 86_400.0)  # a run waits a minute, and then asks once
        assert two.take(other) == 60.0
        now[0] += 60
        assert two.take(other) == 0.0
        one.rest(other, 20.0)
        now[0] -= 86_400  # a clock that was set back blocks nobody
        assert two.take(other) == 0.0


def test_what_a_host_asks_never_shortens_a_wait(tmp_path: Path) -> None:
    now, other = [1_000_000.0], "other.example.org"
    with closing(gate(tmp_path / "hosts", now, rate=0.01)) as one:
        assert one.take(HOST) == 0.0
        one.rest(HOST, 1.0)
        one.rest(other, 60.0)
        one.rest(other, 1.0)
        now[0] += 2
        assert (one.take(HOST), one.take(other)) == (98.0, 58.0)


def test_hosts_without_limits_share_folders_and_no_waits(tmp_path: Path) -> None:
    with closing(gate(tmp_path / "hosts", [1_000_000.0])) as one:
        for number in range(5_000):
            one.rest(f"{number}.example.org", 20.0)
        waits = [one.take(f"{number}.example.org") for number in range(5_000)]
        assert one.take("a." * 200 + "example.org") == 0.0
    assert set(waits) == {0.0, 20.0}  # in a folder waits the host that was the last to ask it
    assert waits.count(20.0) == len(list((tmp_path / "hosts").iterdir())) < 4_097


def test_nothing_is_written_where_there_is_no_service(tmp_path: Path) -> None:
    with closing(gate(tmp_path / "state" / "hosts")) as one:
        one.rest(HOST, 20.0)
        assert one.take("other.example.org") == 0.0
    assert list(tmp_path.iterdir()) == []


def test_slots_are_shared(tmp_path: Path) -> None:
    with closing(gate(tmp_path, concurrency=2)) as one, closing(gate(tmp_path, concurrency=2)) as other:
        assert one.take(HOST) == 0.0
        assert other.take(HOST) == 0.0
        assert 0.0 < one.take(HOST) <= 0.1
        assert other.take(HOST) > 0.0
        other.give(HOST)
        assert one.take(HOST) == 0.0
        assert (one.requests, other.requests) == (2, 1)


def test_moments_are_shared(tmp_path: Path) -> None:
    now = [1_000_000.0]
    with closing(gate(tmp_path, now, rate=2)) as one, closing(gate(tmp_path, now, rate=2)) as other:
        assert one.take(HOST) == 0.0
        assert other.take(HOST) == pytest.approx(0.5)
        now[0] += 0.5
        assert other.take(HOST) == 0.0
        assert one.take(HOST) == pytest.approx(0.5)
        now[0] -= 86_400  # a clock that was set back blocks nobody
        assert one.take(HOST) == 0.0


def test_a_slot_is_given_back_where_the_moment_has_not_come(tmp_path: Path) -> None:
    now = [1_000_000.0]
    with closing(gate(tmp_path, now, rate=2, concurrency=1)) as one:
        assert one.take(HOST) == 0.0
        one.give(HOST)
        assert one.take(HOST) == pytest.approx(0.5)
        now[0] += 1
        assert one.take(HOST) == 0.0


def test_a_host_is_not_asked_outside_its_window(tmp_path: Path) -> None:
    now = [dt.datetime(2026, 12, 1, 21, 59, tzinfo=dt.UTC).timestamp()]
    with closing(gate(tmp_path, now, window="22:00-06:00")) as one:
        assert one.take(HOST) > 0
        assert one.is_closed
        now[0] += 60
        assert one.take(HOST) == 0.0


TAKES = """
import sys, time
from pathlib import Path
from headwater.aggregator.configuration import HostLimits
from headwater.aggregator.host_limits import HostGate
gate = HostGate(Path(sys.argv[1]), {"repo.example.org": HostLimits(concurrency=1, rate=1000)})
while gate.take("repo.example.org"):
    time.sleep(0.001)
print("taken", flush=True)
time.sleep(600)
"""


def test_what_a_process_held_is_free_when_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TAKES, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process, closing(gate(tmp_path, concurrency=1)) as one:
        assert process.stdout is not None
        assert process.stdout.readline() == b"taken\n"
        assert one.take(HOST) > 0
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert one.take(HOST) == 0.0
