"""Bounds on packages that are read, so that a hostile package costs a bounded amount of memory, disk and time."""

from __future__ import annotations

import msgspec


class PackageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the reading of one package (DST-P6); far wider than what dumps have, narrow where only attacks go.

    `members`: files and folders; a manifest that keeps RS-LIM-01 has 50,000. Each costs up to 700 octets of memory.
    `octets`: content of all members, inflated; `member_octets`: of one. `ratio` binds the growth of a member by
    inflating, once `ratio_octets` have come out of it, and that of all members together, once `package_ratio_octets`
    have: text shrinks 3 to 60 times.
    `barren_octets`: how many octets a deflated member may have beyond those that come out of it, so that deflate
    which gives nothing ends soon. `name_octets`: of one member's name; `names_octets`: of all names together, which
    bounds the memory of a reading. `extra_octets`: of the extra fields and the comment of one member.
    `manifest_octets`: of `manifest.xml`, inflated.
    """

    members: int = 300_000
    octets: int = 1 << 40
    member_octets: int = 1 << 38
    ratio: int = 200
    ratio_octets: int = 8 << 20
    package_ratio_octets: int = 1 << 30
    barren_octets: int = 1 << 20
    name_octets: int = 4_096
    names_octets: int = 64 << 20
    extra_octets: int = 8_192
    manifest_octets: int = 256 << 20
