"""What a destination ends with that reads a published tree from the disk: Resource List first, then every change."""

import hashlib
import os
from pathlib import Path
from urllib.parse import unquote_to_bytes

from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Document, Entry
from tests.support.documents import read_bytes

INDEXES = {Kind.RESOURCE_LIST_INDEX, Kind.CHANGE_LIST_INDEX}


class Tree:
    """A published tree below `root`, which a web server would serve at `base_url`."""

    def __init__(self, root: Path, base_url: str, set_name: str = "files") -> None:
        self.root = root
        self.base_url = base_url
        self.set_name = set_name
        self.prefix = f"{base_url}/{set_name}/resources/"

    def read(self, name: str) -> tuple[Document, list[Entry]]:
        document, entries, warnings = read_bytes((self.root / name).read_bytes(), f"{self.base_url}/{name}")
        assert not warnings, warnings
        return document, list(entries)

    def entries(self, name: str) -> list[Entry]:
        """The entries of a list, or of all parts of an index, in order. Whatever is named exists (AMB-63)."""
        document, entries = self.read(name)
        if document.kind not in INDEXES:
            return entries
        return [one for part in entries for one in self.entries(part.loc.removeprefix(self.base_url + "/"))]

    def listed(self) -> dict[str, str | None]:
        """The Resource List: URI -> hash."""
        return {one.loc: one.hash for one in self.entries(f"{self.set_name}/resourcelist.xml")}

    def changes(self) -> list[Entry]:
        """All changes, oldest first."""
        return self.entries(f"{self.set_name}/changelist.xml")

    def replayed(self) -> dict[str, str | None]:
        """The Resource List after all changes: URI -> hash."""
        state = self.listed()
        for one in self.changes():
            if one.change is ChangeKind.DELETED:
                state.pop(one.loc, None)
            else:
                state[one.loc] = one.hash
        return state

    def truth(self, folder: Path) -> dict[str, str | None]:
        """What a destination should end with: every file of `folder`, by its URI."""
        found: dict[str, str | None] = {}
        for uri, data in files(folder).items():
            found[self.prefix + uri] = f"md5:{hashlib.md5(data).hexdigest()} sha-256:{hashlib.sha256(data).hexdigest()}"
        return found

    def resources(self) -> dict[str, bytes]:
        """The placed files: relative URI -> octets."""
        return files(self.root / self.set_name / "resources")

    def missing(self) -> list[str]:
        """Listed resources that have no file: what a destination would get 404 for."""
        places = [(one, self.root / self.set_name / "resources") for one in self.replayed()]
        return [
            uri
            for uri, place in places
            if not os.path.isfile(os.path.join(os.fsencode(place), unquote_to_bytes(uri.removeprefix(self.prefix))))
        ]


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder: relative URI -> octets."""
    from headwater.ingest.folder.walk import quote

    found = {}
    base = os.fsencode(folder)
    for where, _below, names in os.walk(base):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as file:
                found[quote(os.path.relpath(path, base))] = file.read()
    return found
