"""Makes `tests/data/upgrade/VERSION.tar.xz`: what an older version of this program leaves behind, for `tests/upgrade`.

    python -m tools.upgrade_data 5916edd /path/to/its/.venv/bin/headwater

The archive holds the folder of a source (`source.toml`, its folders of files, its state), a folder that was published
as static files (`tree`, out of `photos`), and a copy of the source by `headwater sync` (`copy`). Only the program is
run, by its command line and by HTTP; the addresses are those of `source.example`, for which the server at work is the
proxy. Times of files are whole seconds, which a tar archive keeps.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "upgrade"
BEGIN = 1_750_000_000
"""The time of the oldest file; a later one is a second later."""
SITE = "http://source.example"
TOKEN = "a-token-of-the-tests"
CONFIG = """\
state = "state"
base_url = "{site}"
page_entries = 4
segment_entries = 3

[[set]]
name = "files"
files = "files"
watch = false
rescan_seconds = 86400
{keeps}
[[set]]
name = "articles"
feed = "events"
token = "{token}"
resource_root = "articles"

[[set]]
name = "harvested"
feed = "dit"
token = "{token}"
resource_root = "harvested"
pair_seconds = 86400
"""
KEEPS = """\
versions = true
dump = true
change_dump = true
archive = true
classic = true
"""
"""What a set of files keeps and offers besides; the program as it was at FIRST knew nothing of it."""
FIRST = "5916edd"


class _Maker:
    def __init__(self, program: str, folder: Path, keeps: str) -> None:
        self.program = program
        self.config = CONFIG.format(site=SITE, token=TOKEN, keeps=keeps)
        self.folder = folder
        self.time = BEGIN

    def run(self, *arguments: str, status: int = 0, **environment: str) -> None:
        done = subprocess.run([self.program, *arguments], cwd=self.folder, env={**os.environ, **environment})
        assert done.returncode == status, (arguments, done.returncode)

    def put(self, path: str, text: str) -> None:
        """Write a file, with a time of its own."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_text(text, "utf-8")
        self.time += 1
        os.utime(file, (self.time, self.time))

    def event(self, path: str, **fields: object) -> dict[str, object]:
        """A line about a file of the set of events."""
        body = (self.folder / "articles" / path).read_bytes()
        return {"path": path, "sha-256": hashlib.sha256(body).hexdigest(), "length": len(body), **fields}

    def document(self, path: str, **fields: object) -> dict[str, object]:
        """A document of a harvester about a file of the set of documents."""
        lastmod = "2026-01-01T00:00:00+0000"
        location = {"value": path, "type": "rel_path"}
        return {"resource_set": "harvested", "location": location, "lastmod": lastmod, **fields}

    def pair(self, path: str, kind: str, second: int) -> list[dict[str, object]]:
        body = (self.folder / "harvested" / path).read_bytes()
        change = self.document(path, change=kind, datetime=f"2026-01-01T00:00:{second:02}+0000")
        return [self.document(path, length=len(body), md5=hashlib.md5(body).hexdigest()), change]

    @contextmanager
    def serving(self, *options: str) -> Iterator[str]:
        """The address of the source's server."""
        command = [self.program, "serve", "source.toml", "--port", "0", "--json", "--quiet", *options]
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            try:
                yield f"http://{address.removeprefix('http://').rstrip('/')}"
            finally:
                server.terminate()

    def make(self) -> None:
        """Everything that the archive holds."""
        for name in ("a", "b", "d/c", "d/gone", "e", "ü", "f", "g"):
            self.put(f"files/{name}.txt", f"the first of {name}\n")
        for folder in ("articles", "harvested"):
            for name in ("one", "two", "three"):
                self.put(f"{folder}/{name}.txt", f"{name} of {folder}\n")
        (self.folder / "source.toml").write_text(self.config, "utf-8")
        self.run("publish", "source.toml")
        self.put("files/b.txt", "the second of b\n")
        (self.folder / "files/d/gone.txt").unlink()
        self.run("publish", "source.toml")
        self.put("files/missing.txt", "cannot be had for a while\n")
        self.put("files/new.txt", "the first of new\n")
        self.put("files/b.txt", "the third of b\n")
        self.run("publish", "source.toml")
        with self.serving() as address:
            names = ("one.txt", "two.txt", "three.txt")
            events = [self.event(name) for name in names]
            send(address, "/articles/changes", events, key="first")
            last: list[dict[str, object]] = [
                {"path": "three.txt", "change": "deleted"},
                self.event("two.txt", type="text/plain"),
            ]
            send(address, "/articles/changes", last, key="second")
            pairs = [one for second, name in enumerate(names, 1) for one in self.pair(name, "created", second)]
            half = self.document("two.txt", change="updated", datetime="2026-01-01T00:01:00+0000")
            send(address, "/ingest/dit", [*pairs, {**half, "lastmod": "2026-01-01T00:01:00+0000"}])
            wait_for_publication(address)
        missing, aside = self.folder / "files/missing.txt", self.folder / "missing.txt"
        missing.rename(aside)
        with self.serving("--no-publish") as address:
            wanted = ("--set", "files", "--set", "articles")
            self.run("sync", f"{SITE}/.well-known/resourcesync", "copy", *wanted, status=4, http_proxy=address)
        aside.rename(missing)
        for number in range(6):
            self.put(f"photos/{number}.txt", f"photo {number}\n")
        for text in ("", "again\n", "once more\n"):
            if text:
                self.put("photos/3.txt", text)
            self.run("publish", "--files", "photos", "--to", "tree", "--base-url", f"{SITE}/tree")


def send(address: str, path: str, lines: list[dict[str, object]], key: str | None = None) -> None:
    """Announce something, by HTTP."""
    headers = {"Authorization": f"Bearer {TOKEN}", **({"Idempotency-Key": key} if key else {})}
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    with urllib.request.urlopen(urllib.request.Request(address + path, body, headers)) as answer:
        print(answer.status, answer.read().decode())


def wait_for_publication(address: str) -> None:
    """Until everything that was announced is published."""
    for _ in range(300):
        with (
            suppress(HTTPError),
            urllib.request.urlopen(f"{address}/health") as answer,
        ):  # 503 until all is published once
            sets = json.loads(answer.read())["sets"]
            if all(one["changes"] == one["published_changes"] for one in sets):
                return
        time.sleep(0.1)
    raise AssertionError("it has not been published")


def packed(folder: Path) -> bytes:
    """The folder as an archive that says nothing of who made it; hard links stay what they are."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            member = archive.gettarinfo(path, str(path.relative_to(folder)))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = int(member.mtime)
            if member.isfile():
                with path.open("rb") as file:
                    archive.addfile(member, file)
            else:
                archive.addfile(member)
    return lzma.compress(buffer.getvalue(), preset=9)


def main(version: str, program: str) -> None:
    """Make the archive of one version."""
    with tempfile.TemporaryDirectory() as folder:
        maker = _Maker(str(Path(program).absolute()), Path(folder), "" if version == FIRST else KEEPS)
        maker.make()
        DATA.mkdir(parents=True, exist_ok=True)
        (DATA / f"{version}.tar.xz").write_bytes(packed(Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
