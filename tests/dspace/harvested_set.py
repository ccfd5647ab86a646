"""The set `d` of a source that harvests a fake DSpace, by the command line as people run it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from headwater.catalog.sqlite_catalog import SqliteCatalog
from tests.dspace.fake_dspace import FakeDSpace
from tests.support.program import Done, run_here

BASE = 'base_url = "http://source.example"'


class HarvestedSet:
    """A source in `folder`; `more` are further lines of its set's table."""

    def __init__(self, folder: Path, dspace: FakeDSpace, more: str = "", address: str = BASE) -> None:
        self.dspace = dspace
        self.state = folder / "state"
        self.files = self.state / "harvested" / "d"
        self.config = folder / "source.toml"
        self.config.write_text(
            f'state = "state"\n{address}\n\n[[set]]\nname = "d"\nfeed = "dspace"\nurl = "{dspace.url}"\n{more}\n'
        )
        self.said = ""

    def command(self, *arguments: object) -> list[str]:
        return ["ingest", "dspace", "--set", "d", "--config", str(self.config), "--json", *map(str, arguments)]

    def run(self, *arguments: object) -> tuple[int, dict[str, Any]]:
        """One run: its exit status, and what it tells."""
        done: Done = run_here(*self.command(*arguments))
        self.said = done.stderr.decode() + done.stdout.decode()
        told = json.loads(done.stdout) if done.stdout.strip() else {}
        if "created" in told:
            told["changed"] = told["created"] + told["updated"]
        return done.returncode, told

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        """The same as a process of its own."""
        command = [sys.executable, "-m", "headwater", *self.command(*arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def resources(self) -> dict[str, Any]:
        """The resources of the catalog, by URI."""
        catalog = SqliteCatalog(self.state / "catalog.sqlite")
        try:
            return {one.uri: one.metadata for one in catalog.resources("d", "", 1_000_000)}
        finally:
            catalog.close()

    def changes(self) -> list[tuple[str, str]]:
        catalog = SqliteCatalog(self.state / "catalog.sqlite")
        try:
            return [(one.change.value, one.uri) for one in catalog.changes("d", 0, 1_000_000)]
        finally:
            catalog.close()

    def holds(self) -> dict[str, Any]:
        """What the set has, as `FakeDSpace.truth` tells it. Each file is what the catalog says of it, and none more."""
        found: dict[str, Any] = {}
        resources = self.resources()
        for uri, metadata in resources.items():
            octets = (self.files / uri).read_bytes()
            assert metadata.length == len(octets), uri
            assert f"sha-256:{hashlib.sha256(octets).hexdigest()}" in metadata.hash.split(), uri
            if uri.startswith("items/"):
                told = json.loads(octets)
                assert told.pop("type") == "item"
                found[uri.removeprefix("items/").removesuffix(".json")] = told
            else:
                found[uri.split("/")[1]] = octets
        there = {str(one.relative_to(self.files)) for one in self.files.rglob("*") if one.is_file()}
        assert there == set(resources), there ^ set(resources)
        return found
