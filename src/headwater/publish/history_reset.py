"""Starts the published change history anew, with a gap, where the catalog does not continue it.

Destinations hold positions, and trust that every change after them will come. That fails, and would fail silently, when

- the URIs of all resources become others (another base URL or resource base): nothing says that the old ones are gone;
- the catalog is older than what was published (a copy was brought back): changes that were published are forgotten;
- the catalog is new, and its set was published before: numbers of closed lists, which caches keep, would come again.

The generation id of the history, which the catalog keeps and every document carries in its mark, tells the last of
these; the number and time of the last published change, which are in the mark of the Change List, tell the second. No
document is read for it. Documents without marks (of an older version, or whose compressed forms are lost) are trusted
only while their digest is the one that the catalog notes.

Then a segment is closed later than every time that was stated, the index names only what follows, and the Change List
that was open is removed after that. So who comes back finds a gap and compares with the Resource List (AMB-23, DST-C2);
no closed list changes (RS-TIME-09).
"""

import datetime as dt
import re
import secrets
from typing import NamedTuple

import msgspec

from headwater.catalog.interface import SetSnapshot, SetState
from headwater.progress import Notice
from headwater.publish.publication_state import OpenList, PublicationState, decode_publication, encode_publication
from headwater.publish.site import change_list_name, open_change_list_name, resource_list_name
from headwater.publish.store_writer import DocumentMark, PublishContext, decode_mark
from headwater.spec.times import EPOCH, MICROSECOND

RESET = "reset"
"""In place of a fingerprint: what is published is to be written again."""

_NUMBER = re.compile(r"/changelist/([0-9]+)\.xml\Z")


class StoredHistory(msgspec.Struct, frozen=True):
    """The history of a set as its stored documents tell it.

    `number` is that of the newest numbered Change List (-1: there is none), `open` its name where it is not known to be
    closed. `last` is the mark of the newest Change List that has one, `latest` the latest time that is stated (None: no
    documents).
    `generations` are those of all marks; an empty one stands for a document without a mark. `change_lists` are the
    names of the Change Lists that were looked at.
    """

    number: int
    open: str | None
    last: DocumentMark | None
    latest: dt.datetime | None
    generations: frozenset[str]
    change_lists: tuple[str, ...]


