"""What the catalog holds of a dataset beside its change log: its state, counts and patches, as rows of its set.

They are written in the transaction of the change. How the datasets of a catalog stand is told from them, for
`headwater status`.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from headwater.catalog.interface import Catalog, RowKey, StateRow
from headwater.spec.records import Link
from headwater.typed_decoding import from_msgpack

# counts by property, class and graph: made of the lines once, kept up by the lines of each patch. Terms are found by
# the blanks between them. A dataset with more properties than fit has no number of them, and none is told beside those
# that came first.

MOST_KEYS: Final = 2_000
"""Of each kind."""
LONGEST_KEY: Final = 500
_OBJECT_AND_GRAPH: Final = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*"\S*|\S+)(?: (\S+))? \.\n?\Z')
_TYPE: Final = b"<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"


class DatasetCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many quads have each property, each class (as objects of rdf:type) and each graph that has a name.

    In `incomplete` are the kinds of which there are more than are counted.
    """

    properties: dict[str, int] = {}
    classes: dict[str, int] = {}
    graphs: dict[str, int] = {}
    incomplete: frozenset[str] = frozenset()


class CountingLines:
    """Counts lines over what was counted before."""

    def __init__(self, before: DatasetCounts | None = None) -> None:
        before = before or DatasetCounts()
        self._counts = {
            "properties": _encoded(before.properties),
            "classes": _encoded(before.classes),
            "graphs": _encoded(before.graphs),
        }
        self._incomplete = set(before.incomplete)

    def add(self, lines: Iterable[bytes], weight: int = 1) -> None:
        """Count statements that were added, or with a `weight` of -1 removed."""
        for line in lines:
            _subject, predicate, rest = line.split(b" ", 2)
            self._count("properties", predicate, weight)
            found = graph = b""
            if predicate == _TYPE or rest.endswith(b"> .\n"):  # else the object is a literal in the default graph
                match = _OBJECT_AND_GRAPH.match(rest)
                found, graph = (rest, b"") if match is None else (match[1], match[2] or b"")
            if predicate == _TYPE:
                self._count("classes", found, weight)
            if graph:
                self._count("graphs", graph, weight)

    def counts(self) -> DatasetCounts:
        """What has been counted."""
        made = {
            kind: {key[1:-1].decode("utf-8", "replace"): count for key, count in sorted(found.items()) if count > 0}
            for kind, found in self._counts.items()
        }
        return DatasetCounts(**made, incomplete=frozenset(self._incomplete))

    def _count(self, kind: str, key: bytes, weight: int) -> None:
        counted = self._counts[kind]
        if key in counted:
            counted[key] += weight
        elif not key.startswith(b"<") or len(key) > LONGEST_KEY or len(counted) >= MOST_KEYS:
            if key.startswith(b"<"):
                self._incomplete.add(kind)
        elif kind not in self._incomplete and weight > 0:
            counted[key] = weight


def _encoded(counts: dict[str, int]) -> dict[bytes, int]:
    return {b"<" + key.encode() + b">": count for key, count in counts.items()}


DATASET_FILE: Final = "dataset.nq"
"""The URI of a dataset's only resource, below the URL of its set (TIM-07)."""
DATASET_TYPE: Final = "application/n-quads"
DATASET_KEY: Final[RowKey] = ("dataset", "state")
SEEN_KEY: Final[RowKey] = ("dataset", "seen")
ORIGIN_KEY: Final[RowKey] = ("dataset", "origin")
PATCH_KIND: Final = "dataset-patch"
_AT_ONCE: Final = 1_000


class DatasetState(msgspec.Struct, frozen=True, kw_only=True):
    """The newest state of a dataset that is recorded: the change `seq` announced it.

    The patches of the changes from `first` on, in order, make it of nothing (TIM-08). `sha256` is that of the
    canonical N-Quads. So many bad statements are `left_out` of it.
    """

    seq: int
    first: int
    sha256: str
    octets: int
    quads: int
    counts: DatasetCounts
    left_out: int = 0

    def row(self) -> StateRow:
        """The row that it is kept in."""
        return StateRow(*DATASET_KEY, msgspec.msgpack.encode(self))


