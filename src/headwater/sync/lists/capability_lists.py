"""What Capability Lists offer: read many at a time, and conditionally where it is known what they offered before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headwater.errors import SourceFault
from headwater.spec.kinds import Kind
from headwater.sync.lists.documents import Documents, Look
from headwater.sync.state import Offer, Validators

CAPABILITY_LISTS = (Kind.CAPABILITY_LIST, Kind.CAPABILITY_LIST_INDEX)
NOTHING = "the Capability List offers no Resource List and no Change List"


class Known(msgspec.Struct, frozen=True):
    """What a Capability List offered when it was read, and its validators then."""

    offer: Offer
    validators: Validators


class CapabilityLists:
    """Documents that are listed as Capability Lists, by their URIs as they are listed."""

    def __init__(self, documents: Documents, known: Mapping[str, Known]) -> None:
        self._documents = documents
        self._known = known
        self._found: dict[str, Look | SourceFault] = {}
        self.read: list[tuple[str, Validators]] = []
        """Those that told what they offer, and the validators that hold for that."""

        self.pages: list[tuple[str, Validators]] = []
        """The Source Descriptions of an index that were read, and their validators."""

    def put(self, look: Look) -> None:
        """This was just looked at."""
        self._found[look.uri] = look

    def look(self, uris: Iterable[str]) -> None:
        """Look at many of them at a time, once."""
        todo = [uri for uri in dict.fromkeys(uris) if uri not in self._found]
        asked = [(uri, known.validators if (known := self._known.get(uri)) else None) for uri in todo]
        self._found.update(zip(todo, self._documents.looks(asked), strict=True))

    def take(self, uri: str) -> Look:
        """What was found there, or is now. Raises SourceFault when nothing answers."""
        found = self._found.pop(uri, None) or self._documents.look(uri)
        if isinstance(found, SourceFault):
            raise found
        return found

    def one(self, uri: str) -> Look | None:
        """What is there, and stays for `take`; None when nothing answers."""
        try:
            self._found[uri] = self.take(uri)
        except SourceFault as fault:
            self._found[uri] = fault
        found = self._found[uri]
        return found if isinstance(found, Look) else None

    def unchanged(self, uri: str, description: str) -> Offer | None:
        """What it has offered before, where it has said that it is what it was (304)."""
        known, found = self._known.get(uri), self._found.get(uri)
        if known is None or not isinstance(found, Look) or found.status != 304:
            return None
        return msgspec.structs.replace(known.offer, name="", description=description)

    def offer(self, uri: str, description: str) -> Offer | None:
        """What it offers; None where it cannot be read, is no Capability List or offers nothing that can be copied."""
        kept, found = self.unchanged(uri, description), self._found.get(uri)
        if kept is not None or not isinstance(found, Look):
            return kept
        if found.document is None or found.document.kind not in CAPABILITY_LISTS:
            return None
        return self.offered(found, description)

    def offered(self, look: Look, description: str | None) -> Offer | None:
        """What a Capability List offers; None where that is nothing that can be copied."""
        offer = offer_of(look, description, self._documents)
        if offer.resource_list is None and offer.change_list is None:
            return None
        self.read.append(validated(look))
        return offer

    def why_not(self, uri: str) -> str | None:
        """Why nothing is offered there; None where something is, or where there is another document."""
        found = self._found[uri]
        if isinstance(found, SourceFault):
            return str(found)
        if found.document is None:
            return str(refused(found)) if found.status != 200 else no_document(found)
        return NOTHING if found.document.kind in CAPABILITY_LISTS and self.offer(uri, "") is None else None


def validated(look: Look) -> tuple[str, Validators]:
    """A document that was looked at, and the validators of this state of it."""
    return look.uri, Validators(look.etag, look.last_modified)


def refused(look: Look) -> SourceFault:
    """What an answer that is not 200 comes to."""
    return look.refused or SourceFault(f"HTTP status {look.status}", where=look.uri, rule="DST-A1")


def no_document(look: Look) -> str:
    """Why what is there is no document."""
    return look.fault.what if look.fault is not None else "it is not a ResourceSync document"


def unusable(look: Look) -> str:
    """Why what is there cannot be used."""
    return no_document(look) if look.status == 200 else f"HTTP status {look.status}"


def offer_of(look: Look, description: str | None, documents: Documents) -> Offer:
    """What a Capability List offers. Of several entries of one kind the first counts (AMB-54)."""
    first: dict[str, str] = {}
    for entry in look.entries:
        capability = (entry.capability or "").strip().lower()
        if capability in first:
            documents.warn("AMB-54", f"more than one {capability} in a Capability List: the first counts", look.final)
            continue
        first[capability] = entry.loc
    others = tuple(sorted((name, uri) for name, uri in first.items() if name not in ("resourcelist", "changelist")))
    return Offer(
        identity=look.uri,
        name="",
        capability_list=look.uri,
        description=description,
        resource_list=first.get("resourcelist"),
        change_list=first.get("changelist"),
        others=others,
    )
