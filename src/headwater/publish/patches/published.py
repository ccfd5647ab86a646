"""Published patches: a row of the set for each, by the number of its change, and the link that names it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from headwater.catalog.interface import Catalog, Change
from headwater.catalog.state import RowKey, StateRow
from headwater.patches.registry import FORMATS
from headwater.publish.capabilities import CHANGE_LIST, DIGEST, NUMBER
from headwater.publish.site import Site
from headwater.spec.namespaces import PATCH
from headwater.spec.records import ChangeKind, Link
from headwater.storage.objects.interface import ObjectStore, octets_of
from headwater.typed_decoding import from_json

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
        return f"{set_name}/" + pattern.replace(NUMBER, f"{self.seq:05d}").replace(DIGEST, self.hash[:16])

    def link(self, site: Site, set_name: str, change: Change) -> Link:
        """The link of an entry of a Change List."""
        return Link(
            rel=PATCH,
            href=site.url(self.name(set_name)),
            hash=f"sha-256:{self.hash}",
            length=self.octets,
            modified=change.at,
            type=self.media_type,
        )


def patches_of(catalog: Catalog, name: str, changes: Iterable[Change]) -> dict[int, PublishedPatch]:
    """The patches of these changes, by their numbers."""
    keys = [(KIND, str(one.seq)) for one in changes if one.change is ChangeKind.UPDATED]
    return {one.seq: one for one in map(decode, catalog.rows(name, keys).values())} if keys else {}


def patches_between(catalog: Catalog, name: str, first: int, last: int) -> Iterator[PublishedPatch]:
    """The patches of the changes with these numbers, oldest first."""
    return _patches(catalog, name, StateRow(KIND, "~", rank=first - 1), last)


def patches_until(catalog: Catalog, name: str, last: int | None = None) -> Iterator[PublishedPatch]:
    """The patches of changes up to the number `last`, oldest first."""
    return _patches(catalog, name, None, last)


def _patches(catalog: Catalog, name: str, after: StateRow | None, last: int | None) -> Iterator[PublishedPatch]:
    while rows := catalog.rows_of(name, KIND, after=after, until=last, limit=_AT_ONCE):
        yield from map(decode, rows)
        after = rows[-1]


def packed_patch(
    catalog: Catalog, store: ObjectStore, name: str, change: Change
) -> tuple[PublishedPatch, bytes] | None:
    """The patch of a change with its octets, for a package; None where there is none, or it is lost."""
    patch = patches_of(catalog, name, [change]).get(change.seq)
    found = None if patch is None else store.open(patch.name(name))
    if patch is None or found is None:
        return None
    with found:
        octets = b"".join(octets_of(found, 0, found.octets))
    return (patch, octets) if hashlib.sha256(octets).hexdigest() == patch.hash else None


def decode(row: StateRow) -> PublishedPatch:
    """The patch that a row is about."""
    return from_json(row.value, PublishedPatch)
