"""Processes that are killed while they publish a dataset: after the next start files, patches and changes agree."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.datasets.dataset_folder import DatasetFolder
from headwater.datasets.rows import patches_from, read_dataset
from headwater.source.source import Source
from tests.source.datasets import killed_dataset
from tests.source.datasets.dataset_source import BASE, Rounds, file_set, triples
from tests.source.datasets.importer import entries
from tests.source.datasets.test_published_datasets import put
from tests.support.waiting import until

KILLS = int(os.environ.get("HEADWATER_KILLS", "3"))
FEW = ("the set was opened", "the dataset was placed", "the change was recorded", "the dataset was stored")
FIRST_ALONE = "the set was opened"
CASES = [
    (step, is_first) for step in killed_dataset.STEPS for is_first in (True, False) if is_first or step != FIRST_ALONE
]
if KILLS <= 10:
    CASES = [(step, step == FIRST_ALONE) for step in FEW]


def written(rounds: Rounds) -> Path:
    path = rounds.folder / "source.toml"
    dataset = rounds.config.sets[0].dataset
    path.write_text(
        f"state = {json.dumps(str(rounds.state))}\nbase_url = {json.dumps(BASE)}\n"
        f'[[set]]\nname = "d"\nprofile = "rdf-dataset"\ndataset = {json.dumps(dataset)}\ndataset_seconds = 0.01\n'
    )
    return path


def agrees(rounds: Rounds, lines: set[bytes]) -> None:
    """The importer has these statements; folder, rows and changes tell of one series, and nothing is left over."""
    imported = rounds.imported()
    assert imported.lines == lines
    with Source(rounds.config) as source:
        state, patches = read_dataset(source.catalog, "d"), list(patches_from(source.catalog, "d"))
        changes = source.catalog.changes("d")
    assert state is not None
    folder = DatasetFolder(rounds.state, "d")
    assert [one.seq for one in patches] == [one.seq for one in changes]
    assert {one.name for one in folder.path.iterdir()} == {
        folder.dataset_of(state).name,
        *(folder.patch_of(one).name for one in patches),
    }
    assert not list((rounds.state / "documents").rglob(".headwater-t*"))


def listed_can_be_had(rounds: Rounds) -> None:
    """Whatever is listed at this moment is there, and is what is listed: patches always (TIM-08)."""
    path = rounds.state / "documents" / "d" / "changelist.xml"
    for one in entries(path.read_bytes()) if path.exists() else ():
        patch = rounds.fetch(one.link["href"])
        assert one.link["hash"] == f"sha-256:{hashlib.sha256(patch).hexdigest()}"


@pytest.mark.parametrize(("step", "is_first"), CASES)
def test_killed_anywhere_files_and_changes_agree_after_the_next_run(
    tmp_path: Path, step: str, *, is_first: bool
) -> None:
    path = put(tmp_path / "d.nt", triples(1, 2))
    rounds = Rounds(tmp_path, file_set(path))
    config = written(rounds)
    if not is_first:
        rounds.run()
        put(path, triples(2, 3))
    command = [sys.executable, "-m", killed_dataset.__name__, step, "publish", str(config)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    listed_can_be_had(rounds)
    rounds.run()
    agrees(rounds, {one.encode() for one in path.read_text().splitlines(keepends=True)})
    assert len(entries(rounds.document("d/changelist.xml"))) == (1 if is_first else 2)


@contextmanager
def at_work(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", killed_dataset.__name__, "", "publish", str(config), "--watch", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_killed_at_any_time_while_a_dataset_changes(tmp_path: Path) -> None:
    """Every state that was published follows from the one before, and nothing is lost, told twice or left over."""
    seed = int(os.environ.get("HEADWATER_SEED", str(random.randrange(10**6))))
    print(f"HEADWATER_SEED={seed}")
    chance = random.Random(seed)
    path = put(tmp_path / "d.nt", triples(1, 2))
    rounds = Rounds(tmp_path, file_set(path))
    config = written(rounds)
    for kill in range(KILLS):
        with at_work(config) as process:
            for change in range(chance.randrange(1, 4)):
                put(path, triples(*chance.sample(range(200), 100), value=f"{kill}-{change}-"))
                time.sleep(chance.random() * 0.15)
            process.kill()
            process.wait()
        listed_can_be_had(rounds)
    with at_work(config):
        wanted = b"".join(sorted(path.read_bytes().splitlines(keepends=True)))
        until(lambda: rounds.document("d/dataset.nq") == wanted and b"<url>" in rounds.document("d/resourcelist.xml"))
        digest = hashlib.sha256(wanted).hexdigest().encode()
        until(lambda: digest in rounds.document("d/resourcelist.xml"))
        until(lambda: not DatasetFolder(rounds.state, "d").scratch.exists())
    rounds.run()
    agrees(rounds, set(wanted.splitlines(keepends=True)))
