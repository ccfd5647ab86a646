"""Which resources of a set a request for a package means: as the catalog knows them when it comes, or as they were."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.catalog.content import ContentReader
from headwater.catalog.interface import Catalog, Resource, Segment
from headwater.http.dumps.request import (
    NO_SUCH_PAGE,
    NOT_KNOWN_SINCE,
    TOO_MUCH,
    DumpRefused,
    Wanted,
    WantedPage,
    WantedSince,
)
from headwater.http.mementos import past_resource
from headwater.spec.records import AbsenceReason, ChangeKind
from headwater.spec.times import format_datetime
from headwater.versions.history import History, Keeping, PastState

CHANGES_READ = 10_000
"""So many changes are read at a time."""
MOST_CHANGES = 20
"""For each resource that may be asked for, so many changes are read to find out which have changed since a moment."""


class SelectedResources(msgspec.Struct, frozen=True):
    """URIs as the catalog has them, in the order of the request or of the catalog; and those deleted since.

    `at`: the catalog has all that happened up to this moment, and every later change has a later time (RS-TIME-05);
    of past states the moment that was asked for.
    """

    at: dt.datetime
    uris: Sequence[str]
    deleted: Sequence[str] = ()


def select(catalog: Catalog, name: str, wanted: Wanted, *, prefix: str, most: int) -> SelectedResources:
    """What `wanted` means in the set `name`, whose relative URIs are below `prefix`.

    Raises DumpRefused for more than `most` resources, and the catalog's faults.
    """
    snapshot = catalog.snapshot_of(name)
    state = snapshot.state
    if state.opened_at is None:
        raise DumpRefused("the set is not loaded yet")
    at = state.last_at or state.opened_at
    if isinstance(wanted, WantedPage):
        page = next((one for one in snapshot.pages if one.number == wanted.number), None)
        if page is None:
            raise DumpRefused(f"the Resource List has no page {wanted.number}", code=NO_SUCH_PAGE)
        uris = _page(catalog, name, wanted.number, most)
        return SelectedResources(at, uris)
    if isinstance(wanted, WantedSince):
        uris, deleted = _changed(catalog, name, snapshot.segments, wanted.moment, most)
        return SelectedResources(at, uris, deleted)
    return SelectedResources(wanted.at or at, [catalog_uri(uri, prefix) for uri in wanted.uris])


def catalog_uri(uri: str, prefix: str) -> str:
    """An absolute URI as the catalog has it: relative to the set's prefix when it is below."""
    relative = uri.removeprefix(prefix)
    return uri if "://" in relative else relative


def absolute_uri(uri: str, prefix: str) -> str:
    """The absolute form of a URI of the catalog."""
    return uri if "://" in uri else prefix + uri


def _page(catalog: Catalog, name: str, number: int, most: int) -> list[str]:
    uris: list[str] = []
    for resource in catalog.page(name, number):
        uris.append(resource.uri)
        if len(uris) > most:
            raise DumpRefused(f"the page has more than {most:,} resources", code=TOO_MUCH)
    return uris


def _changed(
    catalog: Catalog, name: str, segments: Sequence[Segment], moment: dt.datetime, most: int
) -> tuple[list[str], list[str]]:
    """The resources that changed after a moment: those that are there, and those that are not any more."""
    if not segments or moment < segments[0].from_:
        known = f", which are known since {format_datetime(segments[0].from_)}" if segments else ""
        raise DumpRefused(f"changes since {format_datetime(moment)} are asked for{known}", code=NOT_KNOWN_SINCE)
    after = max(one.first - 1 for one in segments if one.from_ <= moment)
    is_there: dict[str, bool] = {}
    read = 0
    while changes := catalog.changes(name, after, CHANGES_READ):
        after, read = changes[-1].seq, read + len(changes)
        for change in changes:
            if change.at > moment:
                is_there[change.uri] = change.change is not ChangeKind.DELETED
        if len(is_there) > most or read > most * MOST_CHANGES:
            raise DumpRefused(
                f"more than {min(most, read):,} resources or changes since {format_datetime(moment)}", code=TOO_MUCH
            )
    there = [uri for uri, stays in is_there.items() if stays]
    return there, [uri for uri, stays in is_there.items() if not stays]


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
