"""The clock by which leases and pauses count, of a hub and of its subscribers: UNIX time that never goes back.

Where the machine's clock is set back meanwhile, this one counts on: a hub would prolong leases, a subscriber renew
them too late, and what is to be tried again in a second would wait for as long. It goes ahead with the machine's
clock, unlike `time.monotonic`, which stands still while a machine sleeps.
"""

from __future__ import annotations

import time

_began = time.time() - time.monotonic()


def monotonic_unix_time() -> float:
    """The time in seconds; it never goes back."""
    global _began
    now = time.monotonic()
    _began = max(_began, time.time() - now)
    return _began + now
