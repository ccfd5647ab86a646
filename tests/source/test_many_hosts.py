"""Several hosts with one catalog on a real cluster: an announcement to any of them is taken once."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tools.engines.engine import Engine

from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.cluster.schema import remove
from headwater.storage.cluster import Cluster
from tests.support.engines import access
from tests.support.serving import Process, request
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)

TOKEN = "a-token-that-is-long-enough"


def post(url: str, key: str, paths: Sequence[str]) -> tuple[int, bytes]:
    body = b"".join(json.dumps({"path": path}).encode() + b"\n" for path in paths)
    headers = {"authorization": f"Bearer {TOKEN}", "idempotency-key": key}
    answer = request(url, "/s/changes", "POST", headers, body)
    return answer.status, answer.body


def test_announcements_to_any_host_are_taken_once(opensearch: Engine, tmp_path: Path) -> None:
    """The same key to two hosts at once, and other keys meanwhile: no change twice, none lost, no number missing."""
    prefix = f"test-hosts-{os.getpid()}"
    place = f"opensearch://127.0.0.1:{opensearch.port}/{prefix}?replicas=0&lease_seconds=5"
    configs = []
    for host in ("one", "two"):
        config = tmp_path / f"{host}.toml"
        config.write_text(
            f'state = "{host}"\ndocuments = "documents"\ncatalog = "{place}"\nbase_url = "http://source.example"\n'
            f'[[set]]\nname = "s"\nfeed = "events"\ntoken = "{TOKEN}"\nresource_base = "http://files.example/"\n'
        )
        configs.append(str(config))
    with (
        Process(configs[0], "--port", "0", "--quiet") as first,
        Process(configs[1], "--port", "0", "--quiet", "--no-publish") as second,
    ):
        first.listening()
        second.listening()
        urls = [first.address, second.address]
        batches = [(f"key-{number}", [f"{number}/{line}" for line in range(20)]) for number in range(6)]
        with ThreadPoolExecutor(8) as clients:
            sent = [clients.submit(post, url, *batch) for batch in batches for url in urls]
            statuses = [one.result()[0] for one in sent]
        for number, batch in enumerate(batches):
            pair = statuses[2 * number : 2 * number + 2]
            assert set(pair) <= {200, 409, 503}, "409: a request with this key is under way elsewhere"
            answers = [post(url, *batch) for url in urls]
            assert answers[0] == answers[1], "the first answer is told by every host"
            assert answers[0][0] == 200
        expected = {path for _, paths in batches for path in paths}
        catalog = ClusterCatalog(access(opensearch), prefix)
        changes = catalog.changes("s")
        catalog.close()
        assert sorted(one.uri for one in changes) == sorted(expected)
        assert [one.seq for one in changes] == list(range(1, len(expected) + 1))
        until(lambda: request(urls[1], "/s/changelist/open.xml").body.count(b"<url>") == len(expected), what="all")
        assert [first.stop()[0], second.stop()[0]] == [0, 0]
    cluster = Cluster(access(opensearch))
    remove(cluster, prefix)
    cluster.close()
