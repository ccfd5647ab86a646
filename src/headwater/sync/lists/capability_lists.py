"""Capability Lists: read many at a time, conditionally where their offer is remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headwater.errors import SourceFault
from headwater.spec.extensions import dump_offer
from headwater.spec.kinds import Kind
from headwater.sync.lists.documents import UNITED, Documents, Probe, union_of
from headwater.sync.state import Offer, Validators

CAPABILITY_LISTS = (Kind.CAPABILITY_LIST, Kind.CAPABILITY_LIST_INDEX)
_MOST_HUBS = 16
NOTHING = "the Capability List offers no Resource List, no Change List and no dump"
_UNNAMED = "its entries have no capability, which says what is listed (RS-CAP-06)"


class RememberedOffer(msgspec.Struct, frozen=True):
    """The offer of a Capability List when it was read, and its validators."""

    offer: Offer
    validators: Validators


class CapabilityLists:
    """Documents that are listed as Capability Lists, by their URIs as they are listed."""

    def __init__(self, documents: Documents, known: Mapping[str, RememberedOffer]) -> None:
        self._documents = documents
        self._known = known
        self._found: dict[str, Probe | SourceFault] = {}
        self.read: list[tuple[str, Validators]] = []
        """The Capability Lists that were read, and their validators."""

        self.pages: list[tuple[str, Validators]] = []
        """The Source Descriptions of an index that were read, and their validators."""

    def put(self, probe: Probe) -> None:
        """This was just looked at."""
        self._found[probe.uri] = probe

    def probe(self, uris: Iterable[str]) -> None:
        """Look at many of them at a time, once."""
        todo = [uri for uri in dict.fromkeys(uris) if uri not in self._found]
        asked = [(uri, known.validators if (known := self._known.get(uri)) else None) for uri in todo]
        self._found.update(zip(todo, self._documents.probe_many(asked), strict=True))

    def take(self, uri: str) -> Probe:
        """Take the probe of a URI, made before or now. Raises SourceFault when nothing answers."""
        found = self._found.pop(uri, None) or self._documents.probe(uri)
        if isinstance(found, SourceFault):
            raise found
        return found

    def peek(self, uri: str) -> Probe | None:
        """The probe of a URI, which `take` still finds; None when nothing answers."""
        try:
            self._found[uri] = self.take(uri)
        except SourceFault as fault:
            self._found[uri] = fault
        found = self._found[uri]
        return found if isinstance(found, Probe) else None

    def unchanged(self, uri: str, description: str) -> Offer | None:
        """The remembered offer, if the Capability List is unchanged (304)."""
        known, found = self._known.get(uri), self._found.get(uri)
        if known is None or not isinstance(found, Probe) or found.status != 304:
            return None
        return msgspec.structs.replace(known.offer, name="", description=description)

    def offer(self, uri: str, description: str) -> Offer | None:
        """The offer of a URI; None if it is no readable Capability List, or offers nothing to copy."""
        kept, found = self.unchanged(uri, description), self._found.get(uri)
        if kept is not None or not isinstance(found, Probe):
            return kept
        if found.document is None or found.document.kind not in CAPABILITY_LISTS:
            return None
        return self.offered(found, description)

    def offered(self, probe: Probe, description: str | None) -> Offer | None:
        """The offer of a Capability List; None if there is nothing to copy."""
        offer = offer_of(probe, description, self._documents)
        if offer.baseline_document is None and offer.changes_document is None:
            return None
        self.read.append(validated(probe))
        return offer

    def why_not(self, uri: str) -> str | None:
        """Why nothing is offered there; None where something is, or where there is another document."""
        found = self._found[uri]
        if isinstance(found, SourceFault):
            return str(found)
        if found.document is None:
            return str(refused(found)) if found.status != 200 else no_document(found)
        if found.document.kind not in CAPABILITY_LISTS or self.offer(uri, "") is not None:
            return None
        return nothing_offered(found)


def nothing_offered(probe: Probe) -> str:
    """Why a Capability List offers nothing that can be copied."""
    is_unnamed = bool(probe.entries) and not any(entry.capability for entry in probe.entries)
    return f"{NOTHING}: {_UNNAMED}" if is_unnamed else NOTHING


def validated(probe: Probe) -> tuple[str, Validators]:
    """A document that was looked at, and the validators of this state of it."""
    return probe.uri, Validators(probe.etag, probe.last_modified)


def refused(probe: Probe) -> SourceFault:
    """The fault of an answer that is not 200."""
    return probe.refused or SourceFault(f"HTTP status {probe.status}", where=probe.uri, rule="DST-A1")


def no_document(probe: Probe) -> str:
    """Why what is there is no document."""
    return probe.fault.what if probe.fault is not None else "it is not a ResourceSync document"


def unusable(probe: Probe) -> str:
    """Why what is there cannot be used."""
    return no_document(probe) if probe.status == 200 else f"HTTP status {probe.status}"


def offer_of(probe: Probe, description: str | None, documents: Documents) -> Offer:
    """The offer of a Capability List. Several lists of one kind are read as one index of them (AMB-54)."""
    first: dict[str, str] = {}
    hubs: dict[str, tuple[str, ...]] = {}
    for entry in probe.entries:
        capability = (entry.capability or "").strip().lower()
        if first.setdefault(capability, entry.loc) != entry.loc:
            is_read = capability in UNITED
            told = "all are read" if is_read else "the first counts"
            if capability:
                documents.warn("AMB-54", f"more than one {capability} in a Capability List: {told}", probe.final)
            first[capability] = union_of(probe.uri, capability) if is_read else first[capability]
            continue
        if found := tuple(dict.fromkeys(link.href for link in entry.links if link.rel == "hub"))[:_MOST_HUBS]:
            hubs[capability] = found
    return Offer(
        identity=probe.uri,
        name="",
        capability_list=probe.uri,
        description=description,
        documents=first,
        hubs=hubs,
        on_demand=dump_offer(probe.document) if probe.document is not None else None,
    )
