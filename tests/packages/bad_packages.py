"""Packages that must not be believed, each made for one fault: a table of names, octets and what the readers say.

What is put into them is a Resource Dump of two resources (`GOOD`), so that a server can offer any of them instead of a
good one. `fault` is the class that a reader of the central directory raises (by reading the directory or a member);
None where the package is a good ZIP file and only its manifest is wrong, which `manifest_fault` tells.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from headwater.packages.faults import BadPackage, BadPath, CutPackage, NotPackage, PackageTooLarge
from headwater.packages.zip_writer import ZipWriter

AT = "2026-01-01T00:00:00Z"
BASE = "http://example.com/"
GOOD = {"a.txt": b"The first resource.\n" * 20, "b.txt": b"The second resource, which is longer.\n" * 40}
"""The content of the resources `BASE` + name; members `resources/NAME`."""


class Entry(NamedTuple):
    """An entry of a manifest."""

    uri: str
    path: str | None
    octets: int
    sha256: str


def entry(name: str, content: bytes, path: str | None = None) -> Entry:
    """The true entry of a resource."""
    return Entry(BASE + name, path or f"/resources/{name}", len(content), hashlib.sha256(content).hexdigest())


GOOD_ENTRIES = [entry(name, content) for name, content in GOOD.items()]


def manifest(
    entries: Sequence[Entry] = GOOD_ENTRIES, *, capability: str = "resourcedump-manifest", at: str = AT, up: str = BASE
) -> bytes:
    """A manifest with these entries."""
    urls = "".join(
        f"<url><loc>{one.uri}</loc><rs:md"
        + (f' path="{one.path}"' if one.path else "")
        + f' length="{one.octets}" hash="sha-256:{one.sha256}" type="text/plain"/></url>'
        for one in entries
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
        f'xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:ln rel="up" href="{up}capabilitylist.xml"/>'
        f'<rs:md capability="{capability}" at="{at}"/>{urls}</urlset>'
    ).encode()


class Raw(NamedTuple):
    """A member as it is to be written, right or wrong. What is None is what is right."""

    name: bytes
    content: bytes
    method: int = 0
    flags: int = 1 << 11
    crc: int | None = None
    packed: int | None = None
    plain: int | None = None
    mode: int = 0o100644
    central_name: bytes | None = None
    central_crc: int | None = None
    central_plain: int | None = None
    offset: int | None = None
    body: bytes | None = None


def deflated(content: bytes) -> bytes:
    """As raw deflate."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return compressor.compress(content) + compressor.flush()


def raw(members: Sequence[Raw], *, before: bytes = b"", number: int | None = None, comment: bytes = b"") -> bytes:
    """A package of these members, without ZIP64."""
    out, central = bytearray(before), bytearray()
    for one in members:
        crc = zlib.crc32(one.content) if one.crc is None else one.crc
        body = one.body if one.body is not None else deflated(one.content) if one.method == 8 else one.content
        packed = len(body) if one.packed is None else one.packed
        plain = len(one.content) if one.plain is None else one.plain
        offset = len(out) if one.offset is None else one.offset
        name = one.name if one.central_name is None else one.central_name
        sizes = (packed, plain if one.central_plain is None else one.central_plain)
        central_crc = crc if one.central_crc is None else one.central_crc
        out += struct.pack(
            "<4sHHHHHIIIHH", b"PK\3\4", 20, one.flags, one.method, 0, 33, crc, packed, plain, len(one.name), 0
        )
        out += one.name + body
        head = (b"PK\1\2", 3 << 8 | 20, 20, one.flags, one.method, 0, 33, central_crc, *sizes, len(name))
        central += struct.pack("<4sHHHHHHIIIHHHHHII", *head, 0, 0, 0, 0, one.mode << 16, offset) + name
    number = (len(members) if number is None else number) & 0xFFFF
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, number, number, len(central), len(out), len(comment))
    return bytes(out + central + end + comment)


def good_members(text: bytes | None = None) -> list[Raw]:
    """The manifest and the two resources, all right."""
    return [
        Raw(b"manifest.xml", text or manifest(), method=8),
        *(Raw(f"resources/{name}".encode(), content, method=8) for name, content in GOOD.items()),
    ]


def with_members(*more: Raw) -> Callable[[], bytes]:
    """A good package with something more."""
    return lambda: raw([*good_members(), *more])


def with_manifest(text: bytes) -> Callable[[], bytes]:
    """A package with another manifest."""
    return lambda: raw(good_members(text))


