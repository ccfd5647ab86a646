"""The end of a package as it arrives: whether the central directory has the members that came, and the end records."""

from __future__ import annotations

from struct import Struct

from headwater.packages.faults import BadPackage
from headwater.packages.zip_format import (
    CENTRAL,
    CENTRAL_SIGNATURE,
    DEFLATED,
    END,
    END64,
    END64_SIGNATURE,
    END_SIGNATURE,
    FILE_KIND,
    LOCATOR64,
    LOCATOR64_SIGNATURE,
    MOST_16,
    MOST_32,
    REGULAR_FILE,
    STORED,
    UTF8,
)
from headwater.packages.zip_headers import CentralRecord

_FACTS = Struct("<HIQQQ")


def agreement_key(name: bytes, method: int, crc: int, packed: int, plain: int, offset: int) -> int:
    """A number for what both a member and its central record say: the sums of them are equal, in whatever order the
    records come, if and only if they agree (Python's hash of octets has a secret key in each process)."""
    return hash(_FACTS.pack(method, crc, packed, plain, offset) + name)


class PackageEnd:
    """What comes behind the members: records of the central directory in any order, ZIP64 records where they are
    needed or where the writer likes them, the end record, its comment, and nothing else."""

    def __init__(self) -> None:
        self._members = 0
        self._records = 0
        self._sum = 0
        self._begin = 0
        self._size = 0
        self._octets = bytearray()
        self._total: int | None = None

    @property
    def whole(self) -> bool:
        """Whether the package has ended."""
        return len(self._octets) == self._total

    def members(self, count: int, keys: int) -> None:
        """Members have come, whose keys have this sum."""
        self._members += count
        self._sum += keys

    def begin(self, at: int) -> None:
        """The central directory begins here."""
        self._begin = at

    def record(self, record: CentralRecord) -> None:
        """A record has come. Raises BadPackage when there are more of them than members."""
        self._records += 1
        if self._records > self._members:
            raise BadPackage("the central directory has members that the package has not")
        self._sum -= agreement_key(record.name, record.method, record.crc, record.packed, record.plain, record.offset)

    def usual_records(self, octets: bytearray, at: int) -> int:
        """The same for records from `at` on that are whole and have nothing but a name and lengths of a small file, one
        after another; gives their length. It stops before the first that is otherwise."""
        begin, last, keys, count = at, len(octets) - CENTRAL.size, 0, 0
        most = self._members - self._records
        while at <= last and count < most:
            (signature, _, _, flags, method, _, _, crc, packed, plain, named, extra, comment, disk, _, external,
             offset) = CENTRAL.unpack_from(octets, at)  # fmt: skip
            name = at + CENTRAL.size
            end = name + named
            if (
                signature != CENTRAL_SIGNATURE
                or flags & ~UTF8
                or method not in (STORED, DEFLATED)
                or extra
                or comment
                or disk
                or (external >> 16) & FILE_KIND not in (0, REGULAR_FILE)
                or MOST_32 in (packed, plain, offset)
                or end > len(octets)
            ):
                break
            keys += agreement_key(bytes(octets[name:end]), method, crc, packed, plain, offset)
            count += 1
            at = end
        self._records += count
        self._sum -= keys
        return at - begin

    def close(self, at: int) -> None:
        """The records end here. Raises BadPackage when they are not the members that came."""
        self._size = at - self._begin
        if self._records != self._members:
            raise BadPackage("the package has members that its central directory has not")
        if self._sum:
            raise BadPackage("the central directory and the members do not agree")

    def push(self, data: bytes) -> None:
        """Octets behind the records. Raises BadPackage."""
        self._octets += data
        if self._total is None:
            self._total = self._read()
        if self._total is None:
            return
        if len(self._octets) > self._total:
            raise BadPackage("there are octets after the end of the package: another package, or what belongs to none")
        if self.whole and self._octets.count(END_SIGNATURE) > 1:
            raise BadPackage("the comment of the package holds another end")

    def _read(self) -> int | None:
        """The length of all that comes behind the records; None while too little of it is there. Raises BadPackage."""
        octets = self._octets
        at = 0
        if octets[:4] == END64_SIGNATURE:
            at = END64.size + LOCATOR64.size
            if len(octets) < at:
                return None
            self._check_end64()
        if len(octets) < at + END.size:
            return None
        signature, disk, begin_disk, here, members, size, begin, comment = END.unpack_from(octets, at)
        if signature != END_SIGNATURE:
            raise BadPackage("neither a member nor an end follows the central directory")
        expected = (self._records, self._records, self._size, self._begin)
        bounds = (MOST_16, MOST_16, MOST_32, MOST_32)
        for value, right, bound in zip((here, members, size, begin), expected, bounds, strict=True):
            if value != right and not (at and value == bound):
                raise BadPackage("the end of the package does not agree with its central directory")
        if not at and (disk or begin_disk):
            raise BadPackage("a package in several parts (disks)")
        return at + END.size + int(comment)

    def _check_end64(self) -> None:
        _, rest, _, _, _, _, here, members, size, begin = END64.unpack_from(self._octets)
        locator, _, offset, disks = LOCATOR64.unpack_from(self._octets, END64.size)
        said = (rest, here, members, size, begin, locator, offset)
        count = self._records
        right = (END64.size - 12, count, count, self._size, self._begin, LOCATOR64_SIGNATURE, self._begin + self._size)
        if said != right or disks > 1:
            raise BadPackage("the ZIP64 end of the package does not agree with its central directory")
