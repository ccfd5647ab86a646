"""The versions of a store as they lie on the disk, in packs or in files: looked at, made old, damaged."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from headwater.files.version_copy import version_path
from headwater.storage.database import Database
from headwater.storage.objects.interface import octets_of
from headwater.versions.folder_store import FolderVersionStore
from headwater.versions.pack_index import SCHEMA


@contextmanager
def opened(folder: Path) -> Iterator[FolderVersionStore]:
    """The store in the folder `versions` of a state folder."""
    store = FolderVersionStore(folder)
    try:
        yield store
    finally:
        store.close()


def kept_octets(folder: Path) -> dict[str, bytes]:
    """The octets of all versions, by their digests, which they have."""
    found = {}
    with opened(folder) as store:
        for one in store.versions():
            content = store.open(one.digest)
            assert content is not None
            with closing(content):
                octets = found[one.digest] = b"".join(octets_of(content, 0, content.octets))
            assert hashlib.sha256(octets).hexdigest() == one.digest
    return found


def make_old(folder: Path) -> None:
    """Let no change have named a version since 1970."""
    if (folder / "index.sqlite").exists():
        with Database(folder / "index.sqlite", SCHEMA) as index, index.write() as tx:
            tx.run("UPDATE versions SET used_us = 0")
    for path in folder.glob("??/??/*"):
        os.utime(path, (0, 0))


def damage(folder: Path, octets: bytes) -> None:
    """Let the disk have turned over a bit of a version."""
    path, start = _place(folder, octets)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes([octets[0] ^ 1]))


def cut_off(folder: Path, octets: bytes) -> None:
    """Let the disk have lost the end of a version, and of whatever lies behind it in its file."""
    path, start = _place(folder, octets)
    os.truncate(path, start + len(octets) // 2)


def forget_all(folder: Path) -> None:
    """Let somebody have removed the store."""
    shutil.rmtree(folder)


def _place(folder: Path, octets: bytes) -> tuple[Path, int]:
    digest = hashlib.sha256(octets).hexdigest()
    with Database(folder / "index.sqlite", SCHEMA) as index, index.read() as tx:
        row = tx.one(
            "SELECT name, start FROM versions JOIN packs ON packs.id = pack WHERE digest = ?", (bytes.fromhex(digest),)
        )
    if row is None:
        return Path(os.fsdecode(version_path(os.fsencode(folder), digest))), 0
    return folder / "packs" / f"{row[0]}.pack", int(row[1])
