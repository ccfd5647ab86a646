"""The real engines start, and none outlives its owner.

That they keep their data when they are stopped, and can be killed and paused, is tried on engines with catalogs in them
(`catalog/test_cluster_nodes.py`, `catalog/test_cluster_security.py`), by the functions that are here: a start is dear.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tools.engines.engine import Engine, standing
from tools.engines.errors import EngineFailed
from tools.engines.security import Security

from tests.support.engines import REQUIRE
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)

ROOT = Path(__file__).resolve().parents[1]


def call(url: str, method: str = "GET", body: object = None, *, seconds: float = 60, to: Security | None = None) -> Any:
    """What a node answers, one without security or this one."""
    headers = {"content-type": "application/json", **({"authorization": to.authorization} if to else {})}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=seconds, context=to.context() if to else None) as response:
        return json.load(response)


def names_itself(engine: Engine) -> None:
    """It is of the version and the process that it claims to be."""
    path = "_nodes?filter_path=nodes.*.version,nodes.*.process.id"
    nodes = call(f"{engine.url}/{path}", to=engine.security)["nodes"].values()
    assert [(node["version"], node["process"]["id"]) for node in nodes] == [(engine.version, engine.pid)]


def stopped_in_order(engine: Engine) -> None:
    """As an operator would stop it, not by -9; then nothing answers."""
    engine.stop()
    assert not engine.running
    assert "closed" in engine.tail(3)
    with pytest.raises(urllib.error.URLError, match="refused"):
        call(engine.url, to=engine.security)


def paused_and_resumed(engine: Engine) -> None:
    """It stands, and goes on."""
    pid = engine.pid
    engine.pause()
    assert standing(pid)
    with pytest.raises(OSError, match="timed out"):
        call(f"{engine.url}/_cluster/health", seconds=0.5, to=engine.security)
    engine.resume()
    assert call(f"{engine.url}/_cluster/health", to=engine.security)["number_of_nodes"] == 1


def killed(engine: Engine) -> None:
    """It ends at once."""
    pid = engine.pid
    engine.kill()
    assert not engine.running
    assert not Path(f"/proc/{pid}").exists()


def closed(engine: Engine) -> None:
    """It leaves nothing behind."""
    engine.close()
    assert not engine.folder.exists()
    assert not engine.data.exists()


def test_the_engine_of_a_session_is_open_to_this_machine_alone(opensearch: Engine) -> None:
    nodes = call(f"{opensearch.url}/_nodes/settings?flat_settings=true")["nodes"].values()
    (own,) = (node["settings"] for node in nodes)
    assert own["network.host"] == "127.0.0.1"
    assert own["cluster.routing.allocation.disk.threshold_enabled"] == "false"


def test_an_engine_that_does_not_come_up_shows_its_log(make_engine: Callable[..., Engine]) -> None:
    with pytest.raises(EngineFailed, match=r"(?s)ended by itself.*NoSuchOption"):
        make_engine("opensearch", java_options=["-XX:+NoSuchOption"])


def test_no_engine_outlives_its_owner(make_engine: Callable[..., Engine]) -> None:
    make_engine("elasticsearch", start=False)  # fetched, or skipped
    code = (
        "from tools.engines.engine import Engine; import time; engine = Engine('elasticsearch', start=False)\n"
        "engine.start(wait=False); print(engine._group, engine.folder, engine.data, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        group, *folders = owner.stdout.readline().split()
        until(lambda: len(members(int(group))) > 1, what="the start")
        owner.send_signal(signal.SIGKILL)
    until(lambda: not members(int(group)))
    until(lambda: not any(Path(folder).exists() for folder in folders))


def members(group: int) -> list[int]:
    """The processes of a group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("required", [False, True])
def test_tests_that_lack_an_engine_are_named_and_required_ones_fail(tmp_path: Path, required: bool) -> None:
    (tmp_path / "test_it.py").write_text("def test_needs_one(opensearch): pass\ndef test_other(): pass\n")
    environment = {"PATH": os.defpath, "HEADWATER_CACHE": str(tmp_path / "empty"), "PYTHONPATH": str(ROOT)}
    environment["PATH"] = str(tmp_path / "no-programs")
    environment |= {REQUIRE: "1"} if required else {}
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.engines", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "missing" in done.stdout, done.stdout + done.stderr
    if required:
        assert done.returncode == 1
        assert "1 passed, 1 error" in done.stdout
    else:
        assert done.returncode == 0
        assert "1 TESTS DID NOT RUN: NO REAL SEARCH ENGINE" in done.stdout
        assert "not run: test_it.py::test_needs_one" in done.stdout
        assert "install" in done.stdout


def test_the_command_line_says_what_is_there(tmp_path: Path) -> None:
    def say(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tools.engines", *words]
        return subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, timeout=60, check=False
        )

    empty = str(tmp_path / "empty")
    assert say("where", HEADWATER_CACHE=empty).stdout == f"{empty}\n"
    status = say("status", HEADWATER_CACHE=empty, PATH="")
    assert status.returncode == 1
    assert "opensearch 3.8.0: not fetched yet" in status.stdout
    assert "Maven: missing" in status.stdout
    for words in (("where", "opensearch"), ("fetch", "solr"), ("start", "opensearch")):
        refused = say(*words, HEADWATER_CACHE=empty, PATH="")
        assert refused.returncode == 1, words
        assert "Traceback" not in refused.stderr
    assert shutil.which("mvn") is None or "Maven: /" in say("status").stdout
