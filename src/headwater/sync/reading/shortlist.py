"""The sets that a user wants out of thousands, by the Source Description and their own Capability Lists alone."""

from __future__ import annotations

import msgspec

from headwater.spec.kinds import Kind
from headwater.spec.uris import normalise
from headwater.sync.reading.capabilities import CapabilityLists, validated
from headwater.sync.reading.choosing import Wanted, choose
from headwater.sync.reading.documents import Look
from headwater.sync.state import Offer

MOST_SETS = 100_000
"""How many sets of one source are looked at."""

_CAPABILITY_LIST = "capabilitylist"


class Shortlist(msgspec.Struct, frozen=True):
    """What the wanted sets offer, which remembered ones of them cannot be read and why, and all that is listed."""

    offers: tuple[Offer, ...]
    faults: tuple[tuple[str, str], ...]
    listed: tuple[str, ...]


def shortlist(description: Look, wanted: Wanted, lists: CapabilityLists) -> Shortlist | None:
    """Read the Capability Lists of the wanted sets, and no other; None where only reading all of them can tell."""
    listed = _addresses(description, lists) if wanted.said else None
    names = choose(list(listed), wanted) if listed else None
    if listed is None or names is None:
        return None
    lists.look(names)
    offers, faults = [], []
    for uri, name in names.items():
        offer = lists.offer(uri, listed[uri])
        if offer is not None:
            offers.append(msgspec.structs.replace(offer, name=name))
        elif uri in wanted.remembered.values():
            faults.append((uri, lists.why_not(uri) or "it is no Capability List any more"))
        else:
            return None
    return Shortlist(tuple(offers), tuple(faults), tuple(listed))


def _addresses(description: Look, lists: CapabilityLists) -> dict[str, str] | None:
    """Every Capability List that is listed (DST-A6), and where; None when something else is listed, or nothing answers.

    An index of Source Descriptions is followed to these (RS-SD-09, AMB-53).
    """
    pages: list[Look | None] = [description]
    if description.document is not None and description.document.kind is Kind.SOURCE_DESCRIPTION_INDEX:
        pages = []
        for entry in description.entries:
            pages.append(lists.one(entry.loc))
            if sum(len(page.entries) for page in pages if page is not None) > MOST_SETS:
                return None
    found: dict[str, str] = {}
    forms: set[str] = set()
    for page in pages:
        if page is None or page.document is None or page.document.kind is not Kind.SOURCE_DESCRIPTION:
            return None
        for entry in page.entries:
            if (entry.capability or _CAPABILITY_LIST).strip().lower() != _CAPABILITY_LIST:
                return None
            if (form := normalise(entry.loc)) not in forms:
                forms.add(form)
                found[entry.loc] = page.uri
    lists.pages += [validated(page) for page in pages if page is not None and page is not description]
    return found
