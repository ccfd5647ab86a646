"""Errors that end the reading of a package, each with the rule it breaks."""

from __future__ import annotations

from typing import ClassVar

from headwater.errors import HeadwaterError, SourceFault, UsageFault


class BadPackage(SourceFault):
    """A package is damaged, hostile, or no ZIP file. Members that were given whole before are what they claim by
    their own CRC; nothing else of the package may be used."""

    code = "HW-PKG-01"
    advice = "Nothing of this package is used beyond what was verified by itself; its operator must publish it again."
    rule_id: ClassVar[str] = "DST-P6"

    def __init__(self, what: str, *, where: str | None = None, rule: str | None = None):
        super().__init__(what, where=where, rule=rule or self.rule_id)


class NotPackage(BadPackage):
    """What came is no ZIP file: a web page, an empty answer, another format (RS-RD-10)."""

    code = "HW-PKG-02"
    rule_id = "RS-RD-10"
    advice = "Look at the address in a browser: there is something else than a ZIP file."


class CutPackage(BadPackage):
    """The package ends before its end: it was cut off while it was written or sent."""

    code = "HW-PKG-03"
    advice = "Fetch the package again; if it stays so, its operator must publish it again."


class BadPath(BadPackage):
    """A name in a package, or a `path` in a manifest, that must not become a file (DST-P3)."""

    code = "HW-PKG-04"
    rule_id = "DST-P3"
    advice = "The name could lead out of the copy or onto another file: the source's operator must rename it."


class PackageTooLarge(BadPackage):
    """A package with more members, octets or growth than the limits allow (DST-P6)."""

    code = "HW-PKG-05"
    advice = "Packages stay far below these limits; raise them only for a source that you trust."


class NeedsDirectory(SourceFault):
    """A package that is in order as far as it was read, but cannot be read while it arrives: its central directory is
    needed, which is at its end. Read it from a file."""

    code = "HW-PKG-06"
    advice = "Store the package and read it by its central directory."


class MemberChanged(HeadwaterError):
    """Content that is packed is longer or shorter than was said: it changed meanwhile. The octets that were given of
    this member must be thrown away; the writer's own state is as before it."""

    code = "HW-PKG-07"
    exit_status = SourceFault.exit_status
    advice = "Pack the resource again when it has come to rest."


class BadMemberName(UsageFault):
    """A member was to be written under a name that a package cannot have."""

    code = "HW-PKG-08"
    advice = "Choose a relative name with forward slashes of at most 65,535 octets."


class BadManifest(BadPackage):
    """A package without a manifest at its root, with one that cannot be read, or with one of the wrong kind
    (RS-RDM-01, RS-CDM-01, DST-P7)."""

    code = "HW-PKG-09"
    rule_id = "RS-RDM-01"
    advice = "Nothing says what the members are: the package's operator must publish it again, with its manifest."


def shown(name: str) -> str:
    """A name as it may stand in a message: on one line, without control characters, not too long."""
    text = ascii(name) if not name.isprintable() else f"'{name}'"
    return text if len(text) <= 200 else f"{text[:200]}…"
