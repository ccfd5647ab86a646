"""A process that is told to end while its cluster is away ends soon: patience is for those who go on."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tools.engines.engine import Engine

from headwater.catalog.cluster.schema import remove
from headwater.storage.cluster import Cluster, ClusterUnreachable
from tests.catalog.cluster_proxy import Proxy
from tests.support.engines import access, prefix
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)

OPTIONS = "?replicas=0&lease_seconds=3&patience_seconds=3600"
SECONDS = 120.0
"""Far below the patience, and bearable on a busy machine."""

COMMANDS = {
    "watch": ("publish", "--watch", "--files", "files", "--to", "out", "--base-url", "http://source.example"),
    "serve": ("serve", "--files", "files", "--port", "0", "--state", "served"),
    "simulate": ("simulate", "--resources", "9", "--rate", "50", "--port", "0", "--state", "simulated"),
}


def test_every_server_ends_soon_while_the_engine_is_away(tmp_path: Path, opensearch: Engine) -> None:
    home = prefix()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_text("a")
    with ExitStack() as stack:
        engine = Proxy(opensearch.url, 0, rarity=None)
        stack.callback(engine.close)
        place = engine.url.replace("http://", "opensearch://")
        running = {}
        for name, arguments in COMMANDS.items():
            log = stack.enter_context((tmp_path / name).open("w"))
            command = [
                sys.executable,
                "-m",
                "headwater",
                *arguments,
                "--json",
                "--catalog",
                f"{place}/{home}-{name}{OPTIONS}",
            ]
            running[name] = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log)
            stack.enter_context(running[name])
            stack.callback(running[name].kill)
        for process in running.values():
            assert process.stdout is not None
            assert process.stdout.readline(), "it is at work"
        engine.close()

        def all_wait() -> bool:
            return all(ClusterUnreachable.code in (tmp_path / name).read_text() for name in running)

        until(all_wait, what="a notice of every process")
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        assert {name: process.wait(SECONDS) for name, process in running.items()} == dict.fromkeys(running, 0)
    cluster = Cluster(access(opensearch))
    for name in COMMANDS:
        remove(cluster, f"{home}-{name}")
    cluster.close()
