"""The protocols by which the HTTP server knows a source, and a provider of content that lies in no folder."""

from __future__ import annotations

from typing import BinaryIO, Protocol

import msgspec

from headwater.catalog.interface import Metadata
from headwater.publish.store_writer import Store
from headwater.source.health import ObservableSource


class ServableSource(ObservableSource, Protocol):
    """The source behind the face. What may ask the catalog is not called in the event loop."""

    @property
    def store(self) -> Store:
        """Where its documents lie."""
        ...

    def is_known_published(self, name: str | None) -> bool:
        """Whether that is known of a set, or (None) of the Source Description, without asking the catalog."""
        ...

    def takes(self, name: str, relative: bytes) -> bool:
        """Whether the set's settings take a file at this path."""
        ...


class ResourceContent(msgspec.Struct, frozen=True):
    """The octets of one resource, and what the catalog says of just these."""

    metadata: Metadata
    octets: int
    file: BinaryIO


class ContentProvider(Protocol):
    """Whoever has the octets of resources."""

    def is_at_hand(self, set_name: str, relative: str) -> bool:
        """Whether `open` can tell without asking the catalog."""
        ...

    def open(self, set_name: str, relative: str) -> ResourceContent | None:
        """A resource in the state that the catalog holds, or a later one than is published; None: there is none."""
        ...
