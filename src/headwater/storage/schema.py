"""The schema of a database file, and how durable its transactions are."""

from __future__ import annotations

from enum import Enum

import msgspec


class Durability(Enum):
    """What a power loss may cost: FULL nothing committed, NORMAL the last commits. A killed process costs nothing."""

    FULL = "FULL"
    NORMAL = "NORMAL"


class Schema(msgspec.Struct, frozen=True):
    """What a file of one kind holds: the application's mark in its header and the migrations, oldest first.

    Migration number n (counted from 1) is an SQL script that brings a file from version n - 1 to n. A script that was
    ever released is never changed: the next one mends it.
    """

    application_id: int
    migrations: tuple[str, ...]
    may_migrate: bool = True
    """Whether an older file is brought to this version; else it is refused (SchemaTooOld)."""

    @property
    def version(self) -> int:
        """The version that this program writes."""
        return len(self.migrations)
