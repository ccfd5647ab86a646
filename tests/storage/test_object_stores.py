"""The contract of object stores, on a folder."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from headwater.storage.folder_store import FolderStore
from tests.contract.store import StoreContract


class Folders:
    """Stores in folders below one; nothing is synced, because no test cuts the power."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def fresh(self) -> FolderStore:
        return FolderStore(self._folder / str(next(self._numbers)), durable=False)

    def again(self, store: FolderStore) -> FolderStore:
        return FolderStore(store.root, durable=False, clean=False)


class TestFolderStore(StoreContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> Folders:
        return Folders(tmp_path)
