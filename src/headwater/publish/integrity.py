"""The integrity check of stored documents: finds what is lost, damaged or replaced, by labels and sizes alone."""

from __future__ import annotations

from headwater.publish.rendering import documents
from headwater.publish.store_writer import Store


class IntegrityCheck:
    """Remembers the digests of the documents in a store. Safe for several threads that are about different sets."""

    def __init__(self, store: Store) -> None:
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
        labelled_etag = self._store.labelled_etag(name)
        return labelled_etag is not None and self.etags.setdefault(name, labelled_etag) == labelled_etag

    def is_complete(self, name: str) -> bool:
        """Whether a document whose compressed form is another's is whole: a crash fell between the two.

        It is shown as it is, and written again by the next publication.
        """
        held = self._store.open(name)
        if held is None:
            return False
        with held[1] as file:
            file.seek(max(0, held[0].octets - len(documents.ENDINGS[0]) - 1))
            return file.read().rstrip().endswith(documents.ENDINGS)
