"""The trial of a service that follows many sources: a fleet of sound, defective and hostile ones, changes and kills.

`python -m bench.fleet trial --minutes 10 --state DIR` kills runs, template and service while sources change, then says
of each copy whether it equals the truth; `lag`, `idle` and `memory` measure what a service costs. `python -m bench
fleet` has the rows of the table.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from tests.support.fleet import RIGHT, SAYS_WHY, Fleet, FleetSource, fleet
from tests.support.fleet_kinds import DEFECTIVE, HOSTILE

from bench.rows import Row
from headwater.aggregator.sqlite_store import store_to_read
from headwater.aggregator.store import BROKEN_OFF, Event, Life, RunRecord, SourceState
from headwater.errors import Exit, HeadwaterError, UsageFault
from headwater.sync.copy_status import copy_records

MIB = 1 << 20
DEFAULTS = {"every": "20s", "deadline": "60s", "timeout": 5, "concurrency": 4, "max_delete": "100%", "retries": 1}


def configuration(running: Fleet, state: Path, *, parallel: int, defaults: dict[str, object]) -> str:
    """The service's file for a fleet, with one sink that writes lines."""
    lines = [f"state = {_toml(str(state))}", f"parallel = {parallel}", 'keep_free = "0"', "[defaults]"]
    lines += [f"{key} = {_toml(value)}" for key, value in defaults.items()]
    for one in running.sources.values():
        told = {"name": one.name, "url": one.address, **one.options}
        lines += ["[[source]]", *(f"{key} = {_toml(value)}" for key, value in told.items())]
    lines += ["[[sink]]", 'name = "lines"', 'kind = "file"', f"path = {_toml(str(state) + '.events')}", ""]
    return "\n".join(lines)


def _toml(value: object) -> str:
    return json.dumps(value)


class Service:
    """`headwater follow` as a process of its own, which may be killed and begun again."""

    def __init__(self, text: str, state: Path) -> None:
        self.state, self._file = state, state.with_suffix(".toml")
        self._file.write_text(text)
        self._log = state.with_suffix(".log").open("ab")
        self.process = self._begun()

    def _begun(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headwater", "follow", str(self._file)]
        return subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def again(self) -> None:
        """Begin it again after it has ended."""
        self.process.wait()
        self.process = self._begun()

    def children(self) -> list[list[int]]:
        """The processes below the service, by generation: the template, then its runs."""
        parents: dict[int, list[int]] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(folder.name))
        found, level = [], [self.process.pid]
        while level := [child for one in level for child in parents.get(one, [])]:
            found.append(level)
        return found

    def memory(self) -> int:
        """Octets of all its processes, shared pages divided among them (PSS)."""
        total = 0
        for pid in [self.process.pid, *(one for level in self.children() for one in level)]:
            with suppress(OSError):
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) << 10
        return total

    def seconds(self) -> float:
        """Processor seconds of the service, its ended children included."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def states(self) -> dict[str, SourceState]:
        """What it remembers of the sources; nothing while it has only begun."""
        with suppress(UsageFault), store_to_read(self.state) as store:
            return {one.name: one for one in store.sources()}
        return {}

    def runs(self, limit: int = 100_000) -> list[RunRecord]:
        """Runs that have ended, newest first."""
        with suppress(UsageFault), store_to_read(self.state) as store:
            return store.runs(limit=limit)
        return []

    def events(self) -> list[Event]:
        """The whole journal."""
        found: list[Event] = []
        with store_to_read(self.state) as store:
            while some := store.events(found[-1].number if found else 0):
                found += some
        return found

    def stop(self) -> float:
        """End it in order; returns how long that took."""
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()
        return time.monotonic() - began


@contextmanager
def followed(
    kinds: Sequence[tuple[str, type[FleetSource]]],
    state: Path,
    *,
    count: int = 20,
    parallel: int = 8,
    net: str = "127.90",
    **defaults: object,
) -> Iterator[tuple[Fleet, Service]]:
    """A fleet and a service that follows it."""
    with fleet(kinds, count, net) as running:
        service = Service(configuration(running, state, parallel=parallel, defaults=DEFAULTS | defaults), state)
        try:
            yield running, service
        finally:
            service.stop()


# the trial


def verdict(source: FleetSource, state: SourceState | None, copy: Path) -> str:
    """Whether a copy equals the truth, says why not, or neither."""
    held: dict[str, str] = {}
    with suppress(HeadwaterError):
        for record in copy_records(copy):
            with suppress(OSError):
                held[record.uri] = hashlib.sha256((copy / record.path).read_bytes()).hexdigest()
    says_why = state is not None and (state.life is not Life.FOLLOWING or state.question is not None)
    if held == source.truth():
        return "right, and says why not all" if says_why else RIGHT
    if says_why:
        return SAYS_WHY
    return "cannot be known" if source.expects not in (RIGHT, SAYS_WHY) else "WRONG"


def kill_something(service: Service, chooser: random.Random) -> str:
    """Kill a run, now and then the template or the service; what was killed."""
    if not (levels := service.children()):
        return "nothing: the service has only begun"
    what, pids = "service", [service.process.pid]
    dice = chooser.random()
    if dice < 0.8 and len(levels) > 1:
        what, pids = "run", levels[1]
    elif dice < 0.9 and levels:
        what, pids = "template", levels[0]
    with suppress(ProcessLookupError):
        os.kill(chooser.choice(pids), signal.SIGKILL)
    if what == "service":
        service.again()
    return what


def sink_faults(service: Service) -> list[str]:
    """What of the sink's lines is not as the journal has it: each number once as its last, in order, none missing."""
    events = {one.number: one for one in service.events()}
    lines = service.state.with_suffix(".events").read_bytes().splitlines() if events else []
    told = [json.loads(line)["number"] for line in lines]
    faults = [f"{len(told) - len(set(told))} numbers twice"] if len(told) != len(set(told)) else []
    faults += ["numbers out of order"] if sorted(told) != told else []
    if missing := events.keys() - set(told):
        faults.append(f"{len(missing)} of {len(events)} numbers missing, the first {min(missing)}")
    return faults


