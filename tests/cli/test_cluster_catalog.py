"""Commands whose catalog is on a real cluster: the same documents, from any place, and words that say what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tools.engines.engine import Engine

from headwater.catalog.cluster.schema import remove
from headwater.storage.cluster import Cluster
from tests.support.engines import access, prefix

BASE = "https://example.org/data"


def headwater(*args: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def publish(files: Path, out: Path, *more: object) -> dict[str, object]:
    done = headwater("publish", "--files", files, "--to", out, "--base-url", BASE, "--json", *more)
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_a_folder_is_published_with_its_catalog_on_a_cluster(tmp_path: Path, opensearch: Engine) -> None:
    files, name = tmp_path / "files", prefix()
    files.mkdir()
    for number in range(20):
        (files / f"é {number}.txt").write_text(f"{number}")
    place = f"{opensearch.url.replace('http', 'opensearch')}/{name}?replicas=0"
    assert publish(files, tmp_path / "one", "--catalog", place)["created"] == 20
    assert not list(tmp_path.rglob("catalog.sqlite"))
    (files / "é 1.txt").write_text("changed")
    (files / "é 2.txt").unlink()
    told = publish(files, tmp_path / "one", "--catalog", place)
    assert (told["created"], told["updated"], told["deleted"], told["unchanged"]) == (0, 1, 1, 18)
    changes = (tmp_path / "one" / "files" / "changelist.xml").read_text()
    assert changes.count('change="updated"') == changes.count('change="deleted"') == 1
    assert "sound" in headwater("catalog", "verify", place).stdout
    cluster = Cluster(access(opensearch))
    remove(cluster, name)
    cluster.close()


def test_a_cluster_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = headwater("catalog", "verify", "opensearch://us:secret@127.0.0.1:1/p?patience_seconds=0.2", status=6)
    assert "HW-CLU-02" in done.stderr
    assert "secret" not in done.stdout + done.stderr
    done = headwater("catalog", "verify", "opensearch://us:secret@127.0.0.1/p?replica=1", status=2)
    assert "HW-CAT-09" in done.stderr
    assert "secret" not in done.stdout + done.stderr
