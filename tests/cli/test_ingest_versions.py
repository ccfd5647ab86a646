"""`headwater ingest` beside a stopped server: the history of the set goes on, and octets are kept."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from headwater.cli import run
from headwater.source.config import read_config
from headwater.source.source import Source
from headwater.versions.history import Keeping, PastState

ALL = 1 << 62


class StoppedSource:
    """The configuration of a push set with versions, and the files that its records are about."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.files = base / "files"
        self.files.mkdir()
        self.config = base / "source.toml"
        self.config.write_text(
            'state = "state"\nbase_url = "http://example.org"\n'
            '[[set]]\nname = "s"\nfeed = "events"\nresource_root = "files"\nversions = true\n'
        )

    def announce(self, octets: bytes, *options: str) -> int:
        """Write the file, and announce that by a file of lines."""
        (self.files / "a.txt").write_bytes(octets)
        event = {"path": "a.txt", "length": len(octets), "sha-256": hashlib.sha256(octets).hexdigest()}
        lines = self.base / "lines.ndjson"
        lines.write_text(json.dumps(event) + "\n")
        return run(["ingest", "events", str(lines), "--set", "s", *options])

    def states(self) -> list[tuple[PastState, bytes | None]]:
        """What the source knows of the past when it is started again, with the octets that it has."""
        with Source(read_config(self.config)) as source:
            source.run_once()
            found = []
            for one in source.histories["s"].after("a.txt", -ALL, 10):
                content = source.versions.open(one.digest) if one.digest else None
                found.append((one, None if content is None else content.read(0, content.octets)))
                if content is not None:
                    content.close()
            return found


@pytest.fixture
def stopped(tmp_path: Path) -> StoppedSource:
    return StoppedSource(tmp_path)


def test_with_the_configuration_nothing_is_lost(stopped: StoppedSource) -> None:
    for octets in (b"one", b"two", b"three"):
        assert stopped.announce(octets, "--config", str(stopped.config)) == 0
        assert stopped.states()[-1][1] == octets
    assert [octets for _, octets in stopped.states()] == [b"one", b"two", b"three"]


def test_with_the_state_alone_the_history_goes_on(stopped: StoppedSource) -> None:
    """Octets are kept where the files are known, and noted as lost where they are not."""
    assert stopped.announce(b"one", "--config", str(stopped.config)) == 0
    stopped.states()
    place = ("--state", str(stopped.base / "state"), "--url-prefix", "http://example.org/s/resources/")
    assert stopped.announce(b"two", *place, "--resource-root", str(stopped.files)) == 0
    assert stopped.announce(b"three", *place) == 0
    found = stopped.states()
    assert [(one.keeping, octets) for one, octets in found] == [
        (Keeping.KEPT, b"one"),
        (Keeping.KEPT, b"two"),
        (Keeping.LOST, None),
    ]


def test_a_set_without_versions_gets_none(stopped: StoppedSource) -> None:
    stopped.config.write_text(stopped.config.read_text().replace("versions = true", ""))
    assert stopped.announce(b"one", "--config", str(stopped.config)) == 0
    assert not (stopped.base / "state" / "versions").exists()
