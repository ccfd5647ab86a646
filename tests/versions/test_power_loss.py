"""Versions and a power that fails at any moment: what was kept is there, and so is all that an older store has left."""

from __future__ import annotations

import os
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from headwater.files.file_copies import SMALL_OCTETS
from headwater.versions.store import VersionStore
from tests.support.disk import Disk
from tests.support.examples import MANY
from tests.support.kept_versions import keep_octets, kept_octets
from tests.versions.test_older_store import LIVE, SAMPLE, digest

pytestmark = pytest.mark.long(10)

LOSSES = 400 if MANY else 60
BATCHES = [
    [b"%d of %d" % (one, batch) * 500 for one in range(6)] + [b"%d" % batch * SMALL_OCTETS * 2] for batch in range(5)
]


def kept(folder: Path) -> dict[str, bytes]:
    return kept_octets(folder) if folder.exists() else {}


def test_a_power_loss_at_any_moment_costs_no_version_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = tmp_path / "disk"
    ground.mkdir()
    disk = Disk(ground)
    with disk.recording(monkeypatch):
        for number, batch in enumerate(BATCHES):
            with closing(VersionStore(ground / "versions")) as store:
                keep_octets(store, *batch, BATCHES[0][0])
                disk.mark(str(number))
    for number, loss in enumerate(disk.losses(LOSSES, seed=7)):
        folder = loss.leave(tmp_path / str(number)) / "versions"
        found = kept(folder)
        for batch in BATCHES[: len(loss.marks())]:
            assert {digest(one) for one in batch} <= set(found), loss
        with closing(VersionStore(folder)) as store:  # the next run goes on
            store.clean()
            keep_octets(store, *BATCHES[-1])
        assert {digest(one) for one in BATCHES[-1]} <= set(kept(folder)), loss


def test_a_power_loss_while_packs_are_moved_costs_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ground = tmp_path / "disk"
    ground.mkdir()
    with tarfile.open(SAMPLE) as archive:
        archive.extractall(ground, filter="fully_trusted")
    os.sync()
    disk = Disk(ground)
    with disk.recording(monkeypatch), closing(VersionStore(ground / "versions")) as store:
        store.has("0" * 64)
    for number, loss in enumerate(disk.losses(LOSSES, seed=8)):
        found = kept(loss.leave(tmp_path / str(number)) / "versions")
        assert found == {digest(one): one for one in LIVE}, loss
