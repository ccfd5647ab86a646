"""Counts the modules and functions that the smallest pieces of work pass: `python -m tools.journeys [--functions]`.

Four journeys, each in processes of its own by the public commands, with SQLite: one changed file published again by
`publish`; one record announced to `serve` by HTTP until it stands in the Change List; the first `sync` of a source with
one resource; the next one, of one change. Counted are functions that are called at least once, and the modules in which
they stand, the commands' own among them; comprehensions, lambdas and what importing a module calls are not.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

_SECONDS = 120.0
"""It only guards against hanging: beside a test suite on every processor a start alone may take ten."""
_TOKEN = "of-a-journey-of-one-record-0123456789"

_HOOK = """
import importlib.util, json, os, signal, sys, threading
seen, counting = set(), [sys.argv.pop(1) == "at once"]
out = sys.argv.pop(1)
root = os.path.dirname(importlib.util.find_spec("headwater").origin) + os.sep
def hook(frame, event, argument):
    code = frame.f_code
    ours = code.co_filename.startswith(root)  # not what lies in an environment below a folder of this name
    if event == "call" and counting[0] and ours and code.co_flags & 1 and code.co_name[0] != "<":
        name = (code.co_filename.removeprefix(root), code.co_qualname)
        if name not in seen and not importing(frame.f_back):
            seen.add(name)
def importing(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(root):
            return True
        frame = frame.f_back
    return False
def write(*ignored):
    functions = sorted(seen)
    with open(out + ".part", "w") as file:
        json.dump(functions, file)
    os.replace(out + ".part", out)
def begin(*ignored):
    counting[0] = True
    open(out + ".begun", "w").close()
signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, write)
threading.setprofile(hook)
sys.setprofile(hook)
try:
    from headwater.cli import main
    main()
finally:
    counting[0] = False
    write()
"""


def main() -> None:
    """Print a line a journey: modules, functions; with `--functions` their names as well."""
    for name, functions in journeys().items():
        modules = {module for module, _ in functions}
        print(f"{name:<48} {len(modules):>4} modules {len(functions):>5} functions")
        if "--functions" in sys.argv:
            for module, function in functions:
                print(f"    {module}: {function}")


def journeys() -> dict[str, list[tuple[str, str]]]:
    """The functions that each journey calls, as (module, function), by its name."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="headwater-journeys-") as name:
        for journey in (_published, _announced, _first_sync, _next_sync):
            folder = Path(name) / journey.__name__.strip("_")
            folder.mkdir()
            found[_first_line(journey)] = journey(folder)
    return found


def _first_line(journey: Callable[[Path], list[tuple[str, str]]]) -> str:
    return (journey.__doc__ or "").splitlines()[0].rstrip(".")


def _published(base: Path) -> list[tuple[str, str]]:
    """One changed file, published again."""
    file = _one_file(base)
    words = ["publish", "--files", str(base / "files"), "--to", str(base / "out"), "--base-url", "http://127.0.0.1:9/"]
    _counted(base, *words)
    file.write_text("changed\n")
    return _counted(base, *words)


def _announced(base: Path) -> list[tuple[str, str]]:
    """One record announced, until it is published."""
    config = base / "headwater.toml"
    config.write_text(
        f'state = "{base}/state"\nport = 0\n[[set]]\nname = "records"\nfeed = "events"\ntoken_file = "{base}/token"\n'
    )
    (base / "token").write_text(_TOKEN)
    with _serving(base, str(config)) as (process, url, out):
        head = {"Authorization": f"Bearer {_TOKEN}"}
        for number in range(2):
            if number == 1:
                process.send_signal(signal.SIGUSR1)
                _until(out.with_name(f"{out.name}.begun").exists)
            uri = f"https://example.org/{number}"
            body = json.dumps({"uri": uri, "lastmod": "2026-01-01T00:00:00Z"}).encode() + b"\n"
            urlopen(Request(f"{url}/records/changes", body, head), timeout=_SECONDS).close()
            _until(partial(_stands_in, f"{url}/records/changelist.xml", uri))
        return _dumped(process, out)


def _first_sync(base: Path) -> list[tuple[str, str]]:
    """The first sync of one resource."""
    _one_file(base)
    with _serving(base, "--port", "0", "--files", str(base / "files"), "--state", str(base / "state")) as (
        _,
        url,
        _out,
    ):
        return _counted(base, "sync", url, str(base / "copy"))


def _next_sync(base: Path) -> list[tuple[str, str]]:
    """The next sync, of one change."""
    file = _one_file(base)
    with _serving(base, "--port", "0", "--files", str(base / "files"), "--state", str(base / "state")) as (
        _,
        url,
        _out,
    ):
        _counted(base, "sync", url, str(base / "copy"))
        file.write_text("changed\n")
        _until(partial(_stands_in, f"{url}/files/changelist.xml", "updated"))
        return _counted(base, "sync", url, str(base / "copy"))


def _one_file(base: Path) -> Path:
    (base / "files").mkdir()
    file = base / "files" / "a.txt"
    file.write_text("as it was\n")
    return file


def _command(base: Path, when: str, *words: str) -> tuple[list[str], Path]:
    out = base / "functions.json"
    return [sys.executable, "-c", _HOOK, when, str(out), *words], out


def _counted(base: Path, *words: str) -> list[tuple[str, str]]:
    command, out = _command(base, "at once", *words)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return _read(out)


def _read(out: Path) -> list[tuple[str, str]]:
    return [(module, function) for module, function in json.loads(out.read_text())]


def _dumped(process: subprocess.Popen[bytes], out: Path) -> list[tuple[str, str]]:
    out.unlink(missing_ok=True)
    process.send_signal(signal.SIGUSR2)
    _until(out.exists)
    return _read(out)


@contextmanager
def _serving(base: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """`headwater serve`, as soon as it has published; what it calls is counted from SIGUSR1 on."""
    command, out = _command(base, "when told", "serve", *words)
    log = base / "log"
    with log.open("wb") as to, subprocess.Popen(command, stdout=to, stderr=to, env=os.environ) as process:
        try:
            _until(lambda: _address(log) or process.poll() is not None)
            if not _address(log):
                raise RuntimeError(log.read_text())
            url = _address(log)
            _until(lambda: _text(url + ("/.well-known/resourcesync" if "--files" in words else "/health")))
            yield process, url, out
        finally:
            process.terminate()
            process.wait(_SECONDS)


def _address(log: Path) -> str:
    found = re.search(r"http://[^\s/]+", log.read_text())
    return found[0].rstrip(".,") if found else ""


def _text(url: str) -> str:
    try:
        with urlopen(url, timeout=_SECONDS) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _stands_in(url: str, uri: str) -> bool:
    return uri in _text(url)


def _until(look: Callable[[], object]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError("this journey has not come to its end in time")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
