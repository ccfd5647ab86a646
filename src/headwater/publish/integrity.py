"""The integrity check of stored documents: finds what is lost, damaged or replaced, by labels and sizes alone."""

from __future__ import annotations

from headwater.publish.rendering import documents
from headwater.storage.objects.interface import ObjectStore


class IntegrityCheck:
    """Remembers the digests of the documents in a store. Safe for several threads that are about different sets."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.etags: dict[str, str] = {}
        """The digests of what was put there, or found there first."""

    def forget(self) -> None:
        """Others may have published since: what is there now counts as left."""
        self.etags.clear()

    def is_as_left(self, name: str) -> bool:
        """Whether a document is sound and the one that was left.

        It is another one when a process that slept through its turn has put there what it had in hand (HW-OWN-11).
        """
        etag = self._store.noted_etag(name)
        return etag is not None and self.etags.setdefault(name, etag) == etag

    def is_whole(self, name: str) -> bool:
        """Whether a document is there, and vouched for or complete."""
        return self._store.noted_etag(name) is not None or self.is_complete(name)

    def is_complete(self, name: str) -> bool:
        """Whether a document that nothing vouches for is whole: a crash fell between it and its gzip form.

        It is shown as it is, and written again by the next publication.
        """
        held = self._store.open(name)
        if held is None:
            return False
        with held:
            room = len(documents.ENDINGS[0]) + 1
            return held.read(max(0, held.octets - room), room).rstrip().endswith(documents.ENDINGS)
