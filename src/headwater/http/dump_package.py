"""Reads a request for a package, selects its resources, and makes the octets of the package.

Resources are asked for by URI, as they are or were, by a page, or as all that changed since a moment. The manifest
comes last because it says what the package holds, and that is known when all has been read. A member is recorded with
the digest that the catalog has, so a reader that knows the lists may take each as soon as it has come.
"""

import datetime as dt
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import ClassVar

import msgspec

from headwater.catalog.content import Absence, ContentReader, NoContent, OpenContent
from headwater.catalog.interface import Catalog, Resource, Segment
from headwater.deflate import FAST_LEVEL, deflate_whole
from headwater.errors import UsageFault
from headwater.http.mementos import absence_of
from headwater.packages.member_paths import MANIFEST
from headwater.publish.added_links import AddedLinks, EntryPlace
from headwater.publish.document_content import absolute_uri, resource_entries
from headwater.publish.package_builder import PackageBuilder, ResourcePaths, entry_octets, in_blocks
from headwater.publish.site import Site, capability_list_name
from headwater.spec import checks
from headwater.spec.checks import WriteRefused, escape
from headwater.spec.kinds import DOCUMENT_OCTETS, Kind
from headwater.spec.records import AbsenceReason, AbsentResource, ChangeKind, Document, Link
from headwater.spec.times import format_datetime, parse_datetime
from headwater.spec.writer import DocumentWriter
from headwater.typed_decoding import json_decoder


class DumpRefused(UsageFault):
    """A request for a package that cannot be answered as it stands; its code says why, and the status of the answer."""

    code: ClassVar[str] = "HW-SRV-06"


TOO_MUCH, NOT_KNOWN_SINCE, WRONG_MEDIA_TYPE = "HW-SRV-07", "HW-SRV-08", "HW-SRV-09"
TOO_MANY_DUMPS, NO_SUCH_PAGE, BODY_TOO_LATE, OLD_PROTOCOL = "HW-SRV-10", "HW-SRV-11", "HW-SRV-12", "HW-SRV-13"

BODY_OCTETS = 16 << 20  # a body has so many octets at most: 50,000 URIs of 300 characters


class PackageRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What is wanted: one of `uris`, `since` and `page`, and whether members are deflated where that pays.

    Resources by their `uris`, each once, as the lists have them: as they are, or `at` a moment. All that changed
    `since` a moment, as it is now. Those of one `page` of the Resource List.
    """

    uris: list[str] | None = None
    since: str | None = None
    page: int | None = None
    at: str | None = None
    deflate: bool = True  # on a fast line it costs more than it saves

    def moment(self, name: str) -> dt.datetime | None:
        """The moment `at` or `since`; without a time of day or a zone it would be a guess, and changes could be missed.

        Raises DumpRefused.
        """
        text: str | None = getattr(self, name)
        if text is None:
            return None
        try:
            moment, forgiven = parse_datetime(text)
        except ValueError:
            moment, forgiven = None, ()
        if moment is None or forgiven or "T" not in text:
            raise DumpRefused(f"{name} is not a complete W3C Datetime with a zone: {text[:100]!r}")
        return moment


_decode = json_decoder(PackageRequest)


def read_request(body: bytes, most: int) -> PackageRequest:
    """What the body asks for; `most` resources by URI. Raises DumpRefused."""
    try:
        asked = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
        words = "too deep" if isinstance(cause, RecursionError) else str(cause).partition("\n")[0][:300]
        if words == "Input data was truncated":  # of a whole text, too
            words = "the JSON text is cut off, or has half a surrogate pair"
        raise DumpRefused(f"not a request for a package: {words}") from cause
    given = 3 - (asked.uris, asked.since, asked.page).count(None)
    if given != 1:
        raise DumpRefused(f"give one of uris, since and page, not {given}")
    if asked.at is not None and asked.uris is None:
        raise DumpRefused("`at` needs `uris`")
    if asked.uris is not None:
        _check_uris(asked.uris, most)
    return asked


def _check_uris(uris: list[str], most: int) -> None:
    if not uris:
        raise DumpRefused("uris is empty")
    if len(uris) > most:
        what = f"{len(uris):,} resources are asked for, and {most:,} are given at a time"
        raise DumpRefused(what, code=TOO_MUCH)
    try:
        checks.uris(uris)  # what could not be named in the manifest is not looked for
    except WriteRefused as refused:
        raise DumpRefused(f"not a URI in uris: {refused.what}") from refused
    if (other := next((one for one in uris if "://" not in one), None)) is not None:
        raise DumpRefused(f"not the address of a resource in uris: {other[:100]!r}")
    if len(set(uris)) < len(uris):
        raise DumpRefused("a URI occurs twice in uris")


CHANGES_READ = 10_000  # so many changes are read at a time
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


def select(catalog: Catalog, name: str, wanted: PackageRequest, *, prefix: str, most: int) -> SelectedResources:
    """What `wanted` means in the set `name`, whose relative URIs are below `prefix`.

    Raises DumpRefused for more than `most` resources, and the catalog's faults.
    """
    snapshot = catalog.snapshot_of(name)
    state = snapshot.state
    if state.opened_at is None:
        raise DumpRefused("the set is not loaded yet")
    at = state.last_at or state.opened_at
    if wanted.page is not None:
        if all(one.number != wanted.page for one in snapshot.pages):
            raise DumpRefused(f"the Resource List has no page {wanted.page}", code=NO_SUCH_PAGE)
        there = [resource.uri for resource in islice(catalog.page(name, wanted.page), most + 1)]
        if len(there) > most:
            raise DumpRefused(f"the page has more than {most:,} resources", code=TOO_MUCH)
        return SelectedResources(at, there)
    if (since := wanted.moment("since")) is not None:
        uris, deleted = _changed(catalog, name, snapshot.segments, since, most)
        return SelectedResources(at, uris, deleted)
    below = ((uri, uri.removeprefix(prefix)) for uri in wanted.uris or ())
    return SelectedResources(
        wanted.moment("at") or at, [uri if "://" in relative else relative for uri, relative in below]
    )


def _changed(
    catalog: Catalog, name: str, segments: Sequence[Segment], moment: dt.datetime, most: int
) -> tuple[list[str], list[str]]:
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


def present_states(catalog: Catalog, name: str, uris: Sequence[str]) -> Mapping[str, Resource | AbsenceReason]:
    """The resources of a set as they are."""
    found = catalog.get(name, uris)
    return {uri: found.get(uri) or absence_of(uri) for uri in uris}


BLOCK_OCTETS = 1 << 18  # octets that are handed out at a time, more or less
ROWS = 256  # resources that the catalog is asked for at a time
_HEAD_OCTETS = 1 << 16  # what the head and the end of a manifest take at most
_ABSENT_OCTETS = 120  # what an `absent` has besides its URI, at most


class Package:
    """One package of the resources of a selection of a set, `octets` of content at most. Iterate once, in any thread.

    `states` and `contents` say what they are or were, `links` adds links. `deflate`: whether members are deflated where
    that pays; else all are stored. Raises DumpRefused when the URIs alone could be too many for one manifest: all could
    come to be named as absent (RS-LIM-01).
    """

    def __init__(
        self,
        site: Site,
        name: str,
        states: StatesOf,
        contents: ContentReader,
        links: AddedLinks,
        selection: SelectedResources,
        octets: int,
        *,
        deflate: bool,
    ) -> None:
        self._name, self._prefix = name, site.resource_prefix(name)
        self._states, self._contents, self._links = states, contents, links
        self._deflates = deflate
        self._selection = selection
        uris = [absolute_uri(uri, self._prefix) for uri in (*selection.uris, *selection.deleted)]
        reserved = sum(map(_absent_octets, uris))
        if reserved > DOCUMENT_OCTETS // 2:
            raise DumpRefused("the requested URIs are too long for one manifest", code=TOO_MUCH)
        self._builder = PackageBuilder(
            most_entries=len(uris),
            most_octets=octets,
            most_manifest_octets=DOCUMENT_OCTETS - _HEAD_OCTETS - reserved,
            deflates=deflate,
            is_stream=True,
        )
        self._manifest = _Manifest(selection.at, site.url(capability_list_name(name)), self._prefix)
        self._paths = ResourcePaths()
        self.asked, self.resource_count = "", 0  # what was asked for, in words, and how many resources it has so far

    def __iter__(self) -> Iterator[bytes]:
        """Blocks of octets. Raises the catalog's faults; then what was given is no package."""
        return in_blocks(self._pieces(), BLOCK_OCTETS)

    def _pieces(self) -> Iterator[bytes]:
        zip_file = self._builder.zip
        linked = self._links.to(self._rows(), EntryPlace.RESOURCE_DUMP_MANIFEST)
        for row in linked:
            yield from self._member(row, self._contents.open(self._name, row))
        for uri in self._selection.deleted:
            self._leave_out(uri, AbsenceReason.DELETED)
        yield from zip_file.stream(MANIFEST, self._manifest.blocks(), deflate=self._deflates)
        yield zip_file.end()

    def _rows(self) -> Iterator[Resource]:
        uris = self._selection.uris
        for start in range(0, len(uris), ROWS):
            for uri, found in self._states(uris[start : start + ROWS]).items():
                if isinstance(found, Resource):
                    yield found
                else:
                    self._leave_out(uri, found)

    def _member(self, row: Resource, content: OpenContent | NoContent) -> Iterator[bytes]:
        if isinstance(content, NoContent):
            self._leave_out(row.uri, AbsenceReason(content.why.value))
            return
        path, octets = self._paths.take(row.uri), content.octets
        if not self._builder.reserve(octets, entry_octets(row, path)):
            content.close()
            self._leave_out(row.uri, AbsenceReason.LIMIT)
            return
        why: Absence | None = yield from self._builder.member(path[1:], content, row.metadata)
        if why is None:
            self.resource_count += 1
            self._manifest.add(row, path)
        else:
            self._leave_out(row.uri, AbsenceReason(why.value))

    def _leave_out(self, uri: str, reason: AbsenceReason) -> None:
        self._manifest.absent.append(AbsentResource(absolute_uri(uri, self._prefix), reason))


