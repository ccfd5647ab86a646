"""The publication state of a set, kept in the catalog between two runs: which documents the store has, of which state.

It is kept in the catalog, beside what it is about. It is written after the documents, and before that the pages that
are about to be replaced are noted with the `at` that they will state: whatever the moment of a crash, the next run
repeats harmlessly.
"""

from __future__ import annotations

import datetime as dt
import hashlib

import msgspec

from headwater.publish.site import SetSettings, Site, source_description_name

RENDERER = 1
"""Raise it when the same catalog is to give other documents: all are then written again but closed Change Lists."""


class OpenList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The open Change List as it lies in the store: its segment, how far it goes, where its entries begin and end."""

    number: int = -1
    indexed: bool = False
    name: str = ""
    etag: str = ""
    head_octets: int = 0
    tail_octets: int = 0
    seq: int = 0
    changed: dt.datetime | None = None
    """The time of its last change; None when it lists none."""
    first: int = 0
    """The first segment that the index beside it names; those before it have left by retention."""


class PublicationState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was last published of one set. The default is the note of a set of which nothing was."""

    fingerprint: str = ""
    generation: str = ""
    """The id of the history that the documents tell; it is in their marks as well. Noted before the first is written,
    so that documents with another id were written from a catalog that knows nothing of this one."""
    base_url: str = ""
    """Where the documents were published; empty where an older version has published."""
    uris: str = ""
    """The mark of what shapes the URIs; empty where an older version has published."""
    open: OpenList = OpenList()
    at: dt.datetime | None = None
    """The newest `at` of a page, noted before the page is written: no later one is earlier, whatever is killed."""
    listed: tuple[int, ...] = ()
    """The pages that the Resource List, or its index, consists of."""
    indexed: bool = False
    """Whether the Resource List is an index."""
    pending: tuple[int, ...] = ()
    """Pages that are to be rendered, whatever their rows say."""
    writing: tuple[int, ...] = ()
    """Those of them whose documents may already be newer than the catalog's rows say: these are rendered first, all at
    once, because an index that was put together from the rows could state an earlier `at` than before."""
    refreshed_at: dt.datetime | None = None
    page_seconds: float = 0.0
    """What rendering a page took when it was last measured."""
    shown: tuple[tuple[dt.datetime, dt.datetime], ...] = ()
    """Since when the earliest `at` of the Resource List has been what; as far back as retention needs it."""
    retired: tuple[tuple[str, dt.datetime], ...] = ()
    """Documents that nothing names any more, and since when: readers of an older index may still come for them."""

    @property
    def is_first(self) -> bool:
        """Whether nothing of the set has been published yet."""
        return not self.fingerprint


def decode_publication(data: bytes) -> PublicationState:
    """The note that `data` holds; one that cannot be read counts as none, and all documents are written again."""
    if not data:
        return PublicationState()
    try:
        return msgspec.json.decode(data, type=PublicationState)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return PublicationState()


def encode_publication(publication: PublicationState) -> bytes:
    """The note as the catalog keeps it."""
    return msgspec.json.encode(publication)


def fingerprint(site: Site, settings: SetSettings) -> str:
    """A digest of everything besides the catalog that shapes the documents of a set."""
    shape = (
        RENDERER,
        site.base_url,
        site.profile.value,
        settings.name,
        site.resource_prefix(settings.name),
        settings.describedby,
        site.url(source_description_name(site, settings.name)),
    )
    return hashlib.sha256(msgspec.json.encode(shape)).hexdigest()[:32]