def changed(index: int, **values: object) -> Callable[[], bytes]:
    """A good package of which one member is otherwise."""

    def make() -> bytes:
        members = good_members()
        members[index] = members[index]._replace(**values)  # type: ignore[arg-type]
        return raw(members)

    return make


def good() -> bytes:
    """The package that all others are spoiled copies of, as our writer makes it."""
    writer = ZipWriter()
    body = b"".join(writer.member(f"resources/{name}", content, deflate=True) for name, content in GOOD.items())
    return writer.insert_first("manifest.xml", manifest()) + body + writer.end()


def overlapping() -> bytes:
    """The better zip bomb: many names in the directory for one body."""
    members = good_members()
    offset = len(raw(members[:1])) - 22 - 46 - len(b"manifest.xml")
    return raw([*members, *(members[1]._replace(central_name=b"resources/%d" % n, offset=offset) for n in range(50))])


def nested() -> bytes:
    """Members whose bodies hold the headers and bodies of the following ones (overlapping, quoted)."""
    inner = Raw(b"resources/inner", b"x" * 100)
    inner_octets = raw([inner])
    body = inner_octets[: 30 + len(inner.name) + 100]
    outer = Raw(b"resources/outer", body)
    members = good_members()
    at = len(raw(members)) - sum(46 + len(one.name) for one in members) - 22
    return raw([*members, outer, inner._replace(offset=at + 30 + len(outer.name))])


def two_packages() -> bytes:
    """Two packages, one behind the other, each with a directory of its own."""
    first = raw([Raw(b"manifest.xml", manifest([]))])
    return first + raw(good_members())


def two_directories() -> bytes:
    """Two whole packages; the second one's offsets count from the beginning of the file, so that both are found."""
    first = raw(good_members())
    return raw(good_members(), before=first)


def one_directory_too_many() -> bytes:
    """The central directory twice, the second time with a name of its own."""
    package = raw(good_members())
    begin = struct.unpack_from("<I", package, len(package) - 6)[0]
    directory = package[begin:-22]
    other = directory.replace(b"resources/a.txt", b"resources/x.txt")
    size = struct.pack("<II", len(other), begin + len(directory))
    return package[:-22] + other + package[-22:-10] + size + b"\0\0"


def stored_without_length() -> bytes:
    """A stored member with a data descriptor that does not say how long it is: only the directory tells."""
    content = GOOD["a.txt"]
    head = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, 8 | 1 << 11, 0, 0, 33, 0, 0, 0, 15, 0) + b"resources/a.txt"
    body = head + content + struct.pack("<4sIII", b"PK\7\x08", zlib.crc32(content), len(content), len(content))
    facts = (zlib.crc32(content), len(content), len(content), 15, 0, 0, 0, 0, 0o100644 << 16, 0)
    central = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 788, 20, 8 | 1 << 11, 0, 0, 33, *facts) + b"resources/a.txt"
    return body + central + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(central), len(body), 0)


@cache
def many_members(most: int = 65_540) -> bytes:
    """More members than an end without ZIP64 can count."""
    return raw([*good_members(), *(Raw(b"resources/%d" % number, b"") for number in range(most))])


class Bad(NamedTuple):
    """A bad package: how it is made, what reading by the directory raises, what is wrong with its manifest."""

    make: Callable[[], bytes]
    fault: type[BadPackage] | None
    manifest_fault: str | None = None


ZEROS = bytes(20 << 20)
HIGH = "\u212b"  # Ångström sign, which is Å when it is normalised

NAMES = {
    "climbs": b"../outside.txt",
    "climbs in the middle": b"resources/../../outside.txt",
    "climbs at the end": b"resources/..",
    "climbs by a dot": b"resources/./a.txt",
    "climbs with back-slashes": b"..\\outside.txt",
    "climbs with a back-slash in the middle": b"resources\\..\\..\\outside.txt",
    "climbs in full width": "resources/\uff0e\uff0e/\uff0e\uff0e/outside.txt".encode(),
    "climbs by a two dot leader": "resources/\u2025/outside.txt".encode(),
    "climbs in overlong UTF-8": b"resources/\xc0\xae\xc0\xae/outside.txt",
    "is absolute": b"/tmp/outside.txt",
    "is absolute after another slash": b"//tmp/outside.txt",
    "has a drive letter": b"C:/outside.txt",
    "has a drive letter without slash": b"c:outside.txt",
    "is on another machine": b"\\\\server\\share\\outside.txt",
    "has a NUL": b"resources/a.txt\0.jpg",
    "has a control character": b"resources/a\n.txt",
    "has an escape": b"resources/\x1b[2Ja.txt",
    "has an empty segment": b"resources//c.txt",
    "is empty": b"",
    "is very deep": b"d/" * 200 + b"c.txt",
}