class _Manifest:
    """Entries and `absent` resources, in any order; what is written of it is kept deflated, until it is sent."""

    def __init__(self, at: dt.datetime, up: str, prefix: str) -> None:
        self._prefix = prefix
        self.absent: list[AbsentResource] = []
        self._head = Document(
            kind=Kind.RESOURCE_DUMP_MANIFEST,
            capability="resourcedump-manifest",
            at=at,
            links=(Link(rel="up", href=up),),
        )
        self._writer = DocumentWriter(self._head)
        self._writer.head()
        self._rows: list[Resource] = []
        self._paths: list[str] = []
        self._deflated: list[bytes] = []

    def add(self, row: Resource, path: str) -> None:
        """A resource that is in the package, at this path."""
        self._rows.append(row)
        self._paths.append(path)
        if len(self._rows) >= ROWS:
            self._deflated.append(deflate_whole(self._written(), FAST_LEVEL))
            self._rows, self._paths = [], []

    def blocks(self) -> Iterator[bytes]:
        """The whole document."""
        yield DocumentWriter(msgspec.structs.replace(self._head, absent=tuple(self.absent))).head()
        for deflated in self._deflated:
            yield zlib.decompress(deflated, -15)
        yield self._written() + self._writer.tail()

    def _written(self) -> bytes:
        return self._writer.entries(list(resource_entries(self._rows, self._prefix, self._paths)))


def _absent_octets(uri: str) -> int:
    if uri.isascii() and "&" not in uri:
        return len(uri) + _ABSENT_OCTETS
    return len(escape(uri)) * (1 if uri.isascii() else 9) + _ABSENT_OCTETS
