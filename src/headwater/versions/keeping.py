"""Keeps the octets of a scan's changes in the version store, before the changes are recorded.

Octets that cannot be kept (no room) cost a change nothing: it is recorded all the same, and told. Its Change Dump is
made of the file itself while that is unchanged, and begins anew after the change when it is not (RS-CDM-10).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TypeVar

import msgspec

from headwater import notices
from headwater.catalog.content import ContentChanged, ContentReader, NoContent, recorded_blocks
from headwater.catalog.interface import Event, Metadata, Upsert
from headwater.errors import StoreFault
from headwater.files.version_copy import ALGORITHM, VersionFolders, why_not_kept
from headwater.files.version_spool import VersionSpool
from headwater.progress import Listener, Notice
from headwater.spec.hashes import parse_hash
from headwater.versions.interface import SetAside, VersionIntake, VersionStore

Warn = Callable[[bytes, str], None]
"""Told the path whose octets are not kept, and why."""

T = TypeVar("T")


class BatchVersions(msgspec.Struct, kw_only=True):
    """What the readers of one batch have set aside: `needed` by its changes, `unneeded` names, and what failed.

    `unkept` are paths with an errno, `lost` the digests of their octets.
    """

    needed: list[SetAside] = msgspec.field(default_factory=list)
    unneeded: list[str] = msgspec.field(default_factory=list)
    unkept: list[tuple[bytes, int]] = msgspec.field(default_factory=list)
    lost: list[str] = msgspec.field(default_factory=list)


class VersionKeeping:
    """Does that for one pass of a scan; without an `intake` it does nothing."""

    def __init__(self, intake: VersionIntake | None, warn: Warn) -> None:
        self._intake = intake
        self._warn = warn

    @property
    def folders(self) -> VersionFolders | None:
        """Where readers set octets aside; None when they need not."""
        return None if self._intake is None else self._intake.folders

    def keep(self, versions: BatchVersions | None) -> set[str]:
        """Make durable what a batch needs, before it is recorded; returns the digests that are not kept."""
        if self._intake is None or versions is None:
            return set()
        return self._told(versions, _keep(self._intake, versions))

    def kept(
        self, batches: Iterable[T], versions_of: Callable[[T], BatchVersions | None]
    ) -> Generator[tuple[T, set[str]], None, None]:
        """The batches in their order, each with the digests that are not kept, once what it needs is durable.

        That waits for the disk in a thread, while the next batch is read: for batches that do not depend on whether
        those before them are recorded. Where reading ends by an exception, what was read before comes first; where
        keeping does, nothing more comes. To be closed.
        """
        if self._intake is None:
            yield from ((one, set()) for one in batches)
            return
        with ThreadPoolExecutor(1, "headwater-versions") as thread:
            waiting: deque[tuple[T, BatchVersions, Future[list[str]]]] = deque()
            reading = iter(batches)
            fault: Exception | None = None
            while True:
                try:
                    one = next(reading)
                    versions = versions_of(one) or BatchVersions()
                except StopIteration:
                    break
                except Exception as cause:  # noqa: BLE001 - told once what was read before is kept
                    fault = cause
                    break
                waiting.append((one, versions, thread.submit(_keep, self._intake, versions)))
                if len(waiting) > 1:
                    yield self._awaited(*waiting.popleft())
            while waiting:
                yield self._awaited(*waiting.popleft())
            if fault is not None:
                raise fault

    def _awaited(self, batch: T, versions: BatchVersions, lost: Future[list[str]]) -> tuple[T, set[str]]:
        return batch, self._told(versions, lost.result())

    def _told(self, versions: BatchVersions, lost: list[str]) -> set[str]:
        """All that is not kept of a batch, told."""
        for path, error in versions.unkept:
            self._warn(path, f"its octets are not kept: {why_not_kept(error)}")
        for digest in lost:
            self._warn(digest.encode(), "the octets with this SHA-256 are not kept")
        return {*lost, *versions.lost}


def _keep(intake: VersionIntake, versions: BatchVersions) -> list[str]:
    lost = intake.keep(versions.needed)
    intake.drop(versions.unneeded)
    return lost


@contextmanager
def version_keeping(store: VersionStore | None, warn: Warn) -> Iterator[VersionKeeping]:
    """The keeping of versions during one pass; what was set aside and not needed is removed at its end."""
    if store is None:
        yield VersionKeeping(None, warn)
        return
    with store.intake() as intake:
        yield VersionKeeping(intake, warn)


class ContentKeeping:
    """Keeps the octets of announced records, which are read where a content reader finds them.

    A record has to state a SHA-256, and its file has to be there when it is announced. What cannot be kept is told and
    costs the record nothing.
    """

    def __init__(
        self,
        store: VersionStore,
        contents: ContentReader,
        set_name: str,
        listener: Listener,
        keeps: Callable[[Metadata], bool] = lambda _metadata: True,
    ) -> None:
        """`keeps`: of which records."""
        self._keeps = keeps
        self._store = store
        self._contents = contents
        self._name = set_name
        self._listener = listener

    def keep(self, events: Iterable[Event]) -> set[str]:
        """Keep what these are about to say, all at once; call it before they are recorded. Which digests are not kept.

        Raises nothing.
        """
        failed: dict[str, str] = {}
        wanted: dict[str, list[Upsert]] = {}
        for one in events:
            if isinstance(one, Upsert) and self._keeps(one.metadata):
                digests = parse_hash(one.metadata.hash or "").digests
                stated = (digest.hex for digest in digests if digest.algorithm == ALGORITHM)
                wanted.setdefault(next(stated, ""), []).append(one)
        if unstated := wanted.pop("", []):
            failed[""] = "no SHA-256 is stated"
        if wanted:
            failed |= self._keep(wanted)
        for digest, why in failed.items():
            for one in wanted.get(digest, unstated):
                self._listener(Notice(notices.VERSION_NOT_KEPT, f"its octets are not kept: {why}", one.uri[:200]))
        return set(failed)

    def _keep(self, wanted: dict[str, list[Upsert]]) -> dict[str, str]:
        """Keep the octets of these digests, each of the first resource that has them; those that are not, and why."""
        with self._store.intake() as intake, closing(VersionSpool(intake.folders)) as spool:
            missing = intake.keep([SetAside(one, "", some[0].metadata.length or 0) for one, some in wanted.items()])
            aside: list[SetAside] = []
            failed: dict[str, str] = {}
            for digest in missing:
                for one in wanted[digest]:
                    found = self._set_aside(spool, digest, one)
                    if isinstance(found, SetAside):
                        failed.pop(digest, None)
                        aside.append(found)
                        break
                    failed[digest] = found
            errors = spool.settle()
            for copied in aside:
                if (error := errors.get(copied.name.partition(":")[0])) is not None:
                    failed[copied.digest] = why_not_kept(error)
            lost = intake.keep([one for one in aside if one.digest not in failed])
            return failed | dict.fromkeys(lost, "the version store cannot be written, or its disk is full")

    def _set_aside(self, spool: VersionSpool, digest: str, event: Upsert) -> SetAside | str:
        """The octets of a resource, set aside; or why that cannot be."""
        content = self._contents.open(self._name, event)
        if isinstance(content, NoContent):
            return content.detail or content.why.value
        copy = spool.copy(content.octets)
        try:
            hasher = hashlib.sha256()
            for block in recorded_blocks(content, event.metadata):
                hasher.update(block)
                copy.write(block)
            if (found := hasher.hexdigest()) != digest:
                return f"the octets have the SHA-256 {found}"
            copy.finish(digest)
        except (StoreFault, ContentChanged, OSError) as fault:
            return str(fault)
        else:
            return why_not_kept(copy.errno) if copy.errno else SetAside(digest, copy.name, content.octets)
        finally:
            copy.discard()
            content.close()
