"""Fast path for a load of nothing but new resources: weights and places of many at once.

A first load consists of such batches. Whatever else a batch holds is planned by `batch_planning.load`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from headwater.catalog.batch_planning import Places, octets_of
from headwater.catalog.entry_size import DIGITS, FIXED_OCTETS, LENGTH_END, LONGEST_URI, MD5, SHA_256, type_octets
from headwater.catalog.interface import Event, Metadata, Upsert
from headwater.spec.reading.text_values import URI_CHARACTERS
from headwater.spec.writing.xml_text import WriteRefused

IS_ON = True
"""False: each resource is planned on its own."""

_usual_hashes = re.compile(f"(?:{MD5} {SHA_256}\n|{SHA_256}\n|{MD5}\n)*+").fullmatch
_plain_uris = re.compile(f"[{URI_CHARACTERS}\n]*+").fullmatch


class Arrivals(msgspec.Struct, frozen=True):
    """What a backend writes down for a load of nothing but new resources: they get the slots from `first_slot` on.

    The other columns are as long as `events`; `runs` are pairs of a page and how many of the resources lie on it.
    """

    events: list[Upsert]
    uris: list[str]
    metadatas: list[Metadata]
    weights: list[int]
    first_slot: int
    runs: list[tuple[int, int]]


def arrivals(places: Places, events: Sequence[Event]) -> Arrivals | None:
    """What `load` makes of new resources, in one straight pass; None, and nothing done, when that is not all there is.

    Any other batch holds deletions, a URI twice, or what the set holds already.
    """
    if not IS_ON:
        return None
    upserts = [event for event in events if isinstance(event, Upsert)]
    uris = [event.uri for event in upserts]
    if places.held or len(set(uris)) < len(events):
        return None
    metadatas = [event.metadata for event in upserts]
    largest = places.limits.page_octets
    weights = usual_weights(uris, metadatas)
    if weights is None or max(weights, default=0) > largest or "" in uris or any(one.change for one in upserts):
        weights = [octets_of(event, largest) for event in upserts]
    return Arrivals(upserts, uris, metadatas, weights, places.next_slot, places.append(weights))


def usual_weights(uris: Sequence[str], metadatas: Sequence[Metadata]) -> list[int] | None:
    """`weight` of each, by columns and in half the time; None when one has anything unusual: `weight` then tells."""
    if [one for one in metadatas if one.encoding is not None or one.changefreq is not None or one.links or one.extra]:
        return None
    hashes = [one.hash for one in metadatas]
    lengths = [one.length for one in metadatas]
    said = [text for text in hashes if text is not None]
    known = [length for length in lengths if length is not None]
    lines, digests = "\n".join((*uris, "")), "\n".join((*said, ""))
    usual = (
        len(max(uris, key=len, default="")) <= LONGEST_URI
        and _plain_uris(lines)
        and lines.count("\n") == len(uris)
        and _usual_hashes(digests)
        and digests.count("\n") == len(said)
        and "\0" not in digests
        and (not known or (min(known) >= 0 and max(known) < LENGTH_END))
    )
    if not usual:
        return None
    types = [one.type for one in metadatas]
    try:
        of_type = {text: 0 if text is None else type_octets(text) for text in set(types)}
    except WriteRefused:
        return None
    return [
        FIXED_OCTETS
        + len(uri)
        + (0 if text is None else len(text))
        + of_type[type_]
        + (0 if length is None else DIGITS)
        for uri, text, type_, length in zip(uris, hashes, types, lengths, strict=True)
    ]
