"""`make demo`: the whole way once, on a real tree, told so that a newcomer can follow it.

A copy of the tree is published by `headwater serve`, copied by `headwater sync`, changed, synced again, audited, and at
the end kept current by push; `diff -r` has the last word. The tree itself is only read; everything happens in a scratch
folder that is removed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

EDITED, ADDED, DELETED = 40, 25, 15
PUSHED = 10
HEADWATER = str(Path(sys.executable).with_name("headwater"))


def main() -> None:
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(sysconfig.get_paths()["purelib"])
    if not given.is_dir():
        sys.exit(f"demo: {given} is not a folder")
    scratch = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    try:
        tell(given, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def tell(given: Path, scratch: Path) -> None:
    """The story, step by step; every claim in it is checked."""
    source, copy = scratch / "source", scratch / "copy"
    title(f"A source: a copy of {given}")
    shutil.copytree(given, source, ignore=only_files, ignore_dangling_symlinks=True)
    make_writable(source)
    remove_empty_folders(source)
    count, octets = measure(source)
    say(f"{count:,} files, {octets / 1e6:,.1f} MB in {source}")
    if count == 0:
        sys.exit("demo: the folder holds no files")

    title("1. Publish it over HTTP, and follow its changes")
    with serving(source, scratch / "state") as (url, seconds):
        say(f"Ready at {url} after {rate(count, octets, seconds)}, two digests of each file included.")

        title("2. Copy it into a folder, every file verified by its hash")
        seconds = run("sync", url, copy)
        say(f"Copied: {rate(count, octets, seconds)}.")
        check_equal(source, copy)

        title("3. Something changes at the source")
        changes = edit(source)
        wait_until_announced(url, changes)

        title("4. Sync again: only what changed is transferred")
        seconds = run("sync", url, copy)
        say(f"In step again after {seconds:.2f} s.")
        check_equal(source, copy)

        title("5. Nothing has changed: asking costs next to nothing")
        seconds = run("sync", url, copy)
        say(f"{seconds:.2f} s, the start of the program included.")

        title("6. Prove it: the audit compares every file with the source's hashes and transfers none")
        seconds = run("audit", url, copy)
        count, octets = measure(source)
        say(f"Audited: {rate(count, octets, seconds)}.")

        title("7. Nobody asks any more: the hub tells the copy of each edit")
        with following(url, copy):
            delays = edit_and_wait(source, copy)
            say(f"{PUSHED} edits arrived, each {in_milliseconds(delays)} after it was on the disk.")
        check_equal(source, copy)
    title("Done. Publish a folder of your own:  headwater serve --files DIR")


def only_files(folder: str, names: list[str]) -> set[str]:
    """What is not copied: sockets, pipes, devices, and symbolic links to folders, which may lead in circles."""
    paths = {name: Path(folder, name) for name in names}
    folders = {name for name, path in paths.items() if path.is_dir() and not path.is_symlink()}
    return {name for name, path in paths.items() if name not in folders and not path.is_file()}


def make_writable(root: Path) -> None:
    for folder, _, names in os.walk(root):
        os.chmod(folder, 0o755)
        for name in names:
            os.chmod(os.path.join(folder, name), 0o644)


def remove_empty_folders(root: Path) -> None:
    """A folder is no resource: an empty one has no address, so that no copy can have it."""
    for folder, _, _ in os.walk(root, topdown=False):
        if folder != str(root) and not os.listdir(folder):
            os.rmdir(folder)


def measure(root: Path) -> tuple[int, int]:
    sizes = [os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(root) for name in names]
    return len(sizes), sum(sizes)


@contextmanager
def serving(source: Path, state: Path) -> Iterator[tuple[str, float]]:
    """A real server in a process of its own; yields its URL and the seconds until everything was published."""
    arguments = ["serve", "--files", str(source), "--port", "0", "--state", str(state), "--hub"]
    say(f"$ headwater serve --files {source} --port 0 --state {state} --hub &")
    started = time.monotonic()
    server = subprocess.Popen(
        [HEADWATER, *arguments, "--quiet", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            sys.exit(f"demo: the server did not start; try: headwater serve --files {source} --state {state}")
        told = json.loads(line)
        url = told["url"]
        say(f"The hub that hears of each change is at {told['hub']}, in the same process.")
        wait_for(lambda: status_of(f"{url}/.well-known/resourcesync") == 200, 600, "the first publication")
        yield url, time.monotonic() - started
    finally:
        end(server)


@contextmanager
def following(url: str, copy: Path) -> Iterator[None]:
    """A copy that is kept current by push, once its subscription holds."""
    say(f"$ headwater sync --follow 60 --push {url} {copy} &")
    arguments = ["sync", "--follow", "60", "--push", url, str(copy)]
    follower = subprocess.Popen([HEADWATER, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: is_pushed(copy), 60, "the subscription")
        yield
    finally:
        end(follower)


def is_pushed(copy: Path) -> bool:
    done = subprocess.run([HEADWATER, "status", "--json", str(copy)], capture_output=True, check=False)
    return bool(done.stdout) and (json.loads(done.stdout).get("push") or {}).get("mode") == "push"


def edit_and_wait(source: Path, copy: Path) -> list[float]:
    """Edit files one after the other; the seconds after which each edit was in the copy."""
    seconds = []
    for number in range(PUSHED):
        path = source / "edited while you watch.txt"
        text = f"Edit {number}: nobody has asked for it.\n"
        path.write_text(text)
        began = time.monotonic()
        there = copy / path.name
        wait_for(lambda text=text, there=there: there.exists() and there.read_text() == text, 60, "an edit", 0.001)  # type: ignore[misc]
        seconds.append(time.monotonic() - began)
        time.sleep(0.2)
    return seconds


def in_milliseconds(seconds: list[float]) -> str:
    least, median, most = (f"{1_000 * one:.0f}" for one in (min(seconds), statistics.median(seconds), max(seconds)))
    return f"{least} to {most} ms (median {median})"


def end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def status_of(url: str) -> int:
    from headwater.transport.fetch import Fetch, TransportOptions
    from headwater.transport.transport import Transport

    with Transport(TransportOptions(retries=0)) as transport:
        return transport.one(Fetch(url)).status


def wait_for(condition: Callable[[], bool], seconds: float, what: str, pause: float = 0.05) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"demo: waited {seconds:.0f} s in vain for {what}")
        time.sleep(pause)


def run(command: str, url: str, copy: Path) -> float:
    """Run one command as a user would, showing what it says; its seconds."""
    say(f"$ headwater {command} {url} {copy}")
    started = time.monotonic()
    done = subprocess.run([HEADWATER, command, url, str(copy)], capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    for line in (done.stdout + done.stderr).splitlines():
        say(f"    {line}")
    if done.returncode != 0:
        sys.exit(f"demo: headwater {command} ended with exit status {done.returncode}")
    return seconds


def edit(source: Path) -> int:
    """Edit, add and delete some files, spread over the tree; how many."""
    files = sorted(path for path in source.rglob("*") if path.is_file())
    step = max(1, len(files) // (EDITED + DELETED + 1))
    chosen = files[::step]
    deleted, edited = chosen[: min(DELETED, len(files) // 10)], chosen[DELETED : DELETED + EDITED]
    for path in edited:
        with path.open("ab") as file:
            file.write(b"\n# edited by the demo\n")
    for number in range(ADDED):
        path = source / "added by the demo" / f"no. {number} – 50 % new.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"This is new file {number}.\n" * 50)
    for path in deleted:
        path.unlink()
    remove_empty_folders(source)
    say(f"{len(edited)} files edited, {ADDED} added (with spaces, % and – in their names), {len(deleted)} deleted.")
    return len(edited) + ADDED + len(deleted)


def wait_until_announced(url: str, changes: int) -> None:
    """Wait until the source's open Change List names all the changes and has come to rest."""
    from headwater.transport.fetch import Fetch
    from headwater.transport.transport import Transport

    started = time.monotonic()
    with Transport() as transport:
        seen: list[tuple[float, bytes]] = []

        def at_rest() -> bool:
            body = transport.one(Fetch(f"{url}/files/changelist/open.xml")).body
            if not seen or seen[-1][1] != body:
                seen.append((time.monotonic(), body))
            return body.count(b"<url>") >= changes and time.monotonic() - seen[-1][0] > 1.0

        wait_for(at_rest, 120, "the changes to be announced")
    say(f"The source announced them all within {seen[-1][0] - started:.1f} s, without being told.")


def check_equal(source: Path, copy: Path) -> None:
    arguments = ["diff", "-r", "--no-dereference", "--exclude=.headwater", str(source), str(copy)]
    say(f"$ diff -r --exclude=.headwater {source} {copy}")
    if subprocess.run(arguments, check=False).returncode != 0:
        sys.exit("demo: the copy differs from the source")
    say("    (no difference)")


def rate(count: int, octets: int, seconds: float) -> str:
    return f"{seconds:.2f} s ({count / seconds:,.0f} files/s, {octets / 1e6 / seconds:,.1f} MB/s)"


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def say(text: str) -> None:
    print(f"   {text}", flush=True)


if __name__ == "__main__":
    main()
