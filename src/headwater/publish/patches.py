"""Makes the patches of changes that are about to be published: within a time, and never in the way of publishing.

A patch is put into the store, then noted in the set, then the Change List may name it: whatever is killed when, no list
names a patch that is not there. What fails, what is too large and what there is no time for gets no patch, for good.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from headwater.catalog.interface import Catalog, Change, RowKey, StateRow, StateUpdate
from headwater.errors import StoreFault
from headwater.patches import FORMATS
from headwater.progress import Notice
from headwater.publish.document_names import CHANGE_LIST, DIGEST, filled_name
from headwater.publish.site import SetSettings, Site
from headwater.publish.store_writer import DocumentMark, PublishContext, StoreWriter
from headwater.spec.kinds import PATCH
from headwater.spec.records import ChangeKind, Link, sha256_of
from headwater.storage.object_store import ObjectKind, octets_of
from headwater.typed_decoding import from_json
from headwater.versions.predecessors import format_of, row_keys
from headwater.versions.store import VersionStore

KIND = "patch"
_AT_ONCE = 1_000


class PublishedPatch(msgspec.Struct, frozen=True, array_like=True):
    """The patch of the change `seq`: its media type, the SHA-256 of its `octets`."""

    seq: int
    media_type: str
    hash: str
    octets: int

    @property
    def suffix(self) -> str:
        """That of its name."""
        known = FORMATS.get(self.media_type)
        return known.suffix if known else "xml"  # an XML Patch of an earlier version

    def row(self) -> StateRow:
        """The row that it is remembered by."""
        return StateRow(KIND, str(self.seq), msgspec.json.encode(self), rank=self.seq)

    @property
    def key(self) -> RowKey:
        """The key of that row."""
        return KIND, str(self.seq)

    def name(self, set_name: str) -> str:
        """Its name in the store and below the base URL."""
        pattern = next(one.name for one in CHANGE_LIST.others if one.name.endswith(f"{DIGEST}.{self.suffix}"))
        return f"{set_name}/{filled_name(pattern, self.seq, self.hash)}"

    def link(self, site: Site, set_name: str, change: Change) -> Link:
        """The link of an entry of a Change List."""
        return patch_link(site.url(self.name(set_name)), self.hash, self.octets, change, self.media_type)


def patch_link(href: str, sha256: str, octets: int, change: Change, media_type: str) -> Link:
    """The link of a change to its patch, whose hash and length it states (RS-REL-04, TIM-A15)."""
    return Link(rel=PATCH, href=href, hash=f"sha-256:{sha256}", length=octets, modified=change.at, type=media_type)


def patches_of(catalog: Catalog, name: str, changes: Iterable[Change]) -> dict[int, PublishedPatch]:
    """The patches of these changes, by their numbers."""
    keys = [(KIND, str(one.seq)) for one in changes if one.change is ChangeKind.UPDATED]
    return {one.seq: one for one in map(decode, catalog.rows(name, keys).values())} if keys else {}


def patches_between(catalog: Catalog, name: str, first: int = 0, last: int | None = None) -> Iterator[PublishedPatch]:
    """The patches of the changes with these numbers, oldest first; None: to the newest."""
    after = StateRow(KIND, "~", rank=first - 1)
    while rows := catalog.rows_of(name, KIND, after=after, until=last, limit=_AT_ONCE):
        yield from map(decode, rows)
        after = rows[-1]


def decode(row: StateRow) -> PublishedPatch:
    """The patch that a row is about."""
    return from_json(row.value, PublishedPatch)


SECONDS = 5.0  # so long patches are made in one publication: readers of the Change List wait for them
_ROWS = 1_000


@dataclass
class PatchMaker:
    """Does that for all sets, from the versions that are kept. `seconds` is the time in one publication."""

    _context: PublishContext
    _versions: VersionStore
    seconds: float = SECONDS

    def make(self, settings: SetSettings, store_writer: StoreWriter, changes: Iterable[Change]) -> None:
        """Make the patches of changes that no list has named yet, in order.

        Raises the catalog's faults.
        """
        until = time.monotonic() + self.seconds
        source = iter(changes)
        while rows := list(islice(source, _ROWS)):
            keys = row_keys([one for one in rows if one.change is ChangeKind.UPDATED])
            noted = self._context.catalog.rows(settings.name, keys.values())
            made: list[PublishedPatch] = []
            for change in rows:
                base = noted.get(keys[change.seq]) if change.seq in keys else None
                if base is None or time.monotonic() > until:
                    continue
                try:
                    if (patch := self._patch(settings, store_writer, change, base.value.hex())) is not None:
                        made.append(patch)
                except (StoreFault, OSError) as fault:
                    where = f"{settings.name}: {change.uri[:200]}"
                    self._context.listener(Notice("HW-PUB-15", f"no patch is published: {fault}", where))
            self._note(settings.name, made, noted)

    def _patch(
        self, settings: SetSettings, store_writer: StoreWriter, change: Change, base: str
    ) -> PublishedPatch | None:
        kind = format_of(change.metadata, settings.patch)
        if kind is None:
            return None
        old, new = self._octets(base), self._octets(sha256_of(change.metadata.hash))
        octets = None if old is None or new is None else kind.make(old, new)
        if octets is None:
            return None
        patch = PublishedPatch(change.seq, kind.media_type, hashlib.sha256(octets).hexdigest(), len(octets))
        mark = DocumentMark(generation=store_writer.generation, latest=change.at, seq=change.seq, is_closed=True)
        name = patch.name(settings.name)
        store_writer.blocks(name, [octets], mark.encode, ObjectKind(kind.media_type, has_gzip=False))
        return patch

    def _octets(self, digest: str) -> bytes | None:
        """The octets of a version; None where they are not kept, or no longer what they were."""
        content = self._versions.open(digest)
        if content is None:
            return None
        try:
            octets = b"".join(octets_of(content, 0, content.octets))
        finally:
            content.close()
        return octets if hashlib.sha256(octets).hexdigest() == digest else None

    def _note(self, name: str, made: list[PublishedPatch], noted: dict[RowKey, StateRow]) -> None:
        """Remember patches; the notes that they were made by are of no more use."""
        if made or noted:
            self._context.may_write()
            update = StateUpdate([one.row() for one in made], list(noted))
            self._context.catalog.record(name, [], self._context.clock(), state=update)
