"""Errors that end the reading of a package, each with the rule it breaks."""

from __future__ import annotations

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
