"""What the face asks of the source behind it."""

from __future__ import annotations

from typing import Protocol

from headwater.publish.press import Store
from headwater.server.health import Reported


class Backing(Reported, Protocol):
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
