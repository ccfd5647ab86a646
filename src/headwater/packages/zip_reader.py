"""Reader of ZIP files, from a file that can be read at any place: headers, the central directory, members.

What must be refused is refused, and all is read within limits (DST-P6).
"""

import os
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import BinaryIO

import msgspec

from headwater.deflate import DeflateError, crc32, raw_inflater
from headwater.packages import zip_format as zf
from headwater.packages.faults import BadPackage, BadPath, CutPackage, NotPackage, PackageLimits, PackageTooLarge, shown
from headwater.packages.member_paths import HERE, MANIFEST, MemberNames

_STRONG = 1 << 6
_PATCHED = 1 << 5
_MASKED = 1 << 13
_REFUSED = zf.ENCRYPTED | _STRONG | _PATCHED | _MASKED

_LOCAL_FACTS = Struct("<6xHH4xIIIHH")
_CENTRAL_FACTS = Struct("<8xHH4xIIIHHHH2xII")
"""What counts of a local header and of a central record: the rest is skipped."""

WHOLE_OCTETS = 1 << 20
"""A member up to this size is read at once."""

_READ = 1 << 16
_BLOCK = 1 << 18
"""Most octets of content that come out at a time: a short input may become a thousand times as long."""

_MOST_REST = 25
"""One more than the longest data descriptor has."""


def decoded_name(name: bytes, flags: int) -> str:
    """A name as text: UTF-8 where bit 11 says so; else UTF-8 if it is, as many programs write it, else code page 437.

    Without a leading `./`, which `bsdtar` writes when it packs the folder `.`; that folder itself stays `./`. Raises
    BadPath.
    """
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        if flags & zf.UTF8:
            raise BadPath(f"the name {name[:100]!r} is not UTF-8, as it claims to be") from error
        text = name.decode("cp437")
    return text.removeprefix(HERE) or text


def _check_header(name: bytes, flags: int, method: int, name_octets: int, more: int, limits: PackageLimits) -> None:
    """Refuse what a local header or a central record may not say. Raises BadPackage, PackageTooLarge."""
    if name_octets > limits.name_octets:
        raise PackageTooLarge(f"a name of {name_octets:,} octets")
    if more > limits.extra_octets:
        raise PackageTooLarge(f"extra fields or a comment of {more:,} octets")
    if flags & _REFUSED:
        what = "is encrypted" if flags & ~_PATCHED & _REFUSED else "is a patch"
        raise BadPackage(f"{shown(name.decode('utf-8', 'replace'))} {what}")
    if method not in (zf.STORED, zf.DEFLATED):
        raise BadPackage(f"{shown(name.decode('utf-8', 'replace'))} has the unknown method {method}")


def _values64(extra: bytes, said: list[int]) -> list[int]:
    """The values, those from the ZIP64 field that are too large for the header. Padding of other writers at the end of
    the extra fields is ignored. Raises BadPackage."""
    if zf.MOST_32 not in said:
        return said
    field = None
    at = 0
    while at + 4 <= len(extra):
        kind, length = int.from_bytes(extra[at : at + 2], "little"), int.from_bytes(extra[at + 2 : at + 4], "little")
        if at + 4 + length > len(extra):
            break
        if kind == zf.ZIP64_FIELD:
            if field is not None:
                raise BadPackage("a member has two ZIP64 fields")
            field = extra[at + 4 : at + 4 + length]
        at += 4 + length
    values, at = list(said), 0
    for index, value in enumerate(said):
        if value == zf.MOST_32:
            if field is None or at + 8 > len(field):
                raise BadPackage("a member's ZIP64 field is missing or too short")
            values[index] = int.from_bytes(field[at : at + 8], "little")
            at += 8
    return values


# the content of members


