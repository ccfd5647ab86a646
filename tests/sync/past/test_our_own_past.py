"""`sync --at` of a source of ours: an edited folder, as it was at each moment, from what the source really keeps."""

from __future__ import annotations

import datetime as dt
import random
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.source.packing_and_version_removal import collect_versions
from headwater.versions.retention import VersionRetention
from tests.support.copying import DONE, FAILED, UNDETERMINED, USAGE, go, tree
from tests.support.serving import Face, face
from tests.support.waiting import settle

pytestmark = pytest.mark.long(10)

ROUNDS = 6
ARCHIVE = {"archive": True, "archive_seconds": 0.5, "retention_seconds": 0.5, "segment_seconds": 0.2}
KEPT: dict[str, dict[str, Any]] = {
    "mementos": {"versions": True},
    "archives": ARCHIVE | {"change_dump": True, "dump": True},
    "both": ARCHIVE | {"versions": True},
}


class Edited:
    """A folder that was edited some times within seconds: what it was at the last change of each time."""

    def __init__(self, running: Face, files: Path, chance: random.Random, *, rounds: int = ROUNDS) -> None:
        self.running = running
        self.states: list[tuple[dt.datetime, dict[str, bytes]]] = []
        running.source.run_once()
        self._note(files)
        time.sleep(2.0 - time.time() % 1)  # until the first state is due to be archived, too
        for number in range(rounds):
            settle()
            there = sorted(tree(files))
            updated, deleted = chance.sample(there, 2), chance.choice(there)
            for name in updated:
                (files / name).write_bytes(f"{name} in round {number}".encode())
            (files / deleted).unlink()
            again = files / f"d{number % 2}" / f"é {chance.randrange(3)}.txt"
            again.parent.mkdir(exist_ok=True)
            again.write_bytes(b"anew in round %d" % number)
            running.source.run_once()
            self._note(files)

    def _note(self, files: Path) -> None:
        catalog = self.running.source.catalog
        changes = catalog.changes("files")
        at = changes[-1].at if changes else catalog.state("files").opened_at
        assert at is not None
        self.states.append((at, tree(files)))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    for number in range(6):
        (made / f"f{number}.txt").write_bytes(b"first %d" % number)
    return made


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_each_moment_is_the_folder_as_it_was(files: Path, tmp_path: Path, kept: dict[str, Any]) -> None:
    """RS-REL-08 to RS-REL-10, RS-ARC-34: updates, deletions, what is there again; several states within a second."""
    with face(files, tmp_path / "state", max_delete=1.0, **kept) as running:
        edited = Edited(running, files, random.Random(7))
        for number, (moment, right) in enumerate(edited.states):
            dest = tmp_path / str(number)
            ran = go(running.url, dest, at=moment.isoformat())
            why = ran.error or (str(ran.one.fault), [(f.uri[-12:], f.reason) for f in ran.one.failures])
            assert ran.status == DONE, f"{number}, {moment}: {why}, {ran.notices}"  # a text is shown whole
            assert tree(dest) == right, number


@pytest.mark.parametrize(
    ("archived", "told"), [(2, {FAILED, UNDETERMINED, USAGE}), (100, {FAILED})], ids=["lists too", "versions alone"]
)
def test_with_parts_missing_it_says_so_and_places_nothing_false(
    files: Path, tmp_path: Path, archived: int, told: set[int]
) -> None:
    """With two archived lists, times before them may be refused, where the machine stands still for a while."""
    kept = KEPT["both"] | {"archive_documents": archived}
    with face(files, tmp_path / "state", max_delete=1.0, **kept) as running:
        edited = Edited(running, files, random.Random(8))
        source = running.source
        later = edited.states[-1][0] + dt.timedelta(days=2)
        middle = (later - edited.states[ROUNDS // 2][0]).total_seconds()
        bounds = {"files": VersionRetention(seconds=middle)}
        assert collect_versions(source.catalog, source.versions, VersionRetention(), lambda: later, bounds).removed
        statuses = []
        for number, (moment, right) in enumerate(edited.states):
            dest = tmp_path / str(number)
            ran = go(running.url, dest, at=moment.isoformat())
            found = tree(dest) if dest.exists() else {}
            assert found.items() <= right.items(), number
            statuses.append(ran.status)
            if ran.status in (DONE, FAILED):
                failed = {one.uri for one in ran.one.failures}
                assert len(failed) == len(right) - len(found), number
            assert (ran.status == DONE) <= (found == right), number
        assert statuses[-1] == DONE
        assert told & set(statuses), statuses
