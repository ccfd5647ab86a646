"""Which sets a user means, where the Source Description alone tells: then no other Capability List need be read.

A set is said by its Capability List's URI, or by its name. A name decides only when no other address that is listed
could come by it, whichever of them turn out to be sets: what is chosen early is what reading everything would give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headwater.sync.reading.labels import Candidates, Names


class Wanted(msgspec.Struct, frozen=True):
    """What the user has said, and the identity of each set that is remembered, by its name."""

    said: tuple[str, ...] = ()
    remembered: Mapping[str, str] = {}


def choose(listed: Sequence[str], wanted: Wanted) -> dict[str, str] | None:
    """The name of each set that is meant, by its address; None when only reading all that is listed can tell.

    `listed` are different addresses, in document order, in which those that are meant come too.
    """
    known = {identity: name for name, identity in wanted.remembered.items()}
    remembered = Names(known.values())
    some_missing = not known.keys() <= set(listed)  # they may have moved to an address that is listed (DST-F10)
    candidates = Candidates(listed)
    names = {identity: name for name, identity in candidates.names.items()}
    chosen: dict[str, str] = {}
    for said in wanted.said:
        identity = wanted.remembered.get(said, said if said in names else candidates.owner(said))
        if identity is None or identity not in names:
            return None
        if identity not in known and (some_missing or (said != identity and said in remembered)):
            return None
        if said not in (identity, known.get(identity, said)):
            return None  # the set is remembered by another name
        chosen[identity] = known.get(identity, names[identity])
    return {identity: chosen[identity] for identity in listed if identity in chosen}
