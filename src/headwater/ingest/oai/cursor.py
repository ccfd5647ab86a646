"""How far one list of a repository was read, as values: windows of time, resumption tokens, and what is asked next.

A harvest reads windows one after the other, each by a chain of tokens. The next harvest begins at the time that the
repository told before this one, less an overlap; the times of records have no part in it. Where a chain ends before all
is there, its window is read again in two halves.
"""

import datetime as dt
import enum
from typing import Final

import msgspec

from headwater.errors import SourceFault
from headwater.ingest.oai.pages import OaiPage, time_of

DAY: Final = dt.timedelta(days=1)
SECOND: Final = dt.timedelta(seconds=1)
_OVERLAP: Final = dt.timedelta(minutes=10)
"""Beside two granules: so long a repository may take from the datestamp of a record until its lists have it."""
_USUAL_LIMIT: Final = 10_000  # search engines show so many of a query, and often count no more either
_MOST_BARREN: Final = 100  # answers in a row without a new record
_MOST_AGAIN: Final = 1_000  # records of the newest datestamp, which are read again to see that lists have them still


class Window(msgspec.Struct, frozen=True, array_like=True):
    """Datestamps from `start` to `end`, both included; None: without a bound."""

    start: dt.datetime | None = None
    end: dt.datetime | None = None

    def halves(self, first: dt.datetime, last: dt.datetime, times: "RepositoryTimes") -> tuple["Window", ...]:
        """Two windows, divided in the middle of the times that its records may have; none of what cannot be divided."""
        first, last = max(first, self.start or first), min(last, self.end or last)
        middle = first + max(0, (last - first) // times.granule - 1) // 2 * times.granule
        if middle >= (self.end or times.now):
            return ()
        return Window(self.start, middle), Window(middle + times.granule, self.end)


class Chain(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How far the window under way was read.

    `received` counts records, `doubled` those of them that came twice; `first` and `last` bound their datestamps.
    `size` is the largest that the repository has told, `barren` how many answers in a row had nothing new.
    """

    token: str | None = None
    received: int = 0
    doubled: int = 0
    first: dt.datetime | None = None
    last: dt.datetime | None = None
    size: int | None = None
    pages: int = 0
    barren: int = 0

    @property
    def distinct(self) -> int:
        """How many different records came."""
        return self.received - self.doubled

    @property
    def is_all(self) -> bool:
        """Whether as many came as the repository said."""
        return self.size is not None and self.distinct >= self.size


class Cursor(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The state of one list, that of a prefix and a set.

    `full` is the number of the comparison for which everything was read last, `since` when the last complete harvest
    began, `newest` the latest datestamp of so many records (`at_newest`), by the repository's clock; `has_records`
    whether it ever had any; `is_incomplete` whether some of the last comparison did not come. A harvest is under way
    while there are `windows`: it began at `began`, and reads everything for the comparison `reading`, or news (0);
    `is_sure`: it has to find records. `limit` is how many records the first chain had that ended too early, `total` how
    many the complete windows had. `lacking` records did not come; nor did `doubtful` ones, if the sizes are right.
    """

    full: int = 0
    since: dt.datetime | None = None
    newest: dt.datetime | None = None
    at_newest: int = 0
    has_records: bool = False
    is_incomplete: bool = False
    reading: int = 0
    began: dt.datetime | None = None
    windows: tuple[Window, ...] = ()
    chain: Chain = msgspec.field(default_factory=Chain)
    total: int = 0
    limit: int = 0
    lacking: int = 0
    doubtful: int = 0
    is_sure: bool = False


class RepositoryTimes(msgspec.Struct, frozen=True):
    """The times of a repository: its granule, the earliest datestamp, and what time it was there at the last answer."""

    granule: dt.timedelta
    earliest: dt.datetime
    now: dt.datetime

    def text(self, at: dt.datetime) -> str:
        """A time as the repository takes it."""
        text = at.replace(tzinfo=None, microsecond=0).isoformat()
        return text[:10] if self.granule == DAY else f"{text}Z"

    def whole(self, at: dt.datetime) -> dt.datetime:
        """The beginning of the granule of a time."""
        at = at.replace(microsecond=0)
        return at.replace(hour=0, minute=0, second=0) if self.granule == DAY else at


def begin(cursor: Cursor, comparison: int, times: RepositoryTimes) -> str | None:
    """Begin a harvest, unless one is under way: of everything where this list was not read for the comparison, or the
    repository's clock was set back. Returns what the user should know."""
    is_back = cursor.since is not None and times.now < cursor.since - _OVERLAP
    is_full = is_back or cursor.full != comparison
    if cursor.windows and (cursor.reading == comparison or not is_full):
        return None
    start, is_sure = None, cursor.has_records
    if is_full:
        cursor.newest = None
    elif cursor.since is not None:
        start = times.whole(cursor.since - _OVERLAP - 2 * times.granule)
        if cursor.newest is not None and cursor.at_newest <= _MOST_AGAIN:
            start = min(start, times.whole(cursor.newest))
        is_sure = cursor.newest is not None and start <= cursor.newest
    cursor.at_newest = 0 if is_sure else cursor.at_newest
    cursor.reading, cursor.began = comparison * is_full, times.now
    cursor.windows, cursor.chain, cursor.is_sure = (Window(start),), Chain(), is_sure
    cursor.total = cursor.limit = cursor.lacking = cursor.doubtful = 0
    return "the clock of the repository was set back: everything is read again" if is_back else None


def query(cursor: Cursor, prefix: str, set_: str | None, times: RepositoryTimes) -> dict[str, str]:
    """What is asked next. Nothing goes beside a token."""
    if cursor.chain.token is not None:
        return {"verb": "ListRecords", "resumptionToken": cursor.chain.token}
    window, asked = cursor.windows[0], {"verb": "ListRecords", "metadataPrefix": prefix}
    asked |= {} if window.start is None else {"from": times.text(window.start)}
    asked |= {} if window.end is None else {"until": times.text(window.end)}
    return asked | ({} if set_ is None else {"set": set_})


def take_page(cursor: Cursor, page: OaiPage, doubled: int, times: RepositoryTimes) -> str | None:
    """Go on behind an answer, of whose records so many had come before. Returns what the user should know.

    Raises SourceFault where tokens repeat: then the cursor is at the start of the window again.
    """
    chain = cursor.chain
    chain.pages += 1
    chain.received += len(page.records) + len(page.left_out)
    chain.doubled += doubled
    chain.size = max((one for one in (chain.size, page.size) if one is not None), default=None)
    chain.barren = 0 if len(page.records) > doubled else chain.barren + 1
    if page.records:
        _note_times(cursor, page, times)
    if page.token is None:
        return _end_chain(cursor, times, is_broken=page.error is not None)
    if page.token == chain.token or chain.barren > _MOST_BARREN:
        if chain.is_all:
            return _end_chain(cursor, times)
        cursor.chain = Chain()
        raise SourceFault("the resumption tokens of the list repeat, and lead nowhere", code="HW-OAI-02")
    chain.token = page.token
    return None


def _note_times(cursor: Cursor, page: OaiPage, times: RepositoryTimes) -> None:
    """Note that there are records, and their datestamps."""
    chain, cursor.has_records = cursor.chain, True
    found = [at for one in page.records if (at := time_of(one.datestamp)) is not None]
    if found:
        chain.first, chain.last = min(chain.first or found[0], *found), max(chain.last or found[0], *found)
    if (newest := max((at for at in found if at <= times.now), default=None)) is not None:
        if cursor.newest is None or newest > cursor.newest:
            cursor.newest, cursor.at_newest = newest, 0
        cursor.at_newest += found.count(cursor.newest)


class Refused(enum.Enum):
    """Why a repository refuses a request: nothing matches, the token, the request as it is (too much, perhaps), one of
    the first and the third, or what has nothing to do with it."""

    EMPTY = enum.auto()
    EMPTY_OR_REQUEST = enum.auto()
    TOKEN = enum.auto()
    REQUEST = enum.auto()
    OTHER = enum.auto()


def take_refusal(cursor: Cursor, refused: Refused, times: RepositoryTimes, *, is_fresh: bool) -> str | None:
    """Go on behind a refusal. Returns what the user should know; an empty text where there is no way to go on.

    `is_fresh`: the token came in this run, so that it cannot have expired.
    """
    chain = cursor.chain
    if refused is Refused.OTHER:
        return ""
    if refused is Refused.EMPTY_OR_REQUEST:  # a guess in a comparison would delete records
        is_news = not cursor.reading and cursor.windows[0].end is None
        refused = Refused.EMPTY if is_news else Refused.REQUEST
    if chain.is_all or (chain.token is None and refused is Refused.EMPTY):
        return _end_chain(cursor, times)
    if chain.token is not None and not is_fresh:
        cursor.chain = Chain()
        return "a resumption token has expired: the list is read again"
    if chain.token is not None and refused is not Refused.REQUEST:
        return _end_chain(cursor, times, is_broken=True)
    return _divide(cursor, times) or ""


def _end_chain(cursor: Cursor, times: RepositoryTimes, *, is_broken: bool = False) -> str | None:
    """End the window under way, or read it again in two parts where not all of it came.

    `is_broken`: by an error. How many records the parts have excuses none of those.
    """
    chain = cursor.chain
    lacking = chain.doubled if chain.size is None else max(0, chain.size - chain.distinct)
    lacking = max(lacking, is_broken)
    may_be_cut = is_broken or chain.received >= cursor.limit  # one of less is not cut by the same limit
    if (lacking or chain.received == _USUAL_LIMIT) and may_be_cut and (told := _divide(cursor, times)):
        return told
    if may_be_cut:
        cursor.lacking += lacking
    else:
        cursor.doubtful += lacking
    cursor.total += chain.distinct
    cursor.windows, cursor.chain = cursor.windows[1:], Chain()
    if not cursor.windows and cursor.total != cursor.limit:  # else the whole was not cut: the sizes are wrong
        cursor.lacking += cursor.doubtful
    return None


def _divide(cursor: Cursor, times: RepositoryTimes) -> str | None:
    """Read the window under way again in two parts; None where it cannot be divided, or its bounds were not heeded."""
    chain, window = cursor.chain, cursor.windows[0]
    if chain.first and window.start and chain.first < window.start:
        return None
    if chain.last and window.end and chain.last >= window.end + times.granule:
        return None
    first, last = (chain.first, chain.last) if chain.first and chain.last else (times.earliest, times.now)
    halves = window.halves(first, last, times)
    if not halves:
        return None
    cursor.limit = cursor.limit or chain.distinct
    cursor.windows, cursor.chain = (*halves, *cursor.windows[1:]), Chain()
    size = "" if chain.size is None else f" of {chain.size:,}"
    return f"a list ended after {chain.distinct:,}{size} records: it is read again in smaller parts"


def finish(cursor: Cursor) -> None:
    """Note that a harvest is complete."""
    if cursor.reading or cursor.since is None or cursor.began is None or cursor.began > cursor.since:
        cursor.since = cursor.began  # else the clock goes wrong, which is seen by the next harvest
    cursor.full = cursor.reading or cursor.full
    cursor.is_incomplete = cursor.lacking > 0 if cursor.reading else cursor.is_incomplete
    cursor.reading = 0
