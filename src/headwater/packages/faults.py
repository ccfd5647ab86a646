"""Errors that end the reading of a package, each with the rule it breaks, and the limits of that reading.

A hostile package costs a bounded amount of memory, disk and time (DST-P6).
"""

import msgspec

from headwater.errors import HeadwaterError, SourceFault, UsageFault


class BadPackage(SourceFault):
    """A package is damaged, hostile, or no ZIP file. Members that were given whole before are what they claim by
    their own CRC; nothing else of the package may be used."""

    code = "HW-PKG-01"


class NotPackage(BadPackage):
    """What came is no ZIP file: a web page, an empty answer, another format (RS-RD-10)."""

    code = "HW-PKG-02"


class CutPackage(BadPackage):
    """The package ends before its end: it was cut off while it was written or sent."""

    code = "HW-PKG-03"


class BadPath(BadPackage):
    """A name in a package, or a `path` in a manifest, that must not become a file (DST-P3)."""

    code = "HW-PKG-04"


class PackageTooLarge(BadPackage):
    """A package with more members, octets or growth than the limits allow (DST-P6)."""

    code = "HW-PKG-05"


class MemberChanged(HeadwaterError):
    """Content that is packed is longer or shorter than was said: it changed meanwhile. The octets that were given of
    this member must be thrown away; the writer's own state is as before it."""

    code = "HW-PKG-07"
    exit_status = SourceFault.exit_status


class BadMemberName(UsageFault):
    """A member was to be written under a name that a package cannot have."""

    code = "HW-PKG-08"


class BadManifest(BadPackage):
    """A package without a manifest at its root, with one that cannot be read, or with one of the wrong kind
    (RS-RDM-01, RS-CDM-01, DST-P7)."""

    code = "HW-PKG-09"


def shown(name: str) -> str:
    """A name as it may stand in a message: on one line, without control characters, not too long."""
    text = ascii(name) if not name.isprintable() else f"'{name}'"
    return text if len(text) <= 200 else f"{text[:200]}…"


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
