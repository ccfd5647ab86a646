"""A stream of notifications: those of one channel of one set for one hub, one after the other, as a sender needs them.

Its last payload is a row of the set in the catalog, written before it is sent: what is sent again, after whatever was
lost or killed, is the same octets.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from headwater.catalog.interface import Catalog
from headwater.catalog.state import StateUpdate
from headwater.progress import Listener
from headwater.publish.capabilities import Channel
from headwater.publish.notifications import PAYLOAD_OCTETS
from headwater.publish.site import Site
from headwater.source.notifications.hub_position import LastPayload, read_position, row_of
from headwater.source.notifications.notify_config import NotifyConfig
from headwater.storage.objects.interface import ObjectStore

P = TypeVar("P", bound=LastPayload)

LEAST_OCTETS: Final = 4_096
"""A hub that takes no payload of this size is not offered smaller ones."""


class NotifyContext(msgspec.Struct, frozen=True, kw_only=True):
    """What notifications are made with. `may_send` raises when another process has the right to.

    `is_shown` says whether the documents of a set can be had.
    """

    catalog: Catalog
    store: ObjectStore
    site: Site
    clock: Callable[[], dt.datetime]
    listener: Listener
    may_send: Callable[[], None]
    is_shown: Callable[[str], bool]
    token: str | None
    settings: NotifyConfig


class NotificationStream(Generic[P]):
    """What all streams have in common. `next_payload` and `settle` wait for the catalog and raise its faults."""

    channel: Channel
    kind: type[P]

    def __init__(self, name: str, hub: str, context: NotifyContext) -> None:
        self.name = name
        self.position: P | None = None
        self.most_octets = PAYLOAD_OCTETS
        self._hub = hub
        self._context = context
        self._is_read = False
        self._is_written = True

    @property
    def waiting(self) -> int:
        """How many visible changes the hub has not taken."""
        return 0

    def pause(self, since_last: float) -> float:
        """For how many seconds the next payload still waits for more; the last was made `since_last` seconds ago."""
        raise NotImplementedError

    def next_payload(self) -> bytes | None:
        """What is to be sent now; None: nothing. New octets are kept before they are returned."""
        if not self._is_read:
            self.position = read_position(self._context.catalog, self.name, self.channel, self._hub, self.kind)
            self._is_read = True
        if self.position is not None and not self.position.is_taken and self._holds(self.position):
            return self.position.payload
        made = self._made(self.position)
        if made is None:
            return None
        self._write(made)
        return None if made.is_taken else made.payload

    def taken(self) -> None:
        """The hub has taken the payload."""
        assert self.position is not None
        self.position, self._is_written = msgspec.structs.replace(self.position, is_taken=True), False

    def too_large(self) -> bool:
        """The hub takes no payload of this size: make a smaller one, which tells of less; False: it cannot be."""
        position = self.position
        before = None if position is None or len(position.payload) <= LEAST_OCTETS else self._before(position)
        if position is None or before is None:
            return False
        self.most_octets = max(len(position.payload) // 2, LEAST_OCTETS)
        self.position = before
        return True

    def settle(self) -> None:
        """Write down that the last payload was taken, unless that is written; from then on only the row has it.

        The streams of thousands of sets would else hold a payload each.
        """
        if not self._is_written and self.position is not None:
            self._write(self.position)
        if self.position is not None and self.position.is_taken:
            self.position = msgspec.structs.replace(self.position, payload=b"")

    def _holds(self, position: P) -> bool:
        """Whether a payload that was not taken is still to be sent."""
        return bool(position.payload)

    def _made(self, position: P | None) -> P | None:
        """The position with the next payload; None: there is nothing to tell. One that is taken is only kept."""
        raise NotImplementedError

    def _before(self, position: P) -> P | None:
        """The position before the last payload, which was not taken; None where that is not known."""
        raise NotImplementedError

    def _write(self, position: P) -> None:
        self._context.may_send()
        update = StateUpdate([row_of(self.channel, self._hub, position)])
        self._context.catalog.record(self.name, [], self._context.clock(), state=update)
        self.position, self._is_written = position, True
