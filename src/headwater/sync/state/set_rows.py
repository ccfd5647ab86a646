"""The table `sets`: what is remembered of each set, and what the source offers of it."""

from __future__ import annotations

import msgspec

from headwater.spec.extensions import DumpOffer
from headwater.storage.transaction import Row, Transaction
from headwater.sync.lists.position import Position
from headwater.typed_decoding import from_json

RESOURCE_LIST, CHANGE_LIST = "resourcelist", "changelist"
RESOURCE_DUMP, CHANGE_DUMP = "resourcedump", "changedump"
"""The capabilities that a copy is made from, as a Capability List names them."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a source offers of one set: the URI of the document of each capability."""

    identity: str
    """The Capability List's URI; where there is none, the URI of the list itself."""

    name: str
    capability_list: str | None = None
    description: str | None = None
    documents: dict[str, str] = {}
    """The URI of the document of each capability, by the capability as a Capability List names it."""

    hubs: dict[str, tuple[str, ...]] = {}
    """The hubs of channels, by their capability (RS-CH-05, RS-CH-06)."""

    is_sitemap: bool = False
    on_demand: DumpOffer | None = None
    """Where packages are made on demand, and within which limits."""

    @property
    def resource_list(self) -> str | None:
        """Its Resource List, or the index of one."""
        return self.documents.get(RESOURCE_LIST)

    @property
    def change_list(self) -> str | None:
        """Its Change List, or the index of one."""
        return self.documents.get(CHANGE_LIST)

    @property
    def baseline_document(self) -> str | None:
        """What a baseline goes by: the Resource List, else the Resource Dump, whose manifests list the same."""
        return self.documents.get(RESOURCE_LIST) or self.documents.get(RESOURCE_DUMP)

    @property
    def changes_document(self) -> str | None:
        """What is followed: the Change List, else the Change Dump, whose manifests list the same (DST-D)."""
        return self.documents.get(CHANGE_LIST) or self.documents.get(CHANGE_DUMP)

    def with_document(self, capability: str, uri: str | None) -> Offer:
        """The same with another document of this capability, or with none."""
        documents = {name: where for name, where in self.documents.items() if name != capability}
        if uri is not None:
            documents[capability] = uri
        return msgspec.structs.replace(self, documents=documents)


class _EarlierOffer(msgspec.Struct):
    """An offer as earlier versions have stored it."""

    resource_list: str | None = None
    change_list: str | None = None
    others: tuple[tuple[str, str], ...] = ()


def decode_offer(encoded: str) -> Offer:
    """An offer as it is written down, also by an earlier version."""
    offer = from_json(encoded, Offer)
    if offer.documents:
        return offer
    earlier = from_json(encoded, _EarlierOffer)
    lists = {RESOURCE_LIST: earlier.resource_list, CHANGE_LIST: earlier.change_list}
    documents = {name: uri for name, uri in lists.items() if uri is not None}
    return msgspec.structs.replace(offer, documents=documents | dict(earlier.others))


class Move(msgspec.Struct, frozen=True):
    """A set's documents are elsewhere by now, and what is held of it is still to be taken along (DST-F10)."""

    origin: Offer
    """Where they were."""

    said: bool = False
    """Whether the user says so; else a permanent redirect, or what is listed there."""


class SetRow(msgspec.Struct, frozen=True, kw_only=True):
    """One set as remembered. With a `move`, `offer` is what is offered at the new place, and is not remembered yet."""

    id: int
    name: str
    folder: str
    offer: Offer
    base: str | None = None
    scope: str | None = None
    baseline_at: int | None = None
    baseline_uri: str | None = None
    baseline_done: bool = False
    position: Position | None = None
    move: Move | None = None
    is_offer_asked: bool = False
    """Whether the Capability List was asked in this run, beside a Change List that is polled; not remembered."""


_POSITION = (
    "iif(hole_until IS NULL, position, json_object('time', coalesce("
    "(SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'gap of set ' || sets.id), baseline_at)))"
)
"""Earlier versions passed over gaps, and noted where they ended: the copy is where it was before."""

_SET_COLUMNS = ", ".join(
    _POSITION if name == "position" else name
    for name in SetRow.__struct_fields__
    if name not in ("move", "is_offer_asked")
)


def set_of(row: Row) -> SetRow:
    """One row of `sets` as a value."""
    values = dict(zip(SetRow.__struct_fields__, row, strict=False))
    position = values["position"]
    values["offer"] = decode_offer(values["offer"])
    values["baseline_done"] = bool(values["baseline_done"])
    values["position"] = from_json(position, Position) if position else None
    return SetRow(**values)


def sets(transaction: Transaction) -> list[SetRow]:
    """All sets, in the order in which they were first seen."""
    return [set_of(row) for row in transaction.rows(f"SELECT {_SET_COLUMNS} FROM sets ORDER BY id")]  # noqa: S608


def one_set(transaction: Transaction, set_id: int) -> SetRow:
    """One set as it now is."""
    row = transaction.one(f"SELECT {_SET_COLUMNS} FROM sets WHERE id = ?", (set_id,))  # noqa: S608
    assert row is not None
    return set_of(row)


def add_set(transaction: Transaction, offer: Offer, folder: str) -> SetRow:
    """Remember a set that was not known."""
    transaction.run(
        "INSERT INTO sets(name, folder, identity, offer) VALUES (?, ?, ?, ?)",
        (offer.name, folder, offer.identity, msgspec.json.encode(offer).decode()),
    )
    row = transaction.one("SELECT id FROM sets WHERE identity = ?", (offer.identity,))
    assert row is not None
    return one_set(transaction, row[0])


def keep_offer(transaction: Transaction, set_id: int, offer: Offer) -> None:
    """Remember where the documents of a set now are."""
    transaction.run("UPDATE sets SET offer = ? WHERE id = ?", (msgspec.json.encode(offer).decode(), set_id))


def keep_position(transaction: Transaction, set_id: int, position: Position) -> None:
    """Move the position: the last thing that a step does (DST-F6, DST-F7)."""
    encoded = msgspec.json.encode(position).decode()
    transaction.run("UPDATE sets SET position = ?, hole_until = NULL WHERE id = ?", (encoded, set_id))


_HELD = (
    "SELECT (SELECT count(*) FROM resources WHERE set_id = ?1)"
    " - (SELECT count(*) FROM resources WHERE set_id = ?1 AND path IS NULL)"
)
"""By two indexes, neither of which needs a look at each row of the table."""


def held_count(t: Transaction, set_id: int) -> int:
    """How many files are held."""
    return int(t.value(_HELD, (set_id,)))


def failure_count(t: Transaction, set_id: int) -> int:
    """How many transfers failed and are to be tried again."""
    return int(t.value("SELECT count(*) FROM failures WHERE set_id = ?", (set_id,)))


def held_back_count(t: Transaction, set_id: int) -> int:
    """How many files stay although the source no longer lists them (DST-B4)."""
    query = "SELECT count(*) FROM resources WHERE set_id = ? AND doomed_at IS NOT NULL AND path IS NOT NULL"
    return int(t.value(query, (set_id,)))


def unconfirmed_count(t: Transaction, set_id: int) -> int:
    """How many files are newer than any list tells."""
    return int(t.value("SELECT count(*) FROM resources WHERE set_id = ? AND newer AND path IS NOT NULL", (set_id,)))
