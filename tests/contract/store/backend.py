"""What a store's tests hand to the contract, and how the contract reads objects."""

from __future__ import annotations

import gzip
from typing import Protocol

from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import Coding, OpenObject, StoredObject, octets_of


class StoreBackend(Protocol):
    """Stores, and second handles on what they hold."""

    def fresh(self) -> FolderStore:
        """A new, empty store."""
        ...

    def again(self, store: FolderStore) -> FolderStore:
        """Another handle on what `store` holds, as a second process would have: it remembers nothing."""
        ...


def stat(store: FolderStore, name: str) -> StoredObject:
    """An object that is there."""
    stored = store.stat(name)
    assert stored is not None, name
    return stored


def opened(store: FolderStore, name: str, coding: Coding = Coding.IDENTITY) -> OpenObject:
    """An object that is there, opened."""
    found = store.open(name, coding)
    assert found is not None, name
    return found


def content(found: OpenObject) -> bytes:
    """All octets of an open object as they are, whichever form it is."""
    octets = b"".join(octets_of(found, 0, found.octets))
    assert len(octets) == found.octets
    return gzip.decompress(octets) if found.coding is Coding.GZIP else octets


def read(store: FolderStore, name: str, coding: Coding = Coding.IDENTITY) -> bytes:
    """The octets of an object that is there, asked for in this form."""
    with opened(store, name, coding) as found:
        return content(found)
