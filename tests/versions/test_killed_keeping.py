"""kill -9 while versions are kept: every recorded change has its octets, and collection finds all that is left over."""

import datetime as dt
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from headwater.source.config import read_config
from headwater.source.configured_source import open_catalog
from headwater.source.packing_and_version_removal import collect_versions
from headwater.versions.history import History
from headwater.versions.retention import VersionRetention, needed_digests
from tests.support.examples import MANY
from tests.support.kept_versions import keep_octets, kept_octets, opened
from tests.support.waiting import settle

FILES = 240
ROUNDS = 8 if MANY else 3
"""So often the first scan is killed, and so often an update."""
SET = "files"


class World:
    """A folder of a set that keeps versions, and a program that is killed again and again."""

    def __init__(self, base: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder, self.state, self.config = base / SET, base / "state", base / "source.toml"
        self.folder.mkdir()
        self.config.write_text(
            f"state = {json.dumps(str(self.state))}\nbase_url = 'http://source.example'\n"
            f"[[set]]\nfiles = {json.dumps(str(self.folder))}\nmax_delete = 1\nversions = true\n"
        )
        for number in range(FILES):
            self.write(number)

    def write(self, number: int) -> None:
        size = 200_000 if number % 60 == 7 else self.random.choice([0, 5, 700, 3_000])
        (self.folder / f"{number}").write_bytes(b"same" * 9 if number % 5 == 0 else self.random.randbytes(size))

    def change(self, count: int) -> None:
        for number in self.random.sample(range(FILES), count):
            self.write(number)
        settle()

    def run(self, step: int = 0, seconds: float | None = None) -> bool:
        """Publish; killed at a step, or so long after the scan has begun. Whether it was killed."""
        command = [sys.executable, "-m", "tests.versions.killed_keeping", str(step), str(self.config)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            timer = threading.Timer(seconds or 0, process.kill)
            if seconds is not None and line:
                timer.start()
            process.stdout.read()
            errors = process.stderr.read()
            status = process.wait()
            timer.cancel()
        assert status in (0, -signal.SIGKILL), errors.decode()
        return status != 0

    def check(self) -> set[str]:
        """Whatever is recorded has its octets, with their digests; returns the digests of what is needed."""
        kept = kept_octets(self.state / "versions") if (self.state / "versions").is_dir() else {}
        config = read_config(self.config)
        with closing(open_catalog(config)) as catalog:
            if not catalog.sets():
                return set()
            recorded = {(one.metadata.hash or "").partition("sha-256:")[2] for one in catalog.resources(SET)}
            recorded |= {(one.metadata.hash or "").partition("sha-256:")[2] for one in catalog.changes(SET)} - {""}
            needed = set(needed_digests(History(catalog, SET))) if catalog.state(SET).opened_at is not None else set()
        assert recorded <= set(kept)
        assert needed <= set(kept)
        return recorded | needed

    def check_end(self) -> None:
        """The folder is published whole, and after a collection nothing is kept but what is needed."""
        assert not self.run()
        needed = self.check()
        present = {hashlib.sha256(one.read_bytes()).hexdigest() for one in self.folder.iterdir()}
        assert present <= needed
        later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
        versions = self.state / "versions"
        with closing(open_catalog(read_config(self.config))) as catalog, opened(versions) as store:
            collect_versions(catalog, store, VersionRetention(seconds=0), lambda: later, {SET: VersionRetention()})
            assert {one.digest for one in store.versions()} == needed
            assert store.clean() == 0
        assert {path.name for path in versions.glob("??/??/*")} <= needed
        assert not any(files for _, _, files in os.walk(versions / ".aside"))


@pytest.mark.long(15)
@pytest.mark.parametrize("seed", [11])
def test_killed_while_versions_are_kept_nothing_recorded_lacks_its_octets(tmp_path: Path, seed: int) -> None:
    """The first scan, and updates after it: killed at steps and at any moments, checked, and gone on with."""
    world = World(tmp_path, seed)
    settle()
    killed = 0
    for number in range(2 * ROUNDS):
        if number == ROUNDS:
            assert not world.run()
        if number >= ROUNDS:
            world.change(100)
        if number % 2:
            killed += world.run(seconds=world.random.uniform(0, 0.25))
        else:
            killed += world.run(step=world.random.randrange(3, 130))
        world.check()
    assert killed > ROUNDS // 2
    world.check_end()


REMOVER = """if True:
    import datetime as dt, sys
    from pathlib import Path
    from headwater.versions import store as version_store
    version_store._FREED_PAGES = 2
    store = version_store.VersionStore(Path(sys.argv[1]))
    for line in sys.stdin:
        store.delete(line.split(), dt.datetime(2200, 1, 1, tzinfo=dt.UTC))
        store.reclaim()
        print("done", flush=True)
"""
"""A process that removes the versions whose digests it is given."""


def test_a_remover_that_is_killed_costs_no_version(tmp_path: Path) -> None:
    """`headwater versions --prune` beside a source that keeps and readers that read."""
    numbers = random.Random(5)
    folder = tmp_path / "versions"
    kept: dict[str, bytes] = {}
    with opened(folder) as store:
        for turn in range(6):
            command = [sys.executable, "-c", REMOVER, str(folder)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as remover:
                assert remover.stdin is not None
                assert remover.stdout is not None
                gone: set[str] = set()
                for _ in range(4):
                    some = [numbers.randbytes(300) for _ in range(40)]
                    keep_octets(store, *some)
                    kept |= {digest(one): one for one in some}
                    going = numbers.sample(sorted(kept), 25)
                    gone |= set(going)
                    reading = {one: store.open(one) for one in kept if one not in gone}
                    remover.stdin.write(" ".join(going).encode() + b"\n")
                    remover.stdin.flush()
                    if turn % 2 == 0:
                        assert remover.stdout.readline() == b"done\n"
                    for one, content in reading.items():
                        assert content is not None
                        with closing(content):
                            assert content.read(0, 1_000) == kept[one]
                remover.kill()
            kept = {one: octets for one, octets in kept.items() if one not in gone or store.has(one)}
            store.clean()
            assert kept_octets(folder) == kept
        store.reclaim()
        assert kept_octets(folder) == kept


def digest(octets: bytes) -> str:
    return hashlib.sha256(octets).hexdigest()
