"""`headwater serve` and the programs of `resync` 2.0.1 in processes of their own; our commands in this one."""

import functools
import http.server
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.program import run_here
from tests.support.waiting import until

BIN = Path(sys.executable).parent


def headwater(*arguments: object, status: int | None = 0) -> str:
    """Run one of our commands, here; its standard output. The exit status must be as given (None: any)."""
    done = run_here(*arguments)
    assert status is None or done.returncode == status, f"{arguments}: {done}"
    return done.stdout.decode()


def resync(program: str, *arguments: object) -> str:
    """Run one of the programs of `resync`; everything it says. Its exit status means nothing and is not looked at."""
    command = [sys.executable, str(BIN / program), *map(str, arguments)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:  # it leaves a file where it is run
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=environment, cwd=folder
        )
    return done.stdout + done.stderr


def status_line(said: str) -> str:
    """The last status that `resync-sync` gave."""
    lines = [line.split("Status:", 1)[1].strip() for line in said.splitlines() if "Status:" in line]
    assert lines, said
    return lines[-1]


@contextmanager
def serving(*arguments: object) -> Iterator[str]:
    """`headwater serve` on an ephemeral port, ready; its URL."""
    command = [sys.executable, "-m", "headwater", "serve", *map(str, arguments), "--port", "0", "--json", "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    drain = threading.Thread(target=process.stderr.read, daemon=True)
    try:
        line = process.stdout.readline()
        assert line, "the server did not start"
        drain.start()
        url = str(json.loads(line)["url"])
        until(lambda: get(f"{url}/.well-known/resourcesync") is not None)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if drain.is_alive():
            drain.join(10)
        process.stdout.close()
        process.stderr.close()


@contextmanager
def web_server(folder: Path, *, conditional: bool = True) -> Iterator[str]:
    """A plain web server on a folder, as any site has one; its URL without a slash at the end.

    `conditional`: it answers with 304 for what is older than `If-Modified-Since`, also where it was another document.
    """

    class Quiet(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if not conditional:
                del self.headers["If-Modified-Since"]
            super().do_GET()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def get(url: str) -> bytes | None:
    """The body of a 200, else None."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, ConnectionError):
        return None


def tree(folder: Path, *, without: str = ".headwater") -> dict[str, bytes]:
    """Every file below a folder by its relative path."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        name: path.read_bytes() for path in files if not (name := str(path.relative_to(folder))).startswith(without)
    }
