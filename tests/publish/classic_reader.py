"""An old harvester: it knows one Resource List, one Change List and `lastmod`; it looks at `from` before it goes on."""

from __future__ import annotations

import datetime as dt

from headwater.spec.kinds import Kind
from headwater.spec.records import ChangeKind, Document, Entry
from tests.support.documents import read_bytes
from tests.support.published import BASE, Fetch, PublishedCatalog


def read(fetch: Fetch, name: str) -> tuple[Document, list[Entry]]:
    """A document below the base URL, which has to be there; nothing in it needs forgiving."""
    data = fetch(f"{BASE}/{name}")
    assert data is not None, name
    document, entries, warnings = read_bytes(data, f"{BASE}/{name}")
    assert not [one for one in warnings if one.rule != "AMB-03"], (name, warnings)
    return document, list(entries)


def truth(world: PublishedCatalog) -> dict[str, str]:
    """What the catalog holds as these lists state it: MD5 is the only digest."""
    return {uri: hashes.split()[0] for uri, hashes in world.truth().items()}


class ClassicReader:
    """Keeps a copy by the lists for old harvesters; `baselines` are those that it has made."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._position: dt.datetime | None = None
        self.state: dict[str, str] = {}
        self.baselines = 0

    def look(self) -> None:
        """Come up to date: by the changes since the last look where they are all there, else by the Resource List."""
        document, changes = read(self._fetch, "files/classic/changelist.xml")
        assert document.kind is Kind.CHANGE_LIST
        assert document.until is None
        assert document.from_ is not None
        if self._position is None or document.from_ > self._position:
            self.baselines += 1
            self._baseline(document.from_)
            document, changes = read(self._fetch, "files/classic/changelist.xml")
        position = self._position
        assert position is not None
        for entry in changes:
            assert entry.lastmod is not None
            if entry.lastmod > position:
                if entry.change is ChangeKind.DELETED:
                    self.state.pop(entry.loc, None)
                else:
                    self.state[entry.loc] = str(entry.hash)
                self._position = entry.lastmod

    def _baseline(self, since: dt.datetime) -> None:
        document, entries = read(self._fetch, "files/classic/resourcelist.xml")
        if document.kind is Kind.RESOURCE_LIST_INDEX:
            entries = [one for part in entries for one in read(self._fetch, part.loc.removeprefix(BASE + "/"))[1]]
        assert document.at is not None
        assert document.at >= since, "who makes a baseline now finds no gap"
        self._position = document.at
        self.state = {entry.loc: str(entry.hash) for entry in entries}
        assert len(self.state) == len(entries), "RS-RL-08"
