"""Headers of members as they are read: decoded, refused where they must be, within the limits."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from headwater.packages.faults import BadPackage, BadPath, PackageTooLarge, shown
from headwater.packages.limits import PackageLimits
from headwater.packages.member_paths import HERE, MANIFEST, MemberNames
from headwater.packages.zip_format import (
    CENTRAL,
    DEFLATED,
    DESCRIPTOR,
    ENCRYPTED,
    FILE_KIND,
    FOLDER,
    LOCAL,
    MOST_16,
    MOST_32,
    REGULAR_FILE,
    STORED,
    UTF8,
    ZIP64_FIELD,
)

_STRONG = 1 << 6
_PATCHED = 1 << 5
_MASKED = 1 << 13
_REFUSED = ENCRYPTED | _STRONG | _PATCHED | _MASKED

_LENGTHS_LOCAL = Struct("<HH")
_LENGTHS_CENTRAL = Struct("<HHH")

Octets = bytes | bytearray


class LocalHeader(NamedTuple):
    """The header in front of a member. `packed` and `plain` are its lengths in the file and inflated; with
    `descriptor` they may be zero, and stand behind the member."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    plain: int
    zip64: bool
    octets: int

    @property
    def descriptor(self) -> bool:
        """Whether lengths and CRC follow the member."""
        return bool(self.flags & DESCRIPTOR)