class HistoryReset(NamedTuple):
    """Finds the sets whose published history cannot be continued, and starts it anew."""

    context: PublishContext

    def reset_if_due(self, snapshot: SetSnapshot, *, is_asked: bool = False) -> SetSnapshot:
        """The set, its history started anew when it cannot be continued, or that is asked for.

        Repeated after a crash that does no harm.
        """
        state, publication = snapshot.state, decode_publication(snapshot.state.notes)
        if state.opened_at is None:
            return snapshot
        if (
            publication.is_first and not is_asked
        ):  # what a publication has left that was cut off has the generation that it noted
            stored = self._stored(state.name)
            is_foreign = bool(stored.generations - {publication.generation or "none"})
            if not is_foreign and (stored.last is None or self._is_logged(state, stored.last)):
                return snapshot
            why = "the catalog is new and knows nothing of what was published; was it lost?"
        elif is_asked:
            why = "you asked for it"
        elif publication.open.name and publication.is_moved(self.context.site, state.name):
            why = "the base URL of the source, or of its resources, has changed"
        elif self._is_newer(state, publication):
            why = "the catalog lacks published changes; was an older copy of it restored?"
        else:
            return snapshot
        self.context.may_write()
        text = f"Change Lists of the set {state.name!r} begin anew, so copies compare all their files: {why}"
        self.context.listener(Notice("HW-PUB-17", text, set_name=state.name))
        self.context.catalog.note(
            state.name, encode_publication(self._reset(state.name, publication, is_asked=is_asked))
        )
        return self.context.catalog.snapshot_of(state.name)

    def is_older_than_documents(self, name: str) -> bool:
        """Whether the published documents tell more than the catalog knows: an older copy of it was brought back."""
        state = self.context.catalog.state(name)
        return self._is_newer(state, decode_publication(state.notes))

    def with_generation(self, name: str, publication: PublicationState) -> PublicationState:
        """The state with a generation id, which is noted before a document has it."""
        if publication.generation:
            return publication
        publication = msgspec.structs.replace(publication, generation=secrets.token_hex(8))
        self.context.may_write()
        self.context.catalog.note(name, encode_publication(publication))
        return publication

    def _is_newer(self, state: SetState, publication: PublicationState) -> bool:
        """After a crash the documents are other ones than was noted, too; but then the log has what they tell."""
        noted = publication.open
        if not noted.name or self.context.store.noted_etag(noted.name) == noted.etag:
            return False
        stored = self._stored(state.name)
        if stored.last is None:
            found = [self.context.store.stat(name) for name in stored.change_lists]
            return bool(found) and not any(one is not None and one.etag == noted.etag for one in found)
        return stored.last.generation != publication.generation or not self._is_logged(state, stored.last)

    def _is_logged(self, state: SetState, mark: DocumentMark) -> bool:
        """Whether the catalog has the segment and the last change that a Change List shows."""
        segments = self.context.catalog.segments(state.name)
        if not any(one.number == mark.number and one.from_ == mark.from_ for one in segments):
            return False
        if mark.changed is None:
            return mark.seq <= state.last_seq
        changes = self.context.catalog.changes(state.name, mark.seq - 1, 1)
        return bool(changes) and (changes[0].seq, changes[0].at) == (mark.seq, mark.changed)

    def _reset(self, name: str, publication: PublicationState, *, is_asked: bool) -> PublicationState:
        """Close the open Change List, and empty ones after it while their numbers are taken; the state from then on."""
        stored = self._stored(name)
        # not before now: copies may have read what was published after the backup that was brought back
        late = max(self.context.clock(), EPOCH if stored.latest is None else stored.latest + 2 * MICROSECOND)
        closed = self.context.catalog.close_segment(name, late)
        while closed.number < stored.number:
            closed = self.context.catalog.close_segment(name, late)
        retired = dict(publication.retired)
        if stored.open is not None:  # it goes once the index is another one (AMB-63): who polls it goes to that
            retired[stored.open] = EPOCH
        # The new Resource List is as late as the first Change List that is named (`plan.true_at`).
        return msgspec.structs.replace(
            publication,
            fingerprint=RESET,
            open=OpenList(first=closed.number + 1),
            history=closed.number + 1,
            at=closed.until,
            retired=tuple(retired.items()),
            archive=None if not is_asked and publication.is_moved(self.context.site, name) else publication.archive,
        )

    def _stored(self, name: str) -> StoredHistory:
        """The history that the documents of a set in the store tell."""
        store = self.context.store
        numbers = {int(match[1]): one for one in store.names(f"{name}/changelist/") if (match := _NUMBER.search(one))}
        number = max(numbers, default=-1)
        newest = numbers.get(number)
        lists = (change_list_name(name), open_change_list_name(name), *([newest] if newest else []))
        present = {one: stored for one in (*lists, resource_list_name(name)) if (stored := store.stat(one))}
        marks = {one: decode_mark(store.mark(one)) for one in present}
        last = max(
            (mark for mark in marks.values() if mark is not None and mark.number >= 0),
            key=lambda mark: (mark.number, mark.seq),
            default=None,
        )
        times = [stored.modified if (mark := marks[one]) is None else mark.latest for one, stored in present.items()]
        return StoredHistory(
            number=number,
            open=newest if newest in present and not ((mark := marks[newest]) and mark.is_closed) else None,
            last=last,
            latest=max(times, default=None),
            generations=frozenset("" if mark is None else mark.generation for mark in marks.values()),
            change_lists=tuple(one for one in lists if one in present),
        )
