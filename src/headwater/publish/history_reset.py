"""Starts the published change history anew, with a gap, where the catalog does not continue it.

Destinations hold positions, and trust that every change after them will come. That fails, and would fail silently, when

- the URIs of all resources become others (another base URL or resource base): nothing says that the old ones are gone;
- the catalog is older than what was published (a copy was brought back): changes that were told are forgotten;
- the catalog is new, and its set was published before: numbers of closed lists, which caches keep, would come again.

Then the open Change List is closed later than every time that was stated, and the index names only what follows. So who
comes back finds a gap and compares with the Resource List (AMB-23, DST-C2); no closed list changes (RS-TIME-09).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Callable
from itertools import chain

import msgspec

from headwater.catalog.books import Books, books_of_set
from headwater.catalog.interface import Catalog, SetState
from headwater.publish.publication_state import OpenList, PublicationState, decode_publication, encode_publication
from headwater.publish.site import Site, change_list_name, open_change_list_name, resource_list_name
from headwater.publish.store_writer import Store, read_range
from headwater.spec.datetimes import format_datetime, parse_datetime

RESET = "broken off"
"""In place of a fingerprint: what is published is to be written again."""

_TICK = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_ENDS_OCTETS = 16_384
_ROWS_AT_ONCE = 5_000
_TIME = re.compile(rb"""\s(at|from|until|datetime)=["']([^"']{10,40})["']""")
_ROOT = re.compile(rb"(<rs:md\s[^>]*?)/?>")
_NUMBER = re.compile(r"/changelist/([0-9]+)\.xml\Z")


class StatedTimes(msgspec.Struct, frozen=True):
    """What published documents say: since when and until when they tell, and the last change.

    `newest` is the newest numbered Change List and `number` its number (-1: there is none), `begins` its `from`.
    """

    since: dt.datetime
    until: dt.datetime
    changed: dt.datetime | None
    begins: dt.datetime | None
    number: int
    newest: str | None


def uri_fingerprint(site: Site, name: str) -> str:
    """A digest of what shapes the URIs of a set's documents and resources."""
    shape = site.base_url, site.resource_prefix(name)
    return hashlib.sha256(msgspec.json.encode(shape)).hexdigest()[:32]


