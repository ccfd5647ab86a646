"""The clock by which leases count, of a hub and of its subscribers: the machine's, but it never goes back.

Where the machine's clock is set back meanwhile, it counts on: leases would be prolonged at a hub, and a subscriber
would renew them too late. It is not the time since the program began either, which stands still while a machine sleeps.
"""

from __future__ import annotations

import time

_began = time.time() - time.monotonic()


def lease_time() -> float:
    """UNIX time in seconds."""
    global _began
    now = time.monotonic()
    _began = max(_began, time.time() - now)
    return _began + now
