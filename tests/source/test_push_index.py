"""A harvester's index on a real engine, followed by a command that is killed, and by a server."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tools.engines.engine import Engine

from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.spec.records import ChangeKind
from headwater.storage.cluster import Access, Cluster, Node
from tests.support.documents import read_bytes
from tests.support.push_set import change, resource
from tests.support.serving import Process, request
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)


@pytest.fixture
def cluster(opensearch: Engine) -> Iterator[Cluster]:
    made = Cluster(Access(nodes=(Node("127.0.0.1", opensearch.port),)), patience_seconds=20)
    yield made
    made.close()


def make_index(cluster: Cluster, name: str) -> None:
    cluster.ask("DELETE", f"/{name}", accept=(404,))
    settings = {"settings": {"number_of_shards": 2, "number_of_replicas": 0, "refresh_interval": "50ms"}}
    cluster.ask("PUT", f"/{name}", msgspec.json.encode(settings))


def post(cluster: Cluster, name: str, *documents: object) -> None:
    lines = [line for one in documents for line in (b'{"index":{}}', msgspec.json.encode(one))]
    told = msgspec.json.decode(cluster.ask("POST", f"/{name}/_bulk", b"\n".join([*lines, b""])).body)
    assert not told["errors"]


def test_a_follower_that_is_killed_takes_every_document_once(
    cluster: Cluster, opensearch: Engine, tmp_path: Path
) -> None:
    """Written to while it is read, killed with -9 again and again: every change once (DIT-A11, DIT-A12)."""
    make_index(cluster, "killed")
    post(cluster, "killed", resource("first", 0), change("first", "created", 0))
    cluster.ask("POST", "/killed/_refresh")
    command = [sys.executable, "-m", "headwater", "ingest", "dit", f"http://127.0.0.1:{opensearch.port}/killed"]
    command += ["--set", "s", "--state", str(tmp_path / "state"), "--url-prefix", "http://example.org/"]
    environment = {**os.environ, "PYTHONDEVMODE": ""}
    count = 0
    for size in (900, 300, 1_500):
        follow = [*command, "--follow", "0.1", "--json"]
        process = subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        assert process.stdout is not None
        for start in range(count, count + size, 100):
            numbers = range(start, min(start + 100, count + size))
            documents = [(resource(f"{n}", n % 60), change(f"{n}", "created", n % 60)) for n in numbers]
            post(cluster, "killed", *itertools.chain.from_iterable(documents))
        count += size
        process.stdout.readline()  # it has taken something
        time.sleep(size / 10_000)  # not a wait for anything: kills come at different moments
        process.send_signal(signal.SIGKILL)
        process.communicate()
    done = subprocess.run([*command, "--once", "--json"], capture_output=True, check=True, env=environment, timeout=120)
    assert json.loads(done.stdout)["rejected"] == 0
    catalog = SqliteCatalog(tmp_path / "state" / "catalog.sqlite")
    changes = catalog.changes("s", 0, 10_000)
    held = {one.uri: one.metadata.hash for one in catalog.resources("s", "", 10_000)}
    catalog.close()
    assert held == dict.fromkeys(["first", *map(str, range(count))], "md5:" + "a" * 32)
    logged = [one.uri for one in changes if one.change is ChangeKind.CREATED]
    assert len(logged) == len(set(logged)), "no change is logged twice"
    corrected = [one for one in changes if one.change is not ChangeKind.CREATED]
    assert {one.metadata.hash for one in corrected} <= {"md5:" + "a" * 32}, "but for what its resource corrects"
    # What is not logged lay in the index when the snapshot was taken, which is never so much as came after it.
    assert len(logged) >= count - 900


def test_a_server_follows_an_index_with_its_catalog_on_the_cluster(
    cluster: Cluster, opensearch: Engine, tmp_path: Path
) -> None:
    make_index(cluster, "served")
    post(cluster, "served", resource("a", 1, resource_set="Their Set"), resource("x", 1, resource_set="other"))
    cluster.ask("POST", "/served/_refresh")
    address = f"127.0.0.1:{opensearch.port}"
    config = tmp_path / "c.toml"
    config.write_text(
        f'state = "state"\ncatalog = "opensearch://{address}/fedcat?replicas=0"\n'
        f'[[set]]\nname = "s"\nfeed = "dit"\nindex = "http://{address}/served"\npoll_seconds = 0.2\n'
        'resource_sets = ["Their Set"]\nresource_base = "http://files.example.org/"\n'
    )
    with Process(str(config), "--port", "0", "--quiet") as process:
        url = process.ready()
        until(lambda: request(url, "/s/resourcelist.xml").status == 200, what="the snapshot")
        _, entries, _ = read_bytes(request(url, "/s/resourcelist.xml").body)
        assert [one.loc for one in entries] == ["http://files.example.org/a"]
        post(cluster, "served", resource("b", 2, resource_set="Their Set"),
             change("b", "created", 2, resource_set="Their Set"))  # fmt: skip

        def listed() -> bool:
            _, entries, _ = read_bytes(request(url, "/s/changelist/open.xml").body)
            return [one.loc for one in entries] == ["http://files.example.org/b"]

        until(listed, what="the change in the open list")
        assert process.stop()[0] == 0
