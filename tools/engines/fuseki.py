"""A real SPARQL 1.1 server for tests: Apache Jena Fuseki, fetched once and checked."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tools.engines import artifacts, java
from tools.engines.errors import EngineFailed, Unavailable

NAME = "fuseki"
READY_SECONDS = 120.0


def jar() -> Path:
    """The server's file in the cache, fetched if need be; `Unavailable` says what is missing."""
    entry = artifacts.table()["jars"][NAME]
    part = artifacts.Part(entry["coordinates"], entry["sha256"])
    folder = artifacts.cache()
    target = folder / f"{NAME}-{part.coordinates.split(':')[2]}-{part.sha256[:12]}.jar"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        with artifacts.locked(target):
            if not target.is_file():
                with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as aside:
                    artifacts.fetch(part, Path(aside)).rename(target)
    except OSError as error:
        raise Unavailable(f"{NAME} cannot be kept below {folder} ({error}); set HEADWATER_CACHE") from error
    return target


@contextmanager
def running(database: Path | None = None, memory: str = "512m", port: int = 0) -> Iterator[str]:
    """A server for the time of the block: the address of its dataset, below which are `/update` and `/query`.

    The dataset is an empty one in memory, or that of a folder (TDB2), which is made if need be.
    """
    home, server = java.find(artifacts.table()["jars"][NAME]["java"]).home, jar()
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="headwater-fuseki-")
    command = [str(home / "bin" / "java"), f"-Xmx{memory}"]
    if database is None:
        command += ["-XX:TieredStopAtLevel=1"]  # compiling well would not pay in a short test
    command += ["-jar", str(server), "--localhost", "--port", str(port), "--update"]
    if database is None:
        command += ["--mem", "/ds"]
    else:
        database.mkdir(parents=True, exist_ok=True)
        command += ["--tdb2", f"--loc={database}", "/ds"]
    log = Path(folder, "log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, "FUSEKI_BASE": folder}, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            _wait(process, port, log)
            yield f"http://127.0.0.1:{port}/ds"
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        with suppress(OSError, HTTPException):
            connection.request("GET", "/$/ping")
            if connection.getresponse().status == 200:
                connection.close()
                return
        connection.close()
        time.sleep(0.1)
    raise EngineFailed(f"{NAME} did not start: {log.read_text('utf-8', 'replace')[-1000:]}")
