"""The states of resources that a package is made of: those that they have, or those that they had at a moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.catalog.content import ContentReader
from headwater.catalog.interface import Catalog, Resource
from headwater.http.versions.past_contents import past_resource
from headwater.spec.records import AbsenceReason
from headwater.versions.history import History, Keeping, PastState

StatesOf = Callable[[Sequence[str]], Mapping[str, Resource | AbsenceReason]]
"""For each URI, as the catalog has it, its resource in the state that is wanted, or why there is none."""

_NO_OCTETS = {Keeping.DELETED: AbsenceReason.DELETED, Keeping.LOST: AbsenceReason.GONE}


def present_states(catalog: Catalog, name: str) -> StatesOf:
    """The resources of a set as they are."""

    def states(uris: Sequence[str]) -> Mapping[str, Resource | AbsenceReason]:
        found = catalog.get(name, uris)
        return {uri: found.get(uri) or _unknown(uri) for uri in uris}

    return states


class PastStates(msgspec.Struct, frozen=True, kw_only=True):
    """What resources were: `histories` by sets, and who opens octets of then.

    What the settings of a set do not take is not there, whatever it was once.
    """

    histories: Mapping[str, History]
    contents: ContentReader
    takes: Callable[[str, bytes], bool]

    def at(self, name: str, at_us: int) -> StatesOf:
        """The resources of a set with a history as they were."""
        history = self.histories[name]

        def states(uris: Sequence[str]) -> Mapping[str, Resource | AbsenceReason]:
            known = history.each_until([uri for uri in uris if self._is_taken(name, uri)], at_us)
            return {uri: _past(uri, known.get(uri)) for uri in uris}

        return states

    def _is_taken(self, name: str, uri: str) -> bool:
        return "://" not in uri and self.takes(name, unquote_to_bytes(uri))


def _past(uri: str, state: PastState | None) -> Resource | AbsenceReason:
    if state is None:
        return _unknown(uri)
    return past_resource(uri, state) if state.is_kept else _NO_OCTETS[state.keeping]


def _unknown(uri: str) -> AbsenceReason:
    return AbsenceReason.UNKNOWN if "://" not in uri else AbsenceReason.ELSEWHERE
