"""The clock by which failed requests are made again: UNIX time when the program began, and counted on from there.

The machine's clock may be set back meanwhile, and what was to be tried in a second would wait for as long as that.
"""

from __future__ import annotations

import time
from typing import Final

_BEGAN: Final = time.time() - time.monotonic()


def retry_time() -> float:
    """The time in seconds; it never goes back."""
    return _BEGAN + time.monotonic()
