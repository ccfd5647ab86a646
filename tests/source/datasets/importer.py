"""The reading rules of the existing importer of RDF datasets, re-created from what is known of it (TIM-A1 to TIM-A6).

It reads plain lists only, keeps one `rs:ln` of an entry (the last), looks at nothing but that link of a change, wants
its type and the change's `datetime`, and takes changes that are strictly later than its last import. It raises
AssertionError where it could not go on.
"""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import xml.etree.ElementTree as ET
from collections.abc import Callable

import msgspec

NQUD = "application/vnd.timbuctoo-rdf.nquads_unified_diff"
_SM = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
_RS = "{http://www.openarchives.org/rs/terms/}"
_PATCH = "http://www.openarchives.org/rs/terms/patch"

Fetch = Callable[[str], bytes]


class DatasetEntry(msgspec.Struct):
    """An entry as its mapping keeps it: attributes of `rs:md`, and of the last `rs:ln`."""

    loc: str
    md: dict[str, str]
    link: dict[str, str]
    links: int


class ImportedDataset(msgspec.Struct):
    """A dataset as the importer has it: statements as lines, the time of the newest change that it has taken."""

    lines: set[bytes] = msgspec.field(default_factory=set)
    at: str = ""
    taken: int = 0


def entries(document: bytes, root: str = "urlset") -> list[DatasetEntry]:
    """The entries of a document; indexes are not understood."""
    tree = ET.fromstring(document)
    assert tree.tag == f"{_SM}{root}", tree.tag
    found = []
    for url in tree.findall(f"{_SM}url"):
        loc, md, links = url.find(f"{_SM}loc"), url.find(f"{_RS}md"), url.findall(f"{_RS}ln")
        assert loc is not None
        assert loc.text
        link = dict(links[-1].attrib) if links else {}
        found.append(DatasetEntry(loc.text, {} if md is None else dict(md.attrib), link, len(links)))
    return found


def root_of(document: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """Attributes of the document's own `rs:md`, and its links by relation."""
    tree = ET.fromstring(document)
    md = tree.find(f"{_RS}md")
    assert md is not None
    return dict(md.attrib), {one.attrib["rel"]: one.attrib["href"] for one in tree.findall(f"{_RS}ln")}


def datasets(fetch: Fetch, base: str) -> dict[str, dict[str, str]]:
    """For each Capability List of a source its capabilities: one of each, and both that are needed (TIM-03, TIM-04)."""
    found = {}
    for one in entries(fetch(f"{base}/.well-known/resourcesync")):
        offered = [(row.md["capability"], row.loc) for row in entries(fetch(one.loc))]
        assert len(offered) == len(dict(offered))
        assert {"resourcelist", "changelist"} <= dict(offered).keys()
        found[one.loc] = dict(offered)
    return found


def import_changes(fetch: Fetch, change_list: str, into: ImportedDataset) -> None:
    """Take the changes that are later than those taken before."""
    for one in entries(fetch(change_list)):
        if not one.link:  # skipped, as if nothing had happened
            continue
        assert one.links == 1
        assert one.link["rel"] == _PATCH
        assert one.link["type"] == NQUD
        assert one.md["datetime"]
        if into.at and _time(one.md["datetime"]) <= _time(into.at):
            continue
        patch = fetch(one.link["href"])
        assert int(one.link["length"]) == len(patch)
        assert one.link["hash"] == f"sha-256:{hashlib.sha256(patch).hexdigest()}"
        apply(patch, into.lines)
        into.at = one.md["datetime"]
        into.taken += 1
        content = b"".join(sorted(into.lines))
        assert (one.md["hash"], int(one.md["length"])) == (
            f"sha-256:{hashlib.sha256(content).hexdigest()}",
            len(content),
        )


def dataset_file(fetch: Fetch, resource_list: str) -> bytes:
    """The only file of a kind that is imported, which its name does not tell (TIM-A5), decompressed where it is."""
    found = [one for one in entries(fetch(resource_list)) if one.md.get("type") == "application/n-quads"]
    assert len(found) == 1
    octets = fetch(found[0].loc)
    octets = gzip.decompress(octets) if octets.startswith(b"\x1f\x8b") else octets
    assert found[0].md["hash"] == f"sha-256:{hashlib.sha256(octets).hexdigest()}"
    assert found[0].loc.endswith("/dataset.nq")
    return octets


def apply(patch: bytes, lines: set[bytes]) -> None:
    """Execute one patch, line by line."""
    for text in patch.splitlines(keepends=True):
        if text.startswith(b"+<"):
            lines.add(text[1:])
        elif text.startswith(b"-<"):
            lines.discard(text[1:])


def _time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)
