"""What the link to a patch adds to an entry of a Change List at most: segments are cut for it (RS-LIM-02)."""

from __future__ import annotations

import datetime as dt
from typing import Final

from headwater.catalog.entry_size import DIGITS, LENGTH_END, URI_PREFIX_OCTETS, link_octets
from headwater.patches.registry import FORMATS
from headwater.publish.links.allowance import Allowance
from headwater.spec.namespaces import PATCH
from headwater.spec.records import Link

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
