"""A set with all that tells of its past, its catalog on a real cluster: archives, versions, dumps and classic lists."""

from __future__ import annotations

import datetime as dt
import random
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from headwater.catalog.cluster.schema import remove
from headwater.source.packing_and_version_removal import collect_versions
from headwater.storage.cluster import Cluster
from headwater.versions.retention import VersionRetention
from tests.support.copying import DONE, go, tree
from tests.support.engines import Running, access, prefix
from tests.support.examples import MANY
from tests.support.serving import face
from tests.sync.past.test_our_own_past import ARCHIVE, Edited

PAST: dict[str, Any] = ARCHIVE | {
    "versions": True,
    "change_dump": True,
    "dump": True,
    "classic": True,
    "patch": ("json",),
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    for number in range(6):
        (made / f"f{number}.txt").write_bytes(b"first %d" % number)
    return made


@pytest.mark.long(15)
@pytest.mark.parametrize("name", ["opensearch", "elasticsearch"] if MANY else ["opensearch"])
def test_the_past_of_a_set_whose_catalog_is_on_a_cluster(
    files: Path, tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    """RS-REL-08 to RS-REL-10, RS-ARC-34: each moment by `sync --at`; TimeGate, classic lists, retention."""
    engine: Running = request.getfixturevalue(name)
    place = f"{engine.url.replace('http', 'opensearch')}/{(indices := prefix())}?replicas=0"
    try:
        with face(files, tmp_path / "state", max_delete=1.0, source_options={"catalog": place}, **PAST) as running:
            edited = Edited(running, files, random.Random(7), rounds=3 if MANY else 1)
            for number, (moment, right) in enumerate(edited.states):
                ran = go(running.url, tmp_path / f"at {number}", at=moment.isoformat())
                assert ran.status == DONE, (number, ran.error, ran.report)
                assert tree(tmp_path / f"at {number}") == right
            capabilities = running.get("/files/capabilitylist.xml").body.decode()
            for one in ("archive", "changedump", "resourcedump"):
                assert one in capabilities
            classic = go(f"{running.url}/files/classic/capabilitylist.xml", tmp_path / "classic")
            assert classic.status == DONE
            assert tree(tmp_path / "classic") == tree(files)
            last, right = edited.states[-1]
            path = next(iter(right))
            later = format_datetime((last + dt.timedelta(seconds=1)).astimezone(dt.UTC), usegmt=True)
            gate = running.get(f"/files/timegate/{path.replace('é ', '%C3%A9%20')}", accept_datetime=later)
            assert gate.status == 302
            memento = running.get(gate.headers["location"].removeprefix(running.url))
            assert memento.body == right[path]
            source, now = running.source, dt.datetime.now(dt.UTC) + dt.timedelta(days=2)
            nothing = {"files": VersionRetention(seconds=0)}
            assert collect_versions(source.catalog, source.versions, VersionRetention(seconds=0), lambda: now, nothing)
            ran = go(running.url, tmp_path / "now")
            assert (ran.status, tree(tmp_path / "now")) == (DONE, tree(files))
    finally:
        cluster = Cluster(access(engine))
        remove(cluster, indices)
        cluster.close()
