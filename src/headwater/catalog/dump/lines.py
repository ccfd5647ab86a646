"""The lines of a portable dump, version 3: each is one JSON object whose `kind` says what it is.

A reader refuses keys that it does not know: what is added later raises the version. Version 1 had no rows, and
version 2 no attributes of other namespaces (`extra`).
Times have a zone, octets (`notes`, `memo`, `value`) are base64, attributes that a resource does not have are left out.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Final

import msgspec

from headwater.catalog.interface import Change, Metadata, Page, Resource, Segment, SetState
from headwater.catalog.state import StateRow
from headwater.spec.records import ChangeKind, Extra, Link

FORMAT: Final = "headwater-catalog"
VERSION: Final = 3

Moment = Annotated[dt.datetime, msgspec.Meta(tz=True)]


class _Line(
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="kind",
):
    """What all lines have in common."""


class Header(_Line, frozen=True, kw_only=True, tag=FORMAT):
    """The first line: what this is, which sets follow, who made it and when."""

    version: int
    sets: tuple[str, ...]
    made_at: Moment
    program: str = ""


class AnyHeader(msgspec.Struct, frozen=True):
    """What the first line of any version says, older or newer."""

    kind: str
    version: int


class SetLine(_Line, frozen=True, kw_only=True, tag="set"):
    """A set begins."""

    name: str
    opened_at: Moment | None = None
    last_seq: int
    last_at: Moment | None = None
    count: int
    page_count: int
    notes: bytes = b""
    state_version: int = 0


class PageLine(_Line, frozen=True, kw_only=True, tag="page"):
    """The snapshot of one page."""

    number: int
    count: int
    weight: int
    touched: int
    rendered: int
    at: Moment | None = None
    completed: Moment | None = None
    stale_at: Moment | None = None


class SegmentLine(_Line, frozen=True, kw_only=True, tag="segment"):
    """The snapshot of one segment."""

    number: int
    first: int
    last: int
    from_: Moment = msgspec.field(name="from")
    until: Moment | None = None
    weight: int


class _Described(_Line, frozen=True, kw_only=True):
    """The attributes that resources and changes have."""

    uri: str
    lastmod: Moment | None = None
    hash: str | None = None
    length: int | None = None
    type: str | None = None
    encoding: str | None = None
    changefreq: str | None = None
    links: tuple[Link, ...] = ()
    extra: Extra = ()

    @property
    def metadata(self) -> Metadata:
        return Metadata(
            lastmod=self.lastmod,
            hash=self.hash,
            length=self.length,
            type=self.type,
            encoding=self.encoding,
            changefreq=self.changefreq,
            links=self.links,
            extra=self.extra,
        )


class ResourceLine(_Described, frozen=True, kw_only=True, tag="resource"):
    """One live resource, at its place among those of its page."""

    page: int
    seq: int = 0
    memo: bytes = b""


class ChangeLine(_Described, frozen=True, kw_only=True, tag="change"):
    """One change of the log."""

    seq: int
    at: Moment
    change: ChangeKind


class RowLine(_Line, frozen=True, kw_only=True, tag="row"):
    """One row of the set's state; `of` is its kind."""

    of: str
    key: str
    rank: int = 0
    value: bytes = b""


class EndLine(_Line, frozen=True, kw_only=True, tag="end"):
    """A set ends: how much of it there was, and the SHA-256 of every octet of the dump before this line."""

    set: str
    pages: int
    segments: int
    resources: int
    changes: int
    rows: int = 0
    sha256: str


class DoneLine(_Line, frozen=True, kw_only=True, tag="done"):
    """The dump ends."""

    sets: int
    sha256: str


Line = Header | SetLine | PageLine | SegmentLine | ResourceLine | ChangeLine | RowLine | EndLine | DoneLine


def set_line(state: SetState) -> SetLine:
    """From the set's state."""
    return SetLine(
        name=state.name,
        opened_at=state.opened_at,
        last_seq=state.last_seq,
        last_at=state.last_at,
        count=state.count,
        page_count=state.page_count,
        notes=state.notes,
        state_version=state.state_version,
    )


def state_of(line: SetLine) -> SetState:
    """The set's state."""
    return SetState(**msgspec.structs.asdict(line))


def page_line(page: Page) -> PageLine:
    """From a page's snapshot."""
    return PageLine(**msgspec.structs.asdict(page))


def page_of(line: PageLine) -> Page:
    """A page's snapshot."""
    return Page(**msgspec.structs.asdict(line))


def segment_line(segment: Segment) -> SegmentLine:
    """From a segment's snapshot."""
    return SegmentLine(**msgspec.structs.asdict(segment))


def segment_of(line: SegmentLine) -> Segment:
    """A segment's snapshot."""
    return Segment(**msgspec.structs.asdict(line))


def resource_line(resource: Resource) -> ResourceLine:
    """From a resource."""
    metadata = resource.metadata
    return ResourceLine(
        uri=resource.uri,
        page=resource.page,
        seq=resource.seq,
        memo=resource.memo,
        lastmod=metadata.lastmod,
        hash=metadata.hash,
        length=metadata.length,
        type=metadata.type,
        encoding=metadata.encoding,
        changefreq=metadata.changefreq,
        links=metadata.links,
        extra=metadata.extra,
    )


def resource_of(line: ResourceLine) -> Resource:
    """A resource."""
    return Resource(line.uri, line.metadata, line.memo, line.page, line.seq)


def change_line(change: Change) -> ChangeLine:
    """From a change."""
    metadata = change.metadata
    return ChangeLine(
        uri=change.uri,
        seq=change.seq,
        at=change.at,
        change=change.change,
        lastmod=metadata.lastmod,
        hash=metadata.hash,
        length=metadata.length,
        type=metadata.type,
        encoding=metadata.encoding,
        changefreq=metadata.changefreq,
        links=metadata.links,
        extra=metadata.extra,
    )


def change_of(line: ChangeLine) -> Change:
    """A change."""
    return Change(line.seq, line.at, line.uri, line.change, line.metadata)


def row_line(row: StateRow) -> RowLine:
    """From a row."""
    return RowLine(of=row.kind, key=row.key, rank=row.rank, value=row.value)


def row_of(line: RowLine) -> StateRow:
    """A row."""
    return StateRow(line.of, line.key, line.value, line.rank)
