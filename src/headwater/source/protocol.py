"""The protocols by which the HTTP server knows a source, and a provider of content that lies in no folder."""

from __future__ import annotations

from typing import Protocol

from headwater.catalog.content import ContentReader, RecordedResource
from headwater.source.health import ObservableSource
from headwater.storage.objects.interface import ObjectStore


class ServableSource(ObservableSource, Protocol):
    """The source behind the face. What may ask the catalog is not called in the event loop."""

    @property
    def store(self) -> ObjectStore:
        """Where its documents lie."""
        ...

    @property
    def copied_names(self) -> frozenset[str]:
        """The sets that publish copies: of their files nothing is sent but octets known to be the recorded ones."""
        ...

    def is_known_published(self, name: str | None) -> bool:
        """Whether that is known of a set, or (None) of the Source Description, without asking the catalog."""
        ...

    def takes(self, name: str, relative: bytes) -> bool:
        """Whether the set's settings take a file at this path."""
        ...


class ContentProvider(ContentReader, Protocol):
    """Whoever has the octets of resources that lie in no files, and what the catalog records of them."""

    def is_at_hand(self, set_name: str, relative: str) -> bool:
        """Whether `find` can tell without asking the catalog."""
        ...

    def find(self, set_name: str, relative: str) -> RecordedResource | None:
        """A resource as the catalog holds it, or a later state than is published; None: there is none."""
        ...