def _inflated(name: str, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of one long member, of its deflated octets. Raises BadPackage."""
    inflater = raw_inflater()
    is_whole = False
    for packed in blocks:
        is_whole = not inflater.eof
        while not inflater.eof:
            try:
                out = inflater.decompress(packed, _BLOCK)
            except DeflateError as error:
                raise BadPackage(f"the deflated content of {shown(name)} is damaged") from error
            yield out
            packed = inflater.unconsumed_tail
            if not packed and len(out) < _BLOCK:
                break
    if not is_whole or not inflater.eof or inflater.unused_data:
        raise BadPackage(f"{shown(name)} is deflated and ends elsewhere than the central directory says")


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
    """A file in a package: its name, its length, where it begins and where the next one does; and what the central
    directory says of it: its name in octets, its method, CRC and length in the file."""

    name: str
    octets: int
    begin: int
    end: int
    raw_name: bytes
    method: int
    crc: int
    packed: int

    @property
    def is_small(self) -> bool:
        """Whether it is read at once."""
        return self.octets <= WHOLE_OCTETS and self.end - self.begin <= WHOLE_OCTETS


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
        if member.is_small:
            yield self.read(member)
            return
        self._file.seek(member.begin)
        most = zf.LOCAL.size + self._limits.name_octets + self._limits.extra_octets
        length, has_descriptor = self._checked(member, self._file.read(min(most, member.end - member.begin)))
        begin = member.begin + length
        crc, plain, content = 0, 0, self._packed_blocks(member, begin)
        for block in content if member.method == zf.STORED else _inflated(member.name, content):
            crc = crc32(block, crc)
            plain += len(block)
            if plain > member.octets:
                break
            yield block
        if (crc, plain) != (member.crc, member.octets):
            raise BadPackage(f"{shown(member.name)} has another CRC or length than the central directory says")
        self._file.seek(begin + member.packed)
        rest = self._file.read(min(member.end - begin - member.packed, _MOST_REST))
        _check_rest(member, rest, has_descriptor=has_descriptor)

    def read(self, member: ZipMember) -> bytes:
        """The whole content of a member; its length is in `octets`. Raises as `blocks`."""
        if not member.is_small:
            return b"".join(self.blocks(member))
        is_deflated = member.method != zf.STORED
        return unpacked(member.name, self.packed(member), member.octets, member.crc, is_deflated=is_deflated)

    def packed(self, member: ZipMember) -> bytes:
        """The content of a small member as it lies in the file; `unpacked` makes it what it is. Raises BadPackage."""
        self._file.seek(member.begin)
        octets = self._file.read(member.end - member.begin)
        begin, has_descriptor = self._checked(member, octets)
        end = begin + member.packed
        _check_rest(member, octets[end:], has_descriptor=has_descriptor)
        return octets[begin:end]

    def check(self, member: ZipMember) -> None:
        """Read a member only to see that it is in order. Raises as `blocks`."""
        for _ in self.blocks(member):
            pass

    def _checked(self, member: ZipMember, octets: bytes) -> tuple[int, bool]:
        """The length of the local header, with which these octets begin, and whether a data descriptor follows the
        member: then lengths and CRC in the header may be zero. Else it must say the same as the central record."""
        if len(octets) < zf.LOCAL.size or not octets.startswith(zf.LOCAL_SIGNATURE):
            raise BadPackage(f"{shown(member.name)} is not where the central directory says")
        said_here = _LOCAL_FACTS.unpack_from(octets)
        usual = (member.method, member.crc, member.packed, member.octets, len(member.raw_name), 0)
        is_usual = said_here[1:] == usual and not said_here[0] & ~zf.UTF8 and member.is_small
        if is_usual and octets.startswith(member.raw_name, zf.LOCAL.size):
            return zf.LOCAL.size + len(member.raw_name), False
        flags, method, crc, packed, plain, name_length, extra_length = said_here
        behind_name = zf.LOCAL.size + name_length
        length = behind_name + extra_length
        name = octets[zf.LOCAL.size : behind_name]
        plain, packed = _values64(octets[behind_name:length], [plain, packed])
        _check_header(name, flags, method, name_length, extra_length, self._limits)
        has_descriptor = bool(flags & zf.DESCRIPTOR)
        if (name, method) != (member.raw_name, member.method):
            raise BadPackage(f"{shown(member.name)} has another name or method in its local header")
        facts = (member.crc, member.packed, member.octets)
        said = (crc, packed, plain)
        if said != facts and (not has_descriptor or (packed and said[1:] != facts[1:])):
            raise BadPackage(f"{shown(member.name)} has another CRC or length in its local header")
        if member.begin + length + member.packed > member.end:
            raise BadPackage(f"{shown(member.name)} overlaps what follows it")
        return length, has_descriptor

    def _packed_blocks(self, member: ZipMember, at: int) -> Iterator[bytes]:
        """The octets of a member, which begin at this place. Another member may be read meanwhile."""
        end = at + member.packed
        while at < end:
            self._file.seek(at)
            block = self._file.read(min(end - at, _READ))
            if not block:
                raise CutPackage(f"the package ends in {shown(member.name)}")
            at += len(block)
            yield block


def _check_rest(member: ZipMember, rest: bytes, *, has_descriptor: bool) -> None:
    """Nothing lies between a member and the next one but its data descriptor. Raises BadPackage."""
    facts = (member.crc, member.packed, member.octets)
    is_right = not rest
    if has_descriptor:
        is_right = any(
            rest == form.pack(*((signature, *facts) if signature else facts))
            for form, signature, is_large in zf.DESCRIPTORS
            if is_large or max(facts) <= zf.MOST_32
        )
    if not is_right:
        raise BadPackage(f"behind {shown(member.name)} are bytes that belong to no member")


# the central directory, which says where they are


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
    if end.members > bounds.members:
        raise PackageTooLarge(f"{end.members:,} members, more than {bounds.members:,}")
    file.seek(end.at - end.size)
    left = bounds.names_octets
    found: list[tuple[int, bytes, int, int, int, int, int]] = []
    for _ in range(end.members):
        record = _read_record(file, bounds)
        left -= len(record[1])
        if left < 0:
            raise PackageTooLarge(f"names of more than {bounds.names_octets:,} octets")
        found.append(record)
    if file.tell() != end.at:
        raise BadPackage(f"the central directory ends elsewhere than behind its {end.members:,} members")
    found.sort(key=lambda record: record[0])
    leading = shift + (found[0][0] if found else 0)
    begins = [*(shift + record[0] for record in found), end.at - end.size]
    members: list[ZipMember] = []
    folders: list[ZipMember] = []
    names = MemberNames(bounds)
    for index, (_, raw, flags, method, crc, packed, plain) in enumerate(found):
        name = decoded_name(raw, flags)
        member = ZipMember(name, plain, begins[index], begins[index + 1], raw, method, crc, packed)
        if member.begin + zf.LOCAL.size + len(raw) + packed > member.end:
            raise BadPackage(f"{shown(name)} overlaps what follows it")
        if name.endswith("/"):
            if name != HERE:
                names.add_folder(name[:-1])
            if plain:
                raise BadPackage(f"the folder {shown(name)} has content")
            folders.append(member)
            continue
        names.add(name)
        most = bounds.manifest_octets if name == MANIFEST else bounds.member_octets
        if plain > most:
            raise PackageTooLarge(f"{shown(name)} has {plain:,} octets, more than {most:,}")
        if plain > bounds.ratio_octets and plain > bounds.ratio * packed:
            raise PackageTooLarge(f"{shown(name)} grows more than {bounds.ratio} times by inflating")
        if method == zf.STORED and packed != plain:
            raise BadPackage(f"{shown(name)} is stored, with two different lengths")
        if packed > plain + (plain >> 4) + bounds.barren_octets:
            raise PackageTooLarge(f"{shown(name)} is deflated and longer than its content")
        members.append(member)
    octets = sum(member.octets for member in members)
    if octets > bounds.octets:
        raise PackageTooLarge(f"more than {bounds.octets:,} octets of content")
    if octets > bounds.package_ratio_octets and octets > bounds.ratio * sum(member.packed for member in members):
        raise PackageTooLarge(f"the members together grow more than {bounds.ratio} times by inflating")
    if leading:
        file.seek(0)
        if file.read(4) == zf.LOCAL_SIGNATURE:
            raise BadPackage("the package begins with a member that its central directory has not")
    directory = ZipDirectory(file, members, bounds, leading)
    for folder in folders:
        directory.check(folder)  # nobody reads it later
    return directory


def _read_record(file: BinaryIO, limits: PackageLimits) -> tuple[int, bytes, int, int, int, int, int]:
    """The record that begins where the file is read: where its member begins, its name, flags, method, CRC, and lengths
    in the file and inflated. Raises BadPackage; also for links and devices."""
    head = file.read(zf.CENTRAL.size)
    if len(head) < zf.CENTRAL.size or not head.startswith(zf.CENTRAL_SIGNATURE):
        raise BadPackage(
            "the central directory is damaged, there are several, or it has fewer members than its end says"
        )
    facts = _CENTRAL_FACTS.unpack(head)
    flags, method, crc, packed, plain, name_length, extra_length, comment_length, disk, external, offset = facts
    more = extra_length + comment_length
    is_refused = name_length > limits.name_octets or more > limits.extra_octets
    rest = b"" if is_refused else file.read(name_length + more)
    name = rest[:name_length]
    if disk not in (0, zf.MOST_16):
        raise BadPackage("a package in several parts (disks)")
    if is_refused or flags & ~zf.UTF8 or method not in (zf.STORED, zf.DEFLATED):
        _check_header(name, flags, method, name_length, more, limits)
    if extra_length or zf.MOST_32 in (plain, packed, offset):
        plain, packed, offset = _values64(rest[name_length : name_length + extra_length], [plain, packed, offset])
    kind = (external >> 16) & zf.FILE_KIND
    if kind not in (0, zf.REGULAR_FILE) and not (kind == zf.FOLDER and name.endswith(b"/")):
        raise BadPath(f"{shown(name.decode('utf-8', 'replace'))} is a link, a device or another special file")
    return offset, name, flags, method, crc, packed, plain


class _End(msgspec.Struct, frozen=True):
    """What the end records say, and where they begin: there the central directory must end."""

    members: int
    size: int
    begin: int
    at: int


def _read_end(file: BinaryIO, size: int) -> _End:
    """The end records, which must be the last of the file. Raises BadPackage."""
    file.seek(max(0, size - zf.END.size - zf.MOST_16))
    tail = file.read()
    place = tail.rfind(zf.END_SIGNATURE)
    length = int.from_bytes(tail[place + zf.END.size - 2 : place + zf.END.size], "little")
    if place < 0 or place + zf.END.size + length != len(tail):
        raise _no_end(file, tail)
    _, disk, first_disk, here, members, octets, begin, _ = zf.END.unpack_from(tail, place)
    at = size - len(tail) + place
    large = _read_end64(file, at)
    if large is None:
        if disk or first_disk or here != members:
            raise BadPackage("a package in several parts (disks)")
        return _End(members, octets, begin, at)
    pairs = (
        (members, large.members, zf.MOST_16),
        (octets, large.size, zf.MOST_32),
        (begin, large.begin, zf.MOST_32),
    )
    if any(said not in (right, bound) for said, right, bound in pairs):
        raise BadPackage("the two ends of the package do not agree")
    return large


def _no_end(file: BinaryIO, tail: bytes) -> BadPackage:
    file.seek(0)
    begin = file.read(4)
    if zf.END_SIGNATURE in tail:
        return BadPackage("there are octets after the end of the package, or its end is cut off")
    if begin == zf.LOCAL_SIGNATURE:
        return CutPackage("the package has no end: it was cut off")
    return NotPackage("this is not a ZIP file")


def _read_end64(file: BinaryIO, at: int) -> _End | None:
    begin = at - zf.LOCATOR64.size - zf.END64.size
    if begin < 0:
        return None
    file.seek(begin)
    octets = file.read(zf.END64.size + zf.LOCATOR64.size)
    signature, _, _, disks = zf.LOCATOR64.unpack_from(octets, zf.END64.size)
    if signature != zf.LOCATOR64_SIGNATURE:
        return None
    mark, rest, _, _, disk, first_disk, here, members, size, offset = zf.END64.unpack_from(octets)
    if mark != zf.END64_SIGNATURE or rest != zf.END64.size - 12 or disk or first_disk or here != members or disks > 1:
        raise BadPackage("the ZIP64 end of the package is damaged")
    return _End(members, size, offset, begin)
