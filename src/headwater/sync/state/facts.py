"""The table `facts`: single values that are remembered of a copy as a whole, or of one set."""

from __future__ import annotations

import msgspec

from headwater.storage.transaction import Transaction
from headwater.typed_decoding import from_json

IN_PUBLIC = "host seen in public"
"""A fact: the host of the source's address, where it was seen at a public address (DST-S12)."""


AS_OF = "as of"
"""A fact: of which moment the copy is, where it is one of the past (`--at`)."""


def fact(transaction: Transaction, name: str) -> str | None:
    """A remembered fact about the whole copy."""
    value = transaction.value("SELECT value FROM facts WHERE name = ?", (name,))
    return None if value is None else str(value)


def keep_fact(transaction: Transaction, name: str, value: str) -> None:
    """Remember a fact about the whole copy."""
    transaction.run("INSERT OR REPLACE INTO facts(name, value) VALUES (?, ?)", (name, value))


def remember_base(transaction: Transaction, set_id: int, base: str) -> None:
    """Remember that the names of a set were once made with this base: who goes on naming it means the present one."""
    known = former_bases(transaction, set_id)
    keep_fact(transaction, f"former bases {set_id}", msgspec.json.encode(sorted({*known, base})).decode())


def former_bases(transaction: Transaction, set_id: int) -> list[str]:
    """The bases of a set before its source moved (DST-F10)."""
    return from_json(fact(transaction, f"former bases {set_id}") or "[]", list[str])


def measure(transaction: Transaction, set_id: int) -> int | None:
    """How many files a set held when deletions were first held back (DST-B4); None where none are."""
    value = fact(transaction, f"held when held back {set_id}")
    return None if value is None else int(value)


def keep_measure(transaction: Transaction, set_id: int, held: int, deleted: int = 0) -> None:
    """Remember what deletions are measured by while some are held back: files held, and those deleted just before."""
    keep_fact(transaction, f"held when held back {set_id}", str(held))
    keep_fact(transaction, f"deleted when held back {set_id}", str(deleted))


def deleted_before(transaction: Transaction, set_id: int) -> int:
    """How many files had been deleted since the lists were read, when deletions were first held back."""
    return int(fact(transaction, f"deleted when held back {set_id}") or 0)


def forget_measure(transaction: Transaction, set_id: int) -> None:
    """No deletions are held back any more."""
    for what in ("held", "deleted"):
        transaction.run("DELETE FROM facts WHERE name = ?", (f"{what} when held back {set_id}",))
