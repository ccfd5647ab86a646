"""Headers of members as they are read: decoded, refused where they must be, within the limits."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import BinaryIO, NamedTuple

from headwater.packages.faults import BadPackage, BadPath, PackageTooLarge, shown
from headwater.packages.limits import PackageLimits
from headwater.packages.member_paths import HERE, MANIFEST
from headwater.packages.zip_format import (
    CENTRAL,
    CENTRAL_SIGNATURE,
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

_LOCAL_FACTS = Struct("<6xHH4xIIIHH")
_CENTRAL_FACTS = Struct("<8xHH4xIIIHHHH2xII")
"""What counts of a local header and of a central record: the rest is skipped."""


class LocalHeader(NamedTuple):
    """The header in front of a member. `packed` and `plain` are its lengths in the file and inflated; with
    `descriptor` they may be zero, and stand behind the member. `octets` is its own length."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    plain: int
    octets: int

    @property
    def descriptor(self) -> bool:
        """Whether lengths and CRC follow the member."""
        return bool(self.flags & DESCRIPTOR)


class CentralRecord(NamedTuple):
    """The record of a member in the central directory."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    plain: int
    offset: int


def read_local(octets: bytes, limits: PackageLimits) -> LocalHeader:
    """The local header with which these octets begin. Raises BadPackage.

    Where they end within it, its name is cut, or its length goes beyond them.
    """
    flags, method, crc, packed, plain, name_length, extra_length = _LOCAL_FACTS.unpack_from(octets)
    _check_lengths(name_length, extra_length, limits)
    behind_name = LOCAL.size + name_length
    end = behind_name + extra_length
    name = octets[LOCAL.size : behind_name]
    if MOST_32 in (packed, plain):
        plain, packed = _values64(octets[behind_name:end], [plain, packed])
    _check_kind(name, flags, method)
    return LocalHeader(name, flags, method, crc, packed, plain, end)


def read_central(file: BinaryIO, limits: PackageLimits) -> CentralRecord:
    """The record that begins where the file is read. Raises BadPackage; also for links and devices."""
    head = file.read(CENTRAL.size)
    if len(head) < CENTRAL.size or not head.startswith(CENTRAL_SIGNATURE):
        raise BadPackage(
            "the central directory is damaged, there are several, or it has fewer members than its end says"
        )
    flags, method, crc, packed, plain, *lengths, disk, external, offset = _CENTRAL_FACTS.unpack(head)
    name_length, extra_length, comment_length = lengths
    _check_lengths(name_length, extra_length + comment_length, limits)
    rest = file.read(name_length + extra_length + comment_length)
    name = rest[:name_length]
    if MOST_32 in (packed, plain, offset) or disk == MOST_16:
        extra = rest[name_length : name_length + extra_length]
        plain, packed, offset = _values64(extra, [plain, packed, offset])
    elif disk:
        raise BadPackage("a package in several parts (disks)")
    _check_kind(name, flags, method)
    kind = (external >> 16) & FILE_KIND
    if kind not in (0, REGULAR_FILE) and not (kind == FOLDER and name.endswith(b"/")):
        raise BadPath(f"{shown(name.decode('utf-8', 'replace'))} is a link, a device or another special file")
    return CentralRecord(name, flags, method, crc, packed, plain, offset)


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


def check_growth(name: str, record: CentralRecord, limits: PackageLimits) -> None:
    """Refuse a member whose content is too large, or grows too much by inflating (DST-P6). Raises PackageTooLarge."""
    most = limits.manifest_octets if name == MANIFEST else limits.member_octets
    if record.plain > most:
        raise PackageTooLarge(f"{shown(name)} has {record.plain:,} octets, more than {most:,}")
    if record.plain > limits.ratio_octets and record.plain > limits.ratio * record.packed:
        raise PackageTooLarge(f"{shown(name)} grows more than {limits.ratio} times by inflating")


def check_growth_of_all(members: Sequence[CentralRecord], limits: PackageLimits) -> None:
    """Refuse members whose content is too large together, or grows too much (DST-P6). Raises PackageTooLarge."""
    plain = sum(record.plain for record in members)
    if plain > limits.octets:
        raise PackageTooLarge(f"more than {limits.octets:,} octets of content")
    if plain > limits.package_ratio_octets and plain > limits.ratio * sum(record.packed for record in members):
        raise PackageTooLarge(f"the members together grow more than {limits.ratio} times by inflating")


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


def _values64(extra: bytes, said: list[int]) -> list[int]:
    """The values, those from the ZIP64 field that are too large for the header. Raises BadPackage."""
    field = _field64(extra)
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
