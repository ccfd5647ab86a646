"""Keeps the octets of a scan's changes in the version store, before the changes are recorded.

Octets that cannot be kept (no room) cost a change nothing: it is recorded all the same, and told. Its Change Dump is
made of the file itself while that is unchanged, and begins anew after the change when it is not (RS-CDM-10).
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from headwater.catalog.content import ContentChanged, ContentReader, NoContent, recorded_blocks
from headwater.catalog.interface import Event, Metadata, Upsert
from headwater.errors import StoreFault
from headwater.files.file_copies import ALGORITHM, VersionCopy, VersionWriter, why_not_kept
from headwater.progress import Listener, Notice
from headwater.spec.records import parse_hash
from headwater.versions.store import SetAside, VersionIntake, VersionStore, VersionsUnusable

Warn = Callable[[bytes, str], None]  # told the path whose octets are not kept, and why


class BatchVersions(msgspec.Struct, kw_only=True):
    """What the readers of one batch have set aside: by which `names`, and what of it is `needed` by its changes.

    `lost` are the files whose octets could not be set aside: each with its path, an errno, the digest of the octets.
    """

    needed: list[SetAside] = msgspec.field(default_factory=list)
    names: list[str] = msgspec.field(default_factory=list)
    lost: list[tuple[bytes, int, str]] = msgspec.field(default_factory=list)

    def keep(self, intake: VersionIntake, warn: Warn) -> set[str]:
        """Make durable what the batch needs, before it is recorded; returns the digests that are not kept."""
        lost = intake.keep(self.needed)
        intake.remove(self.names)
        for path, error, _digest in self.lost:
            warn(path, f"this file is not kept as a version: {why_not_kept(error)}")
        for digest in lost:
            warn(digest.encode(), "the content with this SHA-256 is not kept")
        return {*lost, *(digest for _path, _error, digest in self.lost)}


@dataclass(frozen=True)
class ContentKeeping:
    """Keeps the octets of announced records, which are read where a content reader finds them.

    A record has to state a SHA-256, and its file has to be there when it is announced. What cannot be kept is told and
    costs the record nothing. `keeps`: of which records.
    """

    _store: VersionStore
    _contents: ContentReader
    _name: str
    _listener: Listener
    _keeps: Callable[[Metadata], bool] = lambda _metadata: True

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
                self._listener(Notice("HW-ING-23", f"this resource is not kept as a version: {why}", one.uri[:200]))
        return set(failed)

    def _keep(self, wanted: dict[str, list[Upsert]]) -> dict[str, str]:
        """Keep the octets of these digests, each of the first resource that has them; those that are not, and why."""
        try:
            kept = self._store.touch(wanted)
        except VersionsUnusable as fault:
            return dict.fromkeys(wanted, fault.what)
        with self._store.intake() as intake:
            writer = VersionWriter(intake.folder)
            aside: list[SetAside] = []
            failed: dict[str, str] = {}
            for digest in wanted.keys() - kept:
                for one in wanted[digest]:
                    found = self._set_aside(writer, digest, one)
                    if isinstance(found, SetAside):
                        failed.pop(digest, None)
                        aside.append(found)
                        break
                    failed[digest] = found
            if error := writer.settle():
                failed |= {one.digest: why_not_kept(error) for one in aside if ":" in one.name}
            lost = intake.keep([one for one in aside if one.digest not in failed])
            return failed | dict.fromkeys(lost, "the version store cannot be written, or its disk is full")

    def _set_aside(self, writer: VersionWriter, digest: str, event: Upsert) -> SetAside | str:
        """The octets of a resource, set aside; or why that cannot be."""
        content = self._contents.open(self._name, event)
        if isinstance(content, NoContent):
            return content.detail or content.why.value
        copy = VersionCopy(writer, content.octets)
        try:
            hasher = hashlib.sha256()
            for block in recorded_blocks(content, event.metadata):
                hasher.update(block)
                copy.write(block)
            if (found := hasher.hexdigest()) != digest:
                return f"the octets have the SHA-256 {found}"
            copy.finish()
        except (StoreFault, ContentChanged, OSError) as fault:
            return str(fault)
        else:
            return why_not_kept(copy.errno) if copy.errno else SetAside(digest, copy.name, content.octets)
        finally:
            copy.discard()
            content.close()
