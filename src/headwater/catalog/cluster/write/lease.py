"""The write lease of a set: who holds it and when it has expired, without comparing clocks of two machines.

A lease is held by a token in the set's head. Whoever waits looks at the head: as long as it changes, its holder lives.
When it has not changed for as long as the holder said, by the clock of the one who waits, the holder is overtaken. It
may live on and write, but what it writes is void (`head.overtaken`).
"""

from __future__ import annotations

import msgspec

from headwater.catalog.cluster.head import SetHead, is_free_head

RENEW_PART = 3
"""A holder renews its lease when so many-th of it has passed: two attempts may fail."""


class Free(msgspec.Struct, frozen=True):
    """Nobody holds the lease, and nothing is left to do that takes one."""


class Held(msgspec.Struct, frozen=True):
    """Somebody holds it, and may for `seconds` more unless it is heard of; `silence` is how long it was not."""

    token: str
    seconds: float
    silence: float


class Expired(msgspec.Struct, frozen=True):
    """The holder is gone, or has left work behind: take over."""


Judgement = Free | Held | Expired


class Watch:
    """What one waiting handle has seen of the head of one set, by its own steady clock. Use from any thread."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._seen: tuple[tuple[int, int], float] | None = None
        """The version that was found last, and since when."""

    def judge(self, head: SetHead, version: tuple[int, int], now: float) -> Judgement:
        """What to do about the head as it was found at `now`."""
        seen = self._seen
        if seen is None or seen[0] != version:
            self._seen = seen = (version, now)
        if head.lease is None:
            return Free() if is_free_head(head) else Expired()
        if head.lease.token == self._token:
            return Expired()  # left behind by a call of ours that failed; calls of one handle take turns
        silence = now - seen[1]
        left = head.lease.seconds - silence
        return Held(head.lease.token, left, silence) if left > 0 else Expired()


def due(seconds: float, beat: float, now: float) -> bool:
    """Whether a holder whose last beat was at `beat` must renew its lease before it goes on writing."""
    return now - beat >= seconds / RENEW_PART
