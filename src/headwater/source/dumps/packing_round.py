"""Packs the Resource Dump of a scanned set within one run of `headwater publish`, which nothing follows for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from headwater.publish.rendering.dump_packer import PackResult

MOST_SCANS: Final = 3
"""So often the folder is scanned for one page that waits."""
MORE_PAGES: Final = 3
"""So many pages more than there are may be packed: of a folder that never rests, pages are due again and again."""


class _Pack(Protocol):
    def __call__(self, *, at_once: bool) -> PackResult: ...


def pack_round(pack: _Pack, scan: Callable[[], None], page_count: Callable[[], int]) -> None:
    """Make and name the packages that are due; `pack` is called until nothing is.

    Where files turn out to be others than were recorded, `scan` records and publishes that before their page is named,
    for each page anew: a dump without them, of which no change tells, would stay until the next run (AMB-90). Once a
    dump is offered its packages may be old, so that the round ends, however many files change meanwhile.
    """
    scans = named = 0
    packed = pack(at_once=False)
    while packed.is_done or packed.awaits_scan:
        if packed.is_done:
            scans, named = 0, named + 1
            if packed.is_offered and named >= page_count() + MORE_PAGES:
                return
        elif scans < MOST_SCANS:
            scans += 1
            scan()
        packed = pack(at_once=packed.awaits_scan)
