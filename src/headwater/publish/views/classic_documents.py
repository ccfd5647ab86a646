"""The documents for old harvesters: a Capability List that names one Resource List and one open Change List."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from headwater.publish.capabilities import CLASSIC_CHANGE_LIST, CLASSIC_RESOURCE_LIST
from headwater.publish.publication_state import ViewPart
from headwater.publish.site import (
    SetSettings,
    Site,
    classic_capability_list_name,
    source_description_name,
)
from headwater.publish.views.page_copies import PageNames
from headwater.spec.kinds import RULES, Kind
from headwater.spec.markup import md5_alone
from headwater.spec.records import Document, Entry, Link
from headwater.spec.writer import DocumentWriter, Profile, write_document


class ClassicResourceForm(PageNames):
    """Pages with MD5 as the only digest, below the Capability List for old harvesters."""

    def __init__(self, site: Site, set_name: str) -> None:
        super().__init__(CLASSIC_RESOURCE_LIST, set_name)
        self._site = site
        self._set_name = set_name

    def head(self, at: dt.datetime, completed: dt.datetime, *, is_part: bool) -> bytes:
        """What precedes the entries."""
        index = (Link(rel="index", href=self._site.url(self.top)),) if is_part else ()
        return DocumentWriter(self._document(Kind.RESOURCE_LIST, at, completed, index)).head()

    def tail(self) -> bytes:
        """What follows them."""
        return f"</{RULES[Kind.RESOURCE_LIST].root.value}>\n".encode()

    def entries(self, block: bytes) -> bytes:
        """Whole entries of a page in this form."""
        return md5_alone(block)

    def index(self, parts: Sequence[ViewPart]) -> Iterable[bytes]:
        """The index, as old as its oldest part (AMB-24)."""
        at, completed = min(one.at for one in parts), max(one.completed for one in parts)
        head = self._document(Kind.RESOURCE_LIST_INDEX, at, completed, ())
        entries = (
            Entry(loc=self._site.url(self.part(one.number)), at=one.at, completed=one.completed) for one in parts
        )
        return write_document(head, entries)

    def _document(self, kind: Kind, at: dt.datetime, completed: dt.datetime, more: tuple[Link, ...]) -> Document:
        return Document(
            kind=kind,
            capability=RULES[kind].capability,
            links=(_up(self._site, self._set_name), *more),
            at=at,
            completed=completed,
        )


def classic_capability_list(site: Site, settings: SetSettings) -> tuple[Document, list[Entry]]:
    """The Capability List for old harvesters."""
    up = Link(rel="up", href=site.url(source_description_name(site, settings.name)))
    about = () if settings.describedby is None else (Link(rel="describedby", href=settings.describedby),)
    head = Document(kind=Kind.CAPABILITY_LIST, capability=RULES[Kind.CAPABILITY_LIST].capability, links=(*about, up))
    rows = (CLASSIC_RESOURCE_LIST, CLASSIC_CHANGE_LIST)
    return head, [Entry(loc=site.url(f"{settings.name}/{row.top.name}"), capability=row.name) for row in rows]


def classic_change_list(site: Site, set_name: str, from_: dt.datetime) -> DocumentWriter:
    """The writer of the Change List for old harvesters: always open, each `lastmod` the time of the change (AMB-19)."""
    kind = Kind.CHANGE_LIST
    head = Document(kind=kind, capability=RULES[kind].capability, links=(_up(site, set_name),), from_=from_)
    return DocumentWriter(head, Profile.BOTH)


def _up(site: Site, set_name: str) -> Link:
    return Link(rel="up", href=site.url(classic_capability_list_name(set_name)))
