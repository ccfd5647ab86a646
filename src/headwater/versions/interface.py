"""The version store: octets by their SHA-256, each kept once however many resources had them, and who fills it.

A *version* is the octets of a resource as one change found them. Change Dumps are made of versions, and whatever else
shows earlier states can be. A digest is 64 lower-case hex digits.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import ClassVar, Protocol

import msgspec

from headwater.catalog.content import OpenContent
from headwater.errors import StoreFault
from headwater.files.version_copy import VersionFolders


class VersionsUnusable(StoreFault):
    """The version store cannot be read or written: no permission, disk full, a damaged file system."""

    code: ClassVar[str] = "HW-VER-01"
    advice: ClassVar[str] = "Make room, or let this user write in the folder; Change Dumps go on by themselves then."


class WrongOctets(StoreFault):
    """What was to be put into the version store does not have the digest that it was to be found by."""

    code: ClassVar[str] = "HW-VER-02"
    advice: ClassVar[str] = "Nothing: it is not kept. The resource has changed since it was recorded."


class StoredVersion(msgspec.Struct, frozen=True):
    """One version: its digest, its size, and when a change last named it (`used_at`)."""

    digest: str
    octets: int
    used_at: dt.datetime


class SetAside(msgspec.Struct, frozen=True):
    """Octets that a reading process has set aside: their digest, the name that they have, and how many they are.

    The name is that of a file (`files.version_copy`), or has their place in one (`files.version_spool`). An empty name:
    the store had them when they were read.
    """

    digest: str
    name: str
    octets: int


class VersionIntake(Protocol):
    """Takes the versions of one scan in: what its readers set aside becomes durable before its change is recorded."""

    @property
    def folders(self) -> VersionFolders:
        """Where readers set octets aside."""
        ...

    def keep(self, versions: Iterable[SetAside]) -> list[str]:
        """Make these durable, under their digests; returns the digests of those that could not be kept.

        Raises nothing for a full disk: a scan goes on without versions. What was set aside by one block of a reader is
        kept by one call: its file goes then.
        """
        ...

    def drop(self, names: Iterable[str]) -> None:
        """Remove what was set aside and no change needs, after the call that has kept others of its block. Raises
        nothing."""
        ...


class VersionStore(Protocol):
    """Octets by digest. Safe for several threads; any number of processes read, one fills it at a time.

    All methods that wait for a disk raise VersionsUnusable.
    """

    def put(self, digest: str, blocks: Iterable[bytes]) -> None:
        """Keep these octets, durably. Raises WrongOctets when they have another digest, and what `blocks` raises."""
        ...

    def open(self, digest: str) -> OpenContent | None:
        """The octets of this digest, from any place; None when they are not kept. Nothing vouches for them."""
        ...

    def has(self, digest: str) -> bool:
        """Whether octets of this digest are kept."""
        ...

    def delete(self, digests: Iterable[str], unused_since: dt.datetime) -> list[str]:
        """Remove versions unless a change has named them since; those that are gone. Who has one open reads on."""
        ...

    def reclaim(self) -> int:
        """Give the disk what removed versions still take; how many octets. Who has one open reads on."""
        ...

    def versions(self) -> Iterator[StoredVersion]:
        """All of them, as they lie on the disk; what comes or goes meanwhile may be missing."""
        ...

    def intake(self) -> AbstractContextManager[VersionIntake]:
        """What takes the versions of one scan in; what it has not kept by its end is removed."""
        ...

    def clean(self) -> int:
        """Remove what killed processes have set aside; how many files. For whoever alone may fill the store."""
        ...

    def close(self) -> None:
        """Give up what is held open; it is opened again when it is needed."""
        ...
