"""Keeps the octets of a scan's changes in the version store, before the changes are recorded.

Octets that cannot be kept (no room) cost a change nothing: it is recorded all the same, and told. Its Change Dump is
made of the file itself while that is unchanged, and begins anew after the change when it is not (RS-CDM-10).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from headwater import notices
from headwater.catalog.content import ContentChanged, ContentReader, NoContent, recorded_blocks
from headwater.catalog.interface import Event, Metadata, Upsert
from headwater.errors import StoreFault
from headwater.files.version_copy import VersionFolders
from headwater.progress import Listener, Notice
from headwater.spec.hashes import parse_hash
from headwater.versions.history import sha256_of
from headwater.versions.interface import SetAside, VersionIntake, VersionStore

Warn = Callable[[bytes, str], None]
"""Told the path whose octets are not kept, and why."""


class BatchVersions(msgspec.Struct, kw_only=True):
    """What the readers of one batch have set aside: `needed` by its changes, `unneeded` names, and what failed.

    `unkept` are paths with an errno, `lost` the digests of their octets.
    """

    needed: list[SetAside] = msgspec.field(default_factory=list)
    unneeded: list[str] = msgspec.field(default_factory=list)
    unkept: list[tuple[bytes, int]] = msgspec.field(default_factory=list)
    lost: list[str] = msgspec.field(default_factory=list)


class VersionKeeping:
    """Does that for one pass of a scan; without an `intake` it does nothing."""

    def __init__(self, intake: VersionIntake | None, warn: Warn) -> None:
        self._intake = intake
        self._warn = warn

    @property
    def folders(self) -> VersionFolders | None:
        """Where readers set octets aside; None when they need not."""
        return None if self._intake is None else self._intake.folders

    def keep(self, versions: BatchVersions | None) -> set[str]:
        """Make durable what a batch needs, before it is recorded; returns the digests that are not kept."""
        if self._intake is None or versions is None:
            return set()
        lost = self._intake.keep(versions.needed)
        self._intake.drop(versions.unneeded)
        for path, error in versions.unkept:
            self._warn(path, f"its octets are not kept: {os.strerror(error)}")
        for digest in lost:
            self._warn(digest.encode(), "the octets with this SHA-256 are not kept")
        return {*lost, *versions.lost}


@contextmanager
def version_keeping(store: VersionStore | None, warn: Warn) -> Iterator[VersionKeeping]:
    """The keeping of versions during one pass; what was set aside and not needed is removed at its end."""
    if store is None:
        yield VersionKeeping(None, warn)
        return
    with store.intake() as intake:
        yield VersionKeeping(intake, warn)


class ContentKeeping:
    """Keeps the octets of announced records, which are read where a content reader finds them.

    A record has to state a SHA-256, and its file has to be there when it is announced. What cannot be kept is told and
    costs the record nothing.
    """

    def __init__(
        self,
        store: VersionStore,
        contents: ContentReader,
        set_name: str,
        listener: Listener,
        keeps: Callable[[Metadata], bool] = lambda _metadata: True,
    ) -> None:
        """`keeps`: of which records."""
        self._keeps = keeps
        self._store = store
        self._contents = contents
        self._name = set_name
        self._listener = listener

    def keep(self, events: Iterable[Event]) -> set[str]:
        """Keep what these are about to say; call it before they are recorded. Which digests are not kept. Raises
        nothing.
        """
        lost: set[str] = set()
        for one in events:
            if isinstance(one, Upsert) and self._keeps(one.metadata) and (why := self._keep(one)) is not None:
                self._listener(Notice(notices.VERSION_NOT_KEPT, f"its octets are not kept: {why}", one.uri[:200]))
                lost.add(sha256_of(one.metadata.hash))
        return lost

    def _keep(self, event: Upsert) -> str | None:
        """Why the octets of one event cannot be kept; None when they are."""
        stated = {one.algorithm: one.hex for one in parse_hash(event.metadata.hash or "").digests}
        if "sha-256" not in stated:
            return "no SHA-256 is stated"
        content = self._contents.open(self._name, event)
        if isinstance(content, NoContent):
            return content.detail or content.why.value
        try:
            self._store.put(stated["sha-256"], recorded_blocks(content, event.metadata))
        except (StoreFault, ContentChanged, OSError) as fault:
            return str(fault)
        finally:
            content.close()
        return None