class CentralRecord(NamedTuple):
    """The record of a member in the central directory; `octets` is its own length."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    plain: int
    offset: int
    octets: int


def local_octets(head: Octets, at: int, limits: PackageLimits) -> int:
    """The length of the local header that begins at `at`, of which 30 octets are there. Raises PackageTooLarge."""
    lengths: tuple[int, int] = _LENGTHS_LOCAL.unpack_from(head, at + 26)
    name, extra = lengths
    _check_lengths(name, extra, limits)
    return LOCAL.size + name + extra


def read_local(head: Octets, at: int) -> LocalHeader:
    """The local header that begins at `at` and is there as a whole. Raises BadPackage."""
    _, _, flags, method, _, _, crc, packed, plain, name_length, extra_length = LOCAL.unpack_from(head, at)
    begin = at + LOCAL.size
    name = bytes(head[begin : begin + name_length])
    field: bytes | None = None
    if extra_length:
        field = _field64(bytes(head[begin + name_length : begin + name_length + extra_length]))
        if packed == MOST_32 or plain == MOST_32:
            plain, packed = _values64(field, [plain, packed])
    elif packed == MOST_32 or plain == MOST_32:
        raise BadPackage("a member beyond 4 GiB has no ZIP64 field")
    _check_kind(name, flags, method)
    octets = LOCAL.size + name_length + extra_length
    return LocalHeader(name, flags, method, crc, packed, plain, field is not None, octets)


def central_octets(record: Octets, at: int, limits: PackageLimits) -> int:
    """The length of the central record that begins at `at`, of which 46 octets are there. Raises PackageTooLarge."""
    lengths: tuple[int, int, int] = _LENGTHS_CENTRAL.unpack_from(record, at + 28)
    name, extra, comment = lengths
    _check_lengths(name, extra + comment, limits)
    return CENTRAL.size + name + extra + comment


def read_central(record: Octets, at: int) -> CentralRecord:
    """The record that begins at `at` and is there as a whole. Raises BadPackage; also for links and devices."""
    (
        _,
        _,
        _,
        flags,
        method,
        _,
        _,
        crc,
        packed,
        plain,
        name_length,
        extra_length,
        comment_length,
        disk,
        _,
        external,
        offset,
    ) = CENTRAL.unpack_from(record, at)
    begin = at + CENTRAL.size
    name = bytes(record[begin : begin + name_length])
    if MOST_32 in (packed, plain, offset) or disk == MOST_16:
        field = _field64(bytes(record[begin + name_length : begin + name_length + extra_length]))
        plain, packed, offset = _values64(field, [plain, packed, offset])
    elif disk:
        raise BadPackage("a package in several parts (disks)")
    _check_kind(name, flags, method)
    kind = (external >> 16) & FILE_KIND
    if kind not in (0, REGULAR_FILE) and not (kind == FOLDER and name.endswith(b"/")):
        raise BadPath(f"{shown(name.decode('utf-8', 'replace'))} is a link, a device or another special file")
    octets = CENTRAL.size + name_length + extra_length + comment_length
    return CentralRecord(name, flags, method, crc, packed, plain, offset, octets)


def decoded_name(name: bytes, flags: int) -> str:
    """A name as text: UTF-8 where bit 11 says so; else UTF-8 if it is, as many programs write it, else code page 437.

    Without a leading `./`, which `bsdtar` writes when it packs the folder `.`; that folder itself stays `./`. Raises
    BadPath.
    """
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        if flags & UTF8:
            raise BadPath(f"the name {name[:100]!r} is not UTF-8, as it claims to be") from error
        text = name.decode("cp437")
    return text.removeprefix(HERE) or text


class PackageBudget:
    """What the members of one package may have together: their names, their number, their octets (DST-P6)."""

    def __init__(self, limits: PackageLimits) -> None:
        self.limits = limits
        self.names = MemberNames(limits)
        self._members = 0
        self._plain = 0
        self._packed = 0

    def admit(self, name: str) -> bool:
        """Take a member in; gives False for a folder. Raises BadPath, PackageTooLarge."""
        self._members += 1
        if self._members > self.limits.members:
            raise PackageTooLarge(f"more than {self.limits.members:,} members")
        if name.endswith("/"):
            if name != HERE:
                self.names.add_folder(name[:-1])
            return False
        self.names.add(name)
        return True

    def spend(self, octets: int, packed: int) -> None:
        """Take account of the content of a member, of so many `packed` octets. Raises PackageTooLarge."""
        limits = self.limits
        self._plain += octets
        self._packed += packed
        if self._plain > limits.octets:
            raise PackageTooLarge(f"more than {limits.octets:,} octets of content")
        if self._plain > limits.package_ratio_octets and self._plain > limits.ratio * self._packed:
            raise PackageTooLarge(f"the members together grow more than {limits.ratio} times by inflating")

    def check_said(self, name: str, packed: int, plain: int) -> None:
        """Refuse a member by what its header says. Raises PackageTooLarge."""
        most = self.limits.manifest_octets if name == MANIFEST else self.limits.member_octets
        if plain > most:
            raise PackageTooLarge(f"{shown(name)} has {plain:,} octets, more than {most:,}")
        if plain > self.limits.ratio_octets and plain > self.limits.ratio * packed:
            raise PackageTooLarge(f"{shown(name)} grows more than {self.limits.ratio} times by inflating")


def _check_lengths(name: int, extra: int, limits: PackageLimits) -> None:
    if name > limits.name_octets:
        raise PackageTooLarge(f"a name of {name:,} octets")
    if extra > limits.extra_octets:
        raise PackageTooLarge(f"extra fields or a comment of {extra:,} octets")


def _check_kind(name: bytes, flags: int, method: int) -> None:
    if flags & _REFUSED:
        what = "is encrypted" if flags & ~_PATCHED & _REFUSED else "is a patch"
        raise BadPackage(f"{shown(name.decode('utf-8', 'replace'))} {what}")
    if method not in (STORED, DEFLATED):
        raise BadPackage(f"{shown(name.decode('utf-8', 'replace'))} has the unknown method {method}")


def _field64(extra: bytes) -> bytes | None:
    """The ZIP64 extra field, without its header. Padding of other writers at the end is ignored. Raises BadPackage."""
    found = None
    at = 0
    while at + 4 <= len(extra):
        kind, length = int.from_bytes(extra[at : at + 2], "little"), int.from_bytes(extra[at + 2 : at + 4], "little")
        if at + 4 + length > len(extra):
            break
        if kind == ZIP64_FIELD:
            if found is not None:
                raise BadPackage("a member has two ZIP64 fields")
            found = extra[at + 4 : at + 4 + length]
        at += 4 + length
    return found


def _values64(field: bytes | None, said: list[int]) -> list[int]:
    """The values, those from the ZIP64 field that are too large for the header. Raises BadPackage."""
    values = []
    at = 0
    for value in said:
        if value == MOST_32:
            if field is None or at + 8 > len(field):
                raise BadPackage("a member's ZIP64 field is missing or too short")
            value = int.from_bytes(field[at : at + 8], "little")
            at += 8
        values.append(value)
    return values
