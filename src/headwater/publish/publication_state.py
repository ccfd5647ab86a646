"""The publication state of a set, kept in the catalog between two runs: which documents the store has, of which state.

It is kept in the catalog, beside what it is about. It is written after the documents, and before that the pages that
are about to be replaced are noted with the `at` that they will state: whatever the moment of a crash, the next run
repeats harmlessly.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable

import msgspec

from headwater.catalog.interface import SetState
from headwater.publish.document_names import CHANNELS
from headwater.publish.link_rules import NO_RULES
from headwater.publish.site import SetSettings, Site, offered, source_description_name
from headwater.typed_decoding import from_json

LOOK_SECONDS = 5.0  # looks that follow each other sooner are not noted: each is a write, also where nothing changes

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
    changed: dt.datetime | None = None  # the time of its last change; None when it lists none
    first: int = 0  # the first segment that the index beside it names; those before it have left by retention


class ChangePackage(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A published package of a Change Dump: the changes `first` to `last` of a segment, `from_` up to before `until`.

    `hash` is the SHA-256 of its `octets`. One that is `final` holds all that it ever will; another one is of the open
    segment, and is replaced.
    """

    segment: int
    first: int
    last: int
    from_: dt.datetime
    until: dt.datetime
    octets: int
    hash: str
    is_final: bool


class ChangeDumpState(msgspec.Struct, frozen=True, kw_only=True):
    """The Change Dump of a set as it lies in the store: it begins with the change `first`, at `from_`.

    `packages` follow each other without a gap. `packed_at` is when the last one was made.
    """

    first: int
    from_: dt.datetime
    packages: tuple[ChangePackage, ...] = ()
    packed_at: dt.datetime | None = None

    @property
    def final(self) -> tuple[ChangePackage, ...]:
        """The packages that nothing replaces."""
        return self.packages if not self.packages or self.packages[-1].is_final else self.packages[:-1]

    @property
    def next_first(self) -> int:
        """The first change that is in no final package: its version and all later ones are needed."""
        return self.final[-1].last + 1 if self.final else self.first

    @property
    def next_from(self) -> dt.datetime:
        """Where the next package begins."""
        return self.final[-1].until if self.final else self.from_


