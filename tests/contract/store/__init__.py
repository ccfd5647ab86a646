"""The contract suite of object stores: what `storage.object_store` promises, as tests.

A store's own test module subclasses `StoreContract` and gives it a fixture `backend` (see `backend.StoreBackend`).
Needs pytest, which running programs do not.
"""

from __future__ import annotations

import pytest

from headwater.storage.folder_store import FolderStore
from tests.contract.store.backend import StoreBackend
from tests.contract.store.changing import ChangingContract
from tests.contract.store.naming import NamingContract
from tests.contract.store.reading import ReadingObjectsContract

__all__ = ["StoreBackend", "StoreContract"]


class StoreContract(ChangingContract, ReadingObjectsContract, NamingContract):
    """Subclass it and give it a fixture `backend`."""

    @pytest.fixture
    def store(self, backend: StoreBackend) -> FolderStore:
        """An empty store."""
        return backend.fresh()
