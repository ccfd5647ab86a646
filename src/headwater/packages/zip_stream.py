"""Reader of a ZIP file while it arrives: octets in, members out; the central directory is compared with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from headwater.deflate import crc32
from headwater.packages.faults import BadPackage, CutPackage, NeedsDirectory, NotPackage, shown
from headwater.packages.inflation import BLOCK, Inflation, inflate_whole, small_content
from headwater.packages.limits import PackageLimits
from headwater.packages.zip_end import PackageEnd, agreement_key
from headwater.packages.zip_format import (
    CENTRAL,
    CENTRAL_SIGNATURE,
    DEFLATED,
    DESCRIPTORS,
    END,
    END64_SIGNATURE,
    END_SIGNATURE,
    LOCAL,
    LOCAL_SIGNATURE,
    STORED,
    UTF8,
)
from headwater.packages.zip_headers import (
    LocalHeader,
    PackageBudget,
    central_octets,
    decoded_name,
    local_octets,
    read_central,
    read_local,
)

WHOLE_OCTETS = 1 << 20
"""Members up to this length come as one MemberData, after their CRC was checked."""

_PEEK = 28
"""Octets that follow every member: the longest data descriptor and a signature; what ends a package is longer."""


class MemberBegin(msgspec.Struct, frozen=True, gc=False):
    """A member begins: its name, and its length where the local header states it."""

    name: str
    octets: int | None


class MemberData(msgspec.Struct, frozen=True, gc=False):
    """Octets of the content of the member that began last."""

    octets: bytes


class PackedBody(msgspec.Struct, frozen=True, gc=False):
    """The body of a small member as it is in the package, and what its header says of the content."""

    packed: bytes
    plain_octets: int
    crc: int
    is_deflated: bool

    def octets(self, name: str) -> bytes:
        """The content of the member `name`. Raises BadPackage where length or CRC are not as stated."""
        return small_content(name, self.packed, self.plain_octets, self.crc, is_deflated=self.is_deflated)


def stored_body(content: bytes) -> PackedBody:
    """The body of a member whose content is known."""
    return PackedBody(content, len(content), crc32(content), is_deflated=False)


class WholeMember(msgspec.Struct, frozen=True, gc=False):
    """A small member that has come whole, as it is in the package: nothing of it is believed before `octets`."""

    name: str
    body: PackedBody

    @property
    def octets(self) -> bytes:
        """Its content, whose length and CRC are as stated. Raises BadPackage."""
        return self.body.octets(self.name)


class MemberEnd(msgspec.Struct, frozen=True, gc=False):
    """The member is whole, and its length and CRC are as stated."""

    name: str
    octets: int


MemberEvent = MemberBegin | MemberData | MemberEnd


class ZipStream:
    """Reads one package while it arrives (DST-P6).

    For each file, in the order of the package: MemberBegin, MemberData, MemberEnd. Up to 1 MiB come as ONE MemberData
    (also when there is nothing in it), and only after the CRC was checked; longer content comes in blocks, of which
    nothing may be believed before MemberEnd. Folders give no events. Memory is bounded by the limits, whatever comes.

    What cannot be known before the central directory (a stored member with a data descriptor and no length, octets
    before the first header) raises NeedsDirectory. Everything else that is not in order raises BadPackage: wrong CRC
    or length, encryption, unknown methods, links, refused or colliding names, members that the central directory does
    not have or has otherwise, octets after the end. After an exception nothing more can be pushed.
    """

    def __init__(self, limits: PackageLimits | None = None) -> None:
        self._limits = limits or PackageLimits()
        self._budget = PackageBudget(self._limits)
        self._most_usual = min(WHOLE_OCTETS, self._budget.most_usual)
        self._waiting = bytearray()
        self._needed = 4
        self._step: Callable[[], Iterator[MemberEvent]] = self._first
        self._at = 0
        self._end = PackageEnd()
        self._member: _Open | None = None
        self._failed = False

    def push(self, data: bytes) -> Iterator[MemberEvent]:
        """Take octets in; gives what is known by them. Raises BadPackage, NeedsDirectory; take all events before the
        next push."""
        for event in self.push_whole(data):
            if not isinstance(event, list):
                yield event
                continue
            for member in event:
                octets = member.octets
                yield MemberBegin(member.name, len(octets))
                yield MemberData(octets)
                yield MemberEnd(member.name, len(octets))

    def push_whole(self, data: bytes) -> Iterator[list[WholeMember] | MemberEvent]:
        """The same, for a reader of many: small members with nothing unusual come as one event, a list of them, the
        content of each inflated and checked when it is asked for."""
        if self._failed:
            raise BadPackage("the package was found to be bad before")
        self._waiting += data
        self._failed = True
        while len(self._waiting) >= self._needed:
            if self._step == self._between:
                yield from self._whole_members()
            if len(self._waiting) >= self._needed:
                yield from self._step()
        self._failed = False

    def finish(self) -> None:
        """Nothing more comes. Raises CutPackage when the package has not ended."""
        if self._at + len(self._waiting) < END.size:
            raise NotPackage("nothing came, or less than any package has")
        if self._failed or not self._end.whole:
            raise CutPackage(f"the package ends after {self._at + len(self._waiting):,} octets, before its end")

    def _take(self, octets: int) -> bytes:
        """The first of what waits, and go on behind it."""
        taken = bytes(self._waiting[:octets])
        del self._waiting[:octets]
        self._at += octets
        return taken

    def _next(self, step: Callable[[], Iterator[MemberEvent]], needed: int) -> None:
        self._step, self._needed = step, needed

    def _first(self) -> Iterator[MemberEvent]:
        """The very beginning: is it a package at all?"""
        begin = bytes(self._waiting[:4])
        if begin not in (LOCAL_SIGNATURE, END_SIGNATURE):
            if begin.lstrip()[:1] in (b"<", b"{", b"["):
                raise NotPackage("this is no ZIP file, but markup or JSON")
            raise NeedsDirectory("the package does not begin with a member")
        self._next(self._between, 4)
        yield from ()

    def _between(self) -> Iterator[MemberEvent]:
        """Behind a member: another one, or the central directory."""
        signature = bytes(self._waiting[:4])
        if signature == LOCAL_SIGNATURE:
            self._next(self._local, LOCAL.size)
        elif signature in (CENTRAL_SIGNATURE, END64_SIGNATURE, END_SIGNATURE):
            self._end.begin(self._at)
            self._next(self._directory, 4)
        else:
            raise BadPackage(f"at {self._at:,} there is neither a member nor the central directory")
        yield from ()

    def _whole_members(self) -> Iterator[list[WholeMember]]:
        """Members that have come whole, are small, and have nothing but a name and lengths: what many small records
        are, one after another. It stops before the first that is otherwise, which takes the other steps."""
        waiting, most = bytes(self._waiting), self._most_usual
        at, needed, agreement, all_packed, all_plain = 0, 4, 0, 0, 0
        last = len(waiting) - LOCAL.size
        found: list[WholeMember] = []
        while at <= last:
            signature, _, flags, method, _, _, crc, packed, plain, named, extra = LOCAL.unpack_from(waiting, at)
            begin = at + LOCAL.size + named
            end = begin + packed
            if (
                signature != LOCAL_SIGNATURE
                or flags & ~UTF8
                or extra
                or packed > WHOLE_OCTETS
                or plain > most
                or (method != DEFLATED and (method != STORED or packed != plain))
                or named > self._limits.name_octets
            ):
                break
            if end > len(waiting):
                needed = end - at
                break
            octets = waiting[at + LOCAL.size : begin]
            try:
                name = octets.decode()
            except UnicodeDecodeError:
                break
            if octets.endswith(b"/") or octets.startswith(b"./"):
                break
            agreement += agreement_key(octets, method, crc, packed, plain, self._at + at)
            found.append(WholeMember(name, PackedBody(waiting[begin:end], plain, crc, method == DEFLATED)))
            all_packed += packed
            all_plain += plain
            at = end
        else:
            if waiting[at : at + 4] == LOCAL_SIGNATURE:
                needed = LOCAL.size
        del self._waiting[:at]
        self._at += at
        self._needed = needed
        if not found:
            return
        self._end.members(len(found), agreement)
        if self._budget.admit_all([member.name for member in found]):
            self._budget.spend(all_plain, all_packed)
            yield found
            return
        for member in found:
            self._budget.admit(member.name)
            self._budget.spend(member.body.plain_octets, len(member.body.packed))
            yield [member]

    def _local(self) -> Iterator[MemberEvent]:
        """A local header; the whole member where it is small and all there."""
        octets = local_octets(self._waiting, 0, self._limits)
        if len(self._waiting) < octets:
            self._needed = octets
            return
        header = read_local(self._waiting, 0)
        name = decoded_name(header.name, header.flags)
        member = self._member = _Open(name, header, self._at)
        del self._waiting[:octets]
        self._at += octets
        is_file = self._budget.admit(name)
        known = not header.descriptor
        if known:
            self._budget.check_said(name, header.packed, header.plain)
        if is_file:
            yield MemberBegin(name, header.plain if known or header.plain else None)
        elif header.plain:
            raise BadPackage(f"the folder {shown(name)} has content")
        member.silent = not is_file
        self._choose_body(member)

    def _choose_body(self, member: _Open) -> None:
        header = member.header
        if header.method == STORED:
            if not header.descriptor and header.packed != header.plain:
                raise BadPackage(f"{shown(member.name)} is stored, with two different lengths")
            if header.descriptor and not header.packed:
                self._next(self._empty_or_unknown, _PEEK)
            elif header.packed <= WHOLE_OCTETS:
                self._next(self._whole, header.packed)
            else:
                self._budget.check_said(member.name, header.packed, header.plain)
                self._next(self._stored, 1)
        elif not header.descriptor and max(header.packed, header.plain) <= WHOLE_OCTETS:
            self._next(self._whole, header.packed)
        else:
            said = not header.descriptor or member.silent
            most = header.plain if said else self._budget.most_of(member.name)
            member.inflation = Inflation(member.name, self._limits, most, said=said)
            self._next(self._inflated, 1)

    def _whole(self) -> Iterator[MemberEvent]:
        """The body of a member whose length is known and small."""
        member = self._opened()
        header = member.header
        content = self._take(header.packed)
        if header.method != STORED:
            content = inflate_whole(member.name, content, header.plain)
        member.crc, member.packed, member.plain = crc32(content), header.packed, len(content)
        self._budget.spend(len(content), header.packed)
        if header.descriptor:
            member.held = [content]
            self._next(self._descriptor, _PEEK)
            return
        self._check(member, header.crc, header.packed, header.plain)
        if not member.silent:
            yield MemberData(content)
            yield MemberEnd(member.name, len(content))
        self._close(member)

    def _empty_or_unknown(self) -> Iterator[MemberEvent]:
        """A stored member with a data descriptor and no length: only an empty one has an end that can be seen."""
        member = self._opened()
        if self._descriptor_octets(member) is None:
            raise NeedsDirectory(f"{shown(member.name)} is stored and does not say how long it is")
        member.held = [b""]
        self._next(self._descriptor, _PEEK)
        yield from ()

    def _stored(self) -> Iterator[MemberEvent]:
        """A part of a long stored member."""
        member = self._opened()
        rest = member.header.packed - member.packed
        block = self._take(min(rest, len(self._waiting), BLOCK))
        member.packed += len(block)
        yield self._content(member, block)
        if len(block) == rest:
            yield from self._end_of_body(member)

    def _inflated(self) -> Iterator[MemberEvent]:
        """A part of a deflated member that is long, or whose length is not known."""
        member = self._opened()
        inflation = member.inflation
        assert inflation is not None
        before = inflation.packed
        for block in inflation.push(self._waiting):
            if member.plain + len(block) <= WHOLE_OCTETS and not member.in_blocks:
                self._note(member, block)
                member.held.append(block)
                continue
            if not member.in_blocks:
                member.in_blocks = True
                yield from (MemberData(held) for held in member.held)
                member.held = []
            yield self._content(member, block)
        used = inflation.packed - before
        del self._waiting[:used]
        self._at += used
        member.packed = inflation.packed
        if inflation.ended:
            yield from self._end_of_body(member)

    def _end_of_body(self, member: _Open) -> Iterator[MemberEvent]:
        header = member.header
        if header.descriptor:
            self._next(self._descriptor, _PEEK)
            return
        self._check(member, header.crc, header.packed, header.plain)
        yield from self._last(member)
        self._close(member)

    def _descriptor(self) -> Iterator[MemberEvent]:
        """The data descriptor behind a member: with or without signature, with lengths of 32 or 64 bits."""
        member = self._opened()
        header = member.header
        octets = self._descriptor_octets(member)
        if octets is None:
            raise BadPackage(f"{shown(member.name)} has another CRC or length than its data descriptor says")
        if header.packed and (header.packed, header.plain) != (member.packed, member.plain):
            raise BadPackage(f"{shown(member.name)} has another length than its local header says")
        self._take(octets)
        yield from self._last(member)
        self._close(member)

    def _descriptor_octets(self, member: _Open) -> int | None:
        """How long the descriptor is that begins here and fits the member; None when none does."""
        facts = (member.crc, member.packed, member.plain)
        for form, signature, large in DESCRIPTORS:
            expected = (signature, *facts) if signature else facts
            if not large and max(facts) > 0xFFFFFFFF:
                continue
            if self._waiting.startswith(form.pack(*expected)) and (
                bytes(self._waiting[form.size : form.size + 4]) in (LOCAL_SIGNATURE, CENTRAL_SIGNATURE)
            ):
                return form.size
        return None

    def _last(self, member: _Open) -> Iterator[MemberEvent]:
        """What was held back, and the end of the member."""
        if member.silent:
            return
        if member.held or not member.in_blocks:
            yield MemberData(b"".join(member.held))
        yield MemberEnd(member.name, member.plain)

    def _directory(self) -> Iterator[MemberEvent]:
        """A record of the central directory, or what follows them."""
        waiting, at, needed = self._waiting, 0, 4
        while (there := len(waiting) - at) >= needed:
            if waiting[at : at + 4] != CENTRAL_SIGNATURE:
                self._end.close(self._at + at)
                self._next(self._ending, 1)
                break
            at += self._end.usual_records(waiting, at)
            if waiting[at : at + 4] != CENTRAL_SIGNATURE:
                needed = 4
                continue
            there = len(waiting) - at
            needed = CENTRAL.size if there < CENTRAL.size else central_octets(waiting, at, self._limits)
            if there >= needed:
                self._end.record(read_central(waiting, at))
                at, needed = at + needed, 4
        else:
            self._needed = needed
        del waiting[:at]
        self._at += at
        yield from ()

    def _ending(self) -> Iterator[MemberEvent]:
        """The end records; nothing may follow them."""
        self._end.push(self._take(len(self._waiting)))
        yield from ()

    def _opened(self) -> _Open:
        assert self._member is not None
        return self._member

    def _note(self, member: _Open, block: bytes) -> None:
        member.crc = crc32(block, member.crc)
        member.plain += len(block)
        self._budget.spend(len(block))

    def _content(self, member: _Open, block: bytes) -> MemberData:
        self._note(member, block)
        member.in_blocks = True
        return MemberData(block)

    def _check(self, member: _Open, crc: int, packed: int, plain: int) -> None:
        if (member.packed, member.plain) != (packed, plain):
            raise BadPackage(f"{shown(member.name)} has another length than its local header says")
        if member.crc != crc:
            raise BadPackage(f"{shown(member.name)} has another CRC than its local header says")

    def _close(self, member: _Open) -> None:
        header = member.header
        key = agreement_key(header.name, header.method, member.crc, member.packed, member.plain, member.offset)
        self._end.members(1, key)
        self._next(self._between, 4)


class _Open:
    """The member that is being read."""

    __slots__ = ("crc", "header", "held", "in_blocks", "inflation", "name", "offset", "packed", "plain", "silent")

    def __init__(self, name: str, header: LocalHeader, offset: int) -> None:
        self.name = name
        self.header = header
        self.offset = offset
        self.crc = 0
        self.packed = 0
        self.plain = 0
        self.held: list[bytes] = []
        self.in_blocks = False
        self.silent = False
        self.inflation: Inflation | None = None
