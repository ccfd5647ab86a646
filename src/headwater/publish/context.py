"""What all parts of publishing work with: the catalog, the store, the site, the time, and the right to write."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import msgspec

from headwater.catalog.interface import Catalog
from headwater.progress import Listener, silent
from headwater.publish.site import Site
from headwater.storage.objects.interface import ObjectStore


def always() -> None:
    """Nobody else writes."""


def nobody(_name: str | None, _documents: tuple[str, ...]) -> None:
    """Nobody wants to know what was written."""


class PublishContext(msgspec.Struct, frozen=True):
    """The parts. `may_write` is called before anything is put in its place, and raises when this process must not."""

    catalog: Catalog
    store: ObjectStore
    site: Site
    clock: Callable[[], dt.datetime]
    listener: Listener = silent
    may_write: Callable[[], None] = always