class HistoryReset:
    """Finds the sets whose published history cannot be continued, and starts it anew.

    `may_write` raises when this process must not.
    """

    def __init__(self, catalog: Catalog, store: Store, site: Site, may_write: Callable[[], None]) -> None:
        self._catalog = catalog
        self._store = store
        self._site = site
        self._may_write = may_write

    def reset_if_due(self, books: Books) -> Books:
        """The set, its history started anew when it cannot be continued. Repeated after a crash that does no harm."""
        state, publication = books.state, decode_publication(books.state.notes)
        if state.opened_at is None or not self._is_due(state, publication):
            return books
        self._may_write()
        self._catalog.note(state.name, encode_publication(self._reset(state.name, publication)))
        return books_of_set(self._catalog, state.name)

    def reset(self, name: str) -> None:
        """Do that for the set `name`, before the outside world is looked at: what is published then is true."""
        self.reset_if_due(books_of_set(self._catalog, name))

    def is_older_than_documents(self, name: str) -> bool:
        """Whether the published documents tell more than the catalog knows: an older copy of it was brought back."""
        state = self._catalog.state(name)
        return self._is_newer(state, decode_publication(state.notes))

    def _is_due(self, state: SetState, publication: PublicationState) -> bool:
        if publication.is_first:  # what a publication has left that was cut off begins when the set was opened
            labelled_etag = stated_times(self._store, state.name)
            return labelled_etag is not None and labelled_etag.since != state.opened_at
        moved = bool(publication.open.name) and publication.uris not in ("", uri_fingerprint(self._site, state.name))
        return moved or self._is_newer(state, publication)

    def _is_newer(self, state: SetState, publication: PublicationState) -> bool:
        """After a crash the documents are other ones than was noted, too; but then the log has what they tell."""
        if not publication.open.name or self._store.labelled_etag(publication.open.name) == publication.open.etag:
            return False
        labelled_etag = stated_times(self._store, state.name)
        if labelled_etag is None or labelled_etag.begins is None:
            return False
        segments = self._catalog.segments(state.name)
        if not any(one.from_ == labelled_etag.begins and labelled_etag.number in (-1, one.number) for one in segments):
            return True
        if labelled_etag.changed is None:
            return False
        known = self._catalog.changes(state.name, publication.open.seq - 1, 1) if publication.open.seq else []
        if known and labelled_etag.changed <= known[0].at:
            return False
        return not self._is_logged(state.name, publication.open.seq, labelled_etag.changed)

    def _is_logged(self, name: str, after: int, moment: dt.datetime) -> bool:
        while rows := self._catalog.changes(name, after, _ROWS_AT_ONCE):
            if rows[-1].at >= moment:
                return any(one.at == moment for one in rows)
            after = rows[-1].seq
        return False

    def _reset(self, name: str, publication: PublicationState) -> PublicationState:
        """Close the open Change List, and empty ones after it while their numbers are taken; the note from then on."""
        labelled_etag = stated_times(self._store, name)
        late = _EPOCH if labelled_etag is None else labelled_etag.until + 2 * _TICK
        closed = self._catalog.close_segment(name, late)
        while labelled_etag is not None and closed.number < labelled_etag.number:
            closed = self._catalog.close_segment(name, late)
        if labelled_etag is not None and labelled_etag.newest is not None:
            self._close(labelled_etag.newest, labelled_etag.until + _TICK)  # before the next begins: that is a gap, too
        # The new Resource List is as late as the first Change List that is named (`plan.true_at`).
        return msgspec.structs.replace(
            publication, fingerprint=RESET, open=OpenList(first=closed.number + 1), at=closed.until, shown=()
        )

    def _close(self, name: str, until: dt.datetime) -> None:
        """Say in the newest numbered Change List that it is closed: who polls it has to look for the next (RS-DST-09).

        Its entries stay as they were told, so its octets are taken over.
        """
        held = self._store.open(name)
        if held is None:
            return
        with held[1] as file:
            head = file.read(_ENDS_OCTETS)
            root = _ROOT.search(head)
            if root is None or b" until=" in root[0]:
                return
            stop = root.end(1)
            said = head[:stop] + f' until="{format_datetime(until)}"'.encode() + head[stop:]
            self._store.write(name, chain([said], read_range(file, len(head), held[0].octets)))


def stated_times(store: Store, name: str) -> StatedTimes | None:
    """What the documents of a set in the store say; None when there are none."""
    numbers = {int(found[1]): one for one in store.names(f"{name}/changelist/") if (found := _NUMBER.search(one))}
    ends = [numbers[number] for number in {min(numbers), max(numbers)}] if numbers else []
    times: list[tuple[str, dt.datetime]] = []
    for one in (change_list_name(name), open_change_list_name(name), resource_list_name(name), *ends):
        times += _times(store, one)
    if not times:
        return None
    moments = [moment for _kind, moment in times]
    changed = max((moment for kind, moment in times if kind == "datetime"), default=None)
    number = max(numbers, default=-1)
    newest = numbers.get(number)
    begins = next((moment for kind, moment in _times(store, newest or change_list_name(name)) if kind == "from"), None)
    return StatedTimes(min(moments), max(moments), changed, begins, number, newest)


def _times(store: Store, name: str) -> list[tuple[str, dt.datetime]]:
    """The times at both ends of a document: what its head states, and its last change."""
    held = store.open(name)
    if held is None:
        return []
    with held[1] as file:
        ends = file.read(_ENDS_OCTETS)
        file.seek(max(0, held[0].octets - _ENDS_OCTETS))
        ends += b" " + file.read()
    found = ((kind.decode(), _moment(text)) for kind, text in _TIME.findall(ends))
    return [(kind, moment) for kind, moment in found if moment is not None]


def _moment(text: bytes) -> dt.datetime | None:
    """A time that a document states; a damaged one says nothing."""
    try:
        return parse_datetime(text.decode("ascii", "replace"))[0]
    except ValueError:
        return None