BAD: dict[str, Bad] = {
    **{f"a name that {what}": Bad(with_members(Raw(name, b"evil")), BadPath) for what, name in NAMES.items()},
    "a name that is very long": Bad(with_members(Raw(b"n" * 60_000, b"")), PackageTooLarge),
    "a symbolic link": Bad(with_members(Raw(b"resources/link", b"../../outside", mode=0o120777)), BadPath),
    "a device": Bad(with_members(Raw(b"resources/device", b"", mode=0o020666)), BadPath),
    "a named pipe": Bad(with_members(Raw(b"resources/pipe", b"", mode=0o010644)), BadPath),
    "a link in the place of a resource": Bad(changed(1, mode=0o120777), BadPath),
    "names that collide by case": Bad(with_members(Raw(b"resources/A.TXT", b"other")), BadPath),
    "names that collide by normalisation": Bad(
        with_members(Raw(f"r/{HIGH}".encode(), b"1"), Raw("r/\u00c5".encode(), b"2")), BadPath
    ),
    "names that collide by case and normalisation": Bad(
        with_members(Raw("r/e\u0301".encode(), b"1"), Raw("r/\u00c9".encode(), b"2")), BadPath
    ),
    "a duplicate name": Bad(with_members(Raw(b"resources/a.txt", b"other")), BadPath),
    "two manifests": Bad(with_members(Raw(b"manifest.xml", manifest([]))), BadPath),
    "two manifests by case": Bad(with_members(Raw(b"Manifest.XML", manifest([]))), BadPath),
    "a file that is a folder of another": Bad(with_members(Raw(b"resources", b"")), BadPath),
    "a file in a folder that is a file": Bad(with_members(Raw(b"resources/a.txt/c", b"")), BadPath),
    "a folder with content": Bad(with_members(Raw(b"resources/folder/", b"content")), BadPackage),
    "a folder with octets behind it": Bad(
        with_members(Raw(b"resources/folder/", b"", body=b"hidden", packed=0)), BadPackage
    ),
    "a file that the directory calls a folder": Bad(
        with_members(Raw(b"resources/hidden", b"", central_name=b"resources/folder/")), BadPackage
    ),
    "an encrypted member": Bad(changed(1, flags=1 << 11 | 1), BadPackage),
    "a strongly encrypted member": Bad(changed(1, flags=1 << 11 | 1 | 1 << 6), BadPackage),
    "masked headers": Bad(changed(1, flags=1 << 11 | 1 << 13), BadPackage),
    "an unknown method": Bad(changed(1, method=99, body=b"whatever"), BadPackage),
    "a method of other programs": Bad(changed(1, method=93, body=b"whatever"), BadPackage),
    "a wrong CRC": Bad(changed(1, crc=1), BadPackage),
    "a wrong CRC in the directory": Bad(changed(1, central_crc=1), BadPackage),
    "another name in the directory": Bad(changed(1, central_name=b"resources/x.txt"), BadPackage),
    "another length in the directory": Bad(changed(1, central_plain=7), BadPackage),
    "a length that is too small": Bad(changed(1, plain=7), BadPackage),
    "a length that is too large": Bad(changed(1, plain=70_000), BadPackage),
    "a compressed length that is too small": Bad(changed(1, packed=7), BadPackage),
    "a compressed length that is too large": Bad(changed(2, packed=1 << 31), BadPackage),
    "a stored member with two lengths": Bad(changed(1, method=0, plain=7), BadPackage),
    "deflate that is damaged": Bad(changed(1, body=b"\xff" * 30), BadPackage),
    "octets behind the end of deflate": Bad(changed(1, body=deflated(GOOD["a.txt"]) + b"hidden"), BadPackage),
    "a ZIP64 length without a ZIP64 field": Bad(changed(1, packed=0xFFFFFFFF, plain=0xFFFFFFFF), BadPackage),
    "overlapping members": Bad(overlapping, BadPackage),
    "members within members": Bad(nested, BadPackage),
    "a bomb": Bad(with_members(Raw(b"resources/bomb", ZEROS, method=8)), PackageTooLarge),
    "a bomb that lies about its length": Bad(
        with_members(Raw(b"resources/bomb", ZEROS, method=8, plain=1_000)), BadPackage
    ),
    "65,536 members and more without ZIP64": Bad(many_members, BadPackage),
    "octets after the end": Bad(lambda: good() + b"\n", BadPackage),
    "many octets after the end": Bad(lambda: good() + b"x" * 100_000, BadPackage),
    "octets in front of the first member": Bad(lambda: b"#!/bin/sh\n" + raw(good_members()), None),
    "a member that the directory has not, in front": Bad(two_packages, BadPackage),
    "two packages with directories": Bad(two_directories, BadPackage),
    "several central directories": Bad(one_directory_too_many, BadPackage),
    "an end in the comment": Bad(lambda: raw(good_members(), comment=raw([])), BadPackage),
    "a wrong number of members": Bad(lambda: raw(good_members(), number=2), BadPackage),
    "several disks": Bad(lambda: good()[:-18] + b"\1\0\1\0" + good()[-14:], BadPackage),
    "a cut in the first member": Bad(lambda: good()[:40], CutPackage),
    "a cut in the middle": Bad(lambda: good()[: len(good()) // 2], CutPackage),
    "a cut in the directory": Bad(lambda: good()[:-60], CutPackage),
    "a cut in the end": Bad(lambda: good()[:-1], BadPackage),
    "an HTML page": Bad(lambda: b"<!DOCTYPE html><html><body>Not found</body></html>" * 100, NotPackage),
    "JSON": Bad(lambda: b'{"error": "not found", "status": 404, "detail": "there is nothing"}', NotPackage),
    "nothing": Bad(lambda: b"", NotPackage),
    "gzip": Bad(lambda: b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + deflated(b"text" * 99), NotPackage),
    "no manifest": Bad(lambda: raw(good_members()[1:]), None, "missing"),
    "a manifest in a folder": Bad(
        lambda: raw([*good_members()[1:], Raw(b"resources/manifest.xml", manifest())]), None, "missing"
    ),
    "a manifest that is not first": Bad(lambda: raw([*good_members()[1:], good_members()[0]]), None, None),
    "a manifest of a Change Dump": Bad(
        with_manifest(manifest([], capability="changedump-manifest").replace(b"at=", b"from=")), None, "kind"
    ),
    "a manifest that is a Resource List": Bad(with_manifest(manifest(capability="resourcelist")), None, "kind"),
    "a manifest that is a Resource Dump": Bad(with_manifest(manifest(capability="resourcedump")), None, "kind"),
    "a manifest that is no XML": Bad(with_manifest(b"a.txt b.txt\n"), None, "xml"),
    "a manifest that ends in the middle": Bad(with_manifest(manifest()[:-60]), None, "xml"),
    "a manifest that is larger than said": Bad(changed(0, plain=100), BadPackage),
    "a manifest with a document type": Bad(
        with_manifest(manifest().replace(b"<urlset", b"<!DOCTYPE urlset [<!ENTITY a 'b'>]><urlset")), None, "xml"
    ),
    "a member is missing": Bad(
        with_manifest(manifest([*GOOD_ENTRIES, entry("c.txt", b"absent")])), None, "member missing"
    ),
    "a member is undeclared": Bad(with_members(Raw(b"resources/c.txt", b"undeclared")), None, "undeclared"),
    "a member of another length": Bad(
        with_manifest(manifest([GOOD_ENTRIES[0]._replace(octets=7), GOOD_ENTRIES[1]])), None, "length"
    ),
    "a member of another hash": Bad(
        with_manifest(manifest([GOOD_ENTRIES[0]._replace(sha256="0" * 64), GOOD_ENTRIES[1]])), None, "hash"
    ),
    "a path that climbs": Bad(
        with_manifest(manifest([GOOD_ENTRIES[0]._replace(path="/../a.txt"), GOOD_ENTRIES[1]])), None, "path"
    ),
    "a path that climbs when decoded": Bad(
        with_manifest(manifest([GOOD_ENTRIES[0]._replace(path="/%2e%2e/a.txt"), GOOD_ENTRIES[1]])),
        None,
        "member missing",
    ),
    "an entry without path": Bad(
        with_manifest(manifest([GOOD_ENTRIES[0]._replace(path=None), GOOD_ENTRIES[1]])), None, "path"
    ),
}
