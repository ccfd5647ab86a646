"""The contract suite: what `interface` promises, as tests that every backend must pass.

A backend's own test module subclasses `CatalogContract`, gives it a fixture `backend` (see `model.Backend`), and runs
`machine_for`. Needs pytest and hypothesis, which running programs do not.
"""

from __future__ import annotations

import pytest

from headwater.catalog.interface import Catalog
from tests.contract.catalog.cases import SMALL
from tests.contract.catalog.dropping import DroppingContract
from tests.contract.catalog.loading import LoadingContract
from tests.contract.catalog.model import Backend, machine_for
from tests.contract.catalog.paging import PagingContract
from tests.contract.catalog.reading import ReadingContract
from tests.contract.catalog.recording import RecordingContract
from tests.contract.catalog.state import StateContract

__all__ = ["Backend", "CatalogContract", "machine_for"]


class CatalogContract(
    LoadingContract, RecordingContract, PagingContract, ReadingContract, StateContract, DroppingContract
):
    """Subclass it and give it a fixture `backend`."""

    @pytest.fixture
    def catalog(self, backend: Backend) -> Catalog:
        """An empty catalog with the usual limits."""
        return backend.fresh()

    @pytest.fixture
    def small(self, backend: Backend) -> Catalog:
        """An empty catalog with limits so small that a test reaches them."""
        return backend.fresh(SMALL)