def journal_faults(service: Service, names: Sequence[str]) -> list[str]:
    """Copies that are not what their events, each after the other, come to."""
    held: dict[str, dict[str, str | None]] = {}
    for one in service.events():
        paths = held.setdefault(one.source, {})
        if one.action == "deleted":
            paths.pop(one.path, None)
        else:
            paths[one.path] = one.hash
    faults = []
    for name in names:
        with suppress(HeadwaterError):
            copy = {record.path: record.hash for record in copy_records(service.state / name)}
            if copy != held.get(name, {}):
                odd = sorted(set(copy.items()) ^ set(held.get(name, {}).items()), key=str)
                faults.append(f"{name}: {len(odd)} differ from the journal, as {odd[0]}")
    return faults


def settle(service: Service, names: Sequence[str], seconds: float) -> list[str]:
    """Wait until each source has had a whole run from now on; those that have not."""
    since = dt.datetime.now(dt.UTC)
    end = time.monotonic() + seconds
    left = set(names)
    while left and time.monotonic() < end:
        time.sleep(0.5)
        with suppress(HeadwaterError):  # the service has only begun, or the disk is full
            left -= {one.name for one in service.runs(2_000) if one.began_at > since and one.code != BROKEN_OFF}
    return sorted(left)


def trial(
    minutes: float,
    state: Path,
    *,
    pause: float,
    kill_pause: float,
    kinds: Mapping[str, type[FleetSource]] = MappingProxyType(DEFECTIVE | HOSTILE | {"sound": FleetSource}),
    **defaults: object,
) -> list[str]:
    """The trial; returns the faults. Tells what goes on."""
    chooser = random.Random(1)
    killed: Counter[str] = Counter()
    began = time.monotonic()
    defaults = {"every": f"{max(20.0, pause)}s"} | defaults
    with followed(list(kinds.items()), state, parallel=10, **defaults) as (running, service):  # type: ignore[arg-type]
        next_change, next_kill = began + pause, began + kill_pause
        while (now := time.monotonic()) < began + minutes * 60:
            time.sleep(0.5)
            if now >= next_change:
                running.change(chooser.sample(sorted(running.sources), len(kinds) // 3))
                next_change = now + pause
            if now >= next_kill:
                killed[kill_something(service, chooser)] += 1
                next_kill = now + chooser.expovariate(1 / kill_pause)
            if service.process.poll() is not None:
                print(f"the service ended by itself with {service.process.returncode}", flush=True)
                service.again()
        for _again in range(2):
            late = settle(service, list(running.sources), max(240.0, 6 * pause))
        time.sleep(3)
        states, runs = service.states(), service.runs()
        moment = dt.datetime.now(dt.UTC)
        waits = {name for name, one in states.items() if one.next_at is not None and one.next_at > moment}
        faults = [f"{name}: no run since the last change" for name in sorted(set(late) - waits)]
        found = {name: verdict(one, states.get(name), state / name) for name, one in running.sources.items()}
        for name, said in found.items():
            one = states[name]
            last = next((run for run in runs if run.name == name), None)
            reason = last.reason[:90] if last else ""
            print(f"{name:13} {said:28} {one.life.value:11} {one.question or '':24} {reason}")
            faults += [f"{name}: the copy is not the truth, and nobody says so"] if said == "WRONG" else []
            if said != RIGHT and running.sources[name].expects == RIGHT:
                faults.append(f"{name}: expected right, found {said}: {one.life.value} {one.question} {reason}")
        faults += sink_faults(service) + journal_faults(service, list(running.sources))
        memory, took = service.memory(), service.stop()
        with store_to_read(state) as store:
            faults += [f"a lease is left: {one}" for one in store.running()]
        print(f"{len(runs)} runs, {len(set(found.values()))} kinds of verdicts: {dict(Counter(found.values()))}")
        print(f"killed: {dict(killed)}; events: {len(service.events())}; PSS {memory / MIB:.0f} MiB; stop {took:.1f} s")
    return faults


def full_disk(state: Path, filler: Path, seconds: float = 60) -> list[str]:
    """Fill the disk of the state while sources change, then make room; returns the faults."""
    kinds = [(f"sound{n}", FleetSource) for n in range(6)]
    with followed(kinds, state, net="127.93", every="5s") as (running, service):
        settle(service, list(running.sources), 60)
        with filler.open("wb", 0) as file, suppress(OSError):
            while True:
                file.write(bytes(MIB))
        with filler.open("ab", 0) as file, suppress(OSError):
            while True:
                file.write(bytes(512))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            running.change(updates=6)
            time.sleep(5)
            if service.process.poll() is not None:
                print(f"the service ended with {service.process.returncode}")
                filler.unlink()
                return ["the service ended on the full disk"]
        with suppress(HeadwaterError):
            print({name: one.life.value for name, one in service.states().items()})
        filler.unlink()
        late = settle(service, list(running.sources), 120) + settle(service, list(running.sources), 120)
        states = service.states()
        faults = [f"{name}: no run after there was room" for name in late]
        for name, one in running.sources.items():
            said = verdict(one, states[name], state / name)
            faults += [f"{name}: {said} {states[name]}"] if said != RIGHT else []
        time.sleep(3)
        return faults + sink_faults(service) + journal_faults(service, list(running.sources))


# what it costs


def lag(seconds: float, state: Path, *, hostile: bool, count: int = 195, every: float = 20.0) -> tuple[float, float]:
    """Median and 95th percentile of how late changes of sound sources come to their copies, in seconds."""
    kinds = [(f"sound{n}", FleetSource) for n in range(count)] + (list(HOSTILE.items()) if hostile else [])
    names = [name for name, _ in kinds if name not in HOSTILE]
    with followed(kinds, state, count=5, every=f"{every}s", jitter=0.1, parallel=8) as (running, service):
        settle(service, names, 300)
        began = dt.datetime.now(dt.UTC)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for name in names[:: max(1, count // 20)]:
                running.change([name], updates=1, deletes=0, creates=0)
            names = names[1:] + names[:1]
            time.sleep(2)
        settle(service, names, 300)
        told = {(one.source, one.hash): one.at for one in service.events() if one.at > began}
        late = []
        for name in names:
            for change in running.sources[name].changes:
                if change.body is not None:
                    at = told.get((name, f"sha-256:{hashlib.sha256(change.body).hexdigest()}"))
                    late += [(at - change.at).total_seconds()] if at is not None else []
    late.sort()
    return late[len(late) // 2], late[int(len(late) * 0.95)]


def idle(state: Path, count: int, every: float, seconds: float) -> tuple[int, float, float]:
    """Octets of a service with so many idle sources, requests of a poll, processor seconds of a poll."""
    kinds = [(f"sound{n}", FleetSource) for n in range(count)]
    with followed(kinds, state, count=2, every=f"{every}s", parallel=8) as (running, service):
        settle(service, list(running.sources), 600)
        began, spent = dt.datetime.now(dt.UTC), service.seconds()
        highest, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(1)
            highest = max(highest, service.memory())
        spent = service.seconds() - spent
        service.stop()
        runs = service.runs()
        told, counted = sum(one.requests for one in runs), sum(one.requests for one in running.sources.values())
        if told != counted:
            raise AssertionError(f"{counted} requests came, the runs tell of {told}")
        polls = [one.requests for one in runs if one.began_at > began and one.exit_status == Exit.DONE]
        return highest, sum(polls) / len(polls), spent / len(polls)


def memory(state: Path, sources: int, records: int, parallel: int) -> tuple[int, int, float]:
    """Highest octets of a service during first copies of large sources and afterwards, and their seconds."""
    kinds = [(f"large{n}", FleetSource) for n in range(sources)]
    more = {"every": "30s", "deadline": "2h"}
    with followed(kinds, state, count=records, parallel=parallel, concurrency=16, **more) as (running, service):
        began, highest = time.monotonic(), 0
        while not (states := service.states()) or any(one.sound_at is None for one in states.values()):
            highest = max(highest, service.memory())
            time.sleep(0.5)
        took = time.monotonic() - began
        running.change()
        later, until = 0, time.monotonic() + 60
        while time.monotonic() < until:
            later = max(later, service.memory())
            time.sleep(0.5)
        return highest, later, took


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headwater-fleet-", dir=os.environ.get("TMPDIR")))
    try:
        yield folder / "state"
    finally:
        shutil.rmtree(folder)


def run(quick: bool) -> list[Row]:
    """The rows of the table."""
    sources, seconds = (20, 20.0) if quick else (195, 180.0)
    with _folder() as state:
        alone = lag(seconds, state, hostile=False, count=sources)
    with _folder() as state:
        beside = lag(seconds, state, hostile=True, count=sources)
    ratio = beside[0] / alone[0]
    rows: list[Row] = [
        {
            "work": f"follow {sources} sources beside five hostile ones, lag of a change",
            "ours": f"{beside[0]:.1f} s",
            "against": "without these",
            "other": f"{alone[0]:.1f} s",
            "met": ratio <= 1.2,
            "bar": "within 1.2×",
            "note": f"95 of 100 within {beside[1]:.1f} s, without {alone[1]:.1f} s",
        }
    ]
    count = 50 if quick else 1_000
    with _folder() as state:
        octets, requests, spent = idle(state, count, 60.0, 20.0 if quick else 120.0)
    rows.append(
        {
            "work": f"memory of a service, {count:,} idle sources",
            "ours": f"{octets / MIB:.0f} MiB",
            "bar": "≤ 400 MiB",
            "met": octets <= 400 * MIB and requests <= 2,
            "note": f"{requests:.2f} requests and {spent * 1_000:.0f} ms of a processor a poll",
        }
    )
    large = 1_000 if quick else 100_000
    with _folder() as state:
        first, later, took = memory(state, 4, large, 4)  # of more sources, too, no more than four run at once
    rows.append(
        {
            "work": f"memory of a service, first copies of 4 sources of {large:,} records at once",
            "ours": f"{max(first, later) / MIB:.0f} MiB",
            "bar": "≤ 200 MiB",
            "met": max(first, later) <= 200 * MIB,
            "note": f"{took:.0f} s; later {later / MIB:.0f} MiB",
        }
    )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.fleet")
    parser.add_argument("what", choices=["trial", "disk", "lag", "idle", "memory"])
    parser.add_argument("--state", type=Path, required=True, help="a folder that is not there yet")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--pause", type=float, default=15.0, help="seconds between changes")
    parser.add_argument("--kills", type=float, default=10.0, help="seconds between kills")
    parser.add_argument("--sources", type=int, default=195)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--hostile", action="store_true")
    given = parser.parse_args()
    works: dict[str, Callable[[], object]] = {
        "trial": lambda: trial(given.minutes, given.state, pause=given.pause, kill_pause=given.kills),
        "disk": lambda: full_disk(given.state, given.state.parent / "filler", given.minutes * 60),
        "lag": lambda: lag(given.minutes * 60, given.state, hostile=given.hostile, count=given.sources),
        "idle": lambda: idle(given.state, given.sources, 60.0, given.minutes * 60),
        "memory": lambda: memory(given.state, given.sources, given.records, 4),
    }
    found = works[given.what]()
    print(found if not isinstance(found, list) else "\n".join(["faults:", *found] if found else ["no fault"]))
    return 1 if isinstance(found, list) and found else 0


if __name__ == "__main__":
    sys.exit(main())
