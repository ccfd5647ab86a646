"""The least that a verified baseline by lists takes: `python -m bench.least RESOURCE_LIST FOLDER`.

Two processes ask for half of the resources each, compare length and SHA-256, write each file beside its place and
rename it; the parent reads the list by expat, and records in SQLite what came, in batches, after these are on the
disk. Nothing is retried, bounded, resumed or refused.
"""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.parsers import expat

import pycurl

CONNECTIONS, BATCH, PROCESSES = 32, 1_000, 2
Listed = tuple[str, int, str]
"""The URI, length and SHA-256 of a resource."""


def listed(octets: bytes) -> list[Listed]:
    """The entries of a Resource List."""
    found: list[Listed] = []
    said: dict[str, str] = {}
    text: list[str] = []

    def begin(name: str, attributes: dict[str, str]) -> None:
        text.clear()
        if name == "rs:md":
            said.update(attributes)

    def end(name: str) -> None:
        if name == "loc":
            said["loc"] = "".join(text)
        elif name == "url":
            digest = next(word for word in said["hash"].split() if word.startswith("sha-256:"))
            found.append((said["loc"], int(said["length"]), digest.removeprefix("sha-256:")))

    reader = expat.ParserCreate()
    reader.buffer_text = True
    reader.StartElementHandler, reader.EndElementHandler, reader.CharacterDataHandler = begin, end, text.append
    reader.Parse(octets, True)
    return found


def got(url: str) -> bytes:
    """The body of one answer."""
    parts: list[bytes] = []
    curl = pycurl.Curl()
    curl.setopt(pycurl.URL, url)
    curl.setopt(pycurl.WRITEFUNCTION, parts.append)
    curl.perform()
    return b"".join(parts)


_multi: Any = None
_idle: list[Any] = []


def fetched(batch: tuple[str, list[Listed]]) -> list[tuple[str, str, int]]:
    """Fetch, compare and place these; what is recorded of each."""
    global _multi
    if _multi is None:
        _multi = pycurl.CurlMulti()
        _idle.extend(pycurl.Curl() for _ in range(CONNECTIONS))
    folder, rows = batch
    waiting, open_ = iter(rows), 0
    done: list[tuple[str, str, int]] = []
    while True:
        while _idle and (row := next(waiting, None)) is not None:
            curl = _idle.pop()
            curl.row, curl.parts = row, []
            curl.setopt(pycurl.URL, row[0])
            curl.setopt(pycurl.WRITEFUNCTION, curl.parts.append)
            _multi.add_handle(curl)
            open_ += 1
        if not open_:
            return done
        _multi.perform()
        _, ended, failed = _multi.info_read(CONNECTIONS)
        assert not failed, failed
        for curl in ended:
            _multi.remove_handle(curl)
            _idle.append(curl)
            open_ -= 1
            done.append(placed(folder, curl.row, b"".join(curl.parts)))
        if not ended:
            _multi.select(0.2)


def placed(folder: str, row: Listed, octets: bytes) -> tuple[str, str, int]:
    """Give octets their place, if they are what is listed."""
    url, length, digest = row
    assert (len(octets), hashlib.sha256(octets).hexdigest()) == (length, digest), url
    path = f"{folder}/{unquote(url.split('/', 3)[3])}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    beside = os.open(path + "~", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(beside, octets)
    os.utime(beside, (1, 1))
    os.close(beside)
    os.rename(path + "~", path)
    return url, digest, length


def batches(folder: str, rows: list[Listed]) -> Iterator[tuple[str, list[Listed]]]:
    for first in range(0, len(rows), BATCH):
        yield folder, rows[first : first + BATCH]


def main() -> None:
    url, folder = sys.argv[1:]
    Path(folder).mkdir()
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool, sqlite3.connect(f"{folder}/state.db") as state:
        state.execute("PRAGMA journal_mode = WAL")
        state.execute("CREATE TABLE held(uri TEXT PRIMARY KEY, digest TEXT, length INT)")
        rows = listed(got(url))
        state.executemany("INSERT INTO held VALUES (?, NULL, NULL)", ((uri,) for uri, _, _ in rows))
        state.commit()
        place, syncfs = os.open(folder, os.O_RDONLY), getattr(ctypes.CDLL(None), "syncfs", None)
        for done in pool.imap_unordered(fetched, batches(folder, rows)):
            os.fsync(place) if syncfs is None else syncfs(place)
            state.executemany("UPDATE held SET digest = ?2, length = ?3 WHERE uri = ?1", done)
            state.commit()


if __name__ == "__main__":
    main()
