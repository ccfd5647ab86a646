"""Content negotiation by media type, decided by values of the header Accept (RFC 9110 12.5.1).

Pure functions. What is malformed counts as absent, and so does a header that is too long to be meant: then everything
is acceptable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_LONGEST = 4_096
_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}"
_RANGE = re.compile(rf"\s*({_NAME})/({_NAME})\s*((?:;[^,]*)?)\Z", re.ASCII)
_WEIGHT = re.compile(r"\s*[qQ]\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*\Z", re.ASCII)


class MediaRange(NamedTuple):
    """One range of a header: `*` stands for any; `has_parameters`: it means one kind of the type only."""

    type: str
    subtype: str
    has_parameters: bool
    weight: float

    def specificity(self, essence: str) -> int:
        """How exactly the range means a media type, from 1; 0 where it does not."""
        kind, _, subtype = essence.partition("/")
        if self.has_parameters:
            return 0  # of a representation only the essence is known
        if (self.type, self.subtype) == ("*", "*"):
            return 1
        if self.type != kind:
            return 0
        return 2 if self.subtype == "*" else 3 * (self.subtype == subtype)


def accepted(header: bytes | None) -> tuple[MediaRange, ...]:
    """The ranges of a header; none where it says nothing that can be read."""
    if not header or len(header) > _LONGEST:
        return ()
    ranges = []
    for text in header.decode("latin-1").split(","):
        match = _RANGE.match(text)
        if match is None or (match[1] == "*" and match[2] != "*"):
            continue
        weight, has_parameters = 1.0, False
        for parameter in match[3].split(";")[1:]:
            if (said := _WEIGHT.match(parameter)) is not None:
                weight = float(said[1])
                break  # what follows is about the weight
            if re.match(r"\s*[qQ]\s*=", parameter):
                weight = -1.0
                break
            has_parameters = has_parameters or bool(parameter.strip())
        if weight >= 0:
            ranges.append(MediaRange(match[1].lower(), match[2].lower(), has_parameters, weight))
    return tuple(ranges)


def choose(header: bytes | None, types: Sequence[str]) -> int | None:
    """Which of the representations of these media types is sent; of equals the first. None: none is acceptable."""
    ranges = accepted(header)
    if not ranges:
        return 0 if types else None
    weights = [_weight(ranges, one.partition(";")[0].strip().lower()) for one in types]
    best = max(weights, default=0.0)
    return weights.index(best) if best > 0 else None


def _weight(ranges: Sequence[MediaRange], essence: str) -> float:
    """By the range that means the type most exactly, whatever less exact ones say."""
    fitting = [(exact, one.weight) for one in ranges if (exact := one.specificity(essence))]
    return max(fitting, default=(0, 0.0))[1]
