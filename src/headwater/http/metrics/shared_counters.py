"""Counters of several processes on one socket, each in a file of its own; whoever is asked adds them up.

A scrape reaches one of the processes by chance; without this, its figures would jump back and forth.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from headwater.typed_decoding import from_json

WRITE_SECONDS: Final = 1.0
"""How far behind the others' figures may be, at most, while they are asked anything."""


class CounterSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """One process: for each kind and status the row that `RequestCounters` keeps; lines by set and outcome."""

    requests: list[tuple[str, int, list[float]]] = []
    publications: dict[str, int] = {}
    faults: int = 0
    cut_short: int = 0
    lines: dict[str, dict[str, int]] = {}


class SharedCounters:
    """A folder that only these processes know. Files of a process that has ended stay: what it counted still counts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = folder / f"{os.getpid()}.json"
        self._aside = folder / f"{os.getpid()}.new"

    def write(self, own: CounterSnapshot) -> None:
        """Say what this process has counted. A full disk only makes the figures old."""
        with suppress(OSError):
            self._aside.write_bytes(msgspec.json.encode(own))
            self._aside.replace(self._own)

    def others(self) -> Iterator[CounterSnapshot]:
        """What the others have said last."""
        for path in sorted(self._folder.glob("*.json")):
            if path != self._own:
                with suppress(OSError, msgspec.DecodeError):
                    yield from_json(path.read_bytes(), CounterSnapshot)
