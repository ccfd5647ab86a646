"""The download of a package: its octets as they arrive, gone on with where an answer breaks off, or as a file.

What is listed of the package is checked at its end (DST-P1): who takes the octets while they arrive may use only what
verifies by itself, until they have come to their end without an error.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import msgspec

from headwater.errors import SourceFault
from headwater.files.hashing import HASHERS
from headwater.files.whole_writes import free_octets
from headwater.quantities import human_octets
from headwater.sync.network.fetch import FailureKind, Fetch, Objection
from headwater.sync.network.response import PartialBody, misfit, strong_validator
from headwater.sync.network.scheduler import site_of
from headwater.sync.network.transport import StreamBroken, StreamedAnswer, Transport
from headwater.sync.packages.dump_documents import ListedPackage
from headwater.sync.source_times import strong_last_modified
from headwater.sync.state.validators import Validators

if TYPE_CHECKING:
    from hashlib import _Hash

LARGEST_PACKAGE = 1 << 40
"""Octets of a package whose dump states no length."""

_MOST_VAIN = 3
"""So many answers in a row may break off without having brought what counts as progress (`PartialBody.has_grown`)."""


class PackageUnavailable(SourceFault):
    """A package could not be fetched whole. `status`: what HTTP says, where there was an answer.

    `passing`: it broke off where no range can bring the rest; another try, into a file, may bring it whole (DST-F1).
    """

    code = "HW-PKG-11"
    status: int | None = None
    passing: bool = False


class OtherPackage(SourceFault):
    """A package is not the one that the dump lists, by its length or its hash (DST-P1)."""

    code = "HW-PKG-12"


class PackageUnchanged(Exception):
    """A package is in the state whose validators are held (304)."""


class PackageDownload:
    """One package, asked for when its octets are. `objection`: what the scope says of it and of every redirect.

    Packages pass the guard of scope as documents do (DST-S12, AMB-60).
    """

    def __init__(
        self,
        transport: Transport,
        package: ListedPackage,
        objection: Objection | None = None,
        held: Validators | None = None,
    ) -> None:
        """`held`: validators of a state that is known; `chunks` raises PackageUnchanged where it is still that."""
        self._held = held
        self.validators = Validators()
        """Those of the state that is fetched."""

        self._transport = transport
        self._package = package
        self._objection = objection
        self.octets = 0
        """How many have come."""

        self.requests = 0

    @property
    def most_octets(self) -> int:
        """How many octets are taken: as many as are listed, and no more."""
        return LARGEST_PACKAGE if self._package.length is None else self._package.length

    def chunks(self) -> Generator[bytes]:
        """The octets in order, with back-pressure; ends when all have come and are those that are listed.

        An answer that breaks off is gone on with by a range (RFC 9110, 14) where its validator is strong. Who stops
        before the end closes it. Raises PackageUnavailable and OtherPackage (DST-P1).
        """
        digest = self._package.digest
        hasher = HASHERS[digest.algorithm]() if digest is not None else None
        self._refuse()
        part: PartialBody | None = None
        vain = 0
        while True:
            before = self.octets
            with self._transport.stream(self._fetch(part)) as answer:
                self.requests += 1
                part = self._begun(answer, part)
                try:
                    yield from self._passed(answer, hasher)
                    break
                except StreamBroken as broken:
                    if part is None or not broken.passing:
                        fault = self._unavailable(broken.what)
                        fault.passing = broken.passing
                        raise fault from broken
                    part.octets, part.gained = self.octets, self.octets - before
                    vain = 0 if part.has_grown() else vain + 1
                    if vain > _MOST_VAIN:
                        raise self._unavailable(broken.what) from broken
        self._check(self.octets, hasher.hexdigest() if hasher is not None else None)

    def into(self, path: str) -> None:
        """Fetch it into a file, which is made, and hold it to what is listed.

        One without a listed length may take half of what is free on the disk, so that none that never ends fills it.
        Raises PackageUnavailable and OtherPackage; then there is no such file.
        """
        self._refuse()
        digest = self._package.digest
        algorithms = (digest.algorithm,) if digest is not None else ()
        room = self._room(os.path.dirname(path))
        fetch = msgspec.structs.replace(self._fetch(None, into=path, algorithms=algorithms), max_octets=room)
        self.requests += 1
        fetched = self._transport.one(fetch)
        if fetched.failure is not None:
            if fetched.failure.kind is FailureKind.TOO_LARGE and self._package.length is None:
                raise self._no_room("a package without a listed length")
            if fetched.failure.kind is FailureKind.TOO_LARGE:
                raise self._other(fetched.failure.text)
            raise self._unavailable(fetched.failure.text)
        if fetched.status != 200:
            raise self._unavailable(f"HTTP status {fetched.status}", fetched.status)
        self.validators = Validators(fetched.headers.get("etag"), strong_last_modified(fetched.headers))
        self.octets = fetched.octets
        self._check(fetched.octets, fetched.digests.get(algorithms[0]) if algorithms else None)

    def _room(self, folder: str) -> int:
        """How many octets it may have in a file of this folder. Raises PackageUnavailable where there is no room."""
        listed, free = self._package.length, free_octets(folder)
        if listed is None:
            return min(LARGEST_PACKAGE, free // 2)
        if listed > free:
            raise self._no_room(f"a package of {human_octets(listed)}")
        return listed

    def _no_room(self, what: str) -> PackageUnavailable:
        return PackageUnavailable(f"{what} has no room on the disk", where=self._package.uri, rule="DST-P6")

    def _refuse(self) -> None:
        if self._objection is not None and (objection := self._objection(self._package.uri)):
            raise PackageUnavailable(
                f"a package is not requested: {objection}", where=self._package.uri, rule="DST-S12"
            )

    def _fetch(self, part: PartialBody | None, into: str | None = None, algorithms: tuple[str, ...] = ()) -> Fetch:
        return Fetch(
            self._package.uri,
            self._conditions(part, into),
            into=into,
            algorithms=algorithms,
            max_octets=self.most_octets,
            objection=self._objection,
        )

    def _conditions(self, part: PartialBody | None, into: str | None) -> tuple[tuple[str, str], ...]:
        if part is not None and part.octets:
            return tuple(part.headers())
        return self._held.headers() if self._held is not None and into is None else ()

    def _begun(self, answer: StreamedAnswer, part: PartialBody | None) -> PartialBody | None:
        """Judge the head of an answer; what is needed to go on with it should it break off."""
        if answer.failure is not None:
            if answer.failure.kind is FailureKind.TOO_LARGE:
                raise self._other(answer.failure.text)
            raise self._unavailable(answer.failure.text)
        site = site_of(answer.uri) or ""
        if self.octets:
            assert part is not None
            wrong = f"HTTP status {answer.status}" if answer.status != 206 else misfit(part, answer.headers, site)
            if wrong is not None:
                raise self._unavailable(f"the rest cannot be had: {wrong}")
            return part
        if answer.status == 304 and self._held is not None and self._held.headers():
            raise PackageUnchanged
        if answer.status != 200:
            raise self._unavailable(f"HTTP status {answer.status}", answer.status)
        self.validators = Validators(answer.headers.get("etag"), strong_last_modified(answer.headers))
        coding = answer.headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":
            raise self._unavailable(f"it comes with the content coding {coding[:40]}")
        declared = answer.headers.get("content-length", "")
        total = int(declared) if declared.isdecimal() and len(declared) < 20 else None
        if total is not None and self._package.length is not None and total != self._package.length:
            raise self._other(f"{total} octets are sent, {self._package.length} are listed")
        validator = strong_validator(answer.headers)
        return None if validator is None else PartialBody("", 0, validator, total, lasting=False, site=site)

    def _passed(self, answer: StreamedAnswer, hasher: _Hash | None) -> Iterator[bytes]:
        for chunk in answer:
            self.octets += len(chunk)
            if self.octets > self.most_octets:
                raise self._other(f"more than the {self.most_octets} octets that are listed")
            if hasher is not None:
                hasher.update(chunk)
            yield chunk

    def _check(self, octets: int, found: str | None) -> None:
        """DST-P1: what has come whole has to be what is listed."""
        length, digest = self._package.length, self._package.digest
        if length is not None and octets != length:
            raise self._other(f"{octets} octets came, {length} are listed")
        if digest is not None and found != digest.hex:
            raise self._other(f"its {digest.algorithm} is {found}, listed is {digest.hex}")

    def _unavailable(self, reason: str, status: int | None = None) -> PackageUnavailable:
        fault = PackageUnavailable(f"a package cannot be fetched: {reason}", where=self._package.uri, rule="DST-F1")
        fault.status = status
        return fault

    def _other(self, reason: str) -> OtherPackage:
        return OtherPackage(f"a package is not the one listed: {reason}", where=self._package.uri, rule="DST-P1")