class DatasetPatch(msgspec.Struct, frozen=True, array_like=True):
    """The patch of the change `seq`: N-Quads Unified Diff with this SHA-256 and so many octets and lines.

    `dataset` is the SHA-256 of the state that it leads to.
    """

    seq: int
    sha256: str
    octets: int
    removed: int
    added: int
    dataset: str

    @property
    def key(self) -> RowKey:
        """The key of its row."""
        return PATCH_KIND, str(self.seq)

    def row(self) -> StateRow:
        """The row that it is kept in."""
        return StateRow(*self.key, msgspec.msgpack.encode(self), rank=self.seq)


def seen_row(signature: bytes) -> StateRow:
    """The row of what a dataset was read from last: an input whose signature has not changed is not read again."""
    return StateRow(*SEEN_KEY, msgspec.msgpack.encode((signature,)))


def origin_row(origin: Link) -> StateRow:
    """The row of where a dataset that is republished has come from: a link with the relation `via` (DST-S9)."""
    return StateRow(*ORIGIN_KEY, msgspec.msgpack.encode(origin))


def read_origin(catalog: Catalog, name: str) -> Link | None:
    """Where the dataset has come from; None where nothing says that it was copied. Raises UnknownSet."""
    row = catalog.rows(name, [ORIGIN_KEY]).get(ORIGIN_KEY)
    return None if row is None else from_msgpack(row.value, Link)


def read_dataset(catalog: Catalog, name: str) -> DatasetState | None:
    """What is recorded of a set's dataset. Raises UnknownSet."""
    row = catalog.rows(name, [DATASET_KEY]).get(DATASET_KEY)
    return None if row is None else from_msgpack(row.value, DatasetState)


def read_seen(catalog: Catalog, name: str) -> bytes | None:
    """The signature of the input that was read last. Raises UnknownSet."""
    row = catalog.rows(name, [SEEN_KEY]).get(SEEN_KEY)
    return None if row is None else from_msgpack(row.value, tuple[bytes])[0]


def patches_from(catalog: Catalog, name: str, first: int = 0) -> Iterator[DatasetPatch]:
    """The patches of a set's changes from the number `first` on, oldest first. Raises UnknownSet."""
    after: StateRow | None = None
    while rows := catalog.rows_of(name, PATCH_KIND, after=after, limit=_AT_ONCE):
        found = (from_msgpack(row.value, DatasetPatch) for row in rows)
        yield from (one for one in found if one.seq >= first)
        after = rows[-1]


def patches_at(catalog: Catalog, name: str, numbers: list[int]) -> dict[int, DatasetPatch]:
    """Those of these changes that have patches, by their numbers. Raises UnknownSet."""
    rows = catalog.rows(name, [(PATCH_KIND, str(number)) for number in numbers])
    found = (from_msgpack(row.value, DatasetPatch) for row in rows.values())
    return {one.seq: one for one in found}


FAULT_KEY: Final[RowKey] = ("dataset", "fault")


class DatasetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset as it is recorded: so many `patches` lead to it, the first of them that of the change `first`.

    So many bad statements of what it is made of are `left_out`. `fault` is why it is not up to date: what it is made of
    cannot be read, or the patches do not lead to it.
    """

    set: str
    statements: int
    octets: int
    sha256: str
    patches: int
    first: int
    left_out: int = 0
    fault: str | None = None


def dataset_statuses(catalog: Catalog, names: Collection[str] = ()) -> Iterator[DatasetStatus]:
    """The datasets of a catalog, by name; all, where none is named."""
    counts = catalog.sets_with_rows(PATCH_KIND)
    for name in sorted(catalog.sets_with_rows(DATASET_KEY[0])):
        if names and name not in names:
            continue
        state, row = read_dataset(catalog, name), catalog.rows(name, [FAULT_KEY]).get(FAULT_KEY)
        fault = None if row is None else row.value.decode("utf-8", "replace")
        if state is None and fault is None:
            continue
        yield DatasetStatus(
            set=name,
            statements=state.quads if state is not None else 0,
            octets=state.octets if state is not None else 0,
            sha256=state.sha256 if state is not None else "",
            patches=counts.get(name, 0),
            first=state.first if state is not None else 0,
            left_out=state.left_out if state is not None else 0,
            fault=fault,
        )
