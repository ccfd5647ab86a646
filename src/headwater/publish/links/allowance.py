"""How much links that are added when documents are rendered make them grow, and how small pages have to be for that.

The catalog weighs entries without such links (`catalog/entry_size.py`), so that its weights stay what they are when
the rules change. What the links take is bounded beforehand by the rules alone: so many octets an entry and so many for
each octet of its URI. Pages and segments of such a set are cut earlier. Those that were filled before the rules came
are rendered with as many of the links as there is room for.
"""

from __future__ import annotations

import datetime as dt
from typing import Final, NamedTuple

from headwater.catalog.entry_size import DIGITS, FIXED_OCTETS, LENGTH_END, URI_PREFIX_OCTETS, link_octets
from headwater.catalog.interface import Limits
from headwater.patches.registry import FORMATS
from headwater.spec.kinds import DOCUMENT_ENTRIES, DOCUMENT_OCTETS, PATCH
from headwater.spec.records import Link

HEAD_OCTETS: Final = 65_536
"""What the head and the end of a document take at most."""

ROOM: Final = DOCUMENT_OCTETS - HEAD_OCTETS
_LIMITS: Final = Limits()
MOST_OCTETS: Final = min(_LIMITS.page_octets, _LIMITS.segment_octets)
"""What pages and segments of any set weigh at most, so that nothing has to be cut for a small allowance."""


class Allowance(NamedTuple):
    """What is added to an entry at most: `octets`, and `uri_factor` for each octet of its URI."""

    octets: int = 0
    uri_factor: int = 0

    def plus(self, other: Allowance) -> Allowance:
        """Both."""
        return Allowance(self.octets + other.octets, self.uri_factor + other.uri_factor)

    def document_octets(self, entries: int = DOCUMENT_ENTRIES) -> int:
        """What a page or segment of so many entries may weigh such that it has room for all that is added (RS-LIM-02).

        An entry weighs `FIXED_OCTETS` and its URI at least. So of n entries that weigh W together the URIs have
        W − n·FIXED_OCTETS octets at most, and the document W + n·octets + uri_factor·(W − n·FIXED_OCTETS).
        """
        growth = 1 + self.uri_factor
        surplus = max(0, self.octets - self.uri_factor * FIXED_OCTETS)
        by_count = (ROOM - entries * surplus) / growth
        by_weight = ROOM / (growth + surplus / FIXED_OCTETS)
        return min(MOST_OCTETS, int(max(by_count, by_weight)))


NOTHING: Final = Allowance()


_NAME_OCTETS: Final = (
    len("/patch/") + DIGITS + len("-0123456789abcdef.") + max(len(one.suffix) for one in FORMATS.values())
)
_LONGEST = Link(
    rel=PATCH,
    href="http://a/" + "a" * (URI_PREFIX_OCTETS + _NAME_OCTETS),
    hash=f"sha-256:{'0' * 64}",
    length=LENGTH_END - 1,
    modified=dt.datetime(2000, 1, 1, 1, 1, 1, 111111, tzinfo=dt.UTC),
    type=max(FORMATS, key=len),
)

PATCH_LINK: Final = Allowance(link_octets(_LONGEST))
"""Of one entry. The URL of a set's documents is bounded as that of its resources is."""
