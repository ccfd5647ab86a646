"""The versions of a store as they lie on the disk: kept, looked at, made old, damaged."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from headwater.files.file_copies import VersionCopy, VersionWriter, version_path
from headwater.storage.database import Database
from headwater.storage.object_store import octets_of
from headwater.versions.store import FILE, SCHEMA, SetAside, VersionIntake, VersionStore


@contextmanager
def opened(folder: Path) -> Iterator[VersionStore]:
    """The store in the folder `versions` of a state folder."""
    store = VersionStore(folder)
    try:
        yield store
    finally:
        store.close()


def set_aside(intake: VersionIntake, *contents: bytes) -> list[SetAside]:
    """Octets set aside as a reader does."""
    writer = VersionWriter(intake.folder)
    found = []
    for octets in contents:
        copy = VersionCopy(writer, len(octets))
        copy.write(octets)
        copy.finish()
        copy.discard()  # has no effect on what is finished
        found.append(SetAside(hashlib.sha256(octets).hexdigest(), copy.name, len(octets)))
    assert writer.settle() == 0
    return found


def keep_octets(store: VersionStore, *contents: bytes) -> None:
    """Keep these as the versions of one batch."""
    with store.intake() as intake:
        assert intake.keep(set_aside(intake, *contents)) == []


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


def make_old(folder: Path, *digests: str, used_us: int = 0) -> None:
    """Let no change have named these versions (none: any) since this time."""
    with Database(folder / FILE, SCHEMA) as database, database.write() as tx:
        which = [(used_us, bytes.fromhex(one)) for one in digests]
        if not which:
            tx.run("UPDATE version SET used_us = ?", (used_us,))
        tx.many("UPDATE version SET used_us = ? WHERE digest = ?", which)


def damage(folder: Path, octets: bytes) -> None:
    """Let the disk have turned over a bit of a version."""
    _alter(folder, octets, bytes([octets[0] ^ 1]) + octets[1:])


def cut_off(folder: Path, octets: bytes) -> None:
    """Let the disk have lost the end of a version."""
    _alter(folder, octets, octets[: len(octets) // 2])


def forget_all(folder: Path) -> None:
    """Let somebody have removed the store."""
    shutil.rmtree(folder)


def _alter(folder: Path, octets: bytes, altered: bytes) -> None:
    digest = hashlib.sha256(octets).hexdigest()
    path = Path(os.fsdecode(version_path(os.fsencode(folder), digest)))
    if path.exists():
        path.write_bytes(altered)
        return
    with Database(folder / FILE, SCHEMA) as database, database.write() as tx:
        assert tx.run("UPDATE version SET octets = ? WHERE digest = ?", (altered, bytes.fromhex(digest)))
