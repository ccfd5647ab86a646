"""Reads the documents and packages of a dump by the standard alone, and checks what all packages have in common."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable

from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry
from tests.support.documents import read_bytes

Fetch = Callable[[str], bytes | None]


def read_named(fetch: Fetch, url: str) -> tuple[Document, list[Entry]]:
    """A document that another one names."""
    data = fetch(url)
    assert data is not None, f"{url} is named and is not there (AMB-63)"
    head, entries, warnings = read_bytes(data, url)
    assert not [one for one in warnings if one.rule != "AMB-03"], warnings
    return head, list(entries)


def href(document: Document, rel: str) -> str:
    """Where a link of a document leads, which has to be there."""
    link = document.link(rel)
    assert link is not None, rel
    return link.href


class ReadPackage:
    """A package that an entry of a dump names: its octets, and its manifest, of a kind and below a Capability List."""

    def __init__(self, fetch: Fetch, entry: Entry, kind: Kind, above: str) -> None:
        data = fetch(entry.loc)
        assert data is not None, "AMB-63"
        self.octets = data
        assert (entry.type, entry.length) == ("application/zip", len(data)), "RS-RD-06, RS-CD-05"
        assert entry.hash == f"sha-256:{hashlib.sha256(data).hexdigest()}", "RS-RD-07, RS-CD-07"
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        assert self._zip.testzip() is None
        names = self._zip.namelist()
        assert names[0] == "manifest.xml", "RS-RDM-01, RS-CDM-01"
        self.members = names[1:]
        """But for the manifest, in their order."""
        manifest = self._zip.read("manifest.xml")
        contents = entry.link("contents")
        assert contents is not None
        assert contents.type == "application/xml"
        assert fetch(contents.href) == manifest, "RS-RD-08, RS-CD-08"
        self.head, entries, warnings = read_bytes(manifest, entry.loc)
        self.entries = list(entries)
        assert not warnings
        assert self.head.kind is kind, "RS-RDM-02, RS-CDM-02"
        assert href(self.head, "up") == above, "RS-RDM-03, RS-CDM-02"

    def content(self, entry: Entry) -> bytes:
        """The octets of an entry of the manifest, which are what it says."""
        assert entry.path is not None, "RS-RDM-05, RS-CDM-06"
        assert entry.path.startswith("/"), "AMB-36"
        content = self._zip.read(entry.path[1:])
        assert entry.length == len(content), "RS-RDM-06"
        if "sha-256:" in str(entry.hash):
            assert f"sha-256:{hashlib.sha256(content).hexdigest()}" in str(entry.hash)
        return content
