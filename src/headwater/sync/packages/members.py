"""The members of a package on their way: small ones whole in memory, large ones block by block, the manifest apart.

Over a package that arrives (`read_stream`) as over one in a file (`read_file`) one consumer is told the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from headwater.packages.faults import BadPackage, NeedsDirectory, PackageTooLarge
from headwater.packages.limits import PackageLimits
from headwater.packages.zip_directory import read_directory
from headwater.packages.zip_stream import MemberBegin, MemberData, MemberEnd, WholeMember, ZipStream, stored_body

MANIFEST = "manifest.xml"

SMALL_OCTETS = 1 << 20
"""A member up to this size is held until it is complete."""


class MemberConsumer(Protocol):
    """Takes the members of one package in their order. What raises ends the reading."""

    def manifest(self, octets: bytes) -> None:
        """The next octets of the manifest (DST-P2)."""
        ...

    def manifest_end(self) -> None:
        """The manifest is whole."""
        ...

    def small(self, members: Sequence[WholeMember]) -> None:
        """Whole members, one after the other."""
        ...

    def begin(self, name: str) -> bool:
        """A large member begins; False: it is not wanted, and none of its blocks is given."""
        ...

    def block(self, octets: bytes) -> None:
        """The next octets of it."""
        ...

    def end(self) -> None:
        """It is whole, and its CRC and size are right."""
        ...


class Members:
    """Puts the events of one reading together for a consumer."""

    def __init__(self, consumer: MemberConsumer, limits: PackageLimits, *, manifest_first: bool) -> None:
        self._consumer = consumer
        self._limits = limits
        self._manifest_first = manifest_first
        self._name = ""
        self._parts: list[bytes] = []
        self._octets = 0
        self._is_large = self._is_wanted = False
        self.has_manifest = False

    def whole(self, members: Sequence[WholeMember]) -> None:
        """Small members, each from its beginning to its end. Raises as `begin` does."""
        for index, member in enumerate(members):
            if member.name == MANIFEST or (self._manifest_first and not self.has_manifest):
                if index:
                    self._consumer.small(members[:index])
                self.begin(member.name)
                self.data(member.octets)
                self.end()
                self.whole(members[index + 1 :])
                return
        if members:
            self._consumer.small(members)

    def begin(self, name: str) -> None:
        """A member begins. Raises NeedsDirectory where the manifest has to be first and is not."""
        if name == MANIFEST:
            if self.has_manifest:
                raise BadPackage("two manifests", rule="DST-P2")
            self.has_manifest = True
        elif self._manifest_first and not self.has_manifest:
            raise NeedsDirectory("the manifest is not the first member of the package")
        self._name, self._parts, self._octets, self._is_large = name, [], 0, False

    def data(self, octets: bytes) -> None:
        """Octets of it."""
        if self._is_large:
            if self._is_wanted:
                self._consumer.block(octets)
            return
        self._octets += len(octets)
        if self._name == MANIFEST:
            if self._octets > self._limits.manifest_octets:
                raise PackageTooLarge(f"a manifest of more than {self._limits.manifest_octets:,} octets")
            self._consumer.manifest(octets)
            return
        self._parts.append(octets)
        if self._octets > SMALL_OCTETS:
            self._is_large, self._is_wanted = True, self._consumer.begin(self._name)
            if self._is_wanted:
                for part in self._parts:
                    self._consumer.block(part)
            self._parts = []

    def end(self) -> None:
        """It is whole."""
        if self._is_large:
            if self._is_wanted:
                self._consumer.end()
            return
        if self._name == MANIFEST:
            self._consumer.manifest_end()
            return
        content = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._consumer.small((WholeMember(self._name, stored_body(content)),))


def read_stream(
    chunks: Iterable[bytes], consumer: MemberConsumer, limits: PackageLimits, *, manifest_first: bool = True
) -> None:
    """Read a package while it arrives, to its end. Raises BadPackage, NeedsDirectory, and what `chunks` raises."""
    members = Members(consumer, limits, manifest_first=manifest_first)
    stream = ZipStream(limits)
    for chunk in chunks:
        for event in stream.push_whole(chunk):
            if isinstance(event, list):
                members.whole(event)
            elif isinstance(event, MemberData):
                members.data(event.octets)
            elif isinstance(event, MemberBegin):
                members.begin(event.name)
            else:
                members.end()
    stream.finish()
    if not members.has_manifest:
        raise BadPackage("the package has no manifest", rule="RS-RDM-01")


def read_file(path: str, consumer: MemberConsumer, limits: PackageLimits) -> None:
    """Read a package in a file by its central directory, its manifest first. Raises BadPackage."""
    with open(path, "rb") as file:
        directory = read_directory(file, limits)
        members = Members(consumer, limits, manifest_first=True)
        manifests = [member for member in directory.members if member.name == MANIFEST]
        if not manifests:
            raise BadPackage("the package has no manifest", rule="RS-RDM-01")
        for member in (*manifests, *(member for member in directory.members if member.name != MANIFEST)):
            members.begin(member.name)
            for block in directory.blocks(member):
                members.data(block)
            members.end()


__all__ = ["MANIFEST", "MemberBegin", "MemberConsumer", "MemberEnd", "read_file", "read_stream"]
