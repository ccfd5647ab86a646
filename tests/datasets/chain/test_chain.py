"""A dataset published, changed and followed into files, an embedded store and a SPARQL server, through `kill -9`.

`HEADWATER_QUADS`, `HEADWATER_CHANGES`, `HEADWATER_LINES` and `HEADWATER_KILLS` say how large it is, how often and by
how much it changes, and how often the source and the destination are killed: in each of the phases of
`killed_program.py`, and at random. From 100,000 statements on the server is a real one, with its data on the disk.
`HEADWATER_CHAIN` names a folder to work in, which is kept: the same again goes on where it was broken off.
"""

from __future__ import annotations

import filecmp
import itertools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from tools.engines import fuseki
from tools.engines.errors import EngineFailed, Unavailable
from tools.engines.launch import free_port

from headwater.triplestores.embedded_store import EmbeddedStore
from tests.datasets.chain.killed_program import FOLLOWING, LOADING, PUBLISHING, phases
from tests.datasets.chain.made_dataset import change_dataset, make_dataset, sorted_digest
from tests.datasets.chain.processes import AT_RANDOM, ChainProcess
from tests.source.datasets.importer import entries
from tests.support.serving import request
from tests.support.sparql_server import sparql_server
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)

FOLDER = os.environ.get("HEADWATER_CHAIN")
QUADS = int(os.environ.get("HEADWATER_QUADS", "3000"))
LINES = int(os.environ.get("HEADWATER_LINES", str(min(10_000, QUADS // 10))))
KILLS = int(os.environ.get("HEADWATER_KILLS", "5"))
CHANGES = int(os.environ.get("HEADWATER_CHANGES", str(max(2, KILLS // 3))))
SEED = int(os.environ.get("HEADWATER_SEED", "20261123"))
REAL_SERVER_FROM = 100_000
LONGEST_SECONDS = 120.0 + QUADS / 1000
SET = "data"
_PAUSE = 0.05 if QUADS < REAL_SERVER_FROM else 0.3


def port_of(folder: Path, name: str) -> int:
    """A port that is free, and stays the same in this folder."""
    path = folder / f"{name}.port"
    if not path.exists():
        path.write_text(str(free_port()))
    return int(path.read_text())


@contextmanager
def endpoint(folder: Path) -> Iterator[str]:
    """The address below which a SPARQL server has `/update` and `/query`."""
    if QUADS < REAL_SERVER_FROM:
        with sparql_server() as server:
            yield server.origin
        return
    try:
        with fuseki.running(folder / "fuseki", "4g", port_of(folder, "fuseki")) as address:
            yield address
    except (Unavailable, EngineFailed) as error:
        pytest.skip(f"no real SPARQL server: {error}")


class DatasetChain:
    """A source and a destination at work, and what was seen of them."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder = folder
        self.dataset = folder / "given" / "data.nq"
        self.dataset.parent.mkdir(exist_ok=True)
        self.server = server
        self.chance = random.Random(SEED)
        self.told: list[dict[str, Any]] = []
        self.seconds: dict[str, list[float]] = {"published": [], "followed": []}
        for line in self._noted("seconds"):
            self.seconds[line.split()[0]].append(float(line.split()[1]))
        self.not_come_to: list[str] = []
        if not self._noted("changed"):
            make_dataset(self.dataset, QUADS)
            self.note("changed", "0")
        port = port_of(folder, "source")
        self.url = f"http://127.0.0.1:{port}"
        config = folder / "source.toml"
        config.write_text(
            f'state = "state"\nport = {port}\n[[set]]\nname = "{SET}"\nprofile = "rdf-dataset"\n'
            f"dataset = {json.dumps(str(self.dataset))}\ndataset_seconds = 0.5\n"
        )
        self.copy = folder / "copy"
        self.stores = ["--store", str(folder / "stores"), "--sparql", f"{server}/update"]
        self.stores += ["--sparql-query", f"{server}/query"]
        self.source = ChainProcess("source", folder / "source", ["serve", str(config)], self.chance)
        sync = ["sync", self.url, str(self.copy), "--follow", "0.5", "--json", *self.stores]
        self.destination = ChainProcess("destination", folder / "destination", sync, self.chance)

    @property
    def processes(self) -> list[ChainProcess]:
        return [self.source, self.destination]

    def published_hash(self, change: int) -> str:
        """The SHA-256 of the dataset after this change, once it is published."""
        found: list[str] = []

        def is_there() -> bool:
            self.source.look()
            with suppress(OSError, HTTPException):
                answer = request(self.url, f"/{SET}/changelist.xml")
                listed = entries(answer.body) if answer.status == 200 else []
                assert len(listed) <= change + 1
                if len(listed) == change + 1:
                    found.extend(re.findall(r"sha-256:(\w+)", listed[-1].md.get("hash", "")))
            return bool(found)

        self.wait("published", is_there)
        return found[-1]

    @property
    def changed(self) -> int:
        """The last change of the dataset."""
        return int(self._noted("changed")[-1])

    def change(self, number: int) -> None:
        """Change the dataset, unless that is done."""
        if number > self.changed:
            change_dataset(self.dataset, number, LINES)
            self.note("changed", str(number))

    def note(self, what: str, text: str) -> None:
        """Keep a line for when this is broken off."""
        with (self.folder / what).open("a") as file:
            file.write(f"{text}\n")

    def _noted(self, what: str) -> list[str]:
        path = self.folder / what
        return path.read_text().splitlines() if path.exists() else []

    def follow(self, sha256: str) -> None:
        """Wait until the copy and its stores have this state."""

        def is_there() -> bool:
            for process in self.processes:
                process.look()
            new = self.destination.new_lines()
            self.told += new
            return any(_has(line, sha256) for line in new)

        self.wait("followed", is_there)

    def wait(self, what: str, met: Any) -> None:
        began = time.monotonic()
        until(met, LONGEST_SECONDS, what, pause=_PAUSE)
        self.seconds[what].append(time.monotonic() - began)
        self.note("seconds", f"{what} {self.seconds[what][-1]:.1f}")

    def say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    def plan(self, change: int, kills: list[tuple[str, str]]) -> None:
        """Have the processes killed while they do a change."""
        for process in self.processes:
            wanted = [phase for name, phase in kills if name == process.name]
            steps = ["published"] if process is self.source else ["published", "followed"]
            took = [statistics.median(self.seconds[one][1:] or [1.0]) for one in steps]
            process.to_be_killed(wanted, sum(took))
        self.say(f"change {change}: to be killed {kills}")

    def close(self) -> None:
        for process in self.processes:
            process.close()


def _has(line: dict[str, Any], sha256: str) -> bool:
    if line.get("exit_status") != 0 or not line.get("sets"):
        return False
    dataset = line["sets"][0].get("dataset") or {}
    stores = [store["done"] for store in dataset.get("stores", ())]
    return dataset.get("sha256") == sha256 and len(stores) == 2 and "failed" not in stores


def kills_of_changes() -> list[list[tuple[str, str]]]:
    """Which process is killed in which phase of which change; before the first the dataset is loaded."""
    chance = random.Random(SEED)
    ours = [("source", phase) for phase in [*phases(PUBLISHING), AT_RANDOM, AT_RANDOM]]
    theirs = [("destination", phase) for phase in [*phases(FOLLOWING), AT_RANDOM, AT_RANDOM]]
    chance.shuffle(ours)
    chance.shuffle(theirs)
    both = itertools.chain.from_iterable(zip(itertools.cycle(ours), itertools.cycle(theirs), strict=False))
    wanted = list(itertools.islice(both, KILLS))
    loading = [("destination", phase) for phase in (f"after {one}" for one in LOADING)]
    changes = [sorted(wanted[number::CHANGES], key=_place) for number in range(CHANGES)]
    return [loading if KILLS > 10 else [], *changes]


def _place(kill: tuple[str, str]) -> int:
    """When a phase comes in a change: who is killed at a later one does not come to one before it again."""
    names = [*PUBLISHING, *FOLLOWING]
    name = kill[1].partition(" ")[2]
    return names.index(name) if name in names else -1


@pytest.mark.timeout(0 if QUADS >= REAL_SERVER_FROM else 900)
def test_a_dataset_is_followed_through_kills(tmp_path: Path) -> None:
    """Files, patches, stores and positions agree at the end, and no change was lost (TIM-08, DST-F7, DST-C1)."""
    folder = Path(FOLDER) if FOLDER is not None else tmp_path
    folder.mkdir(exist_ok=True)
    with endpoint(folder) as server:
        chain = DatasetChain(folder, server)
        try:
            _changes(chain)
            _ends(chain)
        finally:
            chain.close()


def _changes(chain: DatasetChain) -> None:
    for change, kills in list(enumerate(kills_of_changes()))[chain.changed :]:
        chain.plan(change, kills)
        chain.change(change)
        sha256 = chain.published_hash(change)
        chain.follow(sha256)
        published, followed = chain.seconds["published"][-1], chain.seconds["followed"][-1]
        chain.say(f"change {change}: published after {published:.1f} s, followed {followed:.1f} s later")
        left = [f"{process.name}: {phase}" for process in chain.processes for phase in process.kill_the_rest()]
        chain.not_come_to += left
        if left:
            assert chain.published_hash(change) == sha256
            chain.follow(sha256)


def _ends(chain: DatasetChain) -> None:
    """See that everything agrees, and tell what it took."""
    _tell(chain)
    assert not [process.ended for process in chain.processes if process.ended]
    assert chain.destination.end() == 0
    chain.told += chain.destination.new_lines()
    wanted = sorted_digest(chain.dataset, chain.folder)
    with chain.dataset.open("rb") as given:
        quads = sum(1 for _line in given)
    audit = _ran(chain, "audit", chain.url, str(chain.copy), "--json", *chain.stores)
    stores = audit["sets"][0]["stores"]
    assert [one["verdict"] for one in stores] == ["same", "same"], stores
    assert {one["sha256"] for one in stores} == {wanted}
    assert {one["quads"] for one in stores} == {quads}
    copy, state = chain.copy / "dataset.nq", chain.folder / "state"
    (published,) = (state / "datasets" / SET).glob("*.nq")
    assert filecmp.cmp(copy, published, shallow=False)
    assert sorted_digest(copy, chain.folder) == wanted
    assert chain.source.end() == 0
    replay = subprocess.run([sys.executable, "-m", "headwater", "rdf", "replay", str(state), SET], check=False)
    assert replay.returncode == 0
    store = EmbeddedStore(chain.folder / "stores" / SET / "oxigraph")
    position = store.state().position
    assert position is not None
    assert position.sha256 == wanted
    chain.say(f"all agree; audit {chain.seconds['audit']} s")


def _ran(chain: DatasetChain, *arguments: str) -> Any:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "headwater", *arguments], check=False, stdout=subprocess.PIPE)
    chain.seconds[arguments[0]] = [time.monotonic() - began]
    assert done.returncode == 0, done.stdout[-3000:]
    return json.loads(done.stdout)


def _tell(chain: DatasetChain) -> None:
    done: Counter[str] = Counter()
    for line in chain.told:
        for one in line.get("sets", ()):
            done["changes of the file by patches"] += one["patched"]
            for store in (one.get("dataset") or {}).get("stores", ()):
                done[f"{'endpoint' if '://' in store['store'] else 'embedded store'} {store['done']}"] += 1
    fetched = len(re.findall(rf'"GET /{SET}/dataset\.nq"', chain.source.log()))
    chain.say(f"the dataset was fetched whole {fetched} times; {dict(done)}")
    for process in chain.processes:
        chain.say(f"{process.name}: {process.kills.total()} kills {dict(process.kills)}")
        chain.say(f"{process.name}: {process.peak_kib / 1024:.0f} MiB at most")
        for step, seconds in process.steps().items():
            middle = statistics.median(seconds)
            chain.say(f"  {step}: {len(seconds)} times, median {middle:.1f} s, longest {max(seconds):.1f} s")
    chain.say(f"phases that were not come to: {chain.not_come_to}")
    for what, seconds in chain.seconds.items():
        chain.say(f"{what}: {[round(one, 1) for one in seconds]}")
