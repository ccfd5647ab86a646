"""Reader of ZIP files, from a file that can be read at any place: headers, the central directory, members.

What must be refused is refused, and all is read within limits (DST-P6).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import BinaryIO, NamedTuple

import msgspec

from headwater.deflate import DeflateError, crc32, raw_inflater
from headwater.packages.faults import BadPackage, BadPath, CutPackage, NotPackage, PackageLimits, PackageTooLarge, shown
from headwater.packages.member_paths import HERE, MANIFEST, MemberNames
from headwater.packages.zip_format import (
    CENTRAL,
    CENTRAL_SIGNATURE,
    DEFLATED,
    DESCRIPTOR,
    DESCRIPTORS,
    ENCRYPTED,
    END,
    END64,
    END64_SIGNATURE,
    END_SIGNATURE,
    FILE_KIND,
    FOLDER,
    LOCAL,
    LOCAL_SIGNATURE,
    LOCATOR64,
    LOCATOR64_SIGNATURE,
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


# the content of members, and the central directory that says where they are

WHOLE_OCTETS = 1 << 20
"""A member up to this size is read at once."""

_READ = 1 << 18
_BLOCK = 1 << 18
"""Most octets of content that come out at a time: a short input may become a thousand times as long."""

_INPUT = 1 << 14
"""Octets that are handed to the inflater at a time: it copies what it has not used."""

_MOST_REST = 25
"""One more than the longest data descriptor has."""


class Inflation:
    """Deflated content of one long member within bounds, block by block. `most`: octets that it is said to have."""

    def __init__(self, name: str, limits: PackageLimits, most: int) -> None:
        self._name = name
        self._limits = limits
        self._most = most
        self._inflater = raw_inflater()
        self.packed = 0
        """Octets of the file that belong to the member, so far."""
        self.plain = 0
        """Octets of content that have come out."""

    @property
    def ended(self) -> bool:
        """Whether the end of the deflated content was met."""
        return self._inflater.eof

    def push(self, data: bytes | bytearray) -> Iterator[bytes]:
        """Inflate; `packed` tells how much of `data` was used. Raises BadPackage, PackageTooLarge."""
        for start in range(0, len(data), _INPUT):
            if self.ended:
                return
            waiting = bytes(data[start : start + _INPUT])
            self.packed += len(waiting)
            while not self.ended:
                out = self._inflate(waiting)
                waiting = self._inflater.unconsumed_tail
                if out:
                    self._check(len(out))
                    yield out
                if not waiting and len(out) < _BLOCK:
                    break
            self.packed -= len(self._inflater.unused_data)
            self._check(0)

    def _inflate(self, data: bytes) -> bytes:
        try:
            return self._inflater.decompress(data, _BLOCK)
        except DeflateError as error:
            raise BadPackage(f"the deflated content of {shown(self._name)} is damaged") from error

    def _check(self, octets: int) -> None:
        limits = self._limits
        self.plain += octets
        if self.plain > self._most:
            raise BadPackage(f"{shown(self._name)} has more octets than the {self._most:,} that are said")
        if self.plain > limits.ratio_octets and self.plain > limits.ratio * self.packed:
            raise PackageTooLarge(f"{shown(self._name)} grows more than {limits.ratio} times by inflating")
        if self.packed > self.plain + (self.plain >> 4) + limits.barren_octets:
            raise PackageTooLarge(f"{shown(self._name)} is deflated and longer than its content")


def unpacked(name: str, packed: bytes, octets: int, crc: int, *, is_deflated: bool) -> bytes:
    """The content of a small member that has exactly so many octets, with this CRC. Raises BadPackage."""
    content = packed
    if is_deflated:
        inflater = raw_inflater()
        try:
            content = inflater.decompress(packed, octets + 1)
        except DeflateError as error:
            raise BadPackage(f"the deflated content of {shown(name)} is damaged") from error
        if not inflater.eof or inflater.unused_data:
            raise BadPackage(f"{shown(name)} has another length than the central directory says")
    if crc32(content) != crc or len(content) != octets:
        raise BadPackage(f"{shown(name)} has another CRC or length than the central directory says")
    return content


class ZipMember(msgspec.Struct, frozen=True, gc=False):
    """A file in a package: its name, its length, where it begins and where the next one does."""

    name: str
    octets: int
    record: CentralRecord
    begin: int
    end: int


class ZipDirectory:
    """The members of a package in the order in which they lie in the file; `leading` octets come before the first."""

    def __init__(self, file: BinaryIO, members: list[ZipMember], limits: PackageLimits, leading: int) -> None:
        self._file = file
        self._limits = limits
        self.members = members
        self.leading = leading
        self._by_name = {member.name: member for member in members}

    def get(self, name: str) -> ZipMember | None:
        """The file of this name."""
        return self._by_name.get(name)

    def blocks(self, member: ZipMember) -> Iterator[bytes]:
        """The content of a member in blocks; up to 1 MiB comes as one. The last of them may be believed when the
        iteration ends: length, CRC and the place of the next member were compared then. Raises BadPackage."""
        record = member.record
        if is_small(member):
            yield self.read(member)
            return
        self._file.seek(member.begin)
        most = LOCAL.size + self._limits.name_octets + self._limits.extra_octets
        header = self._checked(member, self._file.read(min(most, member.end - member.begin)))
        at = member.begin + header.octets
        crc, plain = 0, 0
        for block in self._content(member, at):
            crc = crc32(block, crc)
            plain += len(block)
            yield block
        if (crc, plain) != (record.crc, record.plain):
            raise BadPackage(f"{shown(member.name)} has another CRC or length than the central directory says")
        self._file.seek(at + record.packed)
        _check_rest(member, header, self._file.read(min(member.end - at - record.packed, _MOST_REST)))

    def read(self, member: ZipMember) -> bytes:
        """The whole content of a member; its length is in `octets`. Raises as `blocks`."""
        if not is_small(member):
            return b"".join(self.blocks(member))
        record = member.record
        return unpacked(member.name, self.packed(member), record.plain, record.crc, is_deflated=record.method != STORED)

    def packed(self, member: ZipMember) -> bytes:
        """The content of a small member as it lies in the file; `unpacked` makes it what it is. Raises BadPackage."""
        self._file.seek(member.begin)
        octets = self._file.read(member.end - member.begin)
        header = self._checked(member, octets)
        end = header.octets + member.record.packed
        _check_rest(member, header, octets[end:])
        return octets[header.octets : end]

    def check(self, member: ZipMember) -> None:
        """Read a member only to see that it is in order. Raises as `blocks`."""
        for _ in self.blocks(member):
            pass

    def _checked(self, member: ZipMember, octets: bytes) -> LocalHeader:
        """The local header, with which these octets begin: it must say the same as the central record."""
        if len(octets) < LOCAL.size or not octets.startswith(LOCAL_SIGNATURE):
            raise BadPackage(f"{shown(member.name)} is not where the central directory says")
        header, record = read_local(octets, self._limits), member.record
        if (header.name, header.method) != (record.name, record.method):
            raise BadPackage(f"{shown(member.name)} has another name or method in its local header")
        facts = (record.crc, record.packed, record.plain)
        said = (header.crc, header.packed, header.plain)
        if said != facts and (not header.descriptor or (header.packed and said[1:] != facts[1:])):
            raise BadPackage(f"{shown(member.name)} has another CRC or length in its local header")
        if member.begin + header.octets + record.packed > member.end:
            raise BadPackage(f"{shown(member.name)} overlaps what follows it")
        return header

    def _content(self, member: ZipMember, at: int) -> Iterator[bytes]:
        record = member.record
        if record.method == STORED:
            yield from self._packed(member, at)
            return
        inflation = Inflation(member.name, self._limits, record.plain)
        for packed in self._packed(member, at):
            yield from inflation.push(packed)
        if not inflation.ended or inflation.packed != record.packed:
            raise BadPackage(f"{shown(member.name)} is deflated and ends elsewhere than the central directory says")

    def _packed(self, member: ZipMember, at: int) -> Iterator[bytes]:
        """The content as it lies in the file. Whoever takes it may read another member meanwhile."""
        end = at + member.record.packed
        while at < end:
            self._file.seek(at)
            block = self._file.read(min(end - at, _READ))
            if not block:
                raise CutPackage(f"the package ends in {shown(member.name)}")
            at += len(block)
            yield block


def is_small(member: ZipMember) -> bool:
    """Whether a member is read at once."""
    return member.octets <= WHOLE_OCTETS and member.end - member.begin <= WHOLE_OCTETS


def _check_rest(member: ZipMember, header: LocalHeader, rest: bytes) -> None:
    """Nothing lies between a member and the next one but its data descriptor. Raises BadPackage."""
    record = member.record
    facts = (record.crc, record.packed, record.plain)
    if not header.descriptor:
        is_right = not rest
    else:
        is_right = any(
            rest == form.pack(*((signature, *facts) if signature else facts))
            for form, signature, is_large in DESCRIPTORS
            if is_large or max(facts) <= MOST_32
        )
    if not is_right:
        raise BadPackage(f"behind {shown(member.name)} lie octets that belong to no member")


class _End(msgspec.Struct, frozen=True):
    """What the end records say, and where they begin: there the central directory must end."""

    members: int
    size: int
    begin: int
    at: int


def read_directory(file: BinaryIO, limits: PackageLimits | None = None) -> ZipDirectory:
    """Read the central directory of a package (DST-P6).

    Refused with BadPackage: no end or a cut one, octets after it, several central directories, members that overlap
    or do not follow each other, encryption, unknown methods, links, refused or colliding names, more than the limits
    allow. Tolerated: octets before the first member that are no member themselves (`leading` says how many), which
    self-extracting packages have. What local headers say is compared when a member is read.
    """
    bounds = limits or PackageLimits()
    size = file.seek(0, os.SEEK_END)
    end = _read_end(file, size)
    shift = end.at - end.size - end.begin
    if shift < 0 or end.size < 0:
        raise BadPackage("the central directory is not where the end of the package says")
    records = sorted(_records(file, end, bounds), key=lambda record: record.offset)
    return _placed(file, records, bounds, (shift, end.at - end.size))


def _read_end(file: BinaryIO, size: int) -> _End:
    """The end records, which must be the last of the file. Raises BadPackage."""
    file.seek(max(0, size - END.size - MOST_16))
    tail = file.read()
    place = tail.rfind(END_SIGNATURE)
    while place >= 0:
        fits = len(tail) - place >= END.size and (
            place + END.size + int.from_bytes(tail[place + 20 : place + 22], "little") == len(tail)
        )
        if fits:
            break
        place = tail.rfind(END_SIGNATURE, 0, place)
    if place < 0:
        raise _no_end(file, tail)
    if tail.find(END_SIGNATURE, place + 4) >= 0:
        raise BadPackage("the comment of the package holds another end")
    _, disk, first_disk, here, members, octets, begin, _ = END.unpack_from(tail, place)
    at = size - len(tail) + place
    large = _read_end64(file, at)
    if large is None:
        if disk or first_disk or here != members:
            raise BadPackage("a package in several parts (disks)")
        return _End(members, octets, begin, at)
    pairs = ((members, large.members, MOST_16), (octets, large.size, MOST_32), (begin, large.begin, MOST_32))
    if any(said not in (right, bound) for said, right, bound in pairs):
        raise BadPackage("the two ends of the package do not agree")
    return large


def _no_end(file: BinaryIO, tail: bytes) -> BadPackage:
    file.seek(0)
    begin = file.read(4)
    if END_SIGNATURE in tail:
        return BadPackage("there are octets after the end of the package, or its end is cut off")
    if begin == LOCAL_SIGNATURE:
        return CutPackage("the package has no end: it was cut off")
    return NotPackage("this is no ZIP file")


def _read_end64(file: BinaryIO, at: int) -> _End | None:
    """The ZIP64 end records in front of the end at `at`, if there are any. Raises BadPackage."""
    begin = at - LOCATOR64.size - END64.size
    if begin < 0:
        return None
    file.seek(begin)
    octets = file.read(END64.size + LOCATOR64.size)
    signature, _, _, disks = LOCATOR64.unpack_from(octets, END64.size)
    if signature != LOCATOR64_SIGNATURE:
        return None
    mark, rest, _, _, disk, first_disk, here, members, size, offset = END64.unpack_from(octets)
    if mark != END64_SIGNATURE or rest != END64.size - 12 or disk or first_disk or here != members or disks > 1:
        raise BadPackage("the ZIP64 end of the package is damaged")
    return _End(members, size, offset, begin)


def _records(file: BinaryIO, end: _End, limits: PackageLimits) -> Iterator[CentralRecord]:
    """The records of the central directory. Raises BadPackage, PackageTooLarge."""
    if end.members > limits.members:
        raise PackageTooLarge(f"{end.members:,} members, more than {limits.members:,}")
    file.seek(end.at - end.size)
    left = limits.names_octets
    for _ in range(end.members):
        record = read_central(file, limits)
        left -= len(record.name)
        if left < 0:
            raise PackageTooLarge(f"names of more than {limits.names_octets:,} octets")
        yield record
    if file.tell() != end.at:
        raise BadPackage(f"the central directory ends elsewhere than behind its {end.members:,} members")


def _placed(
    file: BinaryIO, records: list[CentralRecord], limits: PackageLimits, place: tuple[int, int]
) -> ZipDirectory:
    """The members with their places: each begins behind the one before it, none overlaps another."""
    shift, directory_at = place
    members: list[ZipMember] = []
    folders: list[ZipMember] = []
    names = MemberNames(limits)
    leading = shift + (records[0].offset if records else 0)
    for index, record in enumerate(records):
        begin = shift + record.offset
        end = shift + records[index + 1].offset if index + 1 < len(records) else directory_at
        name = decoded_name(record.name, record.flags)
        if begin + LOCAL.size + len(record.name) + record.packed > end:
            raise BadPackage(f"{shown(name)} overlaps what follows it")
        member = ZipMember(name, record.plain, record, begin, end)
        if name.endswith("/"):
            if name != HERE:
                names.add_folder(name[:-1])
            if record.plain:
                raise BadPackage(f"the folder {shown(name)} has content")
            folders.append(member)
            continue
        names.add(name)
        check_growth(name, record, limits)
        if record.method == STORED and record.packed != record.plain:
            raise BadPackage(f"{shown(name)} is stored, with two different lengths")
        members.append(member)
    check_growth_of_all([member.record for member in members], limits)
    if leading:
        file.seek(0)
        if file.read(4) == LOCAL_SIGNATURE:
            raise BadPackage("the package begins with a member that its central directory has not")
    directory = ZipDirectory(file, members, limits, leading)
    for folder in folders:
        directory.check(folder)  # nobody reads it later
    return directory