class ResourcePackage(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A published package of a Resource Dump: `entries` resources; `hash` is the SHA-256 of its `octets`."""

    entries: int
    octets: int
    hash: str


class PagePackages(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The packages of one page of resources, of the state in which it had been `touched` so often.

    All that the catalog knew at `at` is in them, but for `left_out` resources whose octets could not be had.
    `packed_at` is when they were made by the clock, which may have been set back behind what is stated as `completed`.
    """

    number: int
    touched: int
    at: dt.datetime
    completed: dt.datetime
    left_out: int
    packages: tuple[ResourcePackage, ...]
    packed_at: dt.datetime | None = None


class ResourceDumpState(msgspec.Struct, frozen=True, kw_only=True):
    """The Resource Dump of a set as it lies in the store.

    `shape` is the fingerprint of what else has shaped the packages. Until all pages have their packages, it is not
    `offered`. `at` is that of the dump of a set without resources.
    """

    shape: str
    at: dt.datetime
    pages: tuple[PagePackages, ...] = ()
    is_offered: bool = False


class ArchivedChangeList(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The Change List of a segment that has left the index, as it lies in the archive; `octets` with its patches."""

    number: int
    from_: dt.datetime
    until: dt.datetime
    octets: int


class ArchivedChangeDump(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The packages of a segment that have left the Change Dump; an archived Change Dump names them."""

    number: int
    packages: tuple[ChangePackage, ...]

    @property
    def from_(self) -> dt.datetime:
        """Where they begin."""
        return self.packages[0].from_

    @property
    def until(self) -> dt.datetime:
        """Where they end."""
        return self.packages[-1].until


class ArchivedResourceList(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A Resource List as it was: `pages` documents with an index, or (0) one alone. `key` tells these octets."""

    number: int
    key: str
    at: dt.datetime
    completed: dt.datetime
    pages: int
    octets: int


class ArchivedResourceDump(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A Resource Dump as it was: the packages that it names are kept."""

    number: int
    key: str
    at: dt.datetime
    completed: dt.datetime
    pages: tuple[PagePackages, ...]


Archived = ArchivedChangeList | ArchivedChangeDump | ArchivedResourceList | ArchivedResourceDump


class ArchiveState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The archives of a set as they lie in the store, oldest first. `next` numbers what shows a moment.

    `looked_at`: when it was last time for the Resource List and the Resource Dump to be archived.
    """

    change_lists: tuple[ArchivedChangeList, ...] = ()
    change_dumps: tuple[ArchivedChangeDump, ...] = ()
    resource_lists: tuple[ArchivedResourceList, ...] = ()
    resource_dumps: tuple[ArchivedResourceDump, ...] = ()
    next: int = 0
    looked_at: dt.datetime | None = None


class ViewPart(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A document of several that a list consists of."""

    number: int


class PageViewState(msgspec.Struct, frozen=True, kw_only=True):
    """A list of all resources in another form, as it lies in the store: it shows all changes up to `seq`, at `at`."""

    parts: tuple[ViewPart, ...]
    is_indexed: bool
    seq: int
    at: dt.datetime


class LongChangeList(msgspec.Struct, frozen=True, kw_only=True):
    """An open Change List over segments, as it lies in the store: the changes `first` to `seq`, all since `from_`."""

    first: int
    seq: int
    from_: dt.datetime


class ClassicState(msgspec.Struct, frozen=True, kw_only=True):
    """The lists for old harvesters as they lie in the store."""

    resources: PageViewState
    changes: LongChangeList


class PublicationState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was last published of one set. The default is the note of a set of which nothing was."""

    fingerprint: str = ""
    offers: tuple[str, ...] = ()
    """What the set offers by its settings, besides what every set has: the Capability List names it."""
    generation: str = ""
    """The id of the history that the documents tell; it is in their marks as well. Noted before the first is written,
    so that documents with another id were written from a catalog that knows nothing of this one."""
    base_url: str = ""  # where the documents were published; empty where an older version has published
    uris: str = ""  # the mark of what shapes the URIs; empty where an older version has published
    open: OpenList = OpenList()
    at: dt.datetime | None = None
    """The newest `at` of a page, noted before the page is written: no later one is earlier, whatever is killed."""
    listed: tuple[int, ...] = ()  # the pages that the Resource List, or its index, consists of
    indexed: bool = False  # whether the Resource List is an index
    pending: tuple[int, ...] = ()  # pages that are to be rendered, whatever their rows say
    refreshed_at: dt.datetime | None = None
    looked_at: dt.datetime | None = None
    """When what the set is made of was last looked at as a whole, by the clock of who did; LOOK_SECONDS behind at most.
    """
    page_seconds: float = 0.0  # what rendering a page took when it was last measured
    history: int = 0
    """The segment that the Change Lists had to begin anew with, when they last had to (`publish/history_reset.py`)."""
    resource_dump: ResourceDumpState | None = None  # None: the set has none
    change_dump: ChangeDumpState | None = None  # None: the set offers none
    patch: tuple[str, ...] = ()
    """The kinds of patches that are published: the versions of what they are for are needed for those to come."""
    has_patches: bool = False  # whether patches were published that a Change List may still name
    archive: ArchiveState | None = None  # None: the set has no archives
    classic: ClassicState | None = None  # None: there are no lists for old harvesters
    sitemap: PageViewState | None = None  # None: there is no plain Sitemap
    dataset: tuple[str, ...] = ()
    """The documents of an RDF dataset that are always there: the dataset, and what describes it."""
    retired: tuple[tuple[str, dt.datetime], ...] = ()
    """Documents that nothing names any more, and since when: readers of an older index may still come for them."""

    @property
    def is_first(self) -> bool:
        """Whether nothing of the set has been published yet."""
        return not self.fingerprint

    def is_of(self, site: Site, settings: SetSettings) -> bool:
        """Whether documents of this shape, and all that is offered, were published."""
        return self.fingerprint == fingerprint(site, settings) and self.offers == offers(settings)

    def is_moved(self, site: Site, name: str) -> bool:
        """Whether resources had other addresses in what was published last than they have now."""
        return self.uris not in ("", uri_fingerprint(site.base_url, site.resource_prefix(name)))

    def with_look(self, at: dt.datetime | None) -> PublicationState:
        """With a look at this time, unless that was a moment ago; None: there was none."""
        if at is None or (self.looked_at and abs((at - self.looked_at).total_seconds()) < LOOK_SECONDS):
            return self
        return msgspec.structs.replace(self, looked_at=at)


def decode_publication(data: bytes) -> PublicationState:
    """The note that `data` holds; one that cannot be read counts as none, and all documents are written again."""
    if not data:
        return PublicationState()
    try:
        return from_json(data, PublicationState)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return PublicationState()


def published_base_url(states: Iterable[SetState]) -> str | None:
    """The base URL of what was rendered last of these sets; None where nothing was."""
    publications = [decode_publication(one.notes) for one in states]
    bases = {one.refreshed_at: one.base_url for one in publications if one.refreshed_at and one.base_url}
    return bases[max(bases)] if bases else None


encode_publication = msgspec.json.encode  # the note as the catalog keeps it


def fingerprint(site: Site, settings: SetSettings) -> str:
    """A digest of everything besides the catalog that shapes the documents of a set, but for its Capability List.

    What is offered is none of it: a dump that is switched on renders no page anew, and packs no other dump again.
    """
    shape = (
        RENDERER,
        site.base_url,
        site.profile.value,
        settings.name,
        site.resource_prefix(settings.name),
        settings.describedby,
        site.url(source_description_name(site, settings.name)),
        *(() if settings.links == NO_RULES else (settings.links,)),
        *(("dataset",) if settings.dataset else ()),
    )
    return hashlib.sha256(msgspec.json.encode(shape)).hexdigest()[:32]


def uri_fingerprint(base_url: str, resource_prefix: str) -> str:
    """A digest of what shapes the URIs of a set's documents and resources."""
    return hashlib.sha256(msgspec.json.encode((base_url, resource_prefix))).hexdigest()[:32]


def offers(settings: SetSettings) -> tuple[str, ...]:
    """The capabilities and views that the set has by its settings, and its channels of notifications."""
    rows = (row for row in offered(settings) if row.setting is not None)
    hubs = (f"{channel.capability} at {hub}" for hub in settings.hubs for channel in CHANNELS)
    return (*dict.fromkeys(row.name if row.is_listed else str(row.setting) for row in rows), *hubs)
