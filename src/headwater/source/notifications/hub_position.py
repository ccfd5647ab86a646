"""How far a hub has been told of a set, with the very octets that it is or was told last: a row of the set.

Each hub has its own chain of intervals, without gap or overlap (RS-CN-05). The row with a new payload is written before
the payload is sent, so that what is sent again, after whatever was lost or killed, is the same octets.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from headwater.catalog.faults import UnknownSet
from headwater.catalog.interface import Catalog
from headwater.catalog.state import StateRow
from headwater.publish.capabilities import Channel
from headwater.source.events.publication import VisibleChanges
from headwater.typed_decoding import from_json


class LastPayload(msgspec.Struct, frozen=True, kw_only=True):
    """The octets of the last notification of a channel, none before the first; it was taken if `is_taken`."""

    until: dt.datetime
    payload: bytes = b""
    is_taken: bool = True


class HubPosition(LastPayload, frozen=True, kw_only=True):
    """A hub was told, or is being told, of the changes of a history up to `seq`, of times up to `until`.

    The last notification tells of what follows the change `after`, of times from `since` on.
    """

    history: int
    after: int
    seq: int
    since: dt.datetime | None = None

    def waiting(self, visible: VisibleChanges) -> int:
        """How many changes are visible that the hub has not taken."""
        if self.history != visible.history:
            return visible.last - visible.first + 1
        return visible.last - (self.seq if self.is_taken else self.after)


class Begin(msgspec.Struct, frozen=True):
    """A chain begins: the first notification will tell of the change after `seq`."""

    seq: int


class Resend(msgspec.Struct, frozen=True):
    """The payload of the position has to be sent, perhaps once more."""


class Tell(msgspec.Struct, frozen=True):
    """A notification is to be made of the changes that follow `after`, up to `last`."""

    after: int
    last: int


Step = Begin | Resend | Tell


def next_step(position: HubPosition | None, visible: VisibleChanges) -> Step | None:
    """What is to be done for a hub at this position; None: nothing.

    A hub that is new hears of what changes from now on. Where the history of a set had to begin anew, so does the
    chain, with that history: its `from` is later than the last `until`, which tells subscribers of the gap.
    """
    if position is None:
        return Begin(visible.last)
    if position.history != visible.history:
        return Begin(visible.first - 1)
    if not position.is_taken:
        return Resend()
    return Tell(position.seq, visible.last) if position.seq < visible.last else None


def batch_pause(waiting: int, since_last: float, *, batch_count: int, batch_seconds: float) -> float:
    """For how many seconds a notification of so many `waiting` changes still waits for more; 0: it is sent.

    The last one of the set was begun `since_last` seconds ago: one that comes after a quiet time does not wait.
    """
    return 0.0 if waiting >= batch_count else max(0.0, batch_seconds - since_last)


def row_of(channel: Channel, hub: str, position: LastPayload) -> StateRow:
    """The row of a position."""
    return StateRow(channel.capability, hub, msgspec.json.encode(position))


P = TypeVar("P", bound=LastPayload)


def read_position(catalog: Catalog, name: str, channel: Channel, hub: str, kind: type[P]) -> P | None:
    """The position of a hub in a channel of a set; None: it was never told of it."""
    key = (channel.capability, hub)
    row = catalog.rows(name, [key]).get(key)
    return None if row is None else from_json(row.value, kind)


def latest_payload(catalog: Catalog, name: str, channel: Channel, hubs: Iterable[str]) -> bytes:
    """The octets of the newest notification of a channel, as a hub gets it; none before the first (RS-NT-03).

    Raises the catalog's faults.
    """
    try:
        rows = catalog.rows(name, [(channel.capability, hub) for hub in hubs])
    except UnknownSet:
        return b""
    told = [one for row in rows.values() if (one := from_json(row.value, LastPayload)).payload]
    return max(told, key=lambda one: one.until).payload if told else b""
