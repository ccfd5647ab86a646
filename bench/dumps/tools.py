"""The programs that dumps are measured against: found, started, timed; what is missing makes a row that says so."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.rows import Row, timed

RESYNC_BUILD = str(Path(sys.executable).with_name("resync-build"))
RESYNC_SYNC = str(Path(sys.executable).with_name("resync-sync"))
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def missing(work: str, *names: str) -> Row | None:
    """A row that says loudly which of these programs are not installed; None when all are."""
    gone = [name for name in names if shutil.which(name) is None]
    if not gone:
        return None
    return {"work": work, "against": ", ".join(gone), "verdict": "NOT MEASURED", "note": f"not installed: {gone}"}


def zipped(folder: Path, package: Path, level: int) -> float:
    """Seconds of `zip -r` at a level, into a new file."""
    package.unlink(missing_ok=True)
    return timed(["zip", "-q", f"-{level}", "-r", str(package), "."], cwd=folder)


def resync_dump(folder: Path, out: Path, base_url: str) -> float:
    """Seconds of `resync-build --write-resourcedump` with sha-256: the dump and its package."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    words = ["--hash", "sha-256", "--write-resourcedump", "--outfile", str(out / "resourcedump.xml")]
    return timed([RESYNC_BUILD, *words, f"{base_url}={folder}"], cwd=out, env=ENVIRONMENT)


def resync_copied(url: str, base_url: str, copy: Path) -> float:
    """Seconds of a baseline by `resync-sync --hash sha-256`."""
    return timed([RESYNC_SYNC, "--baseline", "--hash", "sha-256", url, str(copy)], cwd=copy.parent, env=ENVIRONMENT)


@contextlib.contextmanager
def rsync_daemon(folder: Path, scratch: Path) -> Iterator[str]:
    """The URL of an rsync daemon on loopback that gives this folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = scratch / "rsyncd.conf"
    lines = ["use chroot = no", "reverse lookup = no", "log file = /dev/null", "lock file = " + str(scratch / "lock")]
    lines += [f"pid file = {scratch / 'rsyncd.pid'}", "[files]", f"path = {folder}", "read only = yes"]
    if os.geteuid() == 0:
        lines += ["uid = root", "gid = root"]
    settings.write_text("\n".join(lines) + "\n")
    command = ["rsync", "--daemon", "--no-detach", "--address=127.0.0.1", f"--port={port}", f"--config={settings}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: listens(port))
            yield f"rsync://127.0.0.1:{port}/files/"
        finally:
            process.terminate()


def rsynced(url: str, copy: Path) -> float:
    """Seconds of `rsync -a` into a new folder."""
    return timed(["rsync", "-a", url, f"{copy}/"])


def curled(urls: list[str], copy: Path, scratch: Path) -> float:
    """Seconds of curl with 64 transfers at once, each into a file of its own; nothing is verified."""
    config = scratch / "curl.config"
    for folder in {url.rsplit("/", 2)[-2] for url in urls}:
        (copy / folder).mkdir(parents=True, exist_ok=True)
    lines = [f'url = "{url}"\noutput = "{copy}/{"/".join(url.rsplit("/", 2)[-2:])}"' for url in urls]
    config.write_text("\n".join(lines))
    seconds = timed(["curl", "--silent", "--fail", "--parallel", "--parallel-max", "64", "--config", str(config)])
    assert sum(len(names) for _, _, names in os.walk(copy)) == len(urls), "curl has left files out"
    return seconds


def listens(port: int) -> bool:
    """Whether somebody answers at this port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(look: Callable[[], object], seconds: float = 600.0) -> None:
    """Look until it is so. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError("what a benchmark waits for has not come in time")
        time.sleep(0.05)
