"""A folder, a catalog and a scanner between them, and what a destination would have after replaying the change log."""

import datetime as dt
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from headwater.catalog.interface import Change
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.ingest.folder.comparison import ScanResult
from headwater.ingest.folder.scanner import FolderScanner
from headwater.ingest.folder.walk import Folder, path_of, quote
from headwater.ingest.recording import KeptChanges
from headwater.progress import Notice, Progress
from headwater.spec.records import ChangeKind
from headwater.versions.store import VersionStore

SET = "files"


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def hashes(data: bytes) -> str:
    return f"md5:{hashlib.md5(data).hexdigest()} sha-256:{hashlib.sha256(data).hexdigest()}"


class ScannedFolder:
    """One set. `scan` and `rescan` keep the notices of the last pass in `notices`."""

    def __init__(self, base: Path, **settings: object) -> None:
        self.root = os.fsencode(base / "root")
        os.makedirs(self.root, exist_ok=True)
        self.catalog = SqliteCatalog(base / "catalog.sqlite")
        self.settings = settings
        self.notices: list[Notice] = []
        self.breathe: Callable[[], None] = lambda: None
        self.stop: Callable[[], bool] = lambda: False
        self.versions: VersionStore | None = None
        self.ahead = dt.timedelta()
        """How far the clock is ahead."""
        self._scanner: FolderScanner | None = None

    @property
    def scanner(self) -> FolderScanner:
        if self._scanner is None:
            folder = Folder(root=self.root, **self.settings)  # type: ignore[arg-type]
            self._scanner = FolderScanner(
                self.catalog,
                SET,
                folder,
                lambda: now() + self.ahead,
                listener=self._listen,
                breathe=lambda: self.breathe(),
                stop=lambda: self.stop(),
                kept=KeptChanges(store=self.versions),
            )
        return self._scanner

    def configure(self, **settings: object) -> None:
        self.settings |= settings
        self._scanner = None

    def _listen(self, event: Notice | Progress) -> None:
        if isinstance(event, Notice):
            self.notices.append(event)

    def scan(self) -> ScanResult:
        self.notices.clear()
        done = self.scanner.scan()
        self._note(done, is_whole=True)
        return done

    def rescan(self, *paths: bytes) -> ScanResult:
        self.notices.clear()
        done = self.scanner.rescan(paths)
        self._note(done, is_whole=False)
        return done

    def _note(self, done: ScanResult, *, is_whole: bool) -> None:
        update = self.scanner.guard.after_scan(done.held_back, is_whole=is_whole, deleted=done.deleted)
        if update is not None:
            self.catalog.record(SET, [], now(), state=update)

    def put(self, path: bytes | str, data: bytes = b"x", *, aged: bool = False) -> None:
        full = self.full(path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(data)
        if aged:
            os.utime(full, (1_700_000_000, 1_700_000_000))

    def full(self, path: bytes | str) -> bytes:
        return os.path.join(self.root, os.fsencode(path))

    def remove(self, path: bytes | str) -> None:
        os.unlink(self.full(path))

    def truth(self) -> dict[str, str]:
        """What the folder holds: relative URI -> hashes (links not followed)."""
        found = {}
        for folder, _below, names in os.walk(self.root):
            for name in names:
                full = os.path.join(folder, name)
                with open(full, "rb") as file:
                    found[quote(os.path.relpath(full, self.root))] = hashes(file.read())
        return found

    def held(self) -> dict[str, str | None]:
        """What the set says: relative URI -> hashes."""
        return {one.uri: one.metadata.hash for one in self.catalog.resources(SET, limit=1_000_000)}

    def log(self, after: int = 0) -> list[Change]:
        return self.catalog.changes(SET, after, limit=1_000_000)

    def told(self) -> list[tuple[str, str]]:
        """The change log as (change, relative path)."""
        return [(one.change.value, os.fsdecode(path_of(one.uri))) for one in self.log()]

    def replayed(self, start: dict[str, str | None]) -> dict[str, str | None]:
        """`start` after all changes."""
        state = dict(start)
        for one in self.log():
            if one.change is ChangeKind.DELETED:
                state.pop(one.uri)
            else:
                state[one.uri] = one.metadata.hash
        return state

    def rules(self) -> set[str]:
        return {notice.rule for notice in self.notices}
