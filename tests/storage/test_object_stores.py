"""The contract of object stores, on a folder and in memory."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from headwater.storage.objects.folder_store import FolderStore
from headwater.storage.objects.interface import ObjectStore
from tests.contract.store import StoreContract
from tests.storage.memory_store import MemoryStore


class Folders:
    """Stores in folders below one; nothing is synced, because no test cuts the power."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def fresh(self) -> ObjectStore:
        return FolderStore(self._folder / str(next(self._numbers)), durable=False)

    def again(self, store: ObjectStore) -> ObjectStore:
        assert isinstance(store, FolderStore)
        return FolderStore(store.root, durable=False, clean=False)


class Memories:
    """Stores in memory."""

    def fresh(self) -> ObjectStore:
        return MemoryStore()

    def again(self, store: ObjectStore) -> ObjectStore:
        assert isinstance(store, MemoryStore)
        return MemoryStore(store.held)


class TestFolderStore(StoreContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Folders:
        return Folders(tmp_path)


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def backend(self) -> Memories:
        return Memories()
