"""Databases of which only those are open that were used last: thousands of files, each used now and then.

An open database takes a third of a MiB, used or not: memory of two connections, and page cache that is made beforehand.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from headwater.storage.database import Database, Schema
from headwater.storage.database_faults import DatabaseClosed
from headwater.storage.sqlite.transaction import Transaction

_WRITERS: Final = 8


class DatabasePool:
    """Keeps so many databases open. `threads` are for their writes."""

    def __init__(self, most_open: int) -> None:
        self._most_open = most_open
        self._lock = threading.Lock()
        self._open: OrderedDict[PooledDatabase, None] = OrderedDict()
        self.threads = ThreadPoolExecutor(_WRITERS, "writer")

    def close(self) -> None:
        """End the threads, once nobody writes any more."""
        self.threads.shutdown()

    def used(self, database: PooledDatabase) -> None:
        """This one was used last: those that were not for longest are closed."""
        closing = []
        with self._lock:
            if database.is_closed:  # by another thread, while it was used
                return
            self._open[database] = None
            self._open.move_to_end(database)
            while len(self._open) > self._most_open:
                closing.append(self._open.popitem(last=False)[0])
        for one in closing:
            one.rest()

    def forget(self, database: PooledDatabase) -> None:
        """This one is not used any more."""
        with self._lock:
            self._open.pop(database, None)


class PooledDatabase:
    """A database that is opened when it is used; as `Database`, whose faults each use may raise."""

    def __init__(self, path: Path, schema: Schema, pool: DatabasePool, *, cache_octets: int) -> None:
        """Opens it: it is created, and migrated, where it has to be."""
        self._path = path
        self._schema = schema
        self._pool = pool
        self._cache_octets = cache_octets
        self._lock = threading.Lock()
        self._users = 0
        self._is_closed = False
        self._database: Database | None = self._opened()
        pool.used(self)

    @property
    def is_closed(self) -> bool:
        """Whether it was given up for good."""
        return self._is_closed

    @contextlib.contextmanager
    def write(self, *, durable: bool = False) -> Iterator[Transaction]:
        """`Database.write`."""
        with self._lent() as database, database.write(durable=durable) as transaction:
            yield transaction

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """`Database.read`."""
        with self._lent() as database, database.read() as transaction:
            yield transaction

    def rest(self) -> None:
        """Close it until it is used again; not while it is, since then it is the one that was used last."""
        with self._lock:
            if self._users == 0:
                self._close()

    def close(self) -> None:
        """Give it up for good; uses under way end with it."""
        with self._lock:
            self._is_closed = True
            self._close()
        self._pool.forget(self)

    @contextlib.contextmanager
    def _lent(self) -> Iterator[Database]:
        with self._lock:
            if self._is_closed:
                raise DatabaseClosed("the database was closed", where=str(self._path))
            database = self._database = self._database or self._opened()
            self._users += 1
        try:
            yield database
        finally:
            with self._lock:
                self._users -= 1
            self._pool.used(self)

    def _opened(self) -> Database:
        return Database(self._path, self._schema, cache_octets=self._cache_octets)

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()
