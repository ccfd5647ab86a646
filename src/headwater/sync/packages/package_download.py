"""A package as its dump lists it, and its download into a file, which is checked by that (DST-P1).

Packages pass the guard of scope as documents do (DST-S12, AMB-60).
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

import msgspec

from headwater.errors import SourceFault
from headwater.files.file_copies import free_octets
from headwater.quantities import human_octets
from headwater.spec.records import Digest, Entry
from headwater.sync.source_times import micros, strong_last_modified
from headwater.sync.state import Validators
from headwater.sync.transfer.verification import strongest_of
from headwater.transport.fetch import FailureKind, Fetch, Objection
from headwater.transport.transport import Transport

LARGEST_PACKAGE = 1 << 40
"""Octets of a package whose dump states no length."""

_PREFIX = "package-"
_KEPT_SHARE = 10
"""A package may be kept for a second reading where it takes less than this share of what is free on the disk."""


class ListedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a dump: a package, and what the dump says of it. Times are microseconds of the source's clock."""

    uri: str
    length: int | None = None
    hash: str | None = None
    at: int | None = None
    from_: int | None = None
    until: int | None = None
    contents: str | None = None
    """The copy of its manifest beside it (RS-RD-08, RS-CD-08)."""

    @property
    def digest(self) -> Digest | None:
        """The strongest digest that is listed and can be computed."""
        return strongest_of(self.hash)


def package_of(entry: Entry) -> ListedPackage:
    """What an entry of a dump says of its package."""
    contents = entry.link("contents")
    return ListedPackage(
        uri=entry.loc,
        length=entry.length,
        hash=entry.hash,
        at=micros(entry.at),
        from_=micros(entry.from_),
        until=micros(entry.until),
        contents=contents.href if contents is not None else None,
    )


class PackageUnavailable(SourceFault):
    """A package could not be fetched whole. `status`: what HTTP says, where there was an answer."""

    code = "HW-PKG-11"
    status: int | None = None


class OtherPackage(SourceFault):
    """A package is not the one that the dump lists, by its length or its hash (DST-P1)."""

    code = "HW-PKG-12"


class PackageUnchanged(Exception):
    """A package is in the state whose validators are held (304)."""


class PackageDownload:
    """One package, in a file of `folder` while this is entered."""

    def __init__(
        self,
        transport: Transport,
        package: ListedPackage,
        folder: str,
        objection: Objection,
        held: Validators | None = None,
    ) -> None:
        """`objection`: what the scope says of it and of every redirect. `held`: validators of a state that is known;
        `fetch` raises PackageUnchanged where it is still that."""
        self._transport = transport
        self._package = package
        self._folder = folder
        self._objection = objection
        self._held = held
        name = hashlib.sha256(f"{package.uri}\n{package.length}\n{package.hash}".encode()).hexdigest()[:32]
        self.path = f"{folder}/{_PREFIX}{name}.zip"
        self.validators = Validators()
        """Those of the state that was fetched."""

        self.octets = self.requests = 0

    def fetch(self) -> None:
        """Have it in its file, unless an earlier reading has left it there, and hold it to what is listed.

        One without a listed length may take half of what is free on the disk, so that none that never ends fills it.
        Raises PackageUnavailable and OtherPackage; then there is no such file.
        """
        if os.path.exists(self.path):
            return
        if reason := self._objection(self._package.uri):
            what = f"a package is not requested: {reason}"
            raise PackageUnavailable(what, where=self._package.uri, rule="DST-S12")
        digest = self._package.digest
        self.requests += 1
        fetched = self._transport.one(
            Fetch(
                self._package.uri,
                self._held.headers() if self._held is not None else (),
                into=self.path,
                algorithms=(digest.algorithm,) if digest is not None else (),
                max_octets=self._room(),
                objection=self._objection,
            )
        )
        self.octets += fetched.octets
        if fetched.failure is not None:
            if fetched.failure.kind is FailureKind.TOO_LARGE and self._package.length is None:
                raise self._no_room("a package without a listed length")
            if fetched.failure.kind is FailureKind.TOO_LARGE:
                raise self._other(fetched.failure.text)
            raise self._unavailable(fetched.failure.text)
        if fetched.status == 304 and self._held is not None:
            raise PackageUnchanged
        if fetched.status != 200:
            raise self._unavailable(f"HTTP status {fetched.status}", fetched.status)
        self.validators = Validators(fetched.headers.get("etag"), strong_last_modified(fetched.headers))
        try:
            self._check(fetched.octets, fetched.digests.get(digest.algorithm) if digest is not None else None)
        except OtherPackage:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            os.unlink(self.path)

    def remove_if_large(self) -> None:
        """Remove the file where it takes too much of the disk to be kept for the transfer that follows."""
        with suppress(OSError):
            if os.stat(self.path).st_size > free_octets(self._folder) // _KEPT_SHARE:
                self.remove()

    def _room(self) -> int:
        """How many octets it may have. Raises PackageUnavailable where there is no room."""
        listed, free = self._package.length, free_octets(self._folder)
        if listed is None:
            return min(LARGEST_PACKAGE, free // 2)
        if listed > free:
            raise self._no_room(f"a package of {human_octets(listed)}")
        return listed

    def _check(self, octets: int, found: str | None) -> None:
        """DST-P1: what has come whole has to be what is listed."""
        length, digest = self._package.length, self._package.digest
        if length is not None and octets != length:
            raise self._other(f"{octets} octets came, {length} are listed")
        if digest is not None and found != digest.hex:
            raise self._other(f"its {digest.algorithm} is {found}, listed is {digest.hex}")

    def _no_room(self, what: str) -> PackageUnavailable:
        return PackageUnavailable(f"{what} has no room on the disk", where=self._package.uri, rule="DST-P6")

    def _unavailable(self, reason: str, status: int | None = None) -> PackageUnavailable:
        fault = PackageUnavailable(f"a package cannot be fetched: {reason}", where=self._package.uri, rule="DST-F1")
        fault.status = status
        return fault

    def _other(self, reason: str) -> OtherPackage:
        return OtherPackage(f"a package is not the one listed: {reason}", where=self._package.uri, rule="DST-P1")


def remove_kept_packages(folder: str) -> None:
    """Remove the packages whose manifests were read and whose content nobody has asked for."""
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if name.startswith(_PREFIX):
                os.unlink(f"{folder}/{name}")
