"""Reads of one committed state from a search cluster, while others write.

A search shows some state between that of the last refresh and now. The log says what has happened since the refresh:
those resources are taken from the log, all others have not changed. So a read needs no lock, and no refresh as long as
little has changed. What is not in the log (a load, new memos, a writer that was overtaken) makes a read begin anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headwater.catalog.cluster.documents import StoredChange, StoredResource, after_change
from headwater.catalog.cluster.head import SetHead, applied, only_recorded, said, valid, void
from headwater.catalog.cluster.indices import WINDOW, Indices
from headwater.catalog.cluster.write.set_writer import SetWriter
from headwater.catalog.interface import Change, Resource
from headwater.storage.cluster_faults import ClusterDamaged

_MOST_SINCE = 1_000
"""With more changes since the last refresh, another refresh costs less than reading them."""

_ATTEMPTS = 4
_PAUSE = 0.02

Documents = list[StoredResource]
Since = dict[str, StoredResource]
Alone = Callable[[str, Callable[[SetWriter], Documents]], Documents]


class Reads:
    """Reads of one handle; `alone` does something while holding the lease of a set. Use from any thread."""

    def __init__(self, indices: Indices, alone: Alone) -> None:
        self._indices = indices
        self._alone = alone
        self._refreshed: dict[str, SetHead] = {}

    def get(self, name: str, uris: Sequence[str]) -> dict[str, Resource]:
        """The live resources among `uris`."""
        found, since = self._read(name, lambda _head: self._indices.resources_of(name, uris), searched=False)
        asked = set(uris)
        documents = {document.uri: document for document in found}
        documents.update((uri, document) for uri, document in since.items() if uri in asked)
        return {uri: document.resource for uri, document in documents.items() if document.live}

    def page(self, name: str, number: int) -> list[Resource]:
        """The live resources of one page in slot order."""
        found, since = self._read(name, lambda _head: self._indices.on_page(name, number), searched=True)
        kept = [document for document in found if document.uri not in since] if since else found
        come = [document for document in since.values() if document.live and document.page == number]
        if come:
            kept = sorted(kept + come, key=lambda document: document.slot)
        return [document.resource for document in kept]

    def resources(self, name: str, after: str, limit: int) -> list[Resource]:
        """Up to `limit` live resources with uri > `after`."""
        size = limit
        while True:
            ended = False

            def fetch(head: SetHead, size: int = size) -> Documents:
                nonlocal ended
                documents = self._by_uri(head, after, size)
                ended = len(documents) < size
                return documents

            found, since = self._read(name, fetch, searched=True)
            horizon = None if ended else found[-1].uri if found else after
            kept = [document for document in found if document.uri not in since]
            come = [
                document
                for uri, document in since.items()
                if document.live and uri > after and (horizon is None or uri <= horizon)
            ]
            if come:
                kept = sorted(kept + come, key=lambda document: document.uri)
            if ended or len(kept) >= limit:
                return [document.resource for document in kept[:limit]]
            size = 2 * size + len(since)  # some of what was found is gone

    def changes(self, name: str, after: int, limit: int) -> list[Change]:
        """Up to `limit` changes with seq > `after`. Raises ClusterDamaged when one is missing."""
        first = max(after, 0) + 1
        known = self._indices.known.get(name)
        if known is not None and 0 < limit <= known.head.last_seq - first + 1:  # what is in the log stays as it is
            head = known.head
        else:
            head, _ = self._indices.head(name)
        last = min(head.last_seq, first + limit - 1)
        found: list[Change] = []
        while first <= last:
            end = min(last, first + WINDOW - 1)
            for seq, document in enumerate(self._log(head, first, end), first):
                if document is None or not valid(head, document.rev):
                    raise ClusterDamaged(f"change {seq} is missing, the set says {head.last_seq}", where=name)
                found.append(document.recorded)
            first = end + 1
        return found

    def _log(self, head: SetHead, first: int, last: int) -> list[StoredChange | None]:
        """By search what the engine has refreshed, one by one the rest, which is the newest."""
        name = head.resource_set
        if last - first < _MOST_SINCE:
            return self._changes_of(head, first, last)
        found: list[StoredChange | None] = []
        for document in self._indices.log(name, first, last):
            if document.seq != first + len(found) or not valid(head, document.rev):
                break  # not refreshed since it was written, or since it took the place of a dead writer's
            found.append(document)
        return found + self._changes_of(head, first + len(found), last)

    def _changes_of(self, head: SetHead, first: int, last: int) -> list[StoredChange | None]:
        """These changes as they are now; the newest may be nowhere but in the head."""
        newest = said(head, first, last)
        return [*self._indices.changes_of(head.resource_set, first, last - len(newest)), *newest]

    def _by_uri(self, head: SetHead, after: str, size: int) -> Documents:
        """Fewer than `size` at the end only. What a dead writer has left, perhaps a whole load, takes no room."""
        found: Documents = []
        while size > len(found):
            wanted = min(WINDOW, size - len(found))
            more = self._indices.by_uri(head.resource_set, after, wanted)
            found += [document for document in more if not void(head, document.rev)]
            if len(more) < wanted:
                break
            after = more[-1].uri
        return found

    def _read(self, name: str, fetch: Callable[[SetHead], Documents], *, searched: bool) -> tuple[Documents, Since]:
        """Documents that `fetch` finds and what changes have made of others: together one committed state."""
        for attempt in range(_ATTEMPTS):
            if attempt > 1 or (attempt and searched):
                time.sleep(_PAUSE * 2**attempt)
            before = self._before(name, searched=searched, anew=attempt > 0)
            found = fetch(before)
            head, _ = self._indices.head(name)
            if not attempt and not searched and head.last_seq - before.last_seq > _MOST_SINCE:
                continue
            since = self._since(before, head)
            if since is not None:
                return _committed(head, found), since

        def work(turn: SetWriter) -> Documents:
            if searched:
                self._indices.refresh(self._indices.resource)
            found = _committed(turn.head, fetch(turn.head))
            turn.release()
            return found

        return self._alone(name, work), {}

    def _before(self, name: str, *, searched: bool, anew: bool) -> SetHead:
        """A state of which searches certainly see everything that was applied."""
        seen = self._indices.known.get(name)
        if seen is not None and not searched and not anew:
            return seen.head
        head, _ = self._indices.head(name)
        if not searched:
            return head
        known = self._refreshed.get(name)
        if known is not None and only_recorded(known, head) and head.last_seq - applied(known) <= _MOST_SINCE:
            return known
        others = self._indices.known.heads()
        self._indices.refresh(self._indices.resource)
        self._refreshed.update(others)  # one refresh is enough for whoever reads thousands of sets
        self._refreshed[name] = head
        return head

    def _since(self, before: SetHead, head: SetHead) -> Since | None:
        """What the changes after `before` have made of resources; None when not all that happened is in the log."""
        if not only_recorded(before, head):
            return None
        changes = self._changes_of(head, applied(before) + 1, head.last_seq)
        since: Since = {}
        for change in changes:
            if change is None or not valid(head, change.rev):
                return None
            document = after_change(change)
            if document is not None:
                since[document.uri] = document
        return since


def _committed(head: SetHead, documents: Documents) -> Documents:
    return [document for document in documents if valid(head, document.rev)]
